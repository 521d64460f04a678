"""The same scenarios on plain Mem0: the reason for the rest of these tests."""

from __future__ import annotations

from typing import Any

from scripted import USER, Model, said, seen


def test_plain_mem0_shows_the_sibling_and_loses_and_doubles(plain: Any, model: Model) -> None:
    model.facts.update({"I like tea": ["likes tea"], "I like coffee": ["likes coffee"]})
    (tea,) = plain.add(said("I like tea", "Noted"), **USER)["results"]

    # edited, regenerated, forked: there is nowhere to say so
    plain.add(said("I like coffee", "Noted"), **USER)
    assert seen(plain) == ["likes coffee", "likes tea"]  # the sibling is visible
    assert "I like tea" in model.prompts[-1].partition("## New Messages")[0]  # and shown to the model
    assert plain.add(said("I like tea", "All right"), **USER)["results"] == []  # a branch that states it again has none

    plain.update(tea["id"], "likes green tea")
    assert seen(plain) == ["likes coffee", "likes green tea"]  # switched back: the other branch lost its text
    plain.delete(tea["id"])
    assert seen(plain) == ["likes coffee"]

    for _ in range(2):  # tried again after a crash
        plain.add("I like coffee", infer=False, **USER)
    assert seen(plain) == ["I like coffee", "I like coffee", "likes coffee"]
