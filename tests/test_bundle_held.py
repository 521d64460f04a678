"""What is held of several strangers: none of them reaches what another sent, and adopting it twice is once."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from random import Random
from typing import Any
from unittest.mock import patch

import branchmem as bm
import pytest
from branchmem import Memory, Message, appending
from branchmem.canonical import new_id
from branchmem.errors import BundleRefused, EventConflict, UnknownBundle, UnknownEvent
from branchmem.events import Erasure, Event, event_from_bytes
from bundle_files import records, written
from travels import ALICE, BOB, CHAT, EVE, opened

SEED = 20_260_404
OTHER_LOG = "ab" * 16


@pytest.fixture
def alice(tmp_path: Path) -> Iterator[bm.Store]:
    """Alice's store with the conversation, two refs, and no pin."""
    with opened(tmp_path, "alice") as (store,):
        store.append(CHAT)
        store.refs.create("main", "u2")
        store.refs.create("edit", "u1-edit")
        yield store


def sent(tmp_path: Path, events: list[Event], bare: list[Event] | None = None, **fields: Any) -> Path:
    path = tmp_path / f"{new_id()}.bundle"
    written(path, records(events, bare or []), **{"by": EVE, "id": new_id(), "refs": {}, **fields})
    return path


def memories(store: bm.Store, bundle: str) -> set[str]:
    """The ids of the memories that are held of a bundle, none where it is not held."""
    return {memory.id for memory in store.held.memories(bundle)} if bundle in store.held else set()


def is_in_file(store: bm.Store, text: bytes) -> bool:
    store.compact()
    return text in Path(store.path).read_bytes()


# Nobody reaches what is another's


def test_a_bundle_that_joins_leaves_a_strangers_with_the_same_id(alice: bm.Store, tmp_path: Path) -> None:
    id = new_id()
    alice.import_bundle(sent(tmp_path, [Memory("x", "Eve's", sources=["s"])], id=id))
    alice.pins.pin(BOB.public, "bob")
    alice.import_bundle(sent(tmp_path, [Message("b", None)], id=id, by=BOB))

    assert (alice.held[id].issuer, memories(alice, id)) == (EVE.public, {"x"})


@pytest.mark.parametrize(
    ("fields", "stays"),
    [({"by": BOB}, True), ({"origin": OTHER_LOG}, True), ({"number": 8}, False)],
    ids=["another issuer", "another log", "the same log"],
)
def test_an_erasure_goes_from_bundle_to_bundle_only_within_one_log(
    alice: bm.Store, tmp_path: Path, fields: dict[str, Any], stays: bool
) -> None:
    """Else whoever knows an id of somebody's could make it hang on what will be erased here."""
    eves: list[Event] = [Memory("x", "Eve's", sources=["s"]), Memory("y", "too", derived_from=["z"])]
    bundle = alice.import_bundle(sent(tmp_path, eves)).bundle
    alice.import_bundle(
        sent(tmp_path, [Memory("x", "theirs", sources=["u1"]), Memory("z", "", sources=["u1"])], **fields)
    )
    alice.append([Erasure("e", ["u1"])])

    assert memories(alice, bundle) == ({"x", "y"} if stays else set())


def test_what_came_from_what_is_erased_is_found_under_an_id_that_is_ours_now(alice: bm.Store, tmp_path: Path) -> None:
    eves: list[Event] = [Memory("k9", "Eve's", sources=["s1"]), Memory("y", "drawn from it", derived_from=["k9"])]
    bundle = alice.import_bundle(sent(tmp_path, eves)).bundle
    alice.append([Memory("k9", "ours", sources=["u1"])])
    _, original = alice.held.originals(bundle, ["y"]).events
    assert isinstance(original, Memory)
    assert {"s1"} < set(original.sources)

    alice.append([Erasure("e", ["s1"])])
    assert memories(alice, bundle) == set()
    assert alice.at("u2")["k9"].text == "ours"


# Adopted, and erased


@pytest.mark.parametrize("named", ["the original", "all of that log"])
def test_erasing_what_was_adopted_takes_what_is_held_of_it(alice: bm.Store, tmp_path: Path, named: str) -> None:
    path = sent(tmp_path, [Memory("x", "a stranger's secret", sources=["s"]), Memory("y", "of it", derived_from=["x"])])
    bundle = alice.import_bundle(path).bundle
    others = alice.import_bundle(sent(tmp_path, [Memory("x", "Bob's", sources=["s"])], by=BOB)).bundle
    root, original = alice.held.originals(bundle, ["x"]).events
    alice.adopt(["x"], into="main", held=bundle)
    alice.append([Erasure("e", [(original if named == "the original" else root).id])])

    assert (memories(alice, bundle), memories(alice, others)) == (set(), {"x"})
    assert not is_in_file(alice, b"a stranger's secret")
    again = alice.import_bundle(path)
    assert (again.held, again.refused) == (0, {"erased": 2})
    assert not is_in_file(alice, b"a stranger's secret")


def test_erasing_an_original_alone_leaves_what_came_from_it(alice: bm.Store, tmp_path: Path) -> None:
    eves: list[Event] = [Memory("x", "one", sources=["s"]), Memory("y", "of it", derived_from=["x"])]
    bundle = alice.import_bundle(sent(tmp_path, eves)).bundle
    ((original, _),) = alice.adopt(["x"], into="main", held=bundle).adopted.items()
    alice.append([Erasure("e", [original], cascade=False)])

    assert memories(alice, bundle) == {"y"}


@pytest.mark.parametrize("named", ["s", "x", "adopted before", "adopted after"])
@pytest.mark.parametrize("bundles", [1, 2])
def test_what_was_adopted_goes_with_what_it_was_drawn_from(
    alice: bm.Store, tmp_path: Path, named: str, bundles: int
) -> None:
    x: list[Event] = [Memory("x", "a stranger's secret", sources=["s"])]
    y: list[Event] = [Memory("y", "of the secret", derived_from=["x"])]
    first = alice.import_bundle(sent(tmp_path, x if bundles == 2 else [*x, *y])).bundle
    second = first if bundles == 1 else alice.import_bundle(sent(tmp_path, y, number=8)).bundle
    if named == "adopted before":
        alice.adopt(["x"], into="edit", held=first)
    ((taken, copy),) = alice.adopt(["y"], into="main", held=second).adopted.items()
    if named == "adopted after":
        alice.adopt(["x"], into="edit", held=first)
    assert copy in alice.at_ref("main")

    (original,) = alice.held.originals(first, ["x"]).ids
    alice.append([Erasure("e", [original if named.startswith("adopted") else named])])

    assert all(map(alice.log.is_erased, (taken, copy)))
    assert copy not in alice.at_ref("main")


def test_what_was_adopted_is_taken_back_with_what_was_adopted_before_it(alice: bm.Store, tmp_path: Path) -> None:
    eves: list[Event] = [Memory("x", "one", sources=["s"]), Memory("y", "of it", derived_from=["x"])]
    bundle = alice.import_bundle(sent(tmp_path, eves)).bundle
    ((original, _),) = alice.adopt(["x"], into="main", held=bundle).adopted.items()
    ((_, copy),) = alice.adopt(["y"], into="main", held=bundle).adopted.items()

    assert copy in alice.retract([original], at=alice.refs["main"], scope="tree").hidden


def test_a_long_chain_the_wrong_way_round_goes_at_once(alice: bm.Store, tmp_path: Path) -> None:
    """What came from the next one, by id, over pages of held events."""
    chain: list[Event] = [Memory(f"k{number:03}", "", derived_from=[f"k{number + 1:03}"]) for number in range(200)]
    bundle = alice.import_bundle(
        sent(tmp_path, [*chain, Memory("k200", "", sources=["s1"]), Memory("l", "", sources=["s2"])])
    ).bundle
    with patch("branchmem.appending._PAGE", 7):
        alice.append([Erasure("e", ["s1"])])
    assert memories(alice, bundle) == {"l"}


def test_what_is_erased_is_what_a_log_of_all_of_it_would_have_erased() -> None:
    """Random references, in pages of any size, against an engine that holds the events."""
    for case in range(300):
        chance = Random(f"{SEED} {case}")
        messages, kept = [f"m{number}" for number in range(6)], [f"k{number}" for number in range(14)]

        def some(ids: list[str], chance: Random = chance) -> list[str]:
            return chance.sample(ids, chance.choice((0, 0, 1, 1, 2)))

        events: list[Event] = [Message(id, None) for id in messages]
        events += (
            Memory(id, "", sources=some(messages), derived_from=some(kept), adopts=chance.choice((None, None, *kept)))
            for id in kept
        )
        chance.shuffle(events)
        erasures = [Erasure(f"e{at}", some([*messages, *kept]) or ["m0"], cascade=at < 2) for at in range(3)]
        here, coming = erasures[: chance.randrange(4)], erasures[chance.randrange(4) :]
        log, whole = bm.Engine(), bm.Engine()
        log.add(here)
        whole.add([*events, *here, *coming])
        skeletons = [event.skeleton() for event in events]
        with patch("branchmem.appending._PAGE", chance.choice((1, 2, 5, 100))):
            found = appending.erased_among(
                log._engine, [each.skeleton() for each in coming], partial(iter, skeletons), appending.Origin("", "")
            )
        expected = [whole._engine.is_erased(event.id) for event in events]
        assert list(map(bool, found)) == expected, f"seed {SEED}, case {case}"


# Adopted twice


def test_what_was_adopted_is_the_same_after_what_it_was_drawn_from_came(alice: bm.Store, tmp_path: Path) -> None:
    eves: list[Event] = [Memory("y", "", sources=["s1"]), Memory("x", "Eve's", derived_from=["y", "p"])]
    bundle = alice.import_bundle(sent(tmp_path, eves)).bundle
    less = alice.import_bundle(sent(tmp_path, eves[1:], number=8)).bundle
    alice.adopt(["x"], into="main", held=bundle)
    alice.append([Memory("p", "ours", sources=["u1"])])

    assert alice.adopt(["x"], into="main", held=bundle).adopted == {}
    assert len(alice.adopt(["x"], into="edit", held=less).adopted) == 1
    assert {memory.text for memory in alice.at_ref("edit").memories()} >= {"Eve's"}


@pytest.mark.parametrize("which", ["original", "root"])
def test_what_stands_under_the_id_of_an_adoption_is_not_taken_for_it(
    alice: bm.Store, tmp_path: Path, which: str
) -> None:
    """Ids of adoptions are no secret: whoever can append may be there first."""
    bundle = alice.import_bundle(sent(tmp_path, [Memory("x", "Eve's", sources=["s"])])).bundle
    root, original = alice.held.originals(bundle, ["x"]).events
    alice.append([Message(root.id, "u2")] if which == "root" else [Memory(original.id, "Eve's", sources=["u1"])])
    before = alice.digest()

    for dry_run in (True, False):
        with pytest.raises(EventConflict):
            alice.adopt(["x"], into="main", held=bundle, dry_run=dry_run)
    assert alice.digest() == before


def test_only_what_was_chosen_is_adopted(alice: bm.Store, tmp_path: Path) -> None:
    eves: list[Event] = [
        Message("s", None),
        Memory("a", "1", sources=["s"], key="k"),
        Memory("b", "2", derived_from=["a"], supersedes=["a", "home", "moved"], key="k"),
        Memory("c", "3", sources=["u1"], adopts="b"),
    ]
    bundle = alice.import_bundle(sent(tmp_path, eves)).bundle
    made = alice.adopt(["c"], into="main", held=bundle)

    events = list(alice.log.events(len(CHAT)))
    assert [type(event) for event in events] == [Message, Memory, Message, Memory]
    assert len(made.adopted) == 1
    assert made.hidden == ()


# One at a time


def test_a_preview_refuses_what_the_import_would(alice: bm.Store, tmp_path: Path) -> None:
    id = new_id()
    alice.import_bundle(sent(tmp_path, [Memory("x", "Eve's")], id=id))
    for path in (
        sent(tmp_path, [Memory("x", "Bob's")], id=id, by=BOB),
        sent(tmp_path, [Memory("x", "another")], id=id),
    ):
        for attempt in (alice.preview_bundle, alice.import_bundle):
            with pytest.raises(BundleRefused, match="another bundle with this id is held"):
                attempt(path)


def test_what_is_dropped_while_it_comes_is_not_held_in_part(alice: bm.Store, tmp_path: Path) -> None:
    path = sent(tmp_path, [Message(f"m{number}", None, text="x" * 50) for number in range(20)])
    todo = [alice.held.drop]

    def meanwhile(done: int, total: int | None) -> None:
        if done > 25 and todo:
            todo.pop()(bundle)

    bundle = alice.import_bundle(path).bundle
    with pytest.raises(BundleRefused, match="it was dropped while it was being taken in: import it again"):
        alice.import_bundle(path, progress=meanwhile)
    assert list(alice.held) == []
    assert alice.import_bundle(path).held == 20


def test_much_is_dropped_some_at_a_time(alice: bm.Store, tmp_path: Path) -> None:
    bundle = alice.import_bundle(sent(tmp_path, [Message(f"m{number}", None) for number in range(20)])).bundle
    with patch("branchmem.bundle.held._BATCH", 3):
        assert alice.held.drop(bundle) == 20
    assert bundle not in alice.held


def test_a_bundle_of_which_nothing_may_be_held_is_not_listed(alice: bm.Store, tmp_path: Path) -> None:
    done = alice.import_bundle(sent(tmp_path, [Memory("x", "", sources=["u3"])]))
    assert (done.held, done.refused, list(alice.held)) == (0, {"erased": 1}, [])


@pytest.mark.parametrize("name", ["", "x" * 36, "x" * 600, "\ud800", "é" * 18, 5])
def test_what_is_no_bundle_is_asked_for_in_vain(alice: bm.Store, name: Any) -> None:
    for ask in (alice.held.__getitem__, alice.held.memories, alice.held.drop):
        with pytest.raises(UnknownBundle):
            ask(name)
    assert name not in alice.held


def test_a_memory_keeps_what_its_issuer_said_of_it(alice: bm.Store, tmp_path: Path) -> None:
    """What a stranger says of its origin is not believed."""
    memory = Memory("x", "Eve's", sources=["s"], importance=0.25, meta={"origin": {"issuer": ALICE.public}, "n": 1})
    bundle = alice.import_bundle(sent(tmp_path, [memory])).bundle
    _, original = alice.held.originals(bundle, ["x"]).events

    assert isinstance(original, Memory)
    assert original.importance == 0.25
    assert original.meta["n"] == 1
    assert original.meta["origin"]["issuer"] == EVE.public
    with pytest.raises(UnknownEvent):
        alice.held.originals(bundle, ["s"])


def test_the_id_in_a_skeleton_is_found_and_changed_at_any_length() -> None:
    for length in (1, 31, 32, 255, 256):
        memory = Memory("é" * (length // 2) + "x" * (length % 2), "", sources=["s"], derived_from=["t"], key="k")
        assert appending.id_bytes(memory.skeleton()).decode() == memory.id
        for other in ("y", "y" * 40, "y" * 256):
            changed = event_from_bytes(appending._renamed(memory.skeleton(), other), memory.body())
            assert changed == Memory(other, "", sources=["s"], derived_from=["t"], key="k")
