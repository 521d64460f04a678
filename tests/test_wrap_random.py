"""A chat application at random, on a wrapped client and on a plain model of its tree: both say the same of each call.

The model is a set of paths: what was said, from the first message on.  A memory belongs to the path of the answer that
it was found in, and is visible on all paths that go on from there.
"""

from __future__ import annotations

from collections.abc import Iterator
from random import Random
from typing import Any

import branchmem as bm
import pytest
from branchmem.agent import wrap
from branchmem.chat import Reply
from branchmem.extract import Found, Shown
from branchmem.session import Session
from clients import Client
from completions import calling
from figures import Figure

pytestmark = pytest.mark.usefixtures("without_disk")

Path = tuple[str, ...]

SEEDS = range(3)


class Model:
    """The tree as it must be."""

    def __init__(self) -> None:
        self.paths: set[Path] = set()
        self.found: dict[Path, str] = {}

    def say(self, path: Path) -> None:
        self.paths.update(path[:end] for end in range(1, len(path) + 1))

    def visible(self, path: Path) -> list[str]:
        return sorted(self.found[path[:end]] for end in range(len(path) + 1) if path[:end] in self.found)


class Application:
    """Keeps lists of messages, as applications do, and knows nothing of a tree."""

    def __init__(self, session: Session, random: Random) -> None:
        self.session = session
        self.client = Client()
        self.wrapped = wrap(self.client, session, extractor=self.extracted)
        self.random = random
        self.model = Model()
        self.known: list[list[dict[str, Any]]] = []
        self.said = 0

    def call(self, messages: list[dict[str, Any]]) -> None:
        """One call, which may fail once before; then what stands there is compared."""
        prompt = tuple(map(content, messages))
        if self.random.random() < 0.15:
            self.fail(messages)
        self.model.say(prompt)
        self.said += 1
        asks_tool = self.random.random() < 0.2
        text = f"answer {self.said}" * (not asks_tool)
        calls = (calling("look", "{}", f"c{self.said}"),) if asks_tool else ()
        self.client.told = [Reply(text, calls, "stop")]
        stream = self.random.random() < 0.5
        came = self.wrapped.chat.completions.create(messages=messages, stream=stream)
        if stream:
            list(came)
        answer: dict[str, Any] = {"role": "assistant", "content": text or None}
        if calls:
            form = {"id": calls[0].id, "type": "function", "function": {"name": "look", "arguments": "{}"}}
            answer["tool_calls"] = [form]
        path = (*prompt, content(answer))
        self.model.say(path)
        if text:
            self.model.found[path] = f"m: {text}"
        self.known.append([*messages, answer])
        self.compare(path)

    def fail(self, messages: list[dict[str, Any]]) -> None:
        head = self.session.head
        self.model.say(tuple(map(content, messages)))
        broken = self.random.random() < 0.5
        self.client.told = [Reply("half an answer", finish="break") if broken else OSError("gone")]
        with pytest.raises((OSError, bm.Error)):
            list(self.wrapped.chat.completions.create(messages=messages, stream=broken))
        assert self.session.head == head

    def compare(self, path: Path) -> None:
        store = self.session.store
        assert stands(self.session) == path
        assert sorted(memory.text for memory in self.session.view().memories()) == self.model.visible(path)
        assert len(store.message_ids) == 1 + len(self.model.paths)

    def next(self) -> list[dict[str, Any]]:
        """The messages of the next call: any conversation that there was, gone on with, edited or asked again."""
        if not self.known or self.random.random() < 0.05:
            return [self.user()]
        recent = self.random.random() < 0.6
        messages = list(self.known[-1] if recent else self.random.choice(self.known))
        users = [at for at, message in enumerate(messages) if message["role"] == "user"]
        what = self.random.choice(("go on", "go on", "edit", "regenerate", "correct"))
        if what == "edit":
            at = self.random.choice(users)
            return [*messages[:at], self.user()]
        if what == "regenerate":
            return messages[: self.random.choice(users) + 1]
        if what == "correct" and messages[-1]["content"]:
            messages[-1] = {"role": "assistant", "content": f"corrected {messages[-1]['content']}"}
        last = messages[-1].get("tool_calls")
        if last:
            result = f"result {self.random.randrange(2)}"
            return [*messages, {"role": "tool", "tool_call_id": last[0]["id"], "content": result}]
        return [*messages, self.user()]

    def user(self) -> dict[str, Any]:
        return {"role": "user", "content": f"question {self.random.randrange(6)}"}

    @staticmethod
    def extracted(shown: Shown) -> Iterator[Found]:
        answer = shown.messages[-1]
        if answer.id == shown.anchor:
            yield Found(f"m: {answer.text}", sources=(answer.id,))


def content(message: dict[str, Any]) -> str:
    return f"{message['role']} {message['content'] or ''} {[call['id'] for call in message.get('tool_calls', ())]}"


def stands(session: Session) -> Path:
    """What the path of a session says."""
    store = session.store
    path = [store.log.get(id) for id in store.tree.path(session.head)[1:]]
    return tuple(
        f"{message.role} {message.text or ''} {[call['id'] for call in message.meta.get('calls', ())]}"
        for message in path
        if isinstance(message, bm.Message)
    )


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.soak
def test_a_wrapped_client_stands_where_a_plain_model_of_the_tree_does(seed: int, figure: Figure) -> None:
    with bm.open_temporary() as store:
        application = Application(store.session("chat"), Random(seed))
        for _ in range(figure(18, 60)):
            application.call(application.next())
