"""OpenTelemetry collects what the stores counted: the same numbers as a scrape, as observable instruments."""

from __future__ import annotations

import gc
import logging
from collections.abc import Iterator

import branchmem as bm
import pytest
from branchmem import metrics
from branchmem.metrics.watched import label
from metered import CHAT, ask
from opentelemetry.metrics import Meter
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader, NumberDataPoint, Sum

Collected = dict[tuple[str, str, str], int | float]


@pytest.fixture
def reader() -> InMemoryMetricReader:
    return InMemoryMetricReader()


@pytest.fixture
def meter(reader: InMemoryMetricReader) -> Iterator[Meter]:
    provider = MeterProvider(metric_readers=[reader])
    yield provider.get_meter("tests")
    provider.shutdown()


@pytest.fixture
def chat() -> Iterator[bm.Store]:
    with bm.open_temporary() as store:
        store.append(CHAT)
        yield store


def sums(reader: InMemoryMetricReader) -> Iterator[tuple[str, str, Sum]]:
    """Name, unit and values of each metric."""
    collected = reader.get_metrics_data()
    for resource in collected.resource_metrics if collected else ():
        for scope in resource.scope_metrics:
            for metric in scope.metrics:
                assert isinstance(metric.data, Sum)
                yield metric.name, str(metric.unit), metric.data


def collected(reader: InMemoryMetricReader) -> Collected:
    """What is not zero: (metric, reason, store) → value."""
    values: Collected = {}
    for name, _, data in sums(reader):
        for point in data.data_points:
            assert isinstance(point, NumberDataPoint)
            labels = dict(point.attributes or {})
            key = (name, str(labels.pop("reason", "")), str(labels.pop("store", "")))
            assert not labels
            assert key not in values
            if point.value:
                values[key] = point.value
    return values


def counted(store: bm.Store, name: str = "") -> Collected:
    counters = store.counters()
    return {
        **{("branchmem.hidden", label(why), name): n for why, n in counters["hidden"].items()},
        **{("branchmem.admitted", label(why), name): n for why, n in counters["admitted"].items()},
        ("branchmem.unlisted", "", name): counters["unlisted"],
    }


def test_a_collection_tells_what_the_store_counted(chat: bm.Store, meter: Meter, reader: InMemoryMetricReader) -> None:
    metrics.opentelemetry(chat, meter=meter)

    ask(chat)

    expected = {**counted(chat), ("branchmem.events", "", ""): 5}
    assert collected(reader) == expected
    assert collected(reader) == expected, "a collection itself counts nothing"


def test_what_only_grows_is_monotonic_and_units_are_annotations(
    chat: bm.Store, meter: Meter, reader: InMemoryMetricReader
) -> None:
    metrics.opentelemetry(chat, meter=meter)

    assert {(name, unit, data.is_monotonic) for name, unit, data in sums(reader)} == {
        ("branchmem.hidden", "{verdict}", True),
        ("branchmem.admitted", "{reason}", True),
        ("branchmem.unlisted", "{memory}", True),
        ("branchmem.events", "{event}", False),
        ("branchmem.unplaced_retractions", "{event}", False),
        ("branchmem.detached_messages", "{message}", False),
    }


def test_two_stores_are_summed_or_stand_apart_by_name(
    chat: bm.Store, meter: Meter, reader: InMemoryMetricReader
) -> None:
    with bm.open_temporary() as second, bm.open_temporary() as third:
        instruments = metrics.opentelemetry(chat, meter=meter)
        instruments.watch(second)
        instruments.watch(third, "third")
        for store in (second, third):
            store.append(CHAT)
        for store in (chat, second, third):
            ask(store)

        assert collected(reader) == {
            **{key: 2 * value for key, value in counted(chat).items()},
            ("branchmem.events", "", ""): 10,
            **counted(third, "third"),
            ("branchmem.events", "", "third"): 5,
        }


def test_a_store_that_is_closed_and_gone_keeps_what_it_counted(meter: Meter, reader: InMemoryMetricReader) -> None:
    instruments = metrics.opentelemetry(meter=meter)
    with bm.open_temporary() as store:
        store.append(CHAT)
        instruments.watch(store)
        ask(store)
        before = counted(store)

    assert collected(reader) == before
    del store
    gc.collect()
    assert collected(reader) == before


def test_a_meter_has_the_instruments_once_and_says_how_to_add_a_store(chat: bm.Store, meter: Meter) -> None:
    metrics.opentelemetry(chat, meter=meter)

    with pytest.raises(ValueError, match=r"keep what metrics\.opentelemetry returned .* watch\(\)"):
        metrics.opentelemetry(chat, meter=meter)


def test_after_close_nothing_is_observed_until_it_is_asked_for_again(
    chat: bm.Store, meter: Meter, reader: InMemoryMetricReader, caplog: pytest.LogCaptureFixture
) -> None:
    ask(chat)
    instruments = metrics.opentelemetry(chat, meter=meter)

    instruments.close()
    instruments.close()

    assert collected(reader) == {}
    with caplog.at_level(logging.WARNING), metrics.opentelemetry(chat, meter=meter):
        assert collected(reader) == {**counted(chat), ("branchmem.events", "", ""): 5}
    assert caplog.messages == []


def test_a_store_that_is_refused_leaves_the_meter_free(
    chat: bm.Store, meter: Meter, reader: InMemoryMetricReader
) -> None:
    with pytest.raises(ValueError, match="the name of a store"):
        metrics.opentelemetry(chat, name="", meter=meter)

    metrics.opentelemetry(chat, meter=meter)

    assert collected(reader) == {("branchmem.events", "", ""): 5}


def test_without_a_provider_the_global_meter_is_taken_once(chat: bm.Store) -> None:
    with metrics.opentelemetry(chat), pytest.raises(ValueError, match="has these instruments already"):
        metrics.opentelemetry(chat)
    with metrics.opentelemetry(chat):
        pass
