"""The methods that are compared, by name and in the order of the tables.

One more method is one more class in `METHODS`: see `method.Method`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from importlib.util import find_spec
from types import MappingProxyType
from typing import Final

from branchmem.branchbench.methods.branches import BranchmemBoth, BranchmemFacts, BranchmemSummaries
from branchmem.branchbench.methods.history import CurrentBranch, FullHistory
from branchmem.branchbench.methods.langgraph import LangGraphStore
from branchmem.branchbench.methods.mem0 import Mem0, Mem0Branch, Mem0Scripted, Mem0ScriptedBranch
from branchmem.branchbench.methods.method import Method, Tools
from branchmem.branchbench.methods.oracle import Oracle
from branchmem.branchbench.methods.summary import RollingSummary, RollingSummaryBranch
from branchmem.branchbench.methods.vectors import NaiveVectors
from branchmem.errors.branchbench import PackagesMissing, UnknownMethod

__all__ = ["METHODS", "Method", "Tools", "check_installed", "methods"]

METHODS: Final[Mapping[str, type[Method]]] = MappingProxyType(
    {
        method.name: method
        for method in (
            FullHistory,
            CurrentBranch,
            RollingSummary,
            RollingSummaryBranch,
            NaiveVectors,
            Mem0,
            Mem0Branch,
            Mem0Scripted,
            Mem0ScriptedBranch,
            LangGraphStore,
            BranchmemFacts,
            BranchmemSummaries,
            BranchmemBoth,
            Oracle,
        )
    }
)


def methods(names: Iterable[str] | None = None) -> list[type[Method]]:
    """The methods with these names, or all of them; each once, in the order of the tables.

    Raises: UnknownMethod.
    """
    asked = list(METHODS if names is None else names)
    for name in asked:
        if name not in METHODS:
            raise UnknownMethod(name, METHODS)
    return [method for name, method in METHODS.items() if name in asked]


def check_installed(methods: Iterable[type[Method]]) -> None:
    """Raises: PackagesMissing, with all modules that are not there and the methods that need each; loads nothing."""
    missing: dict[str, list[str]] = {}
    for method in methods:
        for module in method.requires:
            if find_spec(module) is None:
                missing.setdefault(module, []).append(method.name)
    if missing:
        raise PackagesMissing(missing)
