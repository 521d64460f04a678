"""The entity store: entities of one branch raise nothing on another, and no link is lost."""

from __future__ import annotations

import re
from typing import Any

import branchmem as bm
import pytest
from branchmem.adapters.mem0 import BranchMem
from scripted import USER, Model, said, seen


@pytest.fixture(autouse=True)
def entities(monkeypatch: pytest.MonkeyPatch) -> None:
    """What spaCy would find: here, words that are written with a capital."""
    from mem0.memory import main

    def extract(text: str) -> list[tuple[str, str]]:
        return [("PROPER", word) for word in re.findall(r"\b[A-Z][a-z]+", text)]

    monkeypatch.setattr(main, "extract_entities", extract)
    monkeypatch.setattr(main, "extract_entities_batch", lambda texts: [extract(text) for text in texts])


def linked(store: Any) -> dict[str, list[list[str]]]:
    """The links of each entity, by its text."""
    found: dict[str, list[list[str]]] = {}
    for row in store.list(filters=USER, top_k=100)[0]:
        found.setdefault(row.payload["data"], []).append(sorted(row.payload["linked_memory_ids"]))
    return found


def test_entities_belong_to_the_branches_of_their_memories(model: Model, mem: BranchMem, store: bm.Store) -> None:
    model.facts.update({"met": ["met Rex in Paris"], "left": ["left Paris"], "bone": ["Rex likes bones"]})
    session = store.session("chat")
    session.say("user", "met")
    (met,) = mem.at(session.head).add(said("met"), **USER)["results"]
    above = session.head
    session.say("user", "left")
    (left,) = mem.at(session.head).add(said("left"), **USER)["results"]
    one = mem.at(session.head)
    session.rewind(above)
    session.say("user", "bone")
    (bone,) = mem.at(session.head).add(said("bone"), **USER)["results"]
    other = mem.at(session.head)

    assert linked(one.entity_store) == {"Rex": [[met["id"]]], "Paris": [sorted([met["id"], left["id"]])]}
    assert linked(other.entity_store) == {"Rex": [sorted([met["id"], bone["id"]])], "Paris": [[met["id"]]]}
    boosts = [
        hit["score_details"]["entity_boost"] > 0
        for hit in one.search("Rex", filters=USER, threshold=0.0, explain=True)["results"]
        if hit["id"] == met["id"]
    ]
    assert boosts == [True]

    new = one.update(met["id"], "met Max in Paris")["id"]
    assert linked(one.entity_store) == {"Max": [[new]], "Paris": [sorted([new, left["id"]])]}
    one.delete(left["id"])
    assert linked(one.entity_store) == {"Max": [[new]], "Paris": [[new]]}
    one.delete_all(**USER)
    assert linked(one.entity_store) == {}
    assert linked(other.entity_store) == {"Rex": [sorted([met["id"], bone["id"]])], "Paris": [[met["id"]]]}
    assert seen(other) == ["Rex likes bones", "met Rex in Paris"]
