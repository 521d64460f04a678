"""`branchmem import`: what it tells, and what it blames."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from commands import Run
from exports import conversation, node


def test_what_was_imported_before_a_file_that_could_not_be_is_told(run: Run, tmp_path: Path) -> None:
    good, bad = tmp_path / "good.json", tmp_path / "bad.json"
    good.write_text(json.dumps([conversation({"r": node(None, "hi")})]))
    bad.write_text("[{")

    refused = run("import", str(good), str(bad), "--json")

    assert (refused.status, str(bad) in refused.err) == (1, True)
    assert [(file["file"], file["added"]) for file in refused.json["files"]] == [(str(good), 1)]
    assert refused.json["seq"] == 2
    assert run("import", str(bad), str(good), "--json").out == ""


@pytest.mark.parametrize("line", ['{"type":"message","id":"u","parent":null}', json.dumps(conversation({"r": node()}))])
def test_a_store_that_cannot_be_made_is_no_fault_of_the_file(line: str, run: Run, tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text(f"{line}\n")

    refused = run("import", str(tmp_path / "a.jsonl"), "--store", "nowhere/a.bmem")

    assert (refused.status, "a.jsonl" in refused.err, "there is no folder" in refused.err) == (1, False, True)
