"""Extraction against those who edit, rewind and fork at the same time: every memory stays on its own branch."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from random import Random
from typing import Any

import branchmem as bm
import pytest
from branchmem.extract import Extracted, Extractor, Found, Passage, Shown, extract, summarise
from branchmem.session import Session
from figures import Figure

pytestmark = pytest.mark.usefixtures("without_disk")

_TALK = 40


@pytest.mark.soak
def test_no_memory_lands_on_the_wrong_branch(figure: Figure) -> None:
    rounds = figure(1000, 20_000)

    made, wrong = _raced(extract, rounds)

    assert (made > rounds, wrong) == (True, [])


def test_who_ties_memories_to_the_head_puts_them_on_the_wrong_branch() -> None:
    _, wrong = _raced(_to_the_head, 30)

    assert wrong


def _to_the_head(session: Session, extractor: Extractor, **options: Any) -> Extracted:
    """Extraction as one would write it at first: what is found belongs to where the session stands."""
    head = session.head
    path = [session.store.log.get(id) for id in session.store.tree.path(head)]
    shown = Shown(tuple(one for one in path if isinstance(one, bm.Message) and one.text), (), head)
    found = list(extractor(shown))
    return Extracted(head, added=tuple(session.remember(one.text, sources=[session.head]) for one in found))


def _raced(extract: Callable[..., Extracted], rounds: int) -> tuple[int, list[bm.Memory]]:
    """How many memories were made while others moved the ref, and those of them that are not in their place."""
    random = Random(8)
    with bm.open_temporary() as store, ThreadPoolExecutor(2) as pool:
        for number in range(rounds):
            if number % _TALK == 0:
                session = store.session(f"chat {number}")
            _race(extract, pool, session, number, late=random.random() < 0.5, way=random.randrange(3))
        memories = [event for id in store.memory_ids if isinstance(event := store.log.get(id), bm.Memory)]
        return len(memories), [memory for memory in memories if not _is_in_place(store, memory)]


def _race(
    extract: Callable[..., Extracted],
    pool: ThreadPoolExecutor,
    session: Session,
    number: int,
    *,
    late: bool,
    way: int,
) -> None:
    """One message that is read while another thread moves the ref."""
    said = session.say("user", f"fact {number}", id=f"m{number}")
    started, moved = threading.Event(), threading.Event()

    def slow(shown: Shown) -> list[Found]:
        started.set()
        if late:
            assert moved.wait(10)
        texts = "+".join(str(message.text) for message in shown.messages)
        return [Found(f"{shown.anchor}: {texts}"), Found(f"{said.id}: {said.text}", (said.id,))]

    reading = pool.submit(extract, session, slow, known=5)
    assert started.wait(10)
    if way == 0:
        session.edit(said, f"other {number}")
    elif way == 1:
        session.rewind(session.store.tree.path(said.id)[0])
        session.say("user", f"elsewhere {number}")
    else:
        session.fork(f"fork {number}").edit(said, f"other {number}")
    moved.set()
    reading.result(10)


def _is_in_place(store: bm.Store, memory: bm.Memory) -> bool:
    """Whether it comes from what it says, is seen where that was read, and by no sibling of that."""
    anchor, _, said = memory.text.partition(": ")
    messages = [store.log.get(id) for id in store.tree.path(anchor)]
    texts = [one.text for one in messages if isinstance(one, bm.Message) and one.id in memory.sources]
    siblings = [id for id in store.tree.siblings(anchor)[0] if id != anchor]
    return (
        memory.id in store.at(anchor)
        and texts == said.split("+")
        and not any(memory.id in store.at(sibling) for sibling in siblings if anchor in memory.sources)
    )


def test_of_two_who_read_one_branch_at_a_time_one_does() -> None:
    with bm.open_temporary() as store, ThreadPoolExecutor(4) as pool:
        session = store.session("chat")
        for number in range(20):
            session.say("user", f"fact {number}", id=f"m{number}")
            both = threading.Barrier(4)

            def read(place: Session = session, both: threading.Barrier = both) -> int:
                def together(shown: Shown) -> list[Found]:
                    both.wait(10)
                    return [Found(str(message.text)) for message in shown.messages]

                return len(extract(place, together).added)

            assert sorted(each.result(20) for each in [pool.submit(read) for _ in range(4)]) == [0, 0, 0, 1]
        assert len(session.view()) == 20


def test_of_two_who_summarise_one_branch_at_a_time_one_does() -> None:
    with bm.open_temporary() as store, ThreadPoolExecutor(2) as pool:
        session = store.session("chat")
        for number in range(10):
            session.say("user", f"fact {number}", id=f"m{number}")
            both = threading.Barrier(2)

            def refresh(place: Session = session, both: threading.Barrier = both) -> bool:
                def together(passage: Passage) -> str:
                    both.wait(10)
                    return f"{passage.before}, {len(passage.messages)}"

                return summarise(place, together, threshold_tokens=0, keep_tokens=0) is not None

            assert sorted(each.result(20) for each in [pool.submit(refresh) for _ in range(2)]) == [False, True]
            assert len(session.view().memories(kind="summary")) == 1
