"""No import brings back what was erased: of records and events only what stays is compared, and no version is made."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from random import Random
from typing import Any

import branchmem as bm
import pytest
from branchmem import importers
from branchmem.errors import EventConflict
from branchmem.events import Erasure, Event, Memory, Message
from branchmem.reference.erasures import as_kept
from exports import OPEN_WEBUI, SAMPLES, counted, never, parents, stored_in
from figures import Figure
from sources import START, any_record, imported, record, version

SEED = 20260406
CLAUDE_CODE = Path(__file__).parent / "samples" / "claude_code"


def without(log: dict[str, Event], *ids: str) -> set[str]:
    """Erase by hand; the ids for the linker."""
    log.update((id, as_kept(log[id], ids)) for id in ids)
    return set(ids)


def texts(log: Iterable[Event]) -> set[str | None]:
    return {event.text for event in log if isinstance(event, Message | Memory)}


# The linker


def test_what_was_erased_is_met_again_without_a_version() -> None:
    log: dict[str, Event] = {}
    file = [record("a", None, "secret"), record("b", "a"), record("b2", "b")]
    imported(log, *file)
    erased = without(log, "a", "b")
    before = dict(log)

    report = imported(log, *file, record("d", "b", "new"), erased=erased)

    assert (list(log), report.added, report.erased, report.edited) == ([*before, "d"], 1, 2, 0)
    assert parents(log)["d"] == "b"
    assert "secret" not in texts(log.values())


@pytest.mark.parametrize("at_once", [True, False])
def test_other_content_under_an_erased_id_is_not_taken(at_once: bool) -> None:
    log: dict[str, Event] = {}
    imported(log, record("a", None, "secret"), record("b", "a"))
    erased = without(log, "a")

    file = [record("a", None, "secret "), record("a", "b", "secret, said anew"), record("e", "a"), record("b", "a")]
    report = imported(log, *file, erased=erased, at_once=at_once)

    assert parents(log) == {"c": None, "a": "c", "b": "a", "e": "a"}
    assert (report.added, report.erased, report.edited) == (1, 2, 0)
    assert texts(log.values()) == {None, "text of b", "text of e"}


def test_an_erased_message_stands_for_its_record_where_that_hangs_elsewhere_now() -> None:
    log: dict[str, Event] = {}
    imported(log, record("a", None), record("b", "a", "secret"))
    erased = without(log, "b")

    imported(log, record("a", None, "edited"), record("b", "a", "secret"), record("d", "b"), erased=erased)

    assert parents(log) == {"c": None, "a": "c", "b": "a", version("a", log): "c", "d": "b"}
    assert "secret" not in texts(log.values())


def test_a_version_that_the_log_has_is_found_though_its_plain_id_was_erased() -> None:
    log: dict[str, Event] = {}
    imported(log, record("a", None, "one"), record("a", None, "two"), record("b", "a"))
    other = version("a", log)
    assert parents(log)["b"] == other
    erased = without(log, "a")
    before = dict(log)

    assert imported(log, record("a", None, "two"), record("b", "a"), erased=erased).added == 0
    assert imported(log, record("a", None, "three"), record("e", "a"), erased=erased).added == 1

    assert parents(log) == {**parents(before), "e": "a"}


def test_an_erased_version_is_met_again() -> None:
    log: dict[str, Event] = {}
    file = [record("a", None, "one"), record("a", None, "two"), record("b", "a")]
    imported(log, *file)
    erased = without(log, version("a", log))

    report = imported(log, *file, erased=erased)

    assert (len(log), report.added, report.erased) == (4, 0, 1)


def test_an_erased_root_is_still_the_root_of_its_conversation() -> None:
    log: dict[str, Event] = {}
    imported(log, record("a", None), record("b", "a"))
    erased = without(log, "c", "a")

    report = imported(log, record("a", None), record("b", "a"), record("d", "b"), leaves={"c": "d"}, erased=erased)

    assert parents(log) == {"c": None, "a": "c", "b": "a", "d": "b"}
    assert counted(report) == {"messages": 3, "added": 1, "erased": 1, "conversations": 1, "leaves": 1, "roots": 1}
    assert report.current["c"].leaf == "d"


def test_an_erased_memory_of_the_source_is_not_made_again() -> None:
    def summaries(text: str, source: str) -> Any:
        return lambda linked: [
            Memory("m", text, sources=[source], created=START),
            Memory("top", "above it", sources=["b"], derived_from=["m"]),
        ]

    log: dict[str, Event] = {}
    file = [record("a", None), record("b", "a")]
    imported(log, *file, summaries=summaries("secret", "a"))
    erased = without(log, "m")
    before = dict(log)

    for text, source in (("secret", "a"), ("secret, longer", "a"), ("secret", "b")):
        report = imported(log, *file, summaries=summaries(text, source), erased=erased)
        assert (log, report.added, report.edited, report.erased) == (before, 0, 0, 1)


def test_a_version_of_a_memory_that_the_log_has_is_found_though_the_plain_one_was_erased() -> None:
    log: dict[str, Event] = {}
    one, two = (Memory("m", text, sources=["a"]) for text in ("one", "two"))
    imported(log, record("a", None), summaries=lambda linked: [one])
    imported(log, record("a", None), summaries=lambda linked: [two])
    other = version("m", log)
    erased = without(log, "m")

    upon = [two, Memory("top", "", derived_from=["m"])]
    imported(log, record("a", None), summaries=lambda linked: upon, erased=erased)

    assert log["top"] == Memory("top", "", derived_from=[other])


@pytest.mark.soak
def test_importing_again_after_any_erasure_adds_nothing(figure: Figure) -> None:
    settled = 0
    for turn in range(figure(400, 20_000)):
        chance = Random(f"{SEED} {turn}")
        log: dict[str, Event] = {}
        files = [[any_record(chance) for _ in range(chance.randint(1, 8))] for _ in range(2)]
        for file in [*files, *files]:
            imported(log, *file)
        before = set(log)
        for file in files:
            imported(log, *file)
        if log.keys() != before:  # two files that contradict each other: each import goes on with it
            continue
        settled += 1
        erased = without(log, *chance.sample(sorted(log), chance.randint(1, len(log))))

        for file in chance.sample(files, 2):
            imported(log, *file, erased=erased, at_once=chance.random() < 0.5)

        case = f"seed {SEED}, turn {turn}: {files} without {sorted(erased)}"
        new = log.keys() - before
        assert {id.partition("~")[0] for id in new}.isdisjoint(erased), case
        # whether something is a copy of what was erased nobody can tell any more
        assert not new or any(one.copied for file in files for one in file), case
    assert settled > 300


# Exports of other tools, into stores


FILES = [
    *(SAMPLES / name for name in ("contextcarry_conversations.json", "librechat_chatgpt-tree.json")),
    *sorted(OPEN_WEBUI.glob("*.json"))[:2],
    *sorted(CLAUDE_CODE.glob("*.jsonl"))[:2],
]


def take(store: bm.Store, file: Path) -> importers.Report:
    return importers.import_file(file, append=store.append, stored=stored_in(store), erased=store.log.is_erased)


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_an_old_export_of_another_tool_adds_nothing_after_an_erasure(file: Path, tmp_path: Path) -> None:
    chance = Random(f"{SEED} {file.name}")
    with bm.open(tmp_path / "a.bmem") as store, bm.open(tmp_path / "b.bmem") as again:
        take(store, file)
        ids = [*store.message_ids, *store.memory_ids]
        store.append([bm.Memory("note", "of it", sources=[ids[-1]])])
        gone = chance.sample(ids, len(ids) // 3 + 1)
        store.append([Erasure("e", gone)])
        digest = store.digest()

        report = take(store, file)

        assert (report.added, store.digest()) == (0, digest)
        assert report.erased >= len([id for id in gone if store.tree.parent(id) is not None])
        # and into an empty store, before the export or after it
        again.append(store.erasures())
        take(again, file)
        again.append([bm.Memory("note", "of it", sources=[ids[-1]])])
        assert again.digest() == digest
        take(again, file)
        assert again.digest() == digest


# Our own events


EVENTS: list[Event] = [
    Message("chat", None),
    Message("u1", "chat", role="user", text="secret"),
    Memory("home", "the secret", sources=["u1"]),
    Memory("top", "of the secret", derived_from=["home"]),
    Memory("o", "other", sources=["chat"]),
    Erasure("e", ["u1"]),
]


def written(path: Path, events: Iterable[Event]) -> Path:
    path.write_bytes(b"".join(importers.dump(events)))
    return path


def erased_in(events: Iterable[Event]) -> list[Event]:
    """The same events as a store exports them."""
    with bm.open_temporary() as store:
        store.append(events)
        return list(store.log.events())


def test_an_export_with_erased_events_makes_the_same_log(tmp_path: Path) -> None:
    with bm.open_temporary() as store, bm.open_temporary() as other:
        store.append(EVENTS)
        file = written(tmp_path / "events.jsonl", store.log.events())
        assert b"secret" not in file.read_bytes()

        report = take(other, file)

        assert (other.digest(), report.added, report.erased) == (store.digest(), 6, 0)
        assert take(other, file).added == 0
        assert other.check().erased == store.check().erased == 3


def test_erasures_go_first_so_that_a_kill_leaves_nothing_of_theirs(tmp_path: Path) -> None:
    file = written(tmp_path / "events.jsonl", EVENTS)

    with importers.read(file, stored=lambda id: None, erased=never) as reading:
        batches = list(reading.batches(2))

    assert [event.id for batch in batches for event in batch] == ["e", "chat", "u1", "home", "top", "o"]


@pytest.mark.parametrize("size", [1, 2, 10])
@pytest.mark.parametrize("seed", range(12))
def test_old_and_new_exports_in_any_order_make_the_same_log(size: int, seed: int, tmp_path: Path) -> None:
    chance = Random(f"{SEED} {seed}")
    old = chance.sample(EVENTS[:-1], 5)
    new = erased_in(EVENTS)
    contents = [old, chance.sample(new, 6), [*old, *new], [EVENTS[-1]]]
    files = [written(tmp_path / f"{number}.jsonl", events) for number, events in enumerate(contents)]
    with bm.open_temporary() as store, bm.open_temporary() as expected:
        expected.append(EVENTS)
        for file in chance.sample(files, 4):
            with importers.read(file, stored=stored_in(store), erased=store.log.is_erased) as reading:
                for batch in reading.batches(size):
                    store.append(batch)
        assert store.digest() == expected.digest(), f"seed {SEED} {seed}, batches of {size}"
        assert store.check().ok


def test_other_content_that_no_erasure_takes_is_refused_all_the_same(tmp_path: Path) -> None:
    other = Memory("o", "something else", sources=["chat"])
    with bm.open_temporary() as store:
        store.append(EVENTS[:5])
        with pytest.raises(EventConflict, match="another text"):
            take(store, written(tmp_path / "plain.jsonl", [other, Message("new", "chat")]))
        assert "new" not in store.log
        with pytest.raises(EventConflict, match="another text"):
            take(store, written(tmp_path / "erasing.jsonl", [other, Message("new", "chat"), EVENTS[-1]]))
        assert store.log.get("o") == EVENTS[4]
        with pytest.raises(EventConflict, match="another parent"):
            take(store, written(tmp_path / "moved.jsonl", [Message("u1", None, text="secret")]))


def test_what_differs_from_an_erased_event_in_what_stays_is_refused(tmp_path: Path) -> None:
    with bm.open_temporary() as store:
        store.append(EVENTS)
        for event in (Message("u1", None, text="secret"), Memory("home", "the secret", sources=["chat"])):
            with pytest.raises(EventConflict) as raised:
                take(store, written(tmp_path / "moved.jsonl", [event]))
            assert raised.value.field in ("parent", "sources")
            assert "secret" not in str(raised.value)


def test_what_the_file_says_twice_is_counted_once(tmp_path: Path) -> None:
    file = written(tmp_path / "both.jsonl", [*EVENTS[:5], *erased_in(EVENTS)])
    with bm.open_temporary() as store:
        report = take(store, file)

        assert (report.added, report.duplicates, report.messages, store.seq) == (6, 5, 2, 6)
