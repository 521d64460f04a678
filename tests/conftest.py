"""A promise holds for the reference and for the engine alike: most tests take `engine` or `store`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import branchmem as bm
import pytest
from branchmem.reference import Reference


@pytest.fixture(params=[Reference, bm.Engine], ids=["reference", "engine"])
def engine(request: pytest.FixtureRequest) -> Any:
    """An empty log that is told with `add` and asked with `at`; what reads content is not part of it."""
    return request.param()


@pytest.fixture(params=[Reference, bm.open_temporary], ids=["reference", "store"])
def store(request: pytest.FixtureRequest) -> Iterator[Any]:
    """An empty log that keeps content: told with `append`, and `view[id]`, `memories`, `log` and `digest` answer."""
    opened = request.param()
    yield opened
    if isinstance(opened, bm.Store):
        opened.close()
