"""The page about extraction does what it says: its Python runs, and prints what stands beside it."""

from __future__ import annotations

import contextlib
import io
import re
from pathlib import Path

import pytest

PAGE = (Path(__file__).parent.parent / "docs" / "extract.md").read_text("utf-8")
BLOCKS = re.findall(r"^```python\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)


@pytest.mark.usefixtures("without_disk")
@pytest.mark.parametrize("block", BLOCKS)
def test_what_is_printed_is_what_stands_beside_it(block: str) -> None:
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        exec(compile(block, "docs/extract.md", "exec"), {})

    said = [line.partition("  # ")[2] for line in block.splitlines() if "print(" in line or line.startswith(" " * 40)]
    assert out.getvalue().splitlines() == [line.strip() for line in said]
