"""What comes from a key that is not pinned stays outside of the log until it is adopted, and goes when it is erased."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from unittest.mock import patch

import branchmem as bm
import pytest
from branchmem import Memory, Message
from branchmem.canonical import new_id
from branchmem.errors import BundleRefused, MemoryHidden, UnknownBundle, UnknownEvent
from branchmem.events import Erasure, Event, Restoration, Retraction
from bundle_files import records, written
from logs import in_child
from travels import ALICE, BOB, CHAT, EVE, counted, opened

STRANGE: list[Event] = [
    Message("s", None, role="thread"),
    Message("s1", "s", role="user", text="a stranger speaks"),
    Memory("x", "a stranger's fact", sources=["s1"], key="home_city"),
    Memory("y", "drawn from it", derived_from=["x"]),
    Memory("z", "about Alice", sources=["u1"], derived_from=["home"], supersedes=["home", "x"]),
]


@pytest.fixture
def alice(tmp_path: Path) -> Iterator[bm.Store]:
    """Alice's store with the conversation, a ref, and no pin."""
    with opened(tmp_path, "alice") as (store,):
        store.append(CHAT)
        store.refs.create("main", "u2")
        yield store


def sent(tmp_path: Path, events: list[Event] = STRANGE, bare: list[Event] | None = None, **fields: object) -> Path:
    """A bundle of these events, by somebody whom nobody pinned."""
    path = tmp_path / f"{new_id()}.bundle"
    written(path, records(events, bare or []), **{"by": EVE, "id": new_id(), "refs": {}, **fields})  # type: ignore[arg-type]
    return path


def held_ids(store: bm.Store) -> set[str]:
    """The ids of all that is held."""
    events = [(*store.held.messages(bundle), *store.held.memories(bundle)) for bundle in store.held]
    return {event.id for some in events for event in some}


def in_file(store: bm.Store) -> bytes:
    """The bytes of the file of a store, after a rewrite."""
    store.compact()
    return Path(store.path).read_bytes()


def test_a_bundle_of_a_stranger_is_held_and_the_log_is_as_before(alice: bm.Store, tmp_path: Path) -> None:
    before = alice.digest()
    path = sent(tmp_path, refs={"main": "s1", "new": "s"}, number=4)
    preview = alice.preview_bundle(path)
    assert list(alice.held) == []

    done = alice.import_bundle(path)

    assert counted(done) == {"imported": 0, "duplicates": 0, "held": 5, "refused": 0}
    assert {**preview.to_dict(), "dry_run": False} == done.to_dict()
    assert (done.pinned, done.issuer, done.refs) == (None, EVE.public, ())
    assert (alice.digest(), alice.seq, dict(alice.refs)) == (before, len(CHAT), {"main": "u2"})
    (bundle,) = alice.held.values()
    assert (bundle.id, bundle.issuer, bundle.number, bundle.messages, bundle.memories) == (
        done.bundle,
        EVE.public,
        4,
        2,
        3,
    )
    assert alice.held.memories(bundle.id) == [event for event in STRANGE if isinstance(event, Memory)]
    assert alice.held.messages(bundle.id) == STRANGE[:2]
    assert str(bundle).startswith(f"{bundle.id}: 2 messages and 3 memories from {EVE.fingerprint}, bundle 4 of log ")
    assert bundle.to_dict()["fingerprint"] == EVE.fingerprint


def test_holding_again_and_after_reopening_is_the_same(alice: bm.Store, tmp_path: Path) -> None:
    path = sent(tmp_path)
    first = alice.import_bundle(path)
    second = alice.import_bundle(path)
    alice.close()

    assert first.to_dict() == second.to_dict()
    with opened(tmp_path, "alice") as (again,):
        assert list(again.held) == [first.bundle]
        assert held_ids(again) == {event.id for event in STRANGE}
        assert again.check().ok


def test_what_would_change_views_is_refused_and_counted(alice: bm.Store, tmp_path: Path) -> None:
    done = alice.import_bundle(
        sent(
            tmp_path,
            [
                Erasure("e", ["u1", "s1"]),
                *STRANGE,
                Retraction("r", "u1", scope="everywhere", memories=["home"]),
                Restoration("q", "u2", scope="everywhere", retraction="hush"),
                Message("chat", None, role="thread"),
                Message("u1", "chat", role="user", text="I live in Paris"),
                Memory("w", "of what is gone", sources=["u3"]),
                Memory("v", "of that", derived_from=["w"]),
            ],
            [Message("s0", "s")],
        )
    )

    assert done.refused == {
        "that take back, restore or erase": 3,
        "with other content here": 1,
        "erased": 6,
        "without content": 1,
    }
    assert (done.duplicates, done.held) == (1, 1)
    assert held_ids(alice) == {"s"}
    assert b"a stranger" not in in_file(alice)
    said = "events: 0 imported, 1 here already, 1 held outside of the log; refused: 3 that take back"
    assert str(done).splitlines()[1].startswith(said)


def test_bundles_with_one_id_do_not_mix(alice: bm.Store, tmp_path: Path) -> None:
    id = new_id()
    alice.import_bundle(sent(tmp_path, id=id))
    for other in (
        sent(tmp_path, id=id, by=BOB),
        sent(tmp_path, id=id, number=99),
        sent(tmp_path, [Message("s1", None, text="another text")], id=id),
    ):
        with pytest.raises(BundleRefused, match="another bundle with this id is held"):
            alice.import_bundle(other)
    assert alice.held.memories(id) == [event for event in STRANGE if isinstance(event, Memory)]
    assert alice.held.drop(id) == 5
    assert alice.import_bundle(sent(tmp_path, id=id, by=BOB)).held == 5


def test_what_is_dropped_is_gone(alice: bm.Store, tmp_path: Path) -> None:
    kept, dropped = (alice.import_bundle(sent(tmp_path, by=by)).bundle for by in (EVE, BOB))
    assert alice.held.drop(dropped) == 5

    assert list(alice.held) == [kept]
    assert len(alice.held.memories(kept)) == 3
    for ask in (alice.held.memories, alice.held.messages, alice.held.drop, alice.held.__getitem__):
        with pytest.raises(UnknownBundle):
            ask(dropped)
    with pytest.raises(UnknownBundle):
        alice.held.drop("")


def test_who_is_killed_while_holding_lists_nothing_until_it_is_whole(alice: bm.Store, tmp_path: Path) -> None:
    path = sent(tmp_path)
    with patch("branchmem.bundle.holding.complete", side_effect=KeyboardInterrupt), pytest.raises(KeyboardInterrupt):
        alice.import_bundle(path)

    assert list(alice.held) == []
    assert alice.import_bundle(path).held == 5
    assert len(alice.held) == 1


def test_a_key_that_is_pinned_later_lets_the_bundle_join(alice: bm.Store, tmp_path: Path) -> None:
    path = sent(tmp_path, refs={"strange": "s1"})
    alice.import_bundle(path)
    alice.pins.pin(EVE.public, "eve")
    done = alice.import_bundle(path)

    assert (done.imported, alice.refs["strange"]) == (5, "s1")
    assert list(alice.held) == []


# Erasure


@pytest.mark.parametrize(
    ("erasure", "stay"),
    [
        (Erasure("e", ["s1"]), {"s", "z"}),
        (Erasure("e", ["x"]), {"s", "s1", "z"}),
        (Erasure("e", ["x"], cascade=False), {"s", "s1", "y", "z"}),
        (Erasure("e", ["u1"]), {"s", "s1", "x", "y"}),
        (Erasure("e", ["home"]), {"s", "s1", "x", "y"}),
        (Erasure("e", ["u2"]), {"s", "s1", "x", "y", "z"}),
    ],
    ids=["a message", "a memory", "alone", "a source of ours", "an upstream of ours", "something else"],
)
def test_an_erasure_takes_what_is_held(alice: bm.Store, tmp_path: Path, erasure: Erasure, stay: set[str]) -> None:
    contents = {event.id: str(getattr(event, "text", "")).encode() for event in STRANGE[1:]}
    for by in (EVE, BOB):
        alice.import_bundle(sent(tmp_path, by=by))
    alice.append([erasure])

    assert held_ids(alice) == stay
    found = in_file(alice)
    assert {id for id, content in contents.items() if content in found} == stay - {"s"}
    again = alice.import_bundle(sent(tmp_path, by=ALICE))
    assert (again.held, again.refused) == (len(stay), {"erased": 5 - len(stay)} if len(stay) < 5 else {})


def test_what_arrives_and_is_erased_takes_what_is_held_of_it(alice: bm.Store, tmp_path: Path) -> None:
    """The log learns only now that something held came, at a remove, from what was erased before."""
    alice.import_bundle(sent(tmp_path, [Memory("far", "a copy of it", derived_from=["between"])]))
    alice.append([Memory("between", "", derived_from=["pay"])])

    assert list(alice.held.memories(*alice.held)) == []
    assert b"a copy of it" not in in_file(alice)


def test_what_is_erased_while_a_bundle_is_being_held_is_not_held(alice: bm.Store, tmp_path: Path) -> None:
    def meanwhile(store: bm.Store, *rest: object) -> bytearray:
        store.append([Erasure("e", ["s1"])])
        return bytearray()

    with patch("branchmem.bundle.holding._erased", side_effect=meanwhile):
        done = alice.import_bundle(sent(tmp_path))

    assert (done.held, done.refused) == (2, {"erased": 3})
    assert held_ids(alice) == {"s", "z"}


def test_a_strangers_erasure_takes_nothing_of_others(alice: bm.Store, tmp_path: Path) -> None:
    kept = alice.import_bundle(sent(tmp_path)).bundle
    alice.import_bundle(sent(tmp_path, [Erasure("e", ["s1", "x"]), Message("t", None)], by=BOB))

    assert len(alice.held.memories(kept)) == 3


def test_an_erasure_in_another_process_takes_what_is_held(alice: bm.Store, tmp_path: Path) -> None:
    path = sent(tmp_path)
    alice.close()

    def import_there() -> int:
        with bm.open(tmp_path / "alice.bmem") as store:
            return store.import_bundle(path).held

    assert in_child(import_there) == "5"
    with opened(tmp_path, "alice") as (store,):
        store.append([Erasure("e", ["s1"])])
        assert held_ids(store) == {"s", "z"}


def test_a_store_that_was_open_before_anything_was_held_takes_it_too(alice: bm.Store, tmp_path: Path) -> None:
    """Another process made the table meanwhile."""
    path = sent(tmp_path)
    code = "import sys, branchmem; branchmem.open(sys.argv[1]).import_bundle(sys.argv[2])"
    subprocess.run([sys.executable, "-c", code, alice.path, str(path)], check=True)
    alice.append([Erasure("e", ["s1"])])

    assert held_ids(alice) == {"s", "z"}


# Adoption


def test_what_is_adopted_joins_as_somebody_elses_in_a_tree_of_its_own(alice: bm.Store, tmp_path: Path) -> None:
    bundle = alice.import_bundle(sent(tmp_path)).bundle
    before = {id: alice.at(id).ids() for id in alice.message_ids}

    made = alice.adopt(["x", "z"], into="main", held=bundle)

    assert {memory.text for memory in alice.at_ref("main").memories()} == {
        "The user lives in Hangzhou now",
        "about Alice",
    }, "their z replaces their x, and nothing of ours"
    assert {id: alice.at(id).ids() for id in before} == before
    root, *originals = alice.held.originals(bundle, ["x", "z"]).events
    assert root == Message(
        root.id, None, role="bundle", meta={"issuer": EVE.public, "origin": alice.held[bundle].origin}
    )
    assert set(made.adopted) == {originals[1].id}
    x, z = originals
    assert isinstance(x, Memory)
    assert isinstance(z, Memory)
    assert (x.text, x.key, set(x.sources)) == ("a stranger's fact", "home_city", {root.id, "s1"})
    assert x.meta == {"origin": {"issuer": EVE.public, "log": alice.held[bundle].origin, "id": "x"}}
    assert (set(z.sources), z.derived_from) == ({root.id, "u1"}, ("home",))
    assert x.id in z.supersedes
    assert "home" not in z.supersedes
    assert alice.adopt(["x", "z"], into="main", held=bundle).adopted == {}


def test_an_erasure_here_reaches_what_was_adopted_of_it(alice: bm.Store, tmp_path: Path) -> None:
    bundle = alice.import_bundle(sent(tmp_path)).bundle
    alice.adopt(["y", "z"], into="main", held=bundle)
    alice.append([Erasure("e", ["u1"])])
    assert {memory.text for memory in alice.at_ref("main").memories()} == {
        "The user lives in Hangzhou now",
        "drawn from it",
    }
    alice.append([Erasure("f", ["s1"])])

    assert {memory.text for memory in alice.at_ref("main").memories()} == {"The user lives in Hangzhou now"}
    assert held_ids(alice) == {"s"}
    found = in_file(alice)
    assert b"about Alice" not in found
    assert b"drawn from it" not in found


def test_what_lacks_an_upstream_here_is_adopted_without_it(alice: bm.Store, tmp_path: Path) -> None:
    alice.append(
        [
            Memory("broken", "", derived_from=["not here"]),
            Memory("round", "", adopts="round"),
            Memory("p", "", derived_from=["q"]),
            Memory("q", "", derived_from=["p"]),
            Memory("sound", "", sources=["u1"], derived_from=["home", "moved"], adopts="home"),
        ]
    )
    strange: list[Event] = [Memory("m", "taken", derived_from=["broken", "round", "p", "sound"], adopts="chat")]
    bundle = alice.import_bundle(sent(tmp_path, strange)).bundle
    alice.adopt(["m"], into="main", held=bundle)

    _, original = alice.held.originals(bundle, ["m"]).events
    assert isinstance(original, Memory)
    assert original.derived_from == ("sound",)
    assert "taken" in {memory.text for memory in alice.at_ref("main").memories()}


def test_only_a_memory_that_is_held_is_adopted(alice: bm.Store, tmp_path: Path) -> None:
    bundle = alice.import_bundle(sent(tmp_path)).bundle
    for id in ("s1", "home", "nothing"):
        with pytest.raises(UnknownEvent):
            alice.adopt([id], into="main", held=bundle)
    with pytest.raises(UnknownBundle):
        alice.adopt(["x"], into="main", held="nothing")
    with pytest.raises(UnknownEvent):
        alice.adopt(["x"], into="main")
    with pytest.raises(MemoryHidden):
        alice.at("u2")["x"]
    assert alice.seq == len(CHAT)


def test_one_memory_of_two_bundles_is_adopted_once(alice: bm.Store, tmp_path: Path) -> None:
    first, second = (alice.import_bundle(sent(tmp_path, number=number)).bundle for number in (1, 2))
    alice.adopt(["x"], into="main", held=first)
    seq = alice.seq
    assert alice.adopt(["x"], into="main", held=second).adopted == {}
    assert alice.seq == seq
