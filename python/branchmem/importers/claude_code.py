"""Claude Code transcripts: a session's `.jsonl` file, or a folder of sessions and their agents.

A line with a `uuid` is a message, in the chain that its `parentUuid` says; a
session is told by `sessionId`, never by the name of a file.  Copies that other
files hold are the same messages: ids are those of the lines, and a copy whose
uuid was rewritten goes by `forkedFrom.messageUuid`.  What a fork copies belongs
to the conversation that it was forked from, and so does what it adds.

    a line                                       becomes
    user, assistant, system, attachment,         a message
    progress, each with a uuid
    any other type with a uuid                   a message that holds its place; the type is counted
    summary, titles, snapshots, queue            nothing, whether it has a uuid or not: none holds a place, and the
    operations and the like (`_BESIDE`)          leaves that some of them name are hints about other moments
    user, assistant without a uuid               counted; where no line of the file has one, a message below the one
                                                 before, `assumed_linear`, its id a hash of what was said up to it
    any other object                             counted
    what is no object, or cannot be read         a bad line, at its byte; a stub with a line glued to it is one
    an end of the file that cannot be read yet   nothing: the next import finds it whole

    content                                      text
    a string; blocks `text`, a line each         as it stands
    thinking, images, documents, tool calls      empty: nobody said it.  What tools return stands under the role of
    and what they return; attachments, progress  the user, who did not say it either
    `content` of a system line                   as it stands
    hidden lines (`isMeta`)                      none: they only hold their place

Meta are links that the tree cannot hold: `logicalParentUuid`; of what an agent
did `isSidechain` and `agentId`; of the call that started an agent `agentId` and
`toolUseID`.  A boundary of compaction hangs below its logical parent.  The
summary behind it is a message like any, and a memory besides: its sources are
the messages above its boundary up to the summary before, that one included, from
whose memory it derives.  Where not all of these are known it is no memory.

A copy with a uuid of its own stands for the line that it was copied from where
both say the same: a fork dates its last line anew, and links lines past those of
progress, which it leaves out.  Imported before that line, it is the message, and
the line another version of it.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator
from pathlib import PurePath
from typing import Any, Final

from branchmem.errors import ImportFailed
from branchmem.events import Memory
from branchmem.importers import claude_code_leaves, json_lines
from branchmem.importers.claude_code_content import TURNS, blocks, name, said
from branchmem.importers.claude_code_leaves import ASIDE, BESIDE, MAIN
from branchmem.importers.claude_code_summaries import Summaries
from branchmem.importers.files import Files, number_of, offset_of
from branchmem.importers.records import (
    ASSUMED_LINEAR,
    Content,
    Leaf,
    Linked,
    Record,
    Report,
    Source,
    event_id,
)

TOOL: Final = "claude-code"
EXPECTED: Final = "Claude Code transcripts, lines of JSON that each have a `uuid`, in a .jsonl file or a folder of them"

# Stands for a parent that cannot be read, in ids of messages that do not exist.
_UNREADABLE: Final = "?"
_FORKED: Final = b'"forkedFrom"'
_CHAINED: Final = frozenset({*TURNS, "system", "attachment", "progress"})
_BESIDE: Final = frozenset(
    [
        "agent-color",
        "agent-name",
        "agent-setting",
        "ai-title",
        "atis-latch",
        "attribution-snapshot",
        "bridge-session",
        "content-replacement",
        "continued-in",
        "cost-state",
        "custom-title",
        "dev-mods",
        "file-history-delta",
        "file-history-snapshot",
        "fork-context-ref",
        "last-prompt",
        "marble-origami-commit",
        "marble-origami-snapshot",
        "mode",
        "permission-mode",
        "pr-link",
        "queue-operation",
        "relocated",
        "result",
        "speculation-accept",
        "started",
        "summary",
        "tag",
        "worktree-state",
    ]
)
# Calls are answered soon: so many of the last ones are remembered, to tell whose turn an answer belongs to.
_CALLS: Final = 1 << 13


def looks_like(lines: Iterable[bytes]) -> bool:
    """Whether a line of a transcript is among the first lines."""
    return any(_is_told(form) for form in json_lines.objects(lines))


def _is_told(form: dict[str, Any]) -> bool:
    kind = form.get("type")
    if not isinstance(kind, str):
        return False
    if name(form.get("uuid")) is not None:
        return "parentUuid" in form or "sessionId" in form
    if kind in TURNS:
        return isinstance(form.get("message"), dict)
    return kind in _BESIDE and not form.keys().isdisjoint(("sessionId", "leafUuid", "messageId"))


def sources(files: Files, report: Report) -> Iterator[Source]:
    """All transcripts as one source, since sessions continue each other; what agents did comes after all else."""
    yield _Transcripts(
        files.only(sorted(range(len(files)), key=lambda number: _is_by_agent(files.name(number)))), report
    )


def _is_by_agent(name: str) -> bool:
    parts = PurePath(name).parts
    return bool(parts) and (parts[-1].startswith("agent-") or "subagents" in parts[:-1])


class _Transcripts(Source):
    """Transcripts, in their order, read a line at a time.

    Cost: some 33 bytes a record, and the ids of copies whose uuids were rewritten.
    Raises: ImportFailed where no line is a message, where a file cannot be read,
    and where it changed between two readings.
    """

    def __init__(self, files: Files, report: Report) -> None:
        self.leaves: dict[str, Leaf] = {}
        self.path = files.path
        self._report = report
        self._files = files
        self._ends = claude_code_leaves.Leaves()
        self._summaries = Summaries()
        self._conversations: dict[str, str] = {}
        self._aliases: dict[str, str] = {}
        self._calls: dict[str, str] = {}

    def records(self) -> Iterator[Record]:
        empty = 0
        self._aliases = self._rewritten()
        for number in range(len(self._files)):
            file = _File(number)
            for place, form in self._forms(number):
                record = self._record(form, place, file)
                if record is not None:
                    file.messages += 1
                    yield record
            empty += not file.messages
            self._report.unknown_types += file.unknown if file.messages else 1
        if empty == len(self._files):
            raise ImportFailed(self.path, "its lines", EXPECTED)
        for conversation, place in self._ends.found():
            leaf = self._id_at(place)
            if leaf is not None:
                self.leaves[conversation] = Leaf(leaf, "last_line")
        self._ends = claude_code_leaves.Leaves()  # room for what the linker does next
        self._calls.clear()

    def content(self, place: int) -> Content:
        return self._content(self._form_at(place))[0]

    def memories(self, linked: Linked) -> Iterator[Memory]:
        return self._summaries.memories(linked, self.content)

    # Lines

    def _forms(self, number: int) -> Iterator[tuple[int, dict[str, Any]]]:
        """The objects in a file; what is none is counted, except an end that may still be written."""
        name = self._files.name(number)
        for place, line in self._files.lines(number):
            if not line.strip():
                continue
            try:
                yield place, json_lines.parsed(line)
            except ValueError as error:
                if line.endswith(b"\n") or len(line) > json_lines.LONGEST_LINE:
                    self._report.bad_line(offset_of(place), f"{name}: {error}" if name else str(error))

    def _form_at(self, place: int) -> dict[str, Any]:
        try:
            return json_lines.parsed(self._files.line(place))
        except ValueError:
            where = f"{self._files.name(number_of(place))} byte {offset_of(place)}".lstrip()
            raise ImportFailed(self.path, where, "the line that stood there when the import began") from None

    # Identity

    def _record(self, form: dict[str, Any], place: int, file: _File) -> Record | None:
        kind = form.get("type")
        if isinstance(kind, str) and kind in _BESIDE:
            return None
        uuid = name(form.get("uuid"))
        if uuid is None:
            file.unknown += 1
            return self._assumed(form, place, file) if kind in TURNS else None
        fork = form.get("forkedFrom")
        fork = fork if isinstance(fork, dict) else {}
        id = self._id(uuid)
        named = form.get("parentUuid")
        parent = None if named is None else self._id(name(named) or f"{_UNREADABLE}:{uuid}")
        following = name(form.get("logicalParentUuid")) if parent is None else None
        logical = None if following is None else self._id(following)
        readable = named is None or name(named) is not None
        content, known = self._content(form)
        file.unknown += not (known and readable and isinstance(kind, str) and kind in _CHAINED)
        conversation = self._conversation(form, fork, id, parent or logical, file)
        record = Record(
            conversation=conversation,
            id=id,
            parent=parent,
            logical_parent=logical,
            role=content.role,
            text=content.text,
            created=content.created,
            usable=readable and form.get("isSidechain") is not True,
            meta=content.meta,
            place=place,
            turn=self._turn(form),
            copied=name(fork.get("messageUuid")) not in (None, uuid),
        )
        if record.usable:
            self._ends.add(
                id,
                parent or logical,
                logical=parent is None and logical is not None,
                kind=_standing(form),
                conversation=conversation,
                place=place,
                file=file.number,
            )
        if form.get("isCompactSummary") is True:
            self._summaries.add_summary(id, place)
            if logical is not None:
                self._summaries.add_boundary(id)
        elif kind == "system" and form.get("subtype") == "compact_boundary":
            self._summaries.add_boundary(id)
        return record

    def _id(self, uuid: str) -> str:
        """The id of the message that a uuid stands for, followed through the forks that rewrote it."""
        id = event_id(TOOL, uuid)
        seen = {id}
        while (original := self._aliases.get(id, id)) not in seen:
            seen.add(original)
            id = original
        if len(seen) > 2:  # so that a chain of forks is followed once
            self._aliases.update(dict.fromkeys(seen, id))
        return id

    def _rewritten(self) -> dict[str, str]:
        """For each id that a fork rewrote, in whatever file, the one it had."""
        found: dict[str, str] = {}
        for number in range(len(self._files)):
            if not self._files.has(number, _FORKED):
                continue
            for _, line in self._files.lines(number):
                if _FORKED not in line:
                    continue
                for form in json_lines.objects([line]):
                    uuid, fork = name(form.get("uuid")), form.get("forkedFrom")
                    original = name(fork.get("messageUuid")) if isinstance(fork, dict) else None
                    if uuid is not None and original not in (None, uuid):
                        found[event_id(TOOL, uuid)] = event_id(TOOL, str(original))
        return found

    def _id_at(self, place: int) -> str | None:
        uuid = name(self._form_at(place).get("uuid"))
        return None if uuid is None else self._id(uuid)

    def _conversation(
        self, form: dict[str, Any], fork: dict[str, Any], id: str, parent: str | None, file: _File
    ) -> str:
        """The root of the conversation that a line belongs to: that of its session, or of what this was forked from."""
        named = (name(each.get("sessionId")) for each in (form, fork))
        own, origin = (None if each is None else event_id(TOOL, each) for each in named)
        session = file.session = own or origin or file.session or event_id(TOOL, f"~{_hash(id)[:16]}")
        if origin is not None:
            self._conversations.setdefault(origin, origin)
        if session not in self._conversations:
            above = None if parent is None else self._ends.conversation(parent)
            self._conversations[session] = (above or session) if origin is None else self._conversations[origin]
        return self._conversations[session if origin is None else origin]

    def _turn(self, form: dict[str, Any]) -> str | None:
        """The answer of the model that a line is part of, or belongs to as what a call of it returned."""
        message = form.get("message")
        found = blocks(message)
        turn = name(message.get("id")) if isinstance(message, dict) and form.get("type") == "assistant" else None
        if turn is not None:
            turn = event_id(turn)
            for block in found:
                call = name(block.get("id"))
                if call is not None:
                    self._calls[event_id(call)] = turn
            while len(self._calls) > _CALLS:
                del self._calls[next(iter(self._calls))]
            return turn
        attached = form.get("attachment")
        named = [block.get("tool_use_id") for block in found]
        named += [form.get(field) for field in ("sourceToolUseID", "parentToolUseID", "toolUseID")]
        named += [attached.get("toolUseID") if isinstance(attached, dict) else None]
        calls = (event_id(call) for call in map(name, named) if call is not None)
        return next((self._calls[call] for call in calls if call in self._calls), None)

    def _assumed(self, form: dict[str, Any], place: int, file: _File) -> Record | None:
        """A line without a uuid, below the one before, where no line of its file has one."""
        if file.is_linear is None:
            file.is_linear = not self._files.has(file.number, b'"uuid"')
        if not file.is_linear or not isinstance(form.get("message"), dict):
            return None
        content = self._content(form)[0]
        session = name(form.get("sessionId"))
        above = file.last.get(session)
        told = [above, content.role, content.text, form.get("timestamp")]
        id = event_id(TOOL, f"~{_hash(json.dumps(told))[:32]}")
        conversation = event_id(TOOL, session or f"~{_hash(id)[:16]}") if above is None else file.root[session]
        file.last[session], file.root[session] = id, conversation
        self.leaves[conversation] = Leaf(id, "last_line")
        return Record(
            conversation=conversation,
            id=id,
            parent=above,
            role=content.role,
            text=content.text,
            created=content.created,
            meta=content.meta,
            place=place,
            turn=self._turn(form),
        )

    def _content(self, form: dict[str, Any]) -> tuple[Content, bool]:
        """What a line says, and whether all of it could be read."""
        role, text, created, known = said(form)
        return Content(role, text, created, self._meta(form)), known

    def _meta(self, form: dict[str, Any]) -> dict[str, Any]:
        meta: dict[str, Any] = {}
        following = name(form.get("logicalParentUuid"))
        if following is not None:
            meta["logicalParentUuid"] = self._id(following).removeprefix(f"{TOOL}:")
        if form.get("isSidechain") is True:
            meta["isSidechain"] = True
            meta["agentId"] = name(form.get("agentId"))
        elif isinstance(form.get("toolUseResult"), dict):
            meta["agentId"] = name(form["toolUseResult"].get("agentId"))
            if meta["agentId"] is not None:
                meta["toolUseID"] = next(
                    (name(block.get("tool_use_id")) for block in blocks(form.get("message"))), None
                )
        if name(form.get("uuid")) is None:
            meta[ASSUMED_LINEAR] = True
        return {name: value for name, value in meta.items() if value is not None}


class _File:
    """What is known of the file that is being read."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.messages = 0
        self.unknown = 0
        self.session: str | None = None
        # of a file without uuids: by session the message before, and its root
        self.is_linear: bool | None = None
        self.last: dict[str | None, str] = {}
        self.root: dict[str | None, str] = {}


def _standing(form: dict[str, Any]) -> int:
    if form.get("type") not in TURNS:
        return BESIDE
    return ASIDE if form.get("teamName") or form.get("isMeta") else MAIN


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
