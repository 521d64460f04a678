"""On what a run was made: figures without it say nothing."""

from __future__ import annotations

import ctypes
import os
import platform
import sqlite3
import tempfile
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

import branchmem as bm
import numpy as np

PEERS: Final = ("duckdb", "networkx", "rustworkx", "pyroaring")


def machine() -> dict[str, Any]:
    """Processor, cores, and the versions of what was measured."""
    return {
        "cpu": _cpu_model(),
        "cores": os.cpu_count(),
        "avx2": _has("avx2"),
        "avx512": has_avx512(),
        "system": platform.platform(),
        "python": platform.python_version(),
        "numpy": np.__version__,
        "numpy_threads": blas_threads(),
        "sqlite": sqlite3.sqlite_version,
        **{name: version(name) for name in PEERS},
        "branchmem": bm.__version__,
        "disk": file_system(tempfile.gettempdir()),
    }


def file_system(folder: str) -> str:
    """The type of the file system that a folder lies on, as Linux names it; empty on other systems."""
    mounts = Path("/proc/self/mounts")
    if not mounts.exists():
        return ""
    place = Path(folder).resolve()
    found = (line.split()[1:3] for line in mounts.read_text(encoding="utf-8").splitlines())
    above = [(len(point), kind) for point, kind in found if place.is_relative_to(point)]
    return max(above)[1] if above else ""


def blas_threads() -> int | None:
    """How many threads numpy's matrix products take; None where its BLAS is not the one that its wheels bring."""
    for path in Path(np.__file__).parents[1].glob("numpy.libs/*openblas*"):
        asked = getattr(ctypes.CDLL(str(path)), "scipy_openblas_get_num_threads64_", None)
        if asked is not None:
            return int(asked())
    return None


def has_avx512() -> bool:
    """Whether 512-bit integer kernels can be dispatched to: F, BW and VL."""
    return all(map(_has, ("avx512f", "avx512bw", "avx512vl")))


def _has(flag: str) -> bool:
    return flag in _cpu_field("flags").split()


def _cpu_model() -> str:
    return _cpu_field("model name") or platform.processor() or platform.machine()


def _cpu_field(name: str) -> str:
    """A field of Linux's /proc/cpuinfo; empty on other systems."""
    path = Path("/proc/cpuinfo")
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    return next((line.partition(":")[2].strip() for line in lines if line.partition("\t")[0] == name), "")
