"""Who wins when a memory is taken back or replaced: every cell of the tables in docs/conflicts.md.

The tables were written from the rule by hand, and are read here: what the page says is what is tried.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

import branchmem as bm
import pytest
from branchmem import COMPAT, LEGACY, Memory, Message, Reason
from branchmem.events import Erasure, Event, Restoration, Retraction
from branchmem.reference import Reference
from chats import CHAT, OTHER, fact

PAGE = Path(__file__).parent.parent / "docs" / "conflicts.md"
RESTORED = {"type": "restoration", "at": "a2x"}
LEGACY_CHAT = [Message("old", LEGACY), Message("o1", "old"), Message("orphan", "not here")]

M = fact("m", "a1")
REPLACED = "A memory is replaced"


class Cell(NamedTuple):
    """Where a memory is seen when the conflict of this row and column has come about."""

    table: str
    row: str
    column: str
    seen: str

    def __str__(self) -> str:
        return ", ".join(self[:3])


class Conflict(NamedTuple):
    """What happened, the memory that is asked about, and where it would be seen had nothing been taken back."""

    subject: str
    where: tuple[str, ...]
    events: list[Event]


def cells(page: str) -> Iterator[Cell]:
    """Every cell of every table, below the heading that it stands under; scope and place are the label of a row."""
    table, header = "", list[str]()
    for line in page.splitlines():
        entries = [entry.strip() for entry in line.replace("`", "").strip("|").split("|")]
        if line.startswith("## "):
            table, header = line.removeprefix("## "), []
        elif not line.startswith("|") or set(line) <= set("| -"):
            continue
        elif not header:
            header = entries
        else:
            labels = 2 if header[1] == "scope" else 1
            for column, seen in zip(header[labels:], entries[labels:], strict=True):
                yield Cell(table, " ".join(entries[:labels]), column, seen)


CELLS = list(cells(PAGE.read_text("utf-8")))

ALL = ("a1", "u2", "a2", "a2x", "a2+v2")


def retracted(cell: Cell) -> Conflict:
    return Conflict("m", ALL, [M, retraction(cell), *restoration(cell)])


def key_retracted(cell: Cell) -> Conflict:
    memories = {
        "from a1": [fact("m", "a1", key="city")],
        "from u1 and a1": [fact("m", "u1", "a1", key="city")],
        "standing": [fact("m", "a1", key="city")],
        "derived from c": [fact("m", "a1", key="city", derived_from=["before"]), fact("before", "c")],
    }[cell.column]
    return Conflict("m", ALL, [*memories, retraction(cell, keys=["city"], standing=cell.column == "standing")])


def went_elsewhere(cell: Cell) -> Conflict:
    there = ("u1x", "a1x", "a1x+v2")
    memory, where = {
        "derived": (fact("n", "u2", derived_from=["m"]), ALL[1:]),
        "adopted": (fact("n", "u1x", adopts="m"), there),
        "said again": (Memory("n", M.text, sources=["u1x"]), there),
    }[cell.column]
    return Conflict("n", where, [M, memory, retraction(cell)])


def unknown_place(cell: Cell) -> Conflict:
    return Conflict("m", ("a1", "a2", "a2+o1"), [*LEGACY_CHAT, M, retraction(cell), *restoration(cell)])


def replaced(cell: Cell) -> Conflict:
    original, by = M, fact("by", cell.row, supersedes=["m"])
    more: list[Event] = []
    match cell.column:
        case "retracted at a2":
            more = [Retraction("r", "a2", scope="branch", memories=["by"])]
        case "retracted everywhere":
            more = [Retraction("r", "d", scope="everywhere", memories=["by"])]
        case "erased":
            more = [Erasure("e", ["by"])]
        case "replaced from a2":
            more = [fact("third", "a2", supersedes=["by"])]
        case "replaced by m":
            original = fact("m", "a1", supersedes=["by"])
        case column:
            assert column == "stands"
    return Conflict("m", ALL, [original, by, *more])


CONFLICTS: dict[str, Callable[[Cell], Conflict]] = {
    "A memory is retracted": retracted,
    "A key is retracted": key_retracted,
    "The memory went elsewhere": went_elsewhere,
    "Nobody knows where it was said": unknown_place,
    REPLACED: replaced,
}


def retraction(cell: Cell, **named: Any) -> Event:
    """The retraction of a row, of the memory `m` unless something else is named."""
    at, scope = cell.row.split()
    return bm.event_from_dict(
        {"type": "retraction", "id": "r", "at": at, "scope": scope, **(named or {"memories": ["m"]})}
    )


def restoration(cell: Cell) -> list[Event]:
    """The restoration of a column, if any."""
    if cell.column == "no restoration":
        return []
    at, scope = cell.row.split() if cell.column == "the same" else reversed(cell.column.split(" at "))
    return [bm.event_from_dict({"type": "restoration", "id": "s", "at": at, "scope": scope, "retraction": "r"})]


def places(cell: Cell, where: tuple[str, ...]) -> tuple[str, ...]:
    """The places that a cell lists."""
    if cell.seen in ("all", "none"):
        return where if cell.seen == "all" else ()
    listed = tuple(cell.seen.split(", "))
    assert set(listed) < set(where)
    return listed


@pytest.fixture(params=[Reference, bm.Engine, bm.open_temporary], ids=["reference", "engine", "store"])
def log(request: pytest.FixtureRequest) -> Iterator[Any]:
    opened = request.param()
    yield opened
    if isinstance(opened, bm.Store):
        opened.close()


def tell(log: Any, events: list[Event], seed: str) -> None:
    """Append the two conversations and what happened in them, in one batch, in an order drawn from the seed."""
    arriving = [*CHAT, *OTHER, *events]
    Random(seed).shuffle(arriving)
    (log.append if isinstance(log, bm.Store) else log.add)(arriving)


@pytest.mark.parametrize("cell", CELLS, ids=str)
def test_a_cell_of_the_tables(log: Any, cell: Cell) -> None:
    conflict = CONFLICTS[cell.table](cell)
    tell(log, conflict.events, str(cell))

    seen = places(cell, conflict.where)
    hidden = {Reason.SUPERSEDED: ("by",)} if cell.table == REPLACED else {Reason.RETRACTED: ("r",)}
    for place in conflict.where:
        view = log.at(place.split("+"))
        verdict = view.explain(conflict.subject)
        assert verdict.reasons == (Reason(0) if place in seen else sum(hidden)), place
        assert set(verdict.culprits) == set(() if place in seen else hidden), place
        assert (conflict.subject in view) is (place in seen), place
        assert (conflict.subject in view.ids()) is (place in seen), place


def test_the_tables_are_whole() -> None:
    scopes = ("branch", "tree", "everywhere")
    stands = ("c", "u1", "a1", "u2", "a2", "u1x", "v1")
    rows = {table: [f"{at} {scope}" for at in stands for scope in scopes] for table in CONFLICTS} | {
        "Nobody knows where it was said": [
            f"{at} {scope}" for at in ("lost", "orphan", "old", "o1") for scope in scopes
        ],
        REPLACED: ["c", "a1", "u2", "a2", "u1x", "v1"],
    }
    columns = {table: list(dict.fromkeys(cell.column for cell in CELLS if cell.table == table)) for table in rows}

    assert [cell[:3] for cell in CELLS] == [
        (table, row, column) for table in rows for row in rows[table] for column in columns[table]
    ]
    assert [len(columns[table]) for table in rows] == [6, 4, 3, 3, 6]
    assert len(CELLS) == 345


# What the page says beside its tables


def test_two_retractions_need_two_restorations(log: Any) -> None:
    once, twice = (Retraction(id, "c", scope="tree", memories=["m"]) for id in ("r1", "r2"))
    tell(log, [M, once, twice, Restoration("s1", "u1", scope="branch", retraction="r1")], "two")
    assert log.at("a2").explain("m").culprits == {Reason.RETRACTED: ("r2",)}

    (log.append if isinstance(log, bm.Store) else log.add)([Restoration("s2", "a2", scope="branch", retraction="r2")])
    assert "m" in log.at("a2")
    assert "m" not in log.at("u2")


@pytest.mark.parametrize("anchor", [None, "not in the log"])
def test_a_view_that_stands_nowhere_has_every_retraction_in_effect(log: Any, anchor: str | None) -> None:
    """Each is lifted where it stands; only the one that is lifted everywhere is lifted here."""
    events: list[Event] = [M, fact("n", "u1"), fact("free", "u1")]
    for id, scope in (("m", "branch"), ("n", "everywhere")):
        events.append(Retraction(f"r {id}", "a2x", scope="tree", memories=[id]))
        events.append(bm.event_from_dict(RESTORED | {"id": f"s {id}", "scope": scope, "retraction": f"r {id}"}))
    tell(log, events, "nowhere")

    admitting = bm.Policy(COMPAT.admit | Reason.UNKNOWN_ANCHOR)
    assert set(log.at(anchor, policy=admitting)) == {"n", "free"}
    assert log.at(anchor).explain("m").reasons & Reason.RETRACTED


@pytest.mark.parametrize("scope", ["branch", "tree"])
def test_an_unusable_anchor_puts_in_effect_what_stands_in_no_conversation_of_the_view(log: Any, scope: Any) -> None:
    events = [M, fact("n", "a1"), Retraction("side", "u1x", scope="branch", memories=["m"])]
    tell(log, [*events, Retraction("far", "v1", scope=scope, memories=["n"])], scope)

    assert set(log.at("a2")) == {"m", "n"}
    assert set(log.at(["a2", "not in the log"])) == {"m"}
    assert set(log.at(["a2", "v2", "not in the log"])) == {"m"}
    assert set(log.at(["a2", "d", "not in the log"])) == ({"m", "n"} if scope == "branch" else {"m"})
