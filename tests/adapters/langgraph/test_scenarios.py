"""What users do with threads, over every checkpointer: no memory of a sibling, none lost, none twice."""

from __future__ import annotations

import pytest
from scenarios import ALL
from worlds import SAVERS, ours, plain


@pytest.mark.parametrize("kind", SAVERS)
@pytest.mark.parametrize("name", ALL)
def test_each_branch_sees_its_own_memories_once(name: str, kind: str) -> None:
    if name == "concurrent_forks" and kind == "async sqlite":
        pytest.skip("threads are for savers that threads may call; tasks of one loop have a test of their own")
    with ours(kind) as world:
        seen, expected = ALL[name](world)

    assert seen == expected


@pytest.mark.parametrize("name", ALL)
def test_the_plain_store_fails_the_same_scenario(name: str) -> None:
    with plain() as world:
        seen, expected = ALL[name](world)

    assert seen != expected
