"""From neutral records to events: the linker that all formats share.

A format module turns its file into records; the linker finds the parents,
gives every conversation a root, once something hangs under it, and says which
events the log does not have yet.  Its one rule: every record becomes a message,
nothing is repaired silently, everything is counted.  Where an ancestor is
uncertain the message stays detached, so that what came from it stays hidden.

What was erased stays so: a record that has the id of an erased message stands for
it, whatever it says and wherever it hangs, and becomes no version of it.

It opens no store: `stored` answers from an id to the event that bears it, or
None, `erased` whether that lost its content.  It asks the source once more for the content of what the log lacks, and
holds none of it.  It never recurses: a chain of a million records is a chain
like others.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import chain
from typing import Any, Final, NamedTuple

from branchmem.canonical import NO_META
from branchmem.errors import ImportFailed, InvalidEvent
from branchmem.events import Legacy, Memory, Message
from branchmem.importers.forest import COPIED, FIRST, LINKED, USABLE, Forest, Starts, digest, numbers
from branchmem.importers.records import (
    ASSUMED_LINEAR,
    NO_LEAF,
    Content,
    IsErased,
    Leaf,
    LeafChoice,
    Report,
    Source,
    Stored,
    event_id,
    repaired,
)


def link(
    source: Source, *, stored: Stored, erased: IsErased, report: Report, leaf: LeafChoice = "declared"
) -> Iterator[Message | Memory]:
    """The events that the log lacks: messages parents first, detached ones last, then memories; `report` is filled.

    A record whose id is taken by other content becomes a sibling version,
    `<id>~<8 hex digits>`, and what the file has below it hangs below that.
    A leaf that nobody could stand on is none, unless `leaf` asks for the newest.
    All records are read before `stored` is asked.  What was given out here
    already, the log may hold or not.

    Raises: ImportFailed where the source has nothing to import, or has changed meanwhile.
    Cost: O(records), one or two questions to `stored` a record; where messages
    continue others in the log, one more for each that stands above these.
    """
    forest = Forest()
    for record in source.records():
        said = Content(record.role, record.text, record.created, record.meta)
        message = _message("~", None, said, report)
        usable = record.usable and message.role is not None
        report.duplicates += forest.take(record, digest(message.body()), message.created, usable=usable)
    report.duplicates += forest.merge(lambda place: _said(source.content(place)))
    starts, opened = forest.link(lambda id: isinstance(stored(id), Message))
    report.cycles += opened
    report.dangling += len(starts.dangling)

    events = _Events(source, forest, stored, erased, report)
    for conversation, tops in starts.tops.items():
        yield from events.settle_conversation(forest.ids[conversation], tops)
    yield from events.settle([*starts.elsewhere, *starts.dangling, *starts.circled], None)

    events.find_roots(starts)
    events.count()
    newest = events.newest() if leaf == "heuristic" else {}
    for conversation_id, root in events.roots.items():
        declared = source.leaves.get(conversation_id, NO_LEAF)
        at = -1 if declared.leaf is None else forest.newest(declared.leaf)
        if at >= 0 and forest.flags[at] & USABLE:
            report.current[root] = Leaf(events.names[at], declared.leaf_source)
        else:
            report.current.setdefault(root, newest.get(root, NO_LEAF))
    yield from events.memories()


class _Held(NamedTuple):
    """What bears an id: the parent of a message and the digest of its content; no digest where it is no message.

    What was erased had other content, which nobody knows any more.
    """

    parent: str | Legacy | None
    digest: bytes
    erased: bool = False


class _Events:
    """The events that the nodes of a forest become: the name of each by node, and the parent that it has.

    What they made or met is known here, so that the log may take it in meanwhile, or later.
    """

    def __init__(self, source: Source, forest: Forest, stored: Stored, erased: IsErased, report: Report) -> None:
        self._source = source
        self._forest = forest
        self._stored = stored
        self._erased = erased
        self._report = report
        self.names = [""] * len(forest)
        # by conversation its root, made or not; where its messages only continue others in the log, the root of these
        self.roots: dict[str, str] = {}
        self._hung_under: set[str] = set()
        self._tops: dict[str, str | None] = {}
        self._parents: list[str | Legacy | None] = [None] * len(forest)
        # which node became an event first: by number of its id, or by its name where the source has no such id
        self._bearers = numbers(len(forest.ids), -1)
        self._versions: dict[str, int] = {}
        # the roots and memories made or met, which stand for no record
        self._apart: dict[str, _Held] = {}
        # the names that stand for what was erased in the log before
        self._bare: set[str] = set()

    def name(self, record_id: str) -> str | None:
        """The id of the event that the last record of this id became; None where there is no such record."""
        node = self._forest.newest(record_id)
        return None if node < 0 else self.names[node]

    def above(self, event_id: str) -> str | None:
        """The parent of a message of the file or of the log; None for a root, a legacy message, and what is none."""
        held = self._held(event_id)
        return held.parent if held is not None and isinstance(held.parent, str) else None

    def is_root(self, event_id: str) -> bool:
        """Whether this is a message without a parent, so that nothing stands above it."""
        held = self._held(event_id)
        return held is not None and held.parent is None and bool(held.digest)

    def settle_conversation(self, conversation: str, tops: Sequence[int]) -> Iterator[Message]:
        """Settle all nodes at and below the tops of a conversation, and its root, if anything hangs under it."""
        body = digest(_message("~", None, _ROOT, Report()).body())
        root, above, event = self._named(conversation, None, body, lambda: _ROOT, first=True, linked=True)
        self.roots[conversation] = root
        self._apart[root] = _Held(above, body, root in self._bare)
        for message in self.settle(tops, root):
            if event is not None and message.parent == root:
                yield event
                event = None
            yield message
        if any(self._parents[top] == root for top in tops):
            self._hung_under.add(root)
            if event is not None:
                yield event
        elif event is not None:
            del self._apart[root]

    def find_roots(self, starts: Starts) -> None:
        """Find the roots in the log that messages hang under which continue others there, or repeat them."""
        forest = self._forest
        for node in chain(*starts.tops.values(), starts.elsewhere):
            if self._parents[node] in self._hung_under:
                continue
            root = self._top(self.names[node])
            if root is None:
                continue
            self._hung_under.add(root)
            conversation = forest.ids[forest.conversation[node]]
            if self.roots[conversation] not in self._hung_under:
                self.roots[conversation] = root

    def settle(self, starts: Iterable[int], top: str | None) -> Iterator[Message]:
        """Settle all nodes at and below `starts`, the children of `top`; without one, below what they name."""
        forest = self._forest
        for node in forest.walk(starts):
            above = forest.above[node]
            parent = self.names[above] if above >= 0 else top or forest.ids[forest.parent[node]]
            flags = forest.flags[node]
            name, self._parents[node], event = self._named(
                forest.ids[forest.id[node]],
                parent,
                forest.digest(node),
                partial(self._source.content, forest.place[node]),
                first=bool(flags & FIRST),
                linked=bool(flags & LINKED),
                copied=bool(flags & COPIED),
            )
            self.names[node] = name
            self._report.erased += name in self._bare
            if name not in self._apart and self._bearer(name) < 0:
                self._bear(name, node)
            if event is not None:
                self._report.added += 1
                yield event

    def count(self) -> None:
        """Count conversations and messages, and where these branch and end."""
        turns = self._forest.turns()
        inner, branches = bytearray(len(turns)), bytearray(len(turns))
        first = numbers(len(turns), -1)
        others: set[tuple[int, int]] = set()
        messages = 0
        for node, name in enumerate(self.names):
            if self._bearer(name) != node:
                continue
            messages += 1
            parent = self._parents[node]
            self._report.roots += parent in self._hung_under
            above = self._bearer(parent) if isinstance(parent, str) else -1
            if above < 0:
                continue
            inner[above] = 1
            step = turns[above], turns[node]
            within = step[0] == step[1] and above != node
            if within or first[step[1]] == step[0] or step in others:
                continue
            if first[step[1]] < 0:
                first[step[1]] = step[0]
            else:
                others.add(step)
            branches[step[0]] = min(branches[step[0]] + 1, 2)
        self._report.conversations += len(self._hung_under)
        self._report.messages += messages
        self._report.leaves += messages - inner.count(1)
        self._report.forks += branches.count(2)

    def newest(self) -> dict[str, Leaf]:
        """The newest attached leaf of each conversation that has one, by its root."""
        forest = self._forest
        found: dict[str, Leaf] = {}
        for node in forest.standing():
            root = self.roots[forest.ids[forest.conversation[node]]]
            if root not in found and self._top(self.names[node]) is not None:
                found[root] = Leaf(self.names[node], "heuristic")
        return found

    def memories(self) -> Iterator[Memory]:
        """The memories of the source that the log lacks; what derives from a version derives from that."""
        versions: dict[str, str] = {}
        given: dict[str, bytes] = {}
        for memory in self._source.memories(self):
            plain = memory.id
            if not versions.keys().isdisjoint(memory.derived_from):
                memory = replace(memory, derived_from=tuple(versions.get(id, id) for id in memory.derived_from))
            while True:
                form = digest(memory.skeleton() + memory.body())
                known = given.get(memory.id)
                if known is None and (memory.id in self._apart or self._bearer(memory.id) >= 0):
                    known = b""
                event = self._stored(memory.id) if known is None else None
                if known == form or event == memory:
                    break
                if memory.id in self._bare or (isinstance(event, Memory) and self._erased(memory.id)):
                    self._bare.add(memory.id)
                    version = _version(memory)
                    if version not in given and self._stored(version) is None:
                        self._report.erased += 1
                        break
                    memory = replace(memory, id=version)
                    continue
                if known is None and event is None:
                    self._report.added += 1
                    yield memory
                    break
                self._report.edited += memory.id == plain
                memory = replace(memory, id=_version(memory))
            given[memory.id] = form
            versions[plain] = memory.id

    def _named(
        self,
        id: str,
        parent: str | None,
        body: bytes,
        content: Callable[[], Content],
        *,
        first: bool,
        linked: bool,
        copied: bool = False,
    ) -> tuple[str, str | Legacy | None, Message | None]:
        """The event that stands for a message whose body has this digest: id, parent, and itself if nobody has it.

        An unlinked copy of a message that is there is a duplicate of it, and so
        is what was copied from one in the log that says the same.  What was erased
        is stood for by whatever has its id, unless that is a version that the log has.
        """
        name = id
        while True:
            held = self._held(name)
            if held is not None and held.erased:
                self._bare.add(name)
                version = _version(_message(name, parent, content(), Report())) if name == id else name
                if version == name or self._held(version) is None:
                    return name, held.parent, None
                name = version
                continue
            if held is not None and held.digest == body:
                if held.parent == parent:
                    return name, parent, None
                if name == id and not linked:
                    self._report.duplicates += 1
                    return name, held.parent, None
            message = _message(name, parent, content(), Report())
            if digest(message.body()) != body:
                raise ImportFailed(self._source.path, f"the content of {id}", "what stood there when it was read first")
            if held is None and (first or name != id):
                return name, parent, message
            if held is not None and name == id and self._is_copy(message, copied=copied):
                self._report.duplicates += 1
                return name, held.parent, None
            self._report.edited += name == id
            name = _version(message)

    def _held(self, id: str) -> _Held | None:
        """What bears an id, here or in the log."""
        held = self._apart.get(id)
        if held is not None:
            return held
        node = self._bearer(id)
        if node >= 0:
            return _Held(self._parents[node], self._forest.digest(node), id in self._bare)
        event = self._stored(id)
        if isinstance(event, Message):
            return _Held(event.parent, digest(event.body()), self._erased(id))
        return None if event is None else _NO_MESSAGE

    def _bearer(self, name: str) -> int:
        number = self._forest.number.get(name)
        return self._versions.get(name, -1) if number is None else self._bearers[number]

    def _bear(self, name: str, node: int) -> None:
        number = self._forest.number.get(name)
        if number is None:
            self._versions[name] = node
        else:
            self._bearers[number] = node

    def _is_copy(self, message: Message, *, copied: bool) -> bool:
        """Whether the log has a message of this id that says the same, copied, or in the place assumed for it."""
        event = self._stored(message.id)
        if not isinstance(event, Message) or (event.role, event.text) != (message.role, message.text):
            return False
        return copied or (event.parent == message.parent and ASSUMED_LINEAR in event.meta.keys() ^ message.meta.keys())

    def _top(self, id: str) -> str | None:
        """The message at which the parents of one end, None where they do not end; remembered for those on the way."""
        known = self._tops
        way: list[str] = []
        at: str | Legacy | None = id
        while isinstance(at, str) and at not in known:
            known[at] = None  # met again before the way ends, it is a circle
            way.append(at)
            held = self._held(at)
            if held is None or not held.digest:
                return None
            at = held.parent
        answer = known[at] if isinstance(at, str) else way[-1]
        known.update(dict.fromkeys(way, answer))
        return answer


def _said(content: Content) -> bytes:
    """What stands for a role and a text, whatever the time and the links."""
    return digest(json.dumps([content.role, content.text]).encode())


def _version(event: Message | Memory) -> str:
    """The id of an event whose own id is taken by other content."""
    return event_id(f"{event.id}~{hashlib.sha256(event.skeleton() + event.body()).hexdigest()[:8]}")


def _message(id: str, parent: str | None, content: Content, report: Report) -> Message:
    """A message that says this, as far as a message may; what was replaced and what was left out is counted."""
    role, text, created, meta = content
    if role is not None:
        role, count = repaired(role)
        report.replaced += count
    if text is not None:
        text, count = repaired(text)
        report.replaced += count
    try:
        return Message(id, parent, role=role, text=text, created=created, meta=meta)
    except InvalidEvent:
        if not _fits(role=role):
            role = None
            report.unknown_types += 1
        if not _fits(text=text):
            text = None
            report.too_long += 1
        if not _fits(created=created):
            created = None
        if not _fits(meta=meta):
            meta = NO_META
            report.unknown_types += 1
    return Message(id, parent, role=role, text=text, created=created, meta=meta)


def _fits(**content: Any) -> bool:
    """Whether a message may hold this content."""
    try:
        Message("~", None, **content)
    except InvalidEvent:
        return False
    return True


_ROOT: Final = Content(role="thread")
_NO_MESSAGE: Final = _Held(None, b"")
