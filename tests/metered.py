"""What the tests of metrics share: a conversation, some questions about it, and a scrape."""

from __future__ import annotations

import branchmem as bm
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

CHAT = (
    bm.Message("chat", None, role="thread"),
    bm.Message("u1", "chat", role="user", text="I'm moving to Chengdu"),
    bm.Memory("home", "The user is moving to Chengdu", sources=["u1"]),
    bm.Message("u1-edit", "chat", role="user", text="I'm moving to Hangzhou"),
    bm.Memory("guess", "The user likes trains", kind="guess"),
)


def ask(store: bm.Store | bm.Engine) -> None:
    """Some of everything that is counted."""
    hidden = store.at("u1-edit")
    assert "home" not in hidden
    assert "nothing" not in hidden
    assert "guess" in store.at("u1", policy=bm.COMPAT)
    assert store.at("u1-edit", policy=bm.COMPAT).ids() == ["guess"]


def scraped(registry: CollectorRegistry) -> dict[str, float]:
    """Every sample of a scrape, from its text: `name{label=value,…}` → value."""
    samples: dict[str, float] = {}
    for family in text_string_to_metric_families(generate_latest(registry).decode()):
        for sample in family.samples:
            labels = ",".join(f"{name}={value}" for name, value in sample.labels.items())
            key = f"{sample.name}{{{labels}}}" if labels else sample.name
            assert key not in samples, "a time series occurs twice"
            samples[key] = sample.value
    return samples
