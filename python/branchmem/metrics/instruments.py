"""The counters for OpenTelemetry: observable instruments, read when a reader collects."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Iterator, MutableMapping
from functools import partial

from opentelemetry.metrics import CallbackOptions, Meter, Observation, get_meter

import branchmem as bm
from branchmem.metrics.watched import FAMILIES, Family, Watched


class Instruments(Watched):
    """The instruments of one meter: `branchmem.hidden` with the attribute `reason`, and so on.

    What only grows is an observable counter, what adds up over stores and processes an observable up-down counter.
    Also a context manager: leaving it closes it.
    """

    _is_open = False

    @staticmethod
    def of(meter: Meter | None) -> Instruments:
        """Those of a meter, made or opened again.  Raises: ValueError where they are open."""
        key = Instruments if meter is None else meter
        with _MAKING:
            found = _MADE.get(key)
            if found is not None and found._is_open:
                raise ValueError(
                    "the meter has these instruments already: keep what metrics.opentelemetry returned and add the "
                    "store with its watch(), or pass a meter of its own"
                )
            if found is None:
                found = _MADE[key] = Instruments()
                found._create(get_meter("branchmem", bm.__version__) if meter is None else meter)
            found._is_open = True
            return found

    def close(self) -> None:
        """Observe nothing, and watch nothing.  Twice is once."""
        self._is_open = False
        self.forget()

    def __enter__(self) -> Instruments:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def _create(self, meter: Meter) -> None:
        for family in FAMILIES:
            create = meter.create_observable_counter if family.grows else meter.create_observable_up_down_counter
            create(f"branchmem.{family.name}", [partial(self._observe, family)], family.unit, family.text)

    def _observe(self, family: Family, _: CallbackOptions) -> Iterator[Observation]:
        for labels, value in self.samples(family):
            yield Observation(value, labels)


_MAKING = threading.Lock()
# A meter drops the callbacks of an instrument that it has already, and does not say so.  The global meter goes by
# the class, since before a provider is set every call gives another stand-in for it.
_MADE: MutableMapping[object, Instruments] = weakref.WeakKeyDictionary()
