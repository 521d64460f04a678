"""Codex rollouts: a thread a file, or a folder of them, in which forks and agents repeat what they began with.

An item continues the one before it.  Items have no names, so that an id is a hash
of the conversation and of all items from its beginning on: a copy is the same
message, whatever time it was given.

    a line                                      becomes
    `response_item`                             a message: what was said, a call, what it returned, reasoning
    `compacted`                                 a message, and a memory of what was compacted, where its summary can be
                                                read: its sources are the messages above, up to the one compacted before
    `event_msg` `user_message`,                 a message in files that have no item of that role; else it only repeats
    `agent_message`                             one
    `event_msg` `thread_rolled_back`            nothing: what follows hangs below what stood before the last `num_turns`
                                                turns of the user, and those stay, a branch that was left
    other events, among them `turn_aborted`     nothing: what was said until then stays, and the next turn continues it
    `session_meta`, `turn_context`              nothing: the first of a file names its thread, copies of others do not
    any other object                            counted
    lines of old files, without an envelope     the same as the `response_item` that they hold

A thread that was forked (`forked_from_id`), or that an agent works on (`thread_spawn`),
belongs to the conversation of its parent.  The beginning that it shares with that
is found by what the items say, never by time, and an agent's copy may leave out what
tools did.  What an agent did is marked `isSidechain` with its thread as `agentId` and
the call that started it as `toolUseID`, and nobody stands there.  A conversation
stands at the end of its own thread; where only forks are here, of the last of them.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from typing import Any, Final, NamedTuple

from branchmem.canonical import is_deeper
from branchmem.events import Memory
from branchmem.importers import json_lines
from branchmem.importers.claude_code_summaries import Summaries
from branchmem.importers.codex_content import TYPES, Item, item, speaker
from branchmem.importers.files import Files
from branchmem.importers.line_source import LineSource, named
from branchmem.importers.records import Content, Leaf, Linked, Record, Report, Source, event_id, iso_time

TOOL: Final = "codex"
EXPECTED: Final = "Codex rollouts, lines of JSON with a `type` and a `payload`, in a .jsonl file or a folder of them"

_META: Final = "session_meta"
_TYPES: Final = (_META, "turn_context", "response_item", "event_msg", "compacted")
# Stands for a place to go on from that cannot be told, in ids of messages that do not exist.
_UNREADABLE: Final = "?"
_DEEPEST: Final = 200


class _Thread(NamedTuple):
    """Who a file says it is: its thread, the one it came from, and the agent's mark, empty where it is none's.

    `root` is the thread that its conversation is named after, `spoken` the roles that items of it have.
    """

    id: str
    parent: str | None
    root: str
    mark: dict[str, Any]
    spoken: frozenset[str]


def looks_like(lines: Sequence[bytes]) -> bool:
    """Whether a line of a rollout is among the first lines."""
    return any(_is_told(form) for form in json_lines.objects(lines))


def _is_told(form: dict[str, Any]) -> bool:
    if isinstance(form.get("payload"), dict):
        return form.get("type") in _TYPES
    content = form.get("content")
    return (
        form.get("type") == "message"
        and isinstance(content, list)
        and any(isinstance(block, dict) and block.get("type") in ("input_text", "output_text") for block in content)
    )


def _unwrapped(form: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    """The type of a line and its payload; what has no envelope is an item, or the first line of an old file."""
    kind, payload = form.get("type"), form.get("payload")
    if isinstance(kind, str) and isinstance(payload, dict):
        return kind, payload
    if "payload" not in form and isinstance(kind, str) and kind in TYPES:
        return "response_item", form
    return (_META if "record_type" in form or {"id", "timestamp"} <= form.keys() else ""), form


def sources(files: Files, report: Report) -> Iterator[Source]:
    """All threads as one source, each after the one that it came from."""
    threads = _threads(files)
    numbers = {thread.id: number for number, thread in reversed([*enumerate(threads)])}
    order: dict[int, None] = {}
    for start in range(len(threads)):
        way: list[int] = []
        at: int | None = start
        while at is not None and at not in order and at not in way:
            way.append(at)
            parent = threads[at].parent
            at = None if parent is None else numbers.get(parent)
        order.update(dict.fromkeys(reversed(way)))
    yield _Rollouts(files.only(order), [threads[number] for number in order], report)


def _threads(files: Files) -> list[_Thread]:
    parents: dict[str, str] = {}
    found: list[tuple[str, dict[str, Any], frozenset[str]]] = []
    for number in range(len(files)):
        id: str | None = None
        mark: dict[str, Any] = {}
        spoken: set[str] = set()
        first = ""
        for _, line in files.lines(number):
            try:
                form = _parsed(line)
            except ValueError:
                continue
            first = first or line.decode()
            kind, payload = _unwrapped(form)
            if kind == _META:
                own, parent, own_mark = _told(payload)
                if own is not None and parent is not None:
                    parents.setdefault(own, parent)
                if own is not None and id is None:
                    id, mark = own, own_mark
            elif kind == "response_item" and (role := speaker(payload)) is not None:
                spoken.add(role)
            if {"user", "assistant"} <= spoken:
                break
        found.append((id or f"~{_hash(first)[:16]}", mark, frozenset(spoken)))
    threads = []
    for id, mark, roles in found:
        root, seen = id, {id}
        while (above := parents.get(root)) is not None and above not in seen:
            seen.add(above)
            root = above
        threads.append(_Thread(id, parents.get(id), root, mark, roles))
    return threads


def _parsed(line: bytes) -> dict[str, Any]:
    """The object on a line, unless that is nested so deeply that it could not be written again."""
    form = json_lines.parsed(line)
    if line.count(b"{") + line.count(b"[") > _DEEPEST and is_deeper(form, _DEEPEST):
        raise ValueError("nested too deeply")
    return form


def _told(meta: dict[str, Any]) -> tuple[str | None, str | None, dict[str, Any]]:
    """The thread that a `session_meta` names, the one that it came from, and the mark of an agent."""
    id = named(meta.get("id"))
    source = meta.get("source")
    agent = source.get("subagent") if isinstance(source, dict) else None
    spawn = agent.get("thread_spawn") if isinstance(agent, dict) else None
    spawn = spawn if isinstance(spawn, dict) else {}
    parent = named(spawn.get("parent_thread_id"))
    if parent is None:
        return id, named(meta.get("forked_from_id")), {}
    mark: dict[str, Any] = {"isSidechain": True, "agentId": id}
    if named(spawn.get("spawn_call_id")) is not None:
        mark["toolUseID"] = named(spawn.get("spawn_call_id"))
    return id, parent, mark


class _Rollouts(LineSource):
    """The threads of several files, each after the one that it came from."""

    def __init__(self, files: Files, threads: Sequence[_Thread], report: Report) -> None:
        super().__init__(files, report, EXPECTED)
        self._threads = threads
        self._summaries = Summaries()
        # the conversations whose own thread was met
        self._trunks: set[str] = set()
        # what each thread that others came from holds, by its id
        self._origins = {thread.parent: _Items() for thread in threads if thread.parent is not None}

    def records_of(self, number: int) -> Iterator[Record]:
        thread = self._threads[number]
        conversation = event_id(TOOL, thread.root)
        own = self._origins.get(thread.id)
        shared = _Shared(None if thread.parent is None else self._origins[thread.parent])
        walk = _Walk(conversation)
        for line, form in self.forms(number):
            kind, payload = _unwrapped(form)
            if kind not in _TYPES:
                self.report.unknown_types += 1
            if kind == "event_msg" and payload.get("type") == "thread_rolled_back":
                self.report.unknown_types += not walk.roll_back(payload.get("num_turns"))
            found = _item(kind, payload, thread)
            if found is None:
                continue
            above = walk.head
            id, is_copy = shared.id_of(found, walk.next_id(found))
            walk.go_on(found, id)
            if own is not None:
                own.add(found, id)
            if is_copy:
                self.report.duplicates += 1
                continue
            self.report.unknown_types += not found.known
            content = self._content(form, found, thread)
            place = self.place(line)
            if kind == "compacted":
                self._summaries.add_summary(id, place)
                self._summaries.add_boundary(id)
            yield Record(
                conversation=conversation,
                id=id,
                parent=above,
                role=content.role,
                text=content.text,
                created=content.created,
                usable=not thread.mark,
                meta=content.meta,
                place=place,
                copied=True,
            )
        is_trunk = thread.id == thread.root
        if walk.head is not None and not thread.mark and (is_trunk or conversation not in self._trunks):
            self.leaves[conversation] = Leaf(walk.head, "last_line")
        if is_trunk:
            self._trunks.add(conversation)

    def parsed(self, line: bytes) -> dict[str, Any]:
        return _parsed(line)

    def pieces(self, number: int, form: dict[str, Any]) -> Sequence[Content]:
        thread = self._threads[number]
        found = _item(*_unwrapped(form), thread)
        return [] if found is None else [self._content(form, found, thread)]

    def memories(self, linked: Linked) -> Iterator[Memory]:
        return self._summaries.memories(linked, lambda place: self.content(place)._replace(created=None))

    def _content(self, form: dict[str, Any], found: Item, thread: _Thread) -> Content:
        text = None if found.contextual else found.text
        return Content(found.role, text, iso_time(form.get("timestamp")), thread.mark)


def _item(kind: str, payload: dict[str, Any], thread: _Thread) -> Item | None:
    """What a line becomes a message of; an event that only repeats an item does not."""
    found = item(kind, payload)
    return None if found is not None and kind == "event_msg" and found.role in thread.spoken else found


class _Walk:
    """Where a thread stands while it is read, and where each of its turns began."""

    def __init__(self, conversation: str) -> None:
        self.head: str | None = None
        self._conversation = conversation
        # what stands above each turn of the user, and above the context that was given before the next one
        self._turns: list[str | None] = []
        self._context: list[str | None] = []

    def next_id(self, found: Item) -> str:
        """The id of an item that continues what was read last."""
        return event_id(TOOL, _hash(f"{self.head or self._conversation}\n{found.key}"))

    def go_on(self, found: Item, id: str) -> None:
        """Stand on the next item.  Context before the first turn belongs to the thread, before others to these."""
        if found.begins_turn:
            self._turns.append(self._context[0] if self._context and self._turns else self.head)
        if found.is_context:
            self._context.append(self.head)
        else:
            self._context.clear()
        self.head = id

    def roll_back(self, turns: object) -> bool:
        """Go back so many turns, as far as there are any; whether that could be read.

        Where it cannot, nobody knows what the rest continues.
        """
        self._context.clear()
        if type(turns) is not int or turns < 0:
            self.head = event_id(TOOL, _UNREADABLE, self.head or self._conversation)
            return False
        if turns and self._turns:
            start = max(len(self._turns) - turns, 0)
            self.head = self._turns[start]
            del self._turns[start:]
        return True


class _Items:
    """The items of a thread in their order: which message each became, and whether a turn of the user began there."""

    def __init__(self) -> None:
        self.ids: list[str] = []
        self.keys: list[str] = []
        self.begins: list[bool] = []
        self.place: dict[str, int] = {}

    def add(self, found: Item, id: str) -> None:
        self.place.setdefault(id, len(self.ids))
        self.ids.append(id)
        self.keys.append(_hash(found.key))
        self.begins.append(found.begins_turn)


class _Shared:
    """The beginning that a thread shares with the one it came from: where in that we are, as long as we are."""

    def __init__(self, origin: _Items | None) -> None:
        self._origin = origin
        self._next = 0

    def id_of(self, found: Item, id: str) -> tuple[str, bool]:
        """The id of an item that would have this one, and whether it is a copy.

        A copy may leave out items of the thread it was made from, but no turn of the user.
        """
        origin = self._origin
        if origin is None:
            return id, False
        if id in origin.place:
            self._next = origin.place[id] + 1
            return id, True
        key = _hash(found.key)
        for at in range(self._next, len(origin.ids)):
            if origin.keys[at] == key:
                self._next = at + 1
                return origin.ids[at], True
            if origin.begins[at]:
                break
        self._origin = None
        return id, False


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:32]
