"""How much stores hide, let through and leave out, told to monitoring: counters, gauges, spans.

Numbers and ids leave the process here, never what anybody wrote.  Nothing is counted that the engine does not
count anyway, so who asks for no metrics pays for none.  The libraries are loaded by the call that needs them.

watched     what is read, summed by the names under which stores are watched
exposition  the same for Prometheus, at each scrape
instruments the same for OpenTelemetry, at each collection
spans       views in spans
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import branchmem as bm
from branchmem.metrics.watched import DETACHED_AFTER

if TYPE_CHECKING:
    from opentelemetry.metrics import Meter
    from opentelemetry.trace import Tracer
    from prometheus_client import CollectorRegistry

    from branchmem.metrics.exposition import Exposition
    from branchmem.metrics.instruments import Instruments
    from branchmem.metrics.spans import Traced

__all__ = ["opentelemetry", "prometheus", "traced"]


def prometheus(
    store: bm.Store | bm.Engine | None = None,
    *,
    name: str | None = None,
    registry: CollectorRegistry | None = None,
    detached_after: int = DETACHED_AFTER,
) -> Exposition:
    """Register the counters with Prometheus (its global registry, unless told), and return what exposes them.

    One a registry: more stores are added with `watch`, which takes the same `store`, `name` and
    `detached_after`; `bm.Pool(…, on_open=exposed.watch)` adds each store of a pool.  `close` takes everything
    back.  Not for the multiprocess mode of prometheus_client, which knows no collectors but its own: let each
    process be scraped by itself.

    Raises: ModuleNotFoundError without prometheus_client; ValueError where the registry has these metrics already.
    Cost: nothing until a scrape, which reads no file: the stores as this process last saw them.
    """
    with _extra("prometheus", "prometheus_client"):
        from branchmem.metrics.exposition import Exposition

    exposed = Exposition()
    if store is not None:
        exposed.watch(store, name, detached_after=detached_after)
    exposed.register(registry)
    return exposed


def opentelemetry(
    store: bm.Store | bm.Engine | None = None,
    *,
    name: str | None = None,
    meter: Meter | None = None,
    detached_after: int = DETACHED_AFTER,
) -> Instruments:
    """Create the counters as observable instruments of a meter (of the global provider, unless told).

    One a meter: more stores are added with `watch`, as in `prometheus`.  A meter never gives instruments back;
    after `close` they observe nothing, until this is called for the meter again.

    Raises: ModuleNotFoundError without opentelemetry-api; ValueError where the meter has these instruments already.
    Cost: nothing until a collection, which reads no file: the stores as this process last saw them.
    """
    with _extra("opentelemetry", "opentelemetry"):
        from branchmem.metrics.instruments import Instruments

    instruments = Instruments.of(meter)
    if store is not None:
        try:
            instruments.watch(store, name, detached_after=detached_after)
        except BaseException:
            instruments.close()
            raise
    return instruments


def traced(store: bm.Store | bm.Engine, tracer: Tracer | None = None, *, ids: bool = False) -> Traced:
    """A face of the store that asks `at`, `visible` and `bitmaps` in spans (of the global provider, unless told).

    With `ids` the span of a view names what is visible, up to a bound; see `Traced`.
    Raises: ModuleNotFoundError without opentelemetry-api.
    """
    with _extra("opentelemetry", "opentelemetry"):
        from branchmem.metrics.spans import Traced

    return Traced(store, tracer, ids=ids)


@contextmanager
def _extra(extra: str, package: str) -> Iterator[None]:
    """Say which extra to install where its package is missing."""
    try:
        yield
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] != package:
            raise
        raise ModuleNotFoundError(
            f"metrics need the package {error.name}, which is not installed: pip install 'branchmem[{extra}]'",
            name=error.name,
        ) from None
