"""On what a run was made: figures without it say nothing."""

from __future__ import annotations

import os
import platform
import sqlite3
from pathlib import Path
from typing import Any

import branchmem as bm
import numpy as np


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
        "sqlite": sqlite3.sqlite_version,
        "branchmem": bm.__version__,
    }


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
