"""Files that may be a ChatGPT export: an answer or ImportFailed for every shape and every kind of junk."""

from __future__ import annotations

import copy
import json
import random
from pathlib import Path
from typing import Any

import pytest
from branchmem import importers
from branchmem.errors import ImportFailed
from exports import READABLE, SAMPLES, SEED, Log, conversation, node

# Shapes


@pytest.mark.parametrize("wrap", [lambda one: [one], lambda one: one, lambda one: {"conversations": [one]}])
def test_one_conversation_a_list_and_an_object_with_conversations_are_the_same(wrap: Any, export: Any) -> None:
    log = Log()

    log.take(export(wrap(conversation({"r": node()}))))

    assert list(log) == ["chatgpt:c", "chatgpt:c:r"]


def test_a_byte_order_mark_is_no_content(export: Any) -> None:
    assert Log().take(export(b"\xef\xbb\xbf" + json.dumps([conversation({"r": node()})]).encode())).messages == 1


@pytest.mark.parametrize(
    ("data", "place"),
    [
        (b"", "byte 0"),
        (b" \n", "byte 0"),
        (b"Hello, this is a chat.", "byte 0"),
        (b'[{"mapping": {', "byte 14"),
        ('["é", '.encode(), "byte 7"),
        (b"\xef\xbb\xbf[}", "byte 4"),
        (b'["\xff"]', "byte 2"),
        (json.dumps([]).encode("utf-16"), "byte 0"),
        (b"[" * 100_000, "byte 100000"),
        (b"[" + b"1" * 5000 + b"]", "byte 1"),
        (b"null", "the top level"),
        (b'"text"', "the top level"),
        (b'{"conversations": {}}', "the top level"),
        (b"{}", "the top level"),
        (b"[]", "entry 0"),
        (b"[null, 5, []]", "entry 0"),
        (b'[{"id": "c", "mapping": {}}]', "entry 0"),
        (b'{"id": "c", "mapping": []}', "the top level"),
    ],
)
def test_another_shape_is_refused_with_the_file_the_place_and_what_was_expected(
    data: bytes, place: str, export: Any
) -> None:
    path = export(data)

    with pytest.raises(ImportFailed) as refused:
        Log().take(path)

    assert (refused.value.path, refused.value.place) == (str(path), place)
    assert "a ChatGPT export" in refused.value.expected


def test_a_file_that_cannot_be_opened_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ImportFailed, match="a file that can be read"):
        Log().take(tmp_path / "nothing.json")
    for format in importers.FORMATS:
        with pytest.raises(ImportFailed, match="at its files") as refused:
            Log().take(tmp_path, format=format)
        assert refused.value.path == str(tmp_path)


def test_an_unknown_format_or_leaf_is_a_mistake_of_the_caller(export: Any) -> None:
    with pytest.raises(ValueError, match=r"auto or one of .*chatgpt, .*claude-code, .*events, .*open-webui"):
        Log().take(export([]), format="claude")
    with pytest.raises(ValueError, match="declared or heuristic"):
        Log().take(export([]), leaf="newest")


# Junk


def _taken_twice(path: Path, log: Log) -> None:
    """An answer that adds nothing the second time, or ImportFailed that writes nothing."""
    known = len(log)
    try:
        log.take(path, leaf="heuristic")
    except ImportFailed:
        assert len(log) == known
        return
    again = log.take(path, leaf="heuristic")
    assert again.added == 0


@pytest.mark.parametrize("name", [path.name for path in sorted(SAMPLES.glob("*.json"))])
def test_three_hundred_changed_bytes_give_an_answer_or_import_failed(name: str, export: Any) -> None:
    whole = (SAMPLES / name).read_bytes()
    chance = random.Random(SEED)
    before = Log()
    if name in READABLE:
        before.take(SAMPLES / name)
    for _ in range(300):
        data = bytearray(whole)
        for _ in range(chance.choice([1, 1, 2, 8])):
            data[chance.randrange(len(data))] = chance.randrange(256)
        _taken_twice(export(bytes(data)), Log(before))


JUNK: list[object] = [None, True, 0, -1, 1.5, 10**30, "", "x", "\ud800", [], [None], {}, {"mapping": {"m": {}}}]


@pytest.mark.parametrize("name", READABLE)
def test_three_hundred_changed_values_give_an_answer_or_import_failed(name: str, export: Any) -> None:
    entries = json.loads((SAMPLES / name).read_bytes())
    chance = random.Random(SEED)
    before = Log()
    before.take(SAMPLES / name)
    for _ in range(300):
        changed = copy.deepcopy(entries)
        for _ in range(chance.choice([1, 2, 5])):
            _change(changed, chance)
        _taken_twice(export(changed), Log(before))


def _change(value: Any, chance: random.Random) -> None:
    """Put junk, or another part of the file, somewhere into a parsed file."""
    places = []
    waiting = [value]
    while waiting:
        part = waiting.pop()
        for key in part if isinstance(part, dict) else range(len(part)):
            places.append((part, key))
            if isinstance(part[key], (dict, list)):
                waiting.append(part[key])
    part, key = chance.choice(places)
    donor, other = chance.choice(places)
    part[key] = copy.deepcopy(chance.choice([*JUNK, donor[other]]))
