"""Which charts a run makes: `pytest bench --largest 1000` leaves out the large ones."""

from __future__ import annotations

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--smallest", type=int, default=1_000, help="leave out charts of fewer memories")
    parser.addoption("--largest", type=int, default=100_000, help="leave out charts of more memories")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    least, most = config.getoption("--smallest"), config.getoption("--largest")
    items[:] = [item for item in items if least <= _memories(item, least) <= most]


def _memories(item: pytest.Item, default: int) -> int:
    chosen = getattr(item, "callspec", None)
    count: int = default if chosen is None else chosen.params.get("count", default)
    return count
