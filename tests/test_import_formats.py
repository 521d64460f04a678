"""Which format a file is in: its keys say so, and no other format takes it."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from branchmem import importers
from branchmem.errors import ImportFailed
from branchmem.importers import events_jsonl, formats, json_lines
from branchmem.importers.entries import entries_of
from branchmem.importers.files import opened
from branchmem.importers.records import Report
from exports import Log, never

ALL = Path(__file__).parent / "samples"
FOLDERS = ("assistant_ui", "chatgpt", "claude_ai", "claude_code", "codex", "langgraph", "librechat", "oasst")
SAMPLES = sorted(
    path
    for folder in (*FOLDERS, "open_webui", "sillytavern")
    for path in (ALL / folder).iterdir()
    if path.suffix != ".md" and path.name != "owimp_invalid_unicode.json"
)


def tool_of(sample: Path) -> str:
    return sample.parent.name.replace("_", "-")


def test_every_format_that_is_linked_has_a_sample() -> None:
    assert {tool_of(sample) for sample in SAMPLES} | {formats.EVENTS} == {*importers.FORMATS}


@pytest.mark.parametrize("sample", SAMPLES, ids=lambda path: f"{path.parent.name}/{path.name}")
def test_the_keys_of_a_sample_say_what_it_is_whatever_its_name(sample: Path, tmp_path: Path) -> None:
    unnamed = tmp_path / "a.txt"
    unnamed.write_bytes(sample.read_bytes())

    with importers.read(unnamed, stored=Log().get, erased=never) as reading:
        assert reading.format == tool_of(sample)


@pytest.mark.parametrize("sample", SAMPLES, ids=lambda path: f"{path.parent.name}/{path.name}")
def test_no_sample_is_of_two_formats(sample: Path) -> None:
    found = set()
    with sample.open("rb") as file:
        found |= {each.TOOL for each in formats.OF_DATABASES if each.looks_like(str(sample), file.read(16))}
        lines = json_lines.first_lines(file)
        found |= {each.TOOL for each in formats.OF_LINES if each.looks_like(lines)}
        found |= {formats.EVENTS} if events_jsonl.looks_like(lines) else set()
        if not found:
            entries = [entry.value for entry in entries_of(str(sample), file, "JSON")]
            found = {each.TOOL for each in formats.OF_ENTRIES if any(map(each.looks_like, entries))}

    assert found == {tool_of(sample)}


def lines_of(path: Path, *forms: object) -> Path:
    path.write_bytes(b"".join(json.dumps(form).encode() + b"\n" for form in forms))
    return path


SPOKEN = [{"type": "input_text", "text": "hi"}]
OLD_CODEX = {"id": "m1", "type": "message", "role": "user", "content": SPOKEN}
OURS = {"id": "m1", "type": "message", "parent": None}
HEADER = {"user_name": "me", "character_name": "Guide", "chat_metadata": {}}
CALL = {"type": "user", "uuid": "u", "parentUuid": None, "message": {"content": "hi"}}


@pytest.mark.parametrize(
    ("form", "tool"),
    [(OLD_CODEX, "codex"), (OURS, "events"), (HEADER, "sillytavern"), (CALL, "claude-code")],
    ids=["codex", "events", "sillytavern", "claude-code"],
)
def test_the_order_of_the_tables_decides_nothing(
    form: object, tool: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = lines_of(tmp_path / "a.jsonl", {"note": 1}, form, OURS)
    for _ in range(2):
        with opened(str(path)) as files:
            assert formats.looked_into(files, 0) == tool
        monkeypatch.setattr(formats, "OF_LINES", formats.OF_LINES[::-1])


def test_a_file_that_may_be_of_two_formats_is_refused_with_both_names(tmp_path: Path) -> None:
    path = lines_of(tmp_path / "a.jsonl", {**OURS, **HEADER})

    with pytest.raises(ImportFailed, match="not events and sillytavern: say which"):
        Log().take(path)


def test_an_object_with_the_name_of_a_user_is_no_chat(tmp_path: Path) -> None:
    with pytest.raises(ImportFailed, match="at the top level"):
        Log().take(lines_of(tmp_path / "settings.json", {"user_name": "me", "theme": 1}))


def test_a_path_that_no_file_can_have_is_refused() -> None:
    with pytest.raises(ImportFailed, match="a file that can be read"):
        Log().take(Path("a\0b"))


def test_a_url_of_no_database_is_a_file_that_is_not_there() -> None:
    with pytest.raises(ImportFailed, match="a file that can be read"):
        Log().take(Path("https://example.org/conversations.json"))


def test_a_database_that_is_asked_for_as_another_format_is_refused() -> None:
    with pytest.raises(ImportFailed, match="a ChatGPT export"):
        formats.behind("postgresql://nobody@localhost/none", "chatgpt", Report())


def test_the_page_lists_every_format() -> None:
    page = (Path(__file__).parent.parent / "docs" / "importing.md").read_text("utf-8")

    table = page.partition("## Formats")[2].partition("\n## ")[0]

    assert tuple(re.findall(r"^\| `([a-z-]+)` \|", table, re.MULTILINE)) == importers.FORMATS


def test_the_example_of_the_page_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = (Path(__file__).parent.parent / "docs" / "importing.md").read_text("utf-8")
    (tmp_path / "conversations.json").write_bytes((ALL / "claude_ai" / "chatlore_conversations.json").read_bytes())
    monkeypatch.chdir(tmp_path)
    said: list[object] = []

    exec(page.partition("```python\n")[2].partition("```")[0], {"print": lambda *words: said.append(words)})

    assert said[0] == (7, 7, 1)
