"""What the charts of `pytest bench` share: works of every shape and size, engines that hold them, names."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any, Final

import branchmem as bm
import pytest
from branchmem.reference import Reference
from pytest_benchmark.fixture import BenchmarkFixture

from bench import shapes
from bench.shapes import Work

ENGINES: Final[dict[str, Callable[[], Any]]] = {"engine": bm.Engine, "reference": Reference}
SIZES: Final = (200, 1_000, 100_000)
REFERENCE_SIZES: Final = (200, 1_000)


def _cases(counts: tuple[int, ...], *name: str) -> list[Any]:
    return [
        pytest.param(*name, shape, count, id="-".join((f"{shape}/{shapes.size_name(count)}", *name)))
        for shape in shapes.SHAPES
        for count in counts
    ]


on_every_shape: Final = pytest.mark.parametrize(
    ("name", "shape", "count"), [*_cases(REFERENCE_SIZES, "reference"), *_cases(SIZES, "engine")]
)
on_every_store: Final = pytest.mark.parametrize(("shape", "count"), _cases(SIZES))


@cache
def work_of(shape: str, count: int) -> Work:
    """The work of a shape, made once."""
    return shapes.work(shape, count)


@cache
def filled(name: str, shape: str, count: int) -> Any:
    """An engine, or the reference, that holds it."""
    engine = ENGINES[name]()
    engine.add(work_of(shape, count).events())
    return engine


def chart(benchmark: BenchmarkFixture, question: str, work: Work, name: str) -> None:
    """Put a benchmark on its chart, `question/shape/size`."""
    benchmark.group = f"{question}/{work.name}"
    benchmark.name = f"{benchmark.group} {name}"
