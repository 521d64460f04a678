"""A pool tells whoever asked of each store that it opens, so that none is missed, however short its life."""

from __future__ import annotations

import gc
from pathlib import Path

import branchmem as bm
import pytest
from branchmem import metrics
from metered import CHAT, scraped
from prometheus_client import CollectorRegistry, generate_latest


def test_the_stores_of_a_pool_are_summed_those_evicted_too(tmp_path: Path) -> None:
    registry = CollectorRegistry()
    exposed = metrics.prometheus(registry=registry)
    owners = [f"owner{number}@example.org" for number in range(7)]

    with bm.Pool(tmp_path, max_open=2, on_open=exposed.watch) as pool:
        for owner in owners:
            with pool.open(owner) as store:
                store.append(CHAT)
                assert "home" not in store.at("u1-edit")
        del store
        gc.collect()
        assert pool.stats().evicted == 5
        samples = scraped(registry)
        text = generate_latest(registry).decode()

    assert samples["branchmem_hidden_total{reason=sibling}"] == len(owners)
    assert samples["branchmem_events"] == 2 * len(CHAT), "what is open now"
    assert [owner for owner in owners if owner in text] == []


def test_a_pool_tells_of_each_store_once_it_is_open(tmp_path: Path) -> None:
    told: list[bm.Store] = []

    with bm.Pool(tmp_path, on_open=told.append) as pool:
        for _ in range(2):
            with pool.open("alice") as store, pool.open("alice") as same:
                assert store is same

    assert told == [store]


def test_where_telling_fails_the_lease_fails_and_nothing_stays_open(tmp_path: Path) -> None:
    told: list[bm.Store] = []

    def refuse(store: bm.Store) -> None:
        told.append(store)
        if len(told) == 1:
            raise RuntimeError("not now")

    with bm.Pool(tmp_path, max_open=1, on_open=refuse) as pool:
        with pytest.raises(RuntimeError, match="not now"), pool.open("alice"):
            pass
        assert told[0].closed
        assert pool.stats().open == 0
        with pool.open("bob", timeout=1.0) as store:
            assert store is told[1]
