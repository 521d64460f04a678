"""Files larger than memory: entry by entry, in any pieces; nothing is written before all of a file is sound."""

from __future__ import annotations

import io
import json
import os
import random
import threading
import zipfile
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import IO, Any

import branchmem as bm
import pytest
from branchmem import importers
from branchmem.errors import ImportFailed
from branchmem.events import Event
from branchmem.importers import entries
from branchmem.importers.json_lines import LONGEST_LINE, lines
from exports import OPEN_WEBUI, SAMPLES, SEED, Log, chat, conversation, counted, never, node, said, stored_in
from figures import Figure, Quote
from peak_memory import peak_memory

# Entries, whatever the pieces in which a file is read


@pytest.fixture(params=[1, 2, 3, 7, 1 << 20])
def pieces(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    """How many bytes are read at once."""
    monkeypatch.setattr(entries, "CHUNK", request.param)
    size: int = request.param
    return size


def found(data: bytes) -> list[entries.Entry]:
    return list(entries.entries_of("a file", io.BytesIO(data), "JSON"))


VALUES: list[Any] = [
    {"a": [1, -2.5e-3, 1e400, None, True, False], "é\n\u2028": {"": '\U0001f9e0 \\ " / \x01'}},
    [],
    {},
    "text",
    "",
    12,
    -0.5,
    1e22,
    None,
    [[["x"]]],
    "x" * 100,
]


@pytest.mark.parametrize("form", [{}, {"indent": 3}, {"ensure_ascii": False}, {"separators": (",", ":")}])
def test_entries_are_those_of_the_list(pieces: int, form: dict[str, Any]) -> None:
    data = b"\xef\xbb\xbf \r\n" + json.dumps(VALUES, **form).encode() + b"\n\t "

    some = found(data)

    assert [entry.value for entry in some] == VALUES
    assert [json.loads(data[entry.span.start : entry.span.end]) for entry in some] == VALUES
    for entry in some:
        assert entries.read_again("a file", io.BytesIO(data), entry.span) == entry.value


def test_entries_under_conversations_and_a_single_one(pieces: int) -> None:
    wrapped = json.dumps({"version": [1], "conversations": VALUES, "more": {"conversations": []}}).encode()
    assert [(entry.value, entry.whole) for entry in found(wrapped)] == [(value, False) for value in VALUES]
    single = b' {"a": 1, "b": {"conversations": [2]}, "conversations": {}} '
    (entry,) = found(single)
    assert (entry.value, entry.whole, entry.span[:2]) == (json.loads(single), True, (1, len(single) - 1))
    assert entries.read_again("a file", io.BytesIO(single), entry.span) == entry.value
    for empty in (b"[]", b"{ }", b'{"conversations": []}'):
        assert [entry.value for entry in found(empty)] == ([{}] if empty == b"{ }" else [])


def test_an_entry_is_read_however_deeply_it_is_nested(pieces: int) -> None:
    deep = b'{"a":[' * 3000 + b'"\xc3\xa9"' + b"]}" * 3000
    data = b'[1, "x",' + deep + b" , 2]"

    one, two, three, four = found(data)

    assert (one.value, two.value, four.value) == (1, "x", 2)
    assert data[three.span.start : three.span.end] == deep
    for value in (three.value, entries.read_again("a file", io.BytesIO(data), three.span)):
        at, depth = value, 0
        while isinstance(at, dict):
            ((at,),) = at.values()
            depth += 1
        assert (depth, at) == (3000, "é")
    for broken, place in ((b"[" + deep[:-1] + b"]", len(deep)), (b"[" + deep[:-9], len(deep) - 8)):
        with pytest.raises(ImportFailed) as refused:
            found(broken)
        assert refused.value.place == f"byte {place}"


def values_or_place(data: bytes) -> list[Any] | int:
    """The values of the entries, or the byte at which there is a fault."""
    try:
        return [entry.value for entry in found(data)]
    except ImportFailed as refused:
        return int(refused.place.removeprefix("byte "))


def is_utf8(data: bytes) -> bool:
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True


def test_a_changed_file_is_an_answer_or_an_error_at_the_byte_that_json_names(pieces: int) -> None:
    whole = json.dumps([VALUES[0], "é", 12.5, {"b": "\\"}], ensure_ascii=False).encode()
    chance = random.Random(SEED)
    for turn in range(1500):
        data = bytearray(whole[: chance.choice([len(whole), chance.randrange(1, len(whole))])])
        data[chance.randrange(len(data))] = chance.choice([*b'[]{}",:\\ eu0-.', chance.randrange(256)])
        try:
            text = bytes(data).decode()
            expected: Any = json.loads(text)
        except UnicodeDecodeError as error:
            expected = error.start
        except json.JSONDecodeError as error:
            expected = len(text[: error.pos].encode())
        case = f"seed {SEED}, turn {turn}: {bytes(data)!r}"
        answer = values_or_place(bytes(data))
        if isinstance(expected, int) and isinstance(answer, int):
            # A fault before a byte that is no UTF-8 may be found first.
            assert answer == expected or (answer < expected and not is_utf8(bytes(data))), case
        else:
            assert answer == (expected if isinstance(expected, list) else [expected]), case


@pytest.mark.parametrize("data", [b"[1}", b"[1 2]", b"[,1]", b"[1,]", b"[] x", b'{"a" 1}', b'{"a":1,}', b"{1:2}", b"["])
def test_a_mark_that_is_missing_is_an_error_at_its_byte(pieces: int, data: bytes) -> None:
    with pytest.raises(json.JSONDecodeError) as wrong:
        json.loads(data)

    with pytest.raises(ImportFailed) as refused:
        found(data)

    assert refused.value.place == f"byte {wrong.value.pos}"


def test_an_entry_that_is_too_long_is_refused_before_it_is_read_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(entries, "CHUNK", 10)
    monkeypatch.setattr(entries, "LONGEST_ENTRY", 1000)

    class Endless(io.RawIOBase):
        taken = 0

        def seek(self, offset: int, whence: int = 0) -> int:
            self.taken = offset
            return offset

        def read(self, size: int = -1) -> bytes:
            start, self.taken = self.taken, self.taken + size
            return (b'[{"a": 1}, "' + b"x" * size)[start:][:size] if start < 12 else b"x" * size

    file = Endless()
    with pytest.raises(ImportFailed, match=r"at byte 11: .*no entry of more than"):
        list(entries.entries_of("a file", file, "JSON"))  # type: ignore[arg-type]  # as much of a file as is needed

    assert file.taken < 10_000


def test_a_line_without_end_is_cut_and_the_next_one_found() -> None:
    class Line(io.BytesIO):
        """A line of zeros that is not there, then a short one."""

        left = 3 * LONGEST_LINE

        def readline(self, size: int | None = -1) -> bytes:
            assert size is not None
            if not self.left:
                return super().readline()
            taken = min(size, self.left)
            self.left -= taken
            return bytes(taken) if self.left else bytes(taken - 1) + b"\n"

    (first, long), (second, short) = lines(Line(b"{}\n"))

    assert (first, len(long), second, short) == (0, LONGEST_LINE + 1, 3 * LONGEST_LINE, b"{}\n")


# Two readings


def export_of(kind: str, chats: int, turns: int) -> Iterator[bytes]:
    """An export of many chats, each with an edited prompt, in pieces: never all of it in memory."""
    text = "A sentence of an answer that is about as long as one. " * 12
    for i in range(chats):
        if kind in LISTS:
            yield (b"," if i else b"[") + json.dumps(listed(kind, i, turns, text)).encode()
            continue
        some: dict[str, Any] = {}
        above = None
        for turn in range(turns):
            role = "assistant" if turn % 2 else "user"
            said_here = f"{i} {turn} {text}"
            some[f"m{turn}"] = node(above, said_here, role) if kind == "chatgpt" else said(above, said_here, role)
            above = f"m{turn}"
        some["edit"] = node("m0", "otherwise") if kind == "chatgpt" else said("m0", "otherwise")
        whole = conversation(some, current_node=above) if kind == "chatgpt" else chat(some, above)
        yield (b"," if i else b"[") + json.dumps({**whole, "id": f"c{i}"}).encode()
    yield b"]"


#: Formats of which a conversation is a list: where it stands, and how a message spells itself.
LISTS: dict[str, Callable[..., dict[str, Any]]] = {
    "claude-ai": lambda id, above, role, text: {
        "uuid": id,
        "parent_message_uuid": above,
        "sender": role,
        "text": "",
        "content": [{"type": "text", "text": text}],
    },
    "librechat": lambda id, above, role, text: {
        "messageId": id,
        "parentMessageId": above,
        "isCreatedByUser": role == "user",
        "text": text,
    },
    "assistant-ui": lambda id, above, role, text: {
        "message": {"id": id, "role": role, "content": [{"type": "text", "text": text}]},
        "parentId": above,
    },
}


def listed(kind: str, i: int, turns: int, text: str) -> dict[str, Any]:
    """A conversation with an edited prompt, in a format that has its messages in a list."""
    spell = LISTS[kind]
    some = [
        spell(f"m{turn}", f"m{turn - 1}" if turn else None, "assistant" if turn % 2 else "user", f"{i} {turn} {text}")
        for turn in range(turns)
    ]
    some.append(spell("edit", "m0", "user", "otherwise"))
    return {
        "claude-ai": {"uuid": f"c{i}", "chat_messages": some},
        "librechat": {"conversationId": f"c{i}", "messages": some},
        "assistant-ui": {"id": f"c{i}", "messages": some},
    }[kind]


@pytest.mark.parametrize("kind", ["chatgpt", "open-webui", *LISTS])
def test_a_log_is_not_asked_before_all_of_a_file_is_sound(kind: str, export: Any) -> None:
    whole = b"".join(export_of(kind, 5, 4))

    def stored(id: str) -> Event | None:
        raise AssertionError(f"asked for {id}")

    for broken in (whole[:-1], whole[:-1] + b"}", whole + b"x", whole[:-9] + b"\xff" + whole[-8:]):
        with pytest.raises(ImportFailed):
            importers.read(export(broken), stored=stored, erased=never)


@pytest.mark.parametrize("kind", ["chatgpt", "open-webui", *LISTS])
@pytest.mark.parametrize("kept", [0, 1, 3])
def test_an_import_that_was_cut_off_between_batches_is_completed_by_the_next(
    kind: str, kept: int, export: Any, path: Path
) -> None:
    file = export(b"".join([*export_of(kind, 30, 8)]))
    with bm.open_temporary() as whole, bm.open(path) as store:
        expected = importers.import_file(file, append=whole.append, stored=stored_in(whole), erased=whole.log.is_erased)
        with importers.read(file, stored=stored_in(store), erased=store.log.is_erased) as reading:
            for batch in islice(reading.batches(50), kept):
                store.append(batch)
        assert store.seq == kept * 50
        assert not store.check().orphans

        report = importers.import_file(file, append=store.append, stored=stored_in(store), erased=store.log.is_erased)

        assert store.digest() == whole.digest()
        assert counted(report) == {**counted(expected), "added": report.added}
        assert report.current == expected.current
        assert (
            importers.import_file(file, append=store.append, stored=stored_in(store), erased=store.log.is_erased).added
            == 0
        )


def test_an_append_that_fails_is_heard_and_the_import_can_be_done_again(export: Any) -> None:
    file = export(b"".join(export_of("chatgpt", 1300, 8)))
    log = Log()

    def append_once(events: Sequence[Event]) -> None:
        if log:
            raise bm.StoreFull("a.bmem")
        log.append(events)

    with pytest.raises(bm.StoreFull):
        importers.import_file(file, append=append_once, stored=log.get, erased=never)
    written = set(log)
    assert 0 < len(written) <= importers.BATCH

    report = log.take(file)

    assert (report.messages, len(log)) == (1300 * 9, 1300 * 10)
    assert report.added == len(log) - len(written) - len(report.current.keys() - written)


def test_a_file_that_changes_between_the_two_readings_is_refused(export: Any) -> None:
    path = export([conversation({"r": node(None, "hi")}), {**conversation({"r": node(None, "ho")}), "id": "d"}])
    events = path.with_name("events.jsonl")
    events.write_bytes(b'{"type":"message","id":"a","parent":null}\n{"type":"message","id":"b","parent":"a"}\n')
    for file, old, new in ((path, b'"ho"', b'"no"'), (events, b'"b"', b'"c"')):
        log = Log()
        with importers.read(file, stored=log.get, erased=never) as reading:
            file.write_bytes(file.read_bytes().replace(old, new))
            batches = reading.batches(1)
            with pytest.raises(ImportFailed, match="read first"):
                deque(map(log.append, batches))
        assert log, "what came before is a valid prefix"


def test_a_pipe_is_read_like_a_file(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    sample = SAMPLES / "librechat_chatgpt-tree.json"
    writer = threading.Thread(target=lambda: pipe.write_bytes(sample.read_bytes()))
    writer.start()
    log, expected = Log(), Log()

    report = log.take(pipe)

    writer.join()
    assert report.to_dict() == expected.take(sample).to_dict()
    assert log == expected


# Changed bytes, and memory

EVERY = [*sorted(SAMPLES.glob("*.json")), *sorted(OPEN_WEBUI.glob("*.json"))]


@pytest.mark.parametrize("sample", EVERY, ids=lambda sample: sample.name)
def test_three_hundred_changed_bytes_leave_a_store_whole(sample: Path, export: Any) -> None:
    whole = sample.read_bytes()
    chance = random.Random(SEED)
    with bm.open_temporary() as store:
        for turn in range(300):
            data = bytearray(whole)
            at = chance.randrange(len(data))
            data[at] = chance.randrange(256)
            case = f"seed {SEED}, turn {turn}: byte {at} is {data[at]}"
            before, events = store.seq, Log()
            file = export(bytes(data))
            try:
                report = importers.import_file(
                    file, append=events.append, stored=stored_in(store), erased=store.log.is_erased
                )
            except bm.Error:
                assert not events, case
                continue
            store.append(list(events.values()))
            assert store.seq == before + len(events), case
            assert report.added == sum(id not in report.current for id in events), case
            assert all(root in store.log for root in report.current), case
            assert (
                importers.import_file(
                    file, append=events.append, stored=stored_in(store), erased=store.log.is_erased
                ).added
                == 0
            ), case
        assert not store.check().damage


TWICE = """
import branchmem as bm
from branchmem import importers

with bm.open(given["store"]) as store:
    stored = lambda id: store.log.get(id) if id in store.log else None
    for time in ("first", "again"):
        report = importers.import_file(
            given["file"], append=store.append, stored=stored, erased=store.log.is_erased
        )
        answer[time] = report.counters()
    answer["seq"] = store.seq
"""


def write_archive(out: IO[bytes], chats: int, turns: int) -> int:
    """Write an archive of two shards, compressed as exports are, and return how large they are unpacked."""
    size = 0
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        for shard in range(2):
            with archive.open(f"conversations-{shard:03}.json", "w", force_zip64=True) as member:
                for i, piece in enumerate(export_of("claude-ai", chats, turns)):
                    half = i < chats // 2 if shard == 0 else i >= chats // 2
                    if half or i == chats:
                        piece = b"[" + piece[1:] if i in (0, chats // 2) else piece
                        size += member.write(piece)
    return size


@pytest.mark.soak
@pytest.mark.parametrize("kind", ["chatgpt", "open-webui", "events", "archive"])
def test_a_file_is_never_held_whole(kind: str, tmp_path: Path, figure: Figure, quote: Quote) -> None:
    megabytes = figure(24, 1000)
    file, turns = tmp_path / "export", 20
    chats = megabytes * 1_000_000 // (820 * turns)
    with file.open("wb") as out:
        if kind == "events":
            messages = (
                bm.Message(f"m{i}", f"m{i - 1}" if i else None, text=f"{i} " + "x" * 700) for i in range(chats * turns)
            )
            out.writelines(importers.dump(messages))
        elif kind == "archive":
            size = write_archive(out, chats, turns)
        else:
            out.writelines(export_of(kind, chats, turns))
    size = file.stat().st_size if kind != "archive" else size

    ran = peak_memory(TWICE, file=file, store=tmp_path / "a.bmem")

    peak, first, again = ran["peak"] / 1e6, ran["first"], ran["again"]
    quote(f"import {kind}: {size / 1e6:,.0f} MB, {first['messages']:,} messages, {peak:,.0f} MB of memory at most")
    assert again == {**first, "added": 0}
    assert first["messages"] == first["added"] == ran["seq"] - (0 if kind == "events" else chats)
    assert size > megabytes * 0.9e6
    # 45 to 60 MB at 24 MB; a reader that holds the file and its objects takes 120.
    assert peak < figure(80, 300)
