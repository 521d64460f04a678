"""Views in spans: where one stood, how much was visible, what was wrong with the anchors.

Ids and counts, never text, and no message of an error: it may quote what was passed, or the path of a store.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from opentelemetry.trace import Span, StatusCode, Tracer, get_tracer

import branchmem as bm
from branchmem.metrics.watched import label

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

#: The most ids that one attribute names.
MOST_IDS: Final = 64


class Traced:
    """Asks a store, each question in a span of its own; the answers are those of the store.

    All spans bear `branchmem.policy` (`strict`, `compat`, or the reasons let through), `branchmem.memories` (how
    many the log holds) and `branchmem.visible` (how much was), and where the question was refused `error.type`.
    What else, see the methods.  Everything that is not asked here is asked of `store` itself.
    """

    def __init__(self, store: bm.Store | bm.Engine, tracer: Tracer | None = None, *, ids: bool = False) -> None:
        self.store = store
        self._tracer = get_tracer("branchmem", bm.__version__) if tracer is None else tracer
        self._ids = ids

    def at(
        self,
        anchor: str | Iterable[str] | None,
        *,
        policy: bm.Policy = bm.STRICT,
        min_seq: int | None = None,
        count: bool = True,
    ) -> bm.View:
        """As `Store.at`, in the span `branchmem.view`.

        It bears `branchmem.anchors` (the first 64 ids) and `branchmem.anchor_count`, `branchmem.seq` and
        `branchmem.problems`; where ids were asked for, also `branchmem.ids`: the first 64 visible memories by
        ordinal, for a view without problems, unless the log grew at that moment.
        Cost: with ids a second view, and what is visible; neither is counted.
        """
        with self._span("branchmem.view", policy) as span:
            view = self.store.at(anchor, policy=policy, min_seq=min_seq, count=count)
            if span.is_recording():
                span.set_attributes(
                    {
                        "branchmem.anchors": view.anchors[:MOST_IDS],
                        "branchmem.anchor_count": len(view.anchors),
                        "branchmem.seq": view.seq,
                        "branchmem.problems": _labels(view.problems),
                    }
                )
                self._tell(span, len(view))
                if self._ids and not view.problems:
                    self._name(span, view)
            return view

    def visible(
        self, memories: Sequence[Any], anchors: Sequence[Any], *, policy: bm.Policy = bm.STRICT
    ) -> NDArray[np.bool_]:
        """As `Store.visible`, in the span `branchmem.visible`.  It bears `branchmem.pairs`."""
        with self._span("branchmem.visible", policy) as span:
            found = self.store.visible(memories, anchors, policy=policy)
            if span.is_recording():
                span.set_attribute("branchmem.pairs", len(found))
                self._tell(span, int(found.sum()))
            return found

    def bitmaps(
        self, anchors: Iterable[str | Iterable[str] | None], *, policy: bm.Policy = bm.STRICT
    ) -> NDArray[np.uint8]:
        """As `Store.bitmaps`, in the span `branchmem.bitmaps`.  It bears `branchmem.views`, the number of rows."""
        with self._span("branchmem.bitmaps", policy) as span:
            rows = self.store.bitmaps(anchors, policy=policy)
            if span.is_recording():
                span.set_attribute("branchmem.views", len(rows))
                self._tell(span, int.from_bytes(rows.tobytes(), "little").bit_count())
            return rows

    @contextmanager
    def _span(self, name: str, policy: bm.Policy) -> Iterator[Span]:
        opened = self._tracer.start_as_current_span(name, record_exception=False, set_status_on_exception=False)
        with opened as span:
            try:
                if span.is_recording():
                    span.set_attribute("branchmem.policy", _said(policy))
                yield span
            except BaseException as error:
                span.set_attribute("error.type", type(error).__name__)
                span.set_status(StatusCode.ERROR)
                raise

    def _tell(self, span: Span, visible: int) -> None:
        span.set_attributes({"branchmem.visible": visible, "branchmem.memories": len(self.store.memory_ids)})

    def _name(self, span: Span, view: bm.View) -> None:
        """Name what is visible, as a view of its own that does not count says."""
        same = self.store.at(view.anchors, policy=view.policy, count=False)
        if same.seq == view.seq:
            ids = self.store.memory_ids
            span.set_attribute("branchmem.ids", [ids[int(ordinal)] for ordinal in same.ordinals()[:MOST_IDS]])


def _said(policy: bm.Policy) -> str:
    """What a policy lets through, in one word where it has one."""
    if policy == bm.STRICT:
        return "strict"
    return "compat" if policy == bm.COMPAT else "+".join(_labels(policy.admit))


def _labels(reasons: bm.Reason) -> tuple[str, ...]:
    return tuple(label(reason) for reason in bm.Reason if reason in reasons)
