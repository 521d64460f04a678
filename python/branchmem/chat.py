"""A language model behind any endpoint that speaks as OpenAI's does: POST {base_url}/chat/completions.

What is asked is messages as such endpoints take them, and what comes back is one reply: whole, or its text in pieces
first.  The one rule: an answer is read as it is, or refused.  Left out: what the messages say, and whether a reply
keeps to a schema, which is for the caller to check whatever the endpoint promises.
"""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import AsyncGenerator, Callable, Generator, Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, Protocol, TypeVar
from uuid import uuid4

from branchmem.endpoint import Endpoint, Line
from branchmem.errors import EndpointFailed
from branchmem.errors.agent import InvalidModel

_MAX_ANSWER_BYTES: Final = 64 << 20
#: What ends a stream of events.
_DONE: Final = "[DONE]"

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Call:
    """A tool that the model wants to be called; `arguments` is the JSON text as the model gave it, sound or not."""

    id: str
    name: str
    arguments: str


@dataclass(frozen=True, slots=True)
class Reply:
    """What a model said: text, calls of tools, or both.  Counts of tokens are 0 where the endpoint says none."""

    text: str
    calls: tuple[Call, ...] = ()
    #: Why it ended, in the words of the endpoint: `stop`, `length`, `tool_calls` …
    finish: str | None = None
    prompt_tokens: int = 0
    completion_tokens: int = 0


class Asks(Protocol):
    """What stands behind a model; a test gives a scripted one."""

    def ask(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        tools: Sequence[Mapping[str, Any]] = (),
        schema: Mapping[str, Any] | None = None,
        max_tokens: int | None = None,
    ) -> Reply:
        """What the model says to these messages."""
        ...


class Chat:
    """The model of this name at an endpoint.

    `base_url` and `key` default to OPENAI_BASE_URL, else OpenAI's, and OPENAI_API_KEY; a local server needs no key.
    `options` go into every request as they are (`seed`, `max_completion_tokens` …).  A request that fails for now
    (status 408, 409, 425, 429, 5xx, no connection, no answer within `timeout` seconds) is sent again, `retries` times
    at most, after `pause` seconds, then twice as long each time, or as long as the endpoint asks for, up to a minute;
    one that is answered in pieces, until the first of them.
    Raises: InvalidModel for a URL or a key that cannot be used.  Every call raises EndpointFailed, with neither the key
    nor what was sent.
    """

    def __init__(
        self,
        model: str,
        *,
        base_url: str | None = None,
        key: str | None = None,
        timeout: float = 300.0,
        retries: int = 4,
        pause: float = 1.0,
        temperature: float | None = None,
        options: Mapping[str, Any] | None = None,
    ) -> None:
        self._endpoint = Endpoint(
            "/chat/completions",
            base_url=base_url,
            key=key,
            timeout=timeout,
            retries=retries,
            pause=pause,
            refused=partial(InvalidModel, model),
        )
        self.model = model
        self._request: dict[str, Any] = {"model": model, **(options or {})}
        if temperature is not None:
            self._request["temperature"] = temperature

    def __repr__(self) -> str:
        return f"<Chat {self.model} at {self._endpoint.base_url}>"

    def ask(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        tools: Sequence[Mapping[str, Any]] = (),
        schema: Mapping[str, Any] | None = None,
        max_tokens: int | None = None,
    ) -> Reply:
        """What the model says to these messages, whole.

        `schema` is a JSON schema that the text should keep to.
        """
        return self._asked(self._form(messages, tools, schema, max_tokens), Line())

    def stream(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        tools: Sequence[Mapping[str, Any]] = (),
        schema: Mapping[str, Any] | None = None,
        max_tokens: int | None = None,
    ) -> Generator[str | Reply, None, None]:
        """The text in pieces as they come, and at last the reply.

        Closing the iterator ends the connection.  A stream that ends before the answer does raises EndpointFailed.
        """
        return self._streamed(self._form(messages, tools, schema, max_tokens), Line())

    async def aask(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        tools: Sequence[Mapping[str, Any]] = (),
        schema: Mapping[str, Any] | None = None,
        max_tokens: int | None = None,
    ) -> Reply:
        """As `ask`; who is cancelled in it ends the connection."""
        form = self._form(messages, tools, schema, max_tokens)
        pieces = _in_thread(lambda line: iter((self._asked(form, line),)))
        try:
            return await anext(pieces)
        finally:
            await pieces.aclose()

    async def astream(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        tools: Sequence[Mapping[str, Any]] = (),
        schema: Mapping[str, Any] | None = None,
        max_tokens: int | None = None,
    ) -> AsyncGenerator[str | Reply, None]:
        """As `stream`; who is cancelled in it ends the connection."""
        form = self._form(messages, tools, schema, max_tokens)
        pieces = _in_thread(lambda line: self._streamed(form, line))
        try:
            async for piece in pieces:
                yield piece
        finally:
            await pieces.aclose()

    def _form(
        self,
        messages: Sequence[Mapping[str, Any]],
        tools: Sequence[Mapping[str, Any]],
        schema: Mapping[str, Any] | None,
        max_tokens: int | None,
    ) -> dict[str, Any]:
        form: dict[str, Any] = {**self._request, "messages": list(messages)}
        if tools:
            form["tools"] = list(tools)
        if schema is not None:
            named = {"name": str(schema.get("title", "answer")), "schema": schema, "strict": True}
            form["response_format"] = {"type": "json_schema", "json_schema": named}
        if max_tokens is not None:
            form["max_tokens"] = max_tokens
        return form

    def _asked(self, form: Mapping[str, Any], line: Line) -> Reply:
        answer = self._endpoint.post(form, max_answer_bytes=_MAX_ANSWER_BYTES, line=line)
        try:
            said = json.loads(answer)
        except (ValueError, RecursionError):
            raise self._no_completion() from None
        draft = Draft()
        self._take(draft, said)
        if draft.choices == 0:
            raise self._no_completion()
        return draft.reply()

    def _streamed(self, form: Mapping[str, Any], line: Line) -> Generator[str | Reply, None, None]:
        form = {**form, "stream": True, "stream_options": {"include_usage": True}}
        draft = Draft()
        with closing(self._endpoint.events(form, max_answer_bytes=_MAX_ANSWER_BYTES, line=line)) as events:
            for event in events:
                if event == _DONE:
                    break
                try:
                    said = json.loads(event)
                except (ValueError, RecursionError):
                    raise self._no_completion() from None
                yield from self._take(draft, said)
        if draft.finish is None:
            if draft.choices == 0:
                raise self._no_completion()
            raise self._endpoint.failed("its answer broke off before its end")
        yield draft.reply()

    def _take(self, draft: Draft, said: Any) -> list[str]:
        """The pieces of text in a part of an answer.  Raises: EndpointFailed where it is none, or an error."""
        error = said.get("error") if isinstance(said, dict) else None
        if error is not None:
            why = error.get("message") if isinstance(error, dict) else error
            raise self._endpoint.failed(f"it failed while it answered: {why}")
        try:
            return draft.take(said)
        except (ValueError, TypeError, KeyError, IndexError, AttributeError, OverflowError):
            raise self._no_completion() from None

    def _no_completion(self) -> EndpointFailed:
        return self._endpoint.failed("its answer is no chat completion: is this the right base URL?")


class Draft:
    """A reply while it comes: whole messages and pieces of them, in the JSON form of OpenAI's."""

    def __init__(self) -> None:
        #: How many choices were taken in: where there is none, nothing was answered.
        self.choices = 0
        self.finish: str | None = None
        self._text: list[str] = []
        #: For each call its id, its name, and the pieces of its arguments.
        self._calls: list[tuple[str, str, list[str]]] = []
        #: Where the call stands to which an index belongs.
        self._at: dict[int, int] = {}
        self._tokens = (0, 0)

    def take(self, said: Mapping[str, Any]) -> list[str]:
        """Take in a completion or a chunk of one; the pieces of text in it.

        Raises: TypeError, ValueError, KeyError, AttributeError or OverflowError where it is neither.
        """
        used = said.get("usage")
        if used:
            self._tokens = (int(used.get("prompt_tokens") or 0), int(used.get("completion_tokens") or 0))
        choices = said.get("choices") if used else said["choices"]
        for choice in choices or ():
            if choice.get("index"):
                continue  # of several answers, the first is the one
            self.choices += 1
            part = choice.get("delta") or choice.get("message")
            if part is None and "delta" not in choice:
                raise KeyError("message")
            self.finish = choice.get("finish_reason") or self.finish
            if not part:
                continue
            for number, call in enumerate(part.get("tool_calls") or ()):
                self._take_call(number, call)
            return self._take_text(part.get("content") or part.get("refusal"))
        return []

    def reply(self) -> Reply:
        """All that came."""
        calls = tuple(
            Call(id or f"call_{uuid4().hex}", name, "".join(arguments)) for id, name, arguments in self._calls
        )
        return Reply("".join(self._text), calls, self.finish, *self._tokens)

    def _take_text(self, content: object) -> list[str]:
        if isinstance(content, list):
            content = "".join(part.get("text") or "" for part in content)
        if not content:
            return []
        if not isinstance(content, str):
            raise TypeError(content)
        self._text.append(content)
        return [content]

    def _take_call(self, number: int, call: Mapping[str, Any]) -> None:
        id, function = call.get("id") or "", call.get("function") or {}
        name, arguments = function.get("name") or "", arguments_text(function.get("arguments") or "")
        if call.get("type") == "custom" or not (isinstance(id, str) and isinstance(name, str)):
            raise TypeError(call)
        index = call.get("index")
        at = self._at.get(number if index is None else index)
        # some count every call of a message as the first one: another id is another call
        if at is None or (id and self._calls[at][0] and id != self._calls[at][0]):
            at = len(self._calls)
            self._calls.append((id, name, []))
        known_id, known_name, pieces = self._calls[at]
        pieces.append(arguments)
        self._calls[at] = (known_id or id, known_name or name, pieces)
        self._at[number if index is None else index] = at


def arguments_text(arguments: object) -> str:
    """The arguments of a call as JSON text: servers and applications there are that give the object itself."""
    return arguments if isinstance(arguments, str) else json.dumps(arguments)


async def _in_thread(work: Callable[[Line], Iterable[T]]) -> AsyncGenerator[T, None]:
    """What an iterator gives that waits for a connection, from a thread; closing this cuts the connection.

    The thread is nobody's: a loop that ends does not wait for it.
    """
    loop, line = asyncio.get_running_loop(), Line()
    came: asyncio.Queue[tuple[T] | BaseException | None] = asyncio.Queue()

    def tell(item: tuple[T] | BaseException | None) -> None:
        try:
            loop.call_soon_threadsafe(came.put_nowait, item)
        except RuntimeError:  # the loop is closed: nobody listens
            line.cut()

    def read() -> None:
        try:
            for item in work(line):
                tell((item,))
        except BaseException as error:
            tell(error)
        else:
            tell(None)

    threading.Thread(target=read, name="branchmem chat", daemon=True).start()
    try:
        while (item := await came.get()) is not None:
            if isinstance(item, BaseException):
                raise item
            yield item[0]
    finally:
        line.cut()
