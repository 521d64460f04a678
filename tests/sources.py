"""Records that tests give to the linker, as a source would; what it makes of them, taken into a log."""

from __future__ import annotations

import random
from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from dataclasses import replace
from datetime import UTC, datetime

from branchmem.events import Event, Memory
from branchmem.importers.linker import link
from branchmem.importers.records import Content, Leaf, LeafChoice, Linked, Record, Report, Source

START = datetime(2026, 1, 1, tzinfo=UTC)


def record(id: str, parent: str | None, text: str | None = None, **rest: object) -> Record:
    fields: dict[str, object] = {"conversation": "c", "role": "user", "text": text or f"text of {id}", **rest}
    return Record(id=id, parent=parent, **fields)  # type: ignore[arg-type]  # the fields of Record


class Given(Source):
    """Records that a test gives, as a source; `places` is whose content was asked for again."""

    path = "a file"

    def __init__(
        self,
        records: Iterable[Record],
        leaves: Mapping[str, str],
        summaries: Callable[[Linked], Iterable[Memory]] = lambda linked: (),
    ) -> None:
        self._records = [replace(record, place=place) for place, record in enumerate(records)]
        self._summaries = summaries
        self._read = False
        self.leaves = {root: Leaf(id, "declared") for root, id in leaves.items()}
        self.places: list[int] = []

    def records(self) -> Iterator[Record]:
        assert not self._read, "records are asked for once"
        yield from self._records
        self._read = True

    def content(self, place: int) -> Content:
        assert self._read, "content is asked for when all records are read"
        self.places.append(place)
        record = self._records[place]
        return Content(record.role, record.text, record.created, record.meta)

    def memories(self, linked: Linked) -> Iterator[Memory]:
        yield from self._summaries(linked)


def imported(
    log: dict[str, Event],
    *records: Record,
    leaf: LeafChoice = "declared",
    leaves: Mapping[str, str] | None = None,
    summaries: Callable[[Linked], Iterable[Memory]] = lambda linked: (),
    erased: Container[str] = (),
    at_once: bool = True,
) -> Report:
    """Link and append, holding what must hold for any file: nothing known is given again.

    `at_once` appends each event as it comes, as batches of one would be.
    """
    report = Report()
    known = set(log)
    events = []
    source = Given(records, leaves or {}, summaries)
    for event in link(source, stored=log.get, erased=lambda id: id in erased, report=report, leaf=leaf):
        assert event.id not in known
        known.add(event.id)
        events.append(event)
        if at_once:
            log[event.id] = event
    log.update((event.id, event) for event in events)
    return report


def version(id: str, log: Mapping[str, Event]) -> str:
    """The one id that a version of `id` got."""
    (found,) = (name for name in log if name.startswith(f"{id}~"))
    return found


def any_record(chance: random.Random) -> Record:
    ids = "abcdefg"
    parent = chance.choice([None, *ids])
    return record(
        chance.choice(ids),
        parent,
        chance.choice("xy"),
        conversation=chance.choice("CD"),
        logical_parent=chance.choice([None, *ids]),
        created=chance.choice([None, START]),
        copied=chance.random() < 0.3,
    )
