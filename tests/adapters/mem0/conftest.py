from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parent))

import branchmem as bm
from branchmem.adapters.mem0 import BranchMem
from scripted import Model, config  # before Mem0: it sets what that reads when it is imported


@pytest.fixture(scope="session")
def endpoint() -> Iterator[Model]:
    model = Model()
    yield model
    model.close()


@pytest.fixture
def model(endpoint: Model) -> Model:
    endpoint.facts.clear()
    endpoint.prompts.clear()
    return endpoint


@pytest.fixture
def plain(model: Model) -> Any:
    from mem0 import Memory

    return Memory.from_config(config(model.url, None))


@pytest.fixture
def store() -> Iterator[bm.Store]:
    with bm.open_temporary() as store:
        yield store


@pytest.fixture
def mem(plain: Any, store: bm.Store) -> BranchMem:
    return BranchMem(plain, store)
