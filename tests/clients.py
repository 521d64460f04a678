"""A client in the style of OpenAI's, made of plain objects: it answers as it is told, and keeps what it was sent."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Mapping
from types import SimpleNamespace
from typing import Any

from branchmem.chat import Reply
from completions import pieces, whole


class Client:
    """Answers what it is told, one after the other: text, a reply, or an exception, which it raises."""

    def __init__(self, *told: str | Reply | BaseException) -> None:
        self.told = list(told)
        self.sent: list[dict[str, Any]] = []
        self.models = SimpleNamespace(list=lambda: ["m"])
        self.chat = SimpleNamespace(completions=SimpleNamespace(create=self._create, parse=None))
        self.responses = self.beta = None
        self.closed = False

    def with_options(self, **options: Any) -> Client:
        self.sent.append({"options": options})
        return self

    def close(self) -> None:
        self.closed = True

    def _create(self, **form: Any) -> Any:
        reply = self._next(form)
        if form.get("stream"):
            return Stream(reply)
        return objects(whole(reply.text, reply.calls))

    def _next(self, form: Mapping[str, Any]) -> Reply:
        self.sent.append(dict(form))
        told = self.told.pop(0)
        if isinstance(told, BaseException):
            raise told
        return told if isinstance(told, Reply) else Reply(told, finish="stop")


class AsyncClient(Client):
    """The same, awaited."""

    def __init__(self, *told: str | Reply | BaseException) -> None:
        super().__init__(*told)
        self.chat = SimpleNamespace(completions=SimpleNamespace(create=self._acreate))

    async def _acreate(self, **form: Any) -> Any:
        reply = self._next(form)
        return AsyncStream(reply) if form.get("stream") else objects(whole(reply.text, reply.calls))


class Stream:
    """Chunks of a reply; one that ends with `break` has no end."""

    def __init__(self, reply: Reply) -> None:
        finish = None if reply.finish == "break" else "stop"
        self._chunks = iter([objects(chunk) for chunk in pieces(reply.text, reply.calls, finish)])
        self.closed = False
        self.response = "raw"

    def __iter__(self) -> Iterator[Any]:
        return self._chunks

    def close(self) -> None:
        self.closed = True


class AsyncStream(Stream):
    async def __aiter__(self) -> AsyncIterator[Any]:
        for chunk in self._chunks:
            yield chunk

    async def close(self) -> None:  # type: ignore[override]
        self.closed = True


def objects(form: Any) -> Any:
    """Mappings as objects with attributes."""
    if isinstance(form, Mapping):
        return SimpleNamespace(**{name: objects(value) for name, value in form.items()})
    return [objects(value) for value in form] if isinstance(form, list) else form
