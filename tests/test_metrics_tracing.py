"""A span says where one stood and how much was visible; it never says what anybody wrote."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import branchmem as bm
import pytest
from branchmem import Policy, Reason, metrics
from branchmem.events import Retraction
from branchmem.metrics.spans import MOST_IDS
from metered import CHAT
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import NoOpTracer, StatusCode, Tracer

TEXTS = [event.text for event in CHAT if isinstance(event, bm.Message | bm.Memory) and event.text]


@pytest.fixture
def exporter() -> InMemorySpanExporter:
    return InMemorySpanExporter()


@pytest.fixture
def tracer(exporter: InMemorySpanExporter) -> Tracer:
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    return provider.get_tracer("tests")


@pytest.fixture
def chat() -> Iterator[bm.Store]:
    with bm.open_temporary() as store:
        store.append(CHAT)
        yield store


def told(exporter: InMemorySpanExporter) -> list[dict[str, Any]]:
    """The attributes of each span, without their prefix."""
    return [
        {name.removeprefix("branchmem."): value for name, value in (span.attributes or {}).items()}
        for span in exporter.get_finished_spans()
    ]


def only(exporter: InMemorySpanExporter) -> ReadableSpan:
    (span,) = exporter.get_finished_spans()
    return span


def test_a_span_tells_where_a_view_stands_and_how_much_it_shows(
    chat: bm.Store, tracer: Tracer, exporter: InMemorySpanExporter
) -> None:
    view = metrics.traced(chat, tracer).at("u1")

    assert view.ids() == ["home"]
    assert only(exporter).name == "branchmem.view"
    assert told(exporter) == [
        {
            "policy": "strict",
            "anchors": ("u1",),
            "anchor_count": 1,
            "seq": 5,
            "problems": (),
            "visible": 1,
            "memories": 2,
        }
    ]


def test_a_span_tells_what_is_wrong_with_the_anchors(
    chat: bm.Store, tracer: Tracer, exporter: InMemorySpanExporter
) -> None:
    traced = metrics.traced(chat, tracer, ids=True)

    traced.at(None)
    traced.at(["u1", "nowhere"], policy=bm.COMPAT)

    first, second = told(exporter)
    assert (first["problems"], first["anchors"], first["visible"]) == (("no_anchor",), (), 0)
    assert (second["problems"], second["anchors"]) == (("unknown_anchor",), ("u1", "nowhere"))
    assert "ids" not in first | second


def test_a_span_names_the_policy(chat: bm.Store, tracer: Tracer, exporter: InMemorySpanExporter) -> None:
    traced = metrics.traced(chat, tracer)

    for policy in (bm.STRICT, bm.COMPAT, Policy(), Policy(admit=Reason.NO_SOURCES | Reason.FUTURE)):
        traced.at("u1", policy=policy)

    assert [each["policy"] for each in told(exporter)] == ["strict", "compat", "strict", "no_sources+future"]


def test_ids_are_named_only_when_asked_for_and_up_to_a_bound(tracer: Tracer, exporter: InMemorySpanExporter) -> None:
    engine = bm.Engine()
    names = [f"m{number}" for number in range(MOST_IDS + 10)]
    engine.add([bm.Message("chat", None), *(bm.Memory(name, "", sources=["chat"]) for name in names)])

    metrics.traced(engine, tracer).at("chat")
    metrics.traced(engine, tracer, ids=True).at("chat")

    without, with_ids = told(exporter)
    assert "ids" not in without
    assert with_ids["ids"] == tuple(names[:MOST_IDS])
    assert with_ids["visible"] == len(names)


def test_ids_are_those_of_the_policy(chat: bm.Store, tracer: Tracer, exporter: InMemorySpanExporter) -> None:
    for policy in (bm.STRICT, bm.COMPAT):
        metrics.traced(chat, tracer, ids=True).at("u1", policy=policy)

    assert [each["ids"] for each in told(exporter)] == [("home",), ("home", "guess")]


def test_many_anchors_are_counted_and_the_first_are_named(tracer: Tracer, exporter: InMemorySpanExporter) -> None:
    engine = bm.Engine()
    roots = [f"r{number}" for number in range(MOST_IDS + 10)]
    engine.add([bm.Message(root, None) for root in roots])

    metrics.traced(engine, tracer).at(iter(roots))

    (span,) = told(exporter)
    assert (span["anchors"], span["anchor_count"]) == (tuple(roots[:MOST_IDS]), len(roots))


def test_pairs_and_bitmaps_have_spans_of_their_own(
    chat: bm.Store, tracer: Tracer, exporter: InMemorySpanExporter
) -> None:
    traced = metrics.traced(chat, tracer)

    assert traced.visible(["home", "home", "guess"], ["u1", "u1-edit", "u1"]).tolist() == [True, False, False]
    assert traced.bitmaps(["u1", "u1-edit", None], policy=bm.COMPAT).tolist() == [[3], [2], [3]]

    assert [span.name for span in exporter.get_finished_spans()] == ["branchmem.visible", "branchmem.bitmaps"]
    assert told(exporter) == [
        {"policy": "strict", "pairs": 3, "visible": 1, "memories": 2},
        {"policy": "compat", "views": 3, "visible": 5, "memories": 2},
    ]


def test_spans_count_nothing(chat: bm.Store, tracer: Tracer) -> None:
    metrics.traced(chat, tracer, ids=True).at("u1-edit", policy=bm.COMPAT)
    assert chat.counters() == {"hidden": {}, "admitted": {}, "unlisted": 0}

    plain = bm.Engine()
    plain.add(CHAT)
    for asked in (metrics.traced(chat, tracer, ids=True), plain):
        asked.bitmaps(["u1-edit"], policy=bm.COMPAT)
        asked.visible(["home"], ["u1-edit"])
        assert "home" not in asked.at("u1-edit")
        assert "home" not in asked.at("u1-edit", count=False)

    assert chat.counters() == plain.counters()


def test_what_is_asked_in_a_span_is_a_child_of_the_span_around_it(
    chat: bm.Store, tracer: Tracer, exporter: InMemorySpanExporter
) -> None:
    with tracer.start_as_current_span("turn"):
        metrics.traced(chat, tracer).at("u1")

    view, turn = exporter.get_finished_spans()
    assert view.parent is not None
    assert turn.context is not None
    assert view.parent.span_id == turn.context.span_id


def test_a_refusal_is_told_by_its_type_alone(chat: bm.Store, tracer: Tracer, exporter: InMemorySpanExporter) -> None:
    traced = metrics.traced(chat, tracer)

    with pytest.raises(bm.AmbiguousAnchor):
        traced.at(["u1", "u1-edit"])
    with pytest.raises(TypeError):
        traced.bitmaps(TEXTS[0])
    chat.close()
    with pytest.raises(bm.StoreClosed, match="temporary"):
        traced.at("u1")

    spans = exporter.get_finished_spans()
    assert [each.get("error.type") for each in told(exporter)] == ["AmbiguousAnchor", "TypeError", "StoreClosed"]
    assert {(span.status.status_code, span.status.description) for span in spans} == {(StatusCode.ERROR, None)}
    assert [event for span in spans for event in span.events] == []
    assert "temporary" not in "".join(span.to_json() for span in spans)


def test_no_span_holds_any_text(chat: bm.Store, tracer: Tracer, exporter: InMemorySpanExporter) -> None:
    traced = metrics.traced(chat, tracer, ids=True)
    chat.append([Retraction("r1", "u1", scope="branch", memories=["guess"], reason="it was a lie")])

    for policy in (bm.STRICT, bm.COMPAT):
        for anchor in (None, "u1", ["u1-edit"]):
            view = traced.at(anchor, policy=policy)
            assert all(memory.text in TEXTS for memory in view.memories())
    with pytest.raises(TypeError):
        traced.at(b"I'm moving to Chengdu")  # type: ignore[arg-type]
    with pytest.raises(TypeError):
        traced.visible("The user likes trains", ["u1"])

    said = "".join(span.to_json() for span in exporter.get_finished_spans())
    assert len(exporter.get_finished_spans()) == 8
    assert len(TEXTS) == 4
    assert [text for text in (*TEXTS, "Chengdu", "trains", "a lie") if text in said] == []
    assert '"home"' in said


def test_where_nothing_is_recorded_a_view_is_just_a_view() -> None:
    class Asked(bm.Engine):
        asked = 0

        def at(self, *args: Any, **named: Any) -> bm.View:
            self.asked += 1
            return super().at(*args, **named)

    engine = Asked()
    engine.add(CHAT)

    assert metrics.traced(engine, NoOpTracer(), ids=True).at("u1").ids() == ["home"]
    assert engine.asked == 1


def test_the_global_tracer_is_taken_where_none_is_given(chat: bm.Store) -> None:
    assert metrics.traced(chat).at("u1").ids() == ["home"]
