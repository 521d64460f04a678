"""A scrape tells what the stores counted, and nothing else: not who they belong to, not what they hold."""

from __future__ import annotations

import gc
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import branchmem as bm
import pytest
from branchmem import metrics
from branchmem.events import Erasure, Restoration, Retraction
from branchmem.metrics.exposition import Exposition
from branchmem.metrics.watched import FAMILIES, Family, Watched, label
from logs import in_child
from metered import CHAT, ask, scraped
from prometheus_client import CollectorRegistry, Gauge, generate_latest


@pytest.fixture
def chat() -> Iterator[bm.Store]:
    with bm.open_temporary() as store:
        store.append(CHAT)
        yield store


@pytest.fixture
def registry() -> CollectorRegistry:
    return CollectorRegistry()


def counted(store: bm.Store | bm.Engine, suffix: str = "") -> dict[str, float]:
    """What a scrape should say of the counters of a store."""
    counters = store.counters()
    return {
        **{f"branchmem_hidden_total{{reason={label(why)}{suffix}}}": n for why, n in counters["hidden"].items()},
        **{f"branchmem_admitted_total{{reason={label(why)}{suffix}}}": n for why, n in counters["admitted"].items()},
        ("branchmem_unlisted_total" + (f"{{{suffix[1:]}}}" if suffix else "")): counters["unlisted"],
    }


def not_zero(samples: Mapping[str, float], *gauges: str) -> dict[str, float]:
    """The counters that moved, and the gauges that are named."""
    return {key: value for key, value in samples.items() if value and ("_total" in key or key in gauges)}


def test_a_scrape_tells_what_the_store_counted(chat: bm.Store, registry: CollectorRegistry) -> None:
    metrics.prometheus(chat, registry=registry)

    ask(chat)

    assert not_zero(scraped(registry), "branchmem_events") == {
        "branchmem_hidden_total{reason=sibling}": 1,
        "branchmem_hidden_total{reason=unknown_memory}": 1,
        "branchmem_admitted_total{reason=no_sources}": 2,
        "branchmem_unlisted_total": 1,
        "branchmem_events": 5,
    }
    assert not_zero(scraped(registry)) == counted(chat), "a scrape itself counts nothing"


def test_what_was_asked_before_counts_too(chat: bm.Store, registry: CollectorRegistry) -> None:
    ask(chat)

    metrics.prometheus(chat, registry=registry)

    assert not_zero(scraped(registry)) == counted(chat)


def test_every_reason_is_there_before_it_occurs(chat: bm.Store, registry: CollectorRegistry) -> None:
    metrics.prometheus(chat, registry=registry)

    samples = scraped(registry)

    reasons = {label(reason) for reason in bm.Reason}
    assert {key for key in samples if "hidden" in key} == {f"branchmem_hidden_total{{reason={it}}}" for it in reasons}
    assert {key for key in samples if "admitted" in key} == {
        f"branchmem_admitted_total{{reason={it}}}" for it in reasons - {"unknown_memory"}
    }


def test_the_text_of_a_scrape_follows_the_conventions(chat: bm.Store, registry: CollectorRegistry) -> None:
    metrics.prometheus(chat, registry=registry)

    lines = generate_latest(registry).decode().splitlines()

    assert [line for line in lines if line.startswith("# TYPE")] == [
        "# TYPE branchmem_hidden_total counter",
        "# TYPE branchmem_admitted_total counter",
        "# TYPE branchmem_unlisted_total counter",
        "# TYPE branchmem_events gauge",
        "# TYPE branchmem_unplaced_retractions gauge",
        "# TYPE branchmem_detached_messages gauge",
    ]
    assert 'branchmem_hidden_total{reason="sibling"} 0.0' in lines


def test_what_was_taken_back_replaced_or_erased_is_told_apart(chat: bm.Store, registry: CollectorRegistry) -> None:
    metrics.prometheus(chat, registry=registry)
    chat.append(
        [
            bm.Message("u2", "u1"),
            *(bm.Memory(id, "a fact", sources=["u1"]) for id in ("said", "old", "secret")),
            bm.Memory("new", "another", sources=["u1"], supersedes=["old"]),
            Retraction("r1", "u2", scope="branch", memories=["said"]),
            Erasure("e1", ["secret"]),
        ]
    )

    view = chat.at("u2")
    assert [id for id in ("said", "old", "secret", "new") if id in view] == ["new"]

    assert not_zero(scraped(registry)) == {
        "branchmem_hidden_total{reason=retracted}": 1,
        "branchmem_hidden_total{reason=superseded}": 1,
        "branchmem_hidden_total{reason=erased}": 1,
    }


def test_an_engine_without_a_file_is_watched_as_a_store_is(registry: CollectorRegistry) -> None:
    engine = bm.Engine()
    engine.add(CHAT)
    metrics.prometheus(engine, registry=registry)

    ask(engine)

    assert not_zero(scraped(registry), "branchmem_events") == {**counted(engine), "branchmem_events": 5}


def test_messages_are_told_once_they_are_long_without_a_parent(registry: CollectorRegistry) -> None:
    with bm.open_temporary() as store, metrics.prometheus(store, registry=registry, detached_after=3):
        store.append([bm.Message("lost", "nowhere"), bm.Message("below", "lost"), bm.Message("chat", None)])
        assert scraped(registry)["branchmem_detached_messages"] == 0

        store.append([bm.Message("u1", "chat")])
        assert scraped(registry)["branchmem_detached_messages"] == 1
        store.append([bm.Message("u2", "u1")])
        assert scraped(registry)["branchmem_detached_messages"] == 2

        store.append([bm.Message("nowhere", "u2")])
        assert scraped(registry)["branchmem_detached_messages"] == 0


def test_retractions_are_told_while_their_place_is_not_known(registry: CollectorRegistry) -> None:
    with bm.open_temporary() as store, metrics.prometheus(store, registry=registry):
        store.append(
            [
                *CHAT,
                Retraction("r1", "late", scope="branch", memories=["home"], reason="a secret"),
                Retraction("r2", "late", scope="everywhere", memories=["home"]),
                Retraction("r3", "u1", scope="tree", memories=["home"]),
                Restoration("s1", "late", scope="branch", retraction="r2"),
            ]
        )
        assert scraped(registry)["branchmem_unplaced_retractions"] == 2
        assert "secret" not in generate_latest(registry).decode()

        store.append([bm.Message("late", "u1")])
        assert scraped(registry)["branchmem_unplaced_retractions"] == 0


# Several stores, closed stores, stores that are gone


def test_stores_without_a_name_are_summed(chat: bm.Store, registry: CollectorRegistry) -> None:
    other = bm.Engine()
    other.add(CHAT)
    exposed = metrics.prometheus(chat, registry=registry)
    exposed.watch(other)

    ask(chat)
    ask(other)

    both = {key: 2 * value for key, value in counted(chat).items()}
    assert not_zero(scraped(registry), "branchmem_events") == {**both, "branchmem_events": 10}


def test_stores_with_a_name_stand_apart(chat: bm.Store, registry: CollectorRegistry) -> None:
    with bm.open_temporary() as quiet:
        exposed = metrics.prometheus(chat, name="busy", registry=registry)
        exposed.watch(quiet, "quiet")
        ask(chat)
        samples = scraped(registry)

    assert not_zero(samples, "branchmem_events{store=busy}") == {
        **counted(chat, ",store=busy"),
        "branchmem_events{store=busy}": 5,
    }
    assert samples["branchmem_events{store=quiet}"] == 0
    assert all("store=" in key for key in samples)


def test_a_scrape_names_no_file_and_no_text(tmp_path: Path, registry: CollectorRegistry) -> None:
    with bm.open(tmp_path / "alice.bmem") as store, metrics.prometheus(store, registry=registry):
        store.append(CHAT)
        ask(store)
        text = generate_latest(registry).decode()

    assert [
        word for word in ("alice", str(tmp_path), "Chengdu", "Hangzhou", "home", "u1", "guess") if word in text
    ] == []


def test_a_closed_store_breaks_no_scrape_and_keeps_what_it_counted(chat: bm.Store, registry: CollectorRegistry) -> None:
    metrics.prometheus(chat, registry=registry)
    ask(chat)
    before = counted(chat)

    chat.close()

    samples = scraped(registry)
    assert not_zero(samples) == before
    assert [key for key in samples if "_total" not in key] == [], "what is closed does not stand any more"


def test_a_store_that_is_gone_stays_in_the_sums(registry: CollectorRegistry) -> None:
    exposed = metrics.prometheus(registry=registry)
    seen = []
    for _ in range(3):
        with bm.open_temporary() as store:
            exposed.watch(store)
            store.append(CHAT)
            ask(store)
        del store
        gc.collect()
        seen.append(scraped(registry)["branchmem_hidden_total{reason=sibling}"])

    assert seen == [1, 2, 3]


def test_an_exposition_keeps_no_store_alive(registry: CollectorRegistry) -> None:
    import weakref

    exposed = metrics.prometheus(registry=registry)
    engine = bm.Engine()
    exposed.watch(engine)
    gone = weakref.ref(engine)

    del engine
    gc.collect()

    assert gone() is None
    assert not exposed._kept


def test_a_store_that_goes_while_it_is_read_counts_once() -> None:
    stores = [bm.Engine() for _ in range(3)]
    watched = Watched()
    for store in stores:
        store.add(CHAT)
        ask(store)
        watched.watch(store)
    del store

    def drop_and_read(engine: Any, _: int) -> Mapping[str, int]:
        stores.clear()
        gc.collect()
        return {"": engine.counters()["unlisted"]}

    unlisted = next(family for family in FAMILIES if family.name == "unlisted")
    dropping = Family("unlisted", "", "", grows=True, by_reason=False, read=drop_and_read)

    assert list(watched.samples(dropping)) == [({}, 3)]
    assert list(watched.samples(unlisted)) == [({}, 3)]
    assert not watched._kept, "engines of stores that are gone are let go of"


def test_counters_never_go_back_while_stores_come_and_go(registry: CollectorRegistry) -> None:
    exposed = metrics.prometheus(registry=registry)
    threads, rounds = 4, 50

    def come_and_go() -> None:
        for _ in range(rounds):
            engine = bm.Engine()
            engine.add(CHAT)
            exposed.watch(engine)
            assert "home" not in engine.at("u1-edit")

    workers = [threading.Thread(target=come_and_go) for _ in range(threads)]
    for worker in workers:
        worker.start()
    seen = []
    while any(worker.is_alive() for worker in workers):
        seen.append(scraped(registry).get("branchmem_hidden_total{reason=sibling}", 0))
    gc.collect()

    assert seen == sorted(seen)
    assert scraped(registry)["branchmem_hidden_total{reason=sibling}"] == threads * rounds


def test_the_child_of_a_fork_watches_what_it_is_told_to(chat: bm.Store, registry: CollectorRegistry) -> None:
    exposed = metrics.prometheus(chat, registry=registry)
    ask(chat)

    def child() -> str:
        before = scraped(registry)
        with bm.open_temporary() as own:
            own.append(CHAT)
            exposed.watch(own)
            ask(own)
            return f"{before} {not_zero(scraped(registry)) == counted(own)}"

    assert in_child(child) == "{} True"
    assert not_zero(scraped(registry)) == counted(chat)


# What is refused


def test_a_registry_takes_one_exposition_and_says_how_to_add_a_store(
    chat: bm.Store, registry: CollectorRegistry
) -> None:
    metrics.prometheus(chat, registry=registry)

    with pytest.raises(ValueError, match=r"keep what metrics\.prometheus returned .* watch\(\)"):
        metrics.prometheus(chat, registry=registry)

    assert scraped(registry)["branchmem_events"] == 5


def test_a_metric_of_somebody_else_is_not_overwritten(registry: CollectorRegistry) -> None:
    Gauge("branchmem_events", "somebody else's", registry=registry).set(7)

    with pytest.raises(ValueError, match="branchmem_events"):
        metrics.prometheus(registry=registry)

    assert scraped(registry) == {"branchmem_events": 7}


def test_after_close_the_registry_is_free(chat: bm.Store, registry: CollectorRegistry) -> None:
    exposed = metrics.prometheus(chat, registry=registry)

    exposed.close()
    exposed.close()

    assert scraped(registry) == {}
    assert [metric.samples for metric in exposed.collect() if metric.samples] == []
    with metrics.prometheus(chat, registry=registry) as again:
        assert isinstance(again, Exposition)
        assert scraped(registry)["branchmem_events"] == 5
    assert scraped(registry) == {}


def test_what_was_taken_out_of_the_registry_can_be_closed(chat: bm.Store, registry: CollectorRegistry) -> None:
    exposed = metrics.prometheus(chat, registry=registry)
    registry.unregister(exposed)

    exposed.close()

    assert scraped(registry) == {}


def test_a_store_is_watched_in_one_way(chat: bm.Store, registry: CollectorRegistry) -> None:
    exposed = metrics.prometheus(chat, name="a", registry=registry)

    exposed.watch(chat, "a")
    with pytest.raises(ValueError, match="name='a'"):
        exposed.watch(chat, "b")
    with pytest.raises(ValueError, match="detached_after=1000"):
        exposed.watch(chat, "a", detached_after=1)

    assert scraped(registry)["branchmem_events{store=a}"] == 5


@pytest.mark.parametrize("name", ["", "two\nlines", "\ud800", 7])
def test_a_name_that_would_break_a_scrape_is_refused(chat: bm.Store, registry: CollectorRegistry, name: Any) -> None:
    with pytest.raises((ValueError, TypeError), match="the name of a store is"):
        metrics.prometheus(chat, name=name, registry=registry)

    assert scraped(registry) == {}


def test_what_cannot_be_watched_is_named(registry: CollectorRegistry) -> None:
    exposed = metrics.prometheus(registry=registry)

    with pytest.raises(TypeError, match="not dict"):
        exposed.watch({})  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="not -1"):
        exposed.watch(bm.Engine(), detached_after=-1)


# The libraries


@pytest.mark.parametrize(
    ("package", "extra", "call"),
    [
        ("prometheus_client", "prometheus", metrics.prometheus),
        ("opentelemetry", "opentelemetry", metrics.opentelemetry),
        ("opentelemetry", "opentelemetry", metrics.traced),
    ],
)
def test_a_missing_extra_is_named(monkeypatch: pytest.MonkeyPatch, package: str, extra: str, call: Any) -> None:
    for module in [name for name in sys.modules if name.partition(".")[0] == package]:
        monkeypatch.delitem(sys.modules, module)
    for module in ("exposition", "instruments", "spans"):
        monkeypatch.delitem(sys.modules, f"branchmem.metrics.{module}", raising=False)
    monkeypatch.setitem(sys.modules, package, None)

    with pytest.raises(ModuleNotFoundError, match=rf"pip install 'branchmem\[{extra}\]'") as refused:
        call(bm.Engine())

    assert str(refused.value.name).partition(".")[0] == package


def test_importing_loads_neither_library() -> None:
    asked = (
        "import sys, branchmem, branchmem.metrics; "
        "print(*{name.partition('.')[0] for name in sys.modules} & {'prometheus_client', 'opentelemetry'})"
    )

    loaded = subprocess.run([sys.executable, "-c", asked], check=True, capture_output=True, text=True)

    assert loaded.stdout.split() == []
