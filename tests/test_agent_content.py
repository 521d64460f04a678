"""What a user says in parts is asked of the model as it was given, and kept as far as a log should hold it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import branchmem as bm
import pytest
from branchmem.agent import Agent, Answer
from completions import Scripted

pytestmark = pytest.mark.usefixtures("without_disk")

IMAGE = {"type": "image_url", "image_url": {"url": "data:image/png;base64," + "A" * 3000}}
PARTS = [{"type": "text", "text": "What is it?"}, IMAGE]
NOT_KEPT = [PARTS[0], {"type": "text", "text": "(image_url, not kept)"}]


def send(agent: Agent, parts: Any) -> Answer:
    return agent.send(parts)


def asend(agent: Agent, parts: Any) -> Answer:
    return asyncio.run(agent.asend(parts))


@pytest.mark.parametrize("asks", [send, asend])
def test_the_model_is_shown_a_large_image_in_the_turn_that_brings_it(asks: Callable[[Agent, Any], Answer]) -> None:
    with bm.open_temporary() as store:
        model = Scripted("A cat.", "A dog.", "Black.", "Nothing.")
        agent = Agent(store.session("chat"), model, system="Be brief.")
        first = asks(agent, PARTS)
        agent.edit(store.tree.path(first.id)[-2], [IMAGE])
        asks(agent, "Which colour?")
        asks(agent, [{"type": "text", "text": ""}])

        assert [asked[1:] for asked in model.asked[:2]] == [[said(PARTS)], [said([IMAGE])]]
        assert model.asked[2][1] == said(NOT_KEPT[1:])
        assert model.asked[3][-1]["content"] == "Black."
        assert "A" * 3000 not in str([store.log.get(id) for id in store.message_ids])


def said(content: Any) -> dict[str, Any]:
    return {"role": "user", "content": content}
