"""Random conversations that are forked, read, summarised and partly taken back: no word that was taken back is seen."""

from __future__ import annotations

import re
from collections.abc import Iterator
from random import Random
from typing import Any

import branchmem as bm
import pytest
from branchmem import Memory, Reason
from branchmem.events import SCOPES
from branchmem.extract import Found, Shown, extract, extract_in, summarise
from branchmem.reference import Reference
from branchmem.session import Session
from figures import Figure

pytestmark = pytest.mark.usefixtures("without_disk")

_WORD = re.compile(r"word\d+")


class Talk:
    """One conversation.  Each word is said by the user once; answers say words of what they recalled."""

    def __init__(self, random: Random, store: bm.Store) -> None:
        self.random = random
        self.store = store
        self.sessions = [store.session("chat")]
        self.words: list[str] = []
        #: The word of each retraction.
        self.taken_back: dict[str, str] = {}

    def step(self) -> None:
        """Something happens."""
        session = self.random.choice(self.sessions)
        ways = [self.say, self.say, self.answer, self.answer, self.read, self.read, self.summarise, self.move]
        self.random.choice([*ways, self.take_back])(session)

    def say(self, session: Session) -> None:
        word = f"word{len(self.words)}"
        self.words.append(word)
        said = session.say("user", f"I say {word}")
        if self.random.random() < 0.3:
            session.remember(f"noted {word}", sources=[said])

    def answer(self, session: Session) -> None:
        with session.step() as step:
            visible = [one for one in session.view().memories() if one.kind != "summary"]
            recalled = self.random.sample(visible, min(len(visible), self.random.randrange(3)))
            step.recalled = recalled
            step.write("You said " + " ".join(word for one in recalled for word in _WORD.findall(one.text)))
            if self.random.random() < 0.5:
                extract_in(step, self.found)

    def read(self, session: Session) -> None:
        extract(session, self.found, window_tokens=self.random.choice((1, 20, 1000)))

    def summarise(self, session: Session) -> None:
        summarise(
            session,
            lambda passage: " ".join((passage.before or "", *(str(one.text) for one in passage.messages))),
            threshold_tokens=0,
            keep_tokens=self.random.choice((0, 10)),
        )

    def move(self, session: Session) -> None:
        fork = session.fork(f"fork {len(self.sessions)}")
        fork.rewind(self.random.choice(self.store.tree.path(fork.head)))
        self.sessions.append(fork)

    def take_back(self, session: Session) -> None:
        """Take a word back: all memories that say it, summaries aside."""
        if self.words:
            word = self.random.choice(self.words)
            said = [
                memory.id for memory in _memories(self.store) if memory.kind != "summary" and word in _words(memory)
            ]
            if said:
                scope: Any = self.random.choice(SCOPES)
                change = self.store.retract(memories=said, at=session.head, scope=scope)
                self.taken_back[change.id] = word

    def found(self, shown: Shown) -> Iterator[Found]:
        """One memory for each message with a word, cited; or one for all of them, not cited."""
        said = [(message.id, _WORD.findall(str(message.text))) for message in shown.messages]
        if self.random.random() < 0.3:
            yield Found("all: " + " ".join(word for _, words in said for word in words))
        else:
            yield from (Found("found " + " ".join(words), (id,)) for id, words in said if words)


def _words(memory: Memory) -> set[str]:
    return set(_WORD.findall(memory.text))


def _memories(store: bm.Store) -> list[Memory]:
    events = map(store.log.get, store.memory_ids)
    return [event for event in events if isinstance(event, Memory)]


def _leaks(store: bm.Store, log: bm.Store | Reference, taken_back: dict[str, str]) -> list[str]:
    """At every message: what is visible there and says a word that is taken back there.

    A summary from before is left aside: it is made anew without the word when it is refreshed.
    """
    leaks = []
    memories = _memories(store)
    events = [event.id for event in store.log.events()]
    places = {id: place for place, id in enumerate(events)}
    for anchor in store.message_ids:
        view = log.at(anchor)
        in_effect: set[str] = set()
        for memory in memories:
            in_effect.update(view.explain(memory.id).culprits.get(Reason.RETRACTED, ()))
        for retraction in in_effect:
            for memory in memories:
                is_before = memory.kind == "summary" and places[memory.id] < places[retraction]
                if memory.id in view and taken_back[retraction] in _words(memory) and not is_before:
                    leaks.append(f"{memory.id} says {taken_back[retraction]} at {anchor}")
    return leaks


@pytest.mark.soak
def test_no_word_that_was_taken_back_is_seen_where_it_is(figure: Figure) -> None:
    taken_back = memories = 0
    for seed in range(figure(12, 1000)):
        with bm.open_temporary() as store:
            talk = Talk(Random(seed), store)
            for _ in range(30):
                talk.step()
            reference = Reference()
            reference.append(store.log.events())
            assert _leaks(store, store, talk.taken_back) == []
            assert _leaks(store, reference, talk.taken_back) == []
            for anchor in store.message_ids:
                assert set(store.at(anchor)) == set(reference.at(anchor).ids())
                assert len(store.at(anchor).memories(kind="summary")) <= 1
            taken_back += len(talk.taken_back)
            memories += len(store.memory_ids)
    assert taken_back > 10
    assert memories > 100
