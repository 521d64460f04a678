"""A conversation that forks, for the tests of what is brought from one branch to another."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager

import branchmem as bm


@contextmanager
def a_fork() -> Iterator[bm.Store]:
    """A conversation that parts at `u`: `left` knows tea, `right` knows dog, both know name."""
    with closing(bm.open_temporary()) as store:
        store.append(
            [
                bm.Message("chat", None),
                bm.Message("u", "chat"),
                bm.Memory("name", "The user is Li", sources=["u"], key="name"),
                bm.Message("l1", "u"),
                bm.Message("l2", "l1"),
                bm.Memory("tea", "Drinks tea", sources=["l1"]),
                bm.Message("r1", "u"),
                bm.Memory("dog", "Has a dog", sources=["r1"]),
            ]
        )
        store.refs.create("left", "l2")
        store.refs.create("right", "r1")
        yield store


def texts(store: bm.Store, *refs: str) -> list[str]:
    """What is visible at some refs, sorted."""
    return sorted(memory.text for memory in store.at_ref(*refs).memories())
