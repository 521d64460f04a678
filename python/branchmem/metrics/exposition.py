"""The counters for Prometheus: read when it scrapes, under the names that its conventions ask for."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress

from prometheus_client import REGISTRY, CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

from branchmem.metrics.watched import FAMILIES, Family, Watched


class Exposition(Watched, Collector):
    """A collector: `branchmem_hidden_total{reason="sibling"}` and so on, for all stores that it watches.

    Also a context manager: leaving it closes it.
    """

    _registry: CollectorRegistry | None = None

    def register(self, registry: CollectorRegistry | None) -> None:
        """Be collected by a registry.  Raises: ValueError where it has these metrics already."""
        registry = REGISTRY if registry is None else registry
        try:
            registry.register(self)
        except ValueError as error:
            raise ValueError(
                f"the registry has metrics of these names already ({error}): keep what metrics.prometheus returned "
                "and add the store with its watch(), or pass a registry of its own"
            ) from None
        self._registry = registry

    def collect(self) -> Iterator[CounterMetricFamily | GaugeMetricFamily]:
        """All metrics as they are now.  Called by the registry; fails for no store that is closed or gone."""
        for family in FAMILIES:
            metric = _described(family)
            for labels, value in self.samples(family):
                metric.add_metric(list(labels.values()), value)  # without a name there is no value for the last label
            yield metric

    def describe(self) -> Iterator[CounterMetricFamily | GaugeMetricFamily]:
        """All metrics without values: by their names a registry tells what is there twice."""
        return map(_described, FAMILIES)

    def close(self) -> None:
        """Be collected no more, and watch nothing.  Twice is once."""
        registry, self._registry = self._registry, None
        if registry is not None:
            with suppress(KeyError):  # somebody took it out of the registry
                registry.unregister(self)
        self.forget()

    def __enter__(self) -> Exposition:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()


def _described(family: Family) -> CounterMetricFamily | GaugeMetricFamily:
    kind = CounterMetricFamily if family.grows else GaugeMetricFamily
    labels = ("reason", "store") if family.by_reason else ("store",)
    return kind(f"branchmem_{family.name}", family.text, labels=labels)
