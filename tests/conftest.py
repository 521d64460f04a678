"""A promise holds for the reference and for the engine alike: most tests take `engine` or `store`."""

from __future__ import annotations

import json
import logging
import os
import tempfile
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import branchmem as bm
import pytest
from branchmem import cli
from branchmem.reference import Reference
from branchmem.session import Session
from commands import Ran, Run
from figures import Figure, Quote
from repositories import Repository

# What these assert is shown with its values, as in a test.
pytest.register_assert_rewrite("exports", "logs", "sources")


#: The tests of the adapters, which need packages that others do without: run where they are named.
ADAPTERS = Path(__file__).parent / "adapters"


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    return True if collection_path == ADAPTERS and not any(ADAPTERS.name in word for word in config.args) else None


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


@pytest.fixture
def session() -> Iterator[Session]:
    """A conversation in a new store, in which the user has asked something."""
    with bm.open_temporary() as store:
        session = store.session("chat")
        session.say("user", "Where should I go for dinner?", id="u1")
        yield session


@pytest.fixture(scope="module")
def quiet() -> Iterator[None]:
    """Thousands of views with problems are not news."""
    logging.getLogger("branchmem").setLevel(logging.CRITICAL)
    yield
    logging.getLogger("branchmem").setLevel(logging.NOTSET)


@pytest.fixture
def without_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """Temporary stores lie in memory where the system has a place for that: answers are tried, not the disk."""
    if os.path.isdir("/dev/shm"):
        monkeypatch.setattr(tempfile, "tempdir", "/dev/shm")


@pytest.fixture
def git_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Git knows no configuration of this machine."""
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", os.devnull)
    monkeypatch.setenv("GIT_CONFIG_NOSYSTEM", "1")


@pytest.fixture
def shop(tmp_path: Path, git_alone: None) -> Repository:
    """A git repository with one commit on main."""
    repository = Repository.make(tmp_path / "shop")
    repository.commit("one")
    return repository


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Where a store may be made."""
    return tmp_path / "alice.bmem"


@pytest.fixture
def export(tmp_path: Path) -> Any:
    """Write a value as JSON, or bytes as they are, and return the path."""

    def write(value: object) -> Path:
        path = tmp_path / "conversations.json"
        path.write_bytes(value if isinstance(value, bytes) else json.dumps(value).encode())
        return path

    return write


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """Run one command in an empty folder, on a store in it, on a terminal of 80 cells without colour."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("BRANCHMEM_STORE", "a.bmem")
    for name in ("FORCE_COLOR", "BRANCHMEM_TRACEBACK", "BRANCHMEM_KEY", "BRANCHMEM_PROJECT"):
        monkeypatch.delenv(name, raising=False)

    def run(*words: str) -> Ran:
        status = cli.main(list(words))
        captured = capsys.readouterr()
        return Ran(status, captured.out, captured.err)

    return run


@pytest.fixture
def forked(run: Run) -> Run:
    """The same, with a store that holds the conversation of the README."""
    with bm.open("a.bmem") as store:
        store.append(
            [
                bm.Message("chat", None, role="thread"),
                bm.Message("u1", "chat", role="user", text="I'm moving to Chengdu"),
                bm.Memory("home", "The user is moving to Chengdu", sources=["u1"], key="home_city"),
                bm.Message("u1-edit", "chat", role="user", text="I'm moving to Hangzhou"),
                bm.Memory("guess", "The user likes trains", kind="guess"),
            ]
        )
    return run


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--soak", action="store_true", help="run with the figures of a release: hours, not minutes")


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    quoted = [
        line
        for reports in terminalreporter.stats.values()
        for report in reports
        if isinstance(report, pytest.TestReport) and report.when == "call"
        for name, line in report.user_properties
        if name == "figure"
    ]
    if quoted:
        terminalreporter.section("figures")
        for line in quoted:
            terminalreporter.write_line(str(line))


@pytest.fixture
def figure(request: pytest.FixtureRequest) -> Figure:
    """`figure(ci, release)`: the first in every run, the second with --soak."""

    def figure(ci: int, release: int) -> int:
        return release if request.config.getoption("--soak") else ci

    return figure


@pytest.fixture
def quote(record_property: Callable[[str, object], None]) -> Quote:
    """Print a line of figures at the end of the run."""
    return partial(record_property, "figure")
