"""Each call of an OpenAI-style client as a step of a session.

Before a call its list of messages is placed in the tree; after it what is new of the list and the answer stand there,
and the session stands at the answer.  A call that fails, or a stream that ends before its answer does, leaves the
session where it stood.  What asks a model and would be no step is refused, not passed on.
"""

from __future__ import annotations

import inspect
import logging
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping
from contextvars import copy_context
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Self, TypeVar, cast

from branchmem import RefMoved, Session
from branchmem.agent.placing import place
from branchmem.agent.turn import FINISH, MODEL, Turn
from branchmem.agent.wire import Said, plain
from branchmem.chat import Draft
from branchmem.errors.agent import InvalidModel, NoAnswer, NotAStep
from branchmem.session.settled import settled
from branchmem.session.step import RECALLED

if TYPE_CHECKING:
    from branchmem.extract import Extractor

#: What else of a client asks a model: none of it is placed in a tree.
_OTHERS: Final = ("responses", "completions", "beta", "realtime", "with_raw_response", "with_streaming_response")
_INSTEAD: Final = "call chat.completions.create, or the client itself for what is not to be remembered"

_logger: Final = logging.getLogger("branchmem")

C = TypeVar("C")


def wrap(
    client: C,
    session: Session,
    *,
    recall: Mapping[str, Any] | None = None,
    extractor: Extractor | None = None,
) -> C:
    """A client like this one, whose calls of `chat.completions.create` are steps of a session; `stream=True`, too.

    The messages of a call are matched with the branches of the session's tree by what they say, from the first message
    on.  New ones go below the last that is known: where an earlier one was edited, that is a fork, and a list of an
    earlier branch stands on that branch again.  Instructions (system, developer) at the beginning of a list are no part
    of it; later ones are, and so are results of tools, and images by what they are known by.  The session moves to the
    answer.  Where another call moved it meanwhile, it stays there, and the answer has its place all the same.

    With `recall`, options of `step.recall`, what fits the last message of the user is added to the instructions that
    are sent; its receipt is kept with the answer.  `extractor` finds what to remember.
    A client that is awaited gives one that is.  Whatever else a client has is reached through it as before.
    Raises: InvalidModel for what is no such client; ForeignSession.  A call raises InvalidMessage, PlaceAmbiguous,
    PlaceUnknown, NotAStep, before anything is sent; what the client raises; NoAnswer where a stream ends before its
    answer does.
    Cost of a call: reads the messages beside the path of its list; a commit for each that is new, one for the answer.
    """
    create = getattr(getattr(getattr(client, "chat", None), "completions", None), "create", None)
    if not callable(create):
        raise InvalidModel(type(client).__name__, "has no chat.completions.create: wrap one such as openai.OpenAI()")
    is_async = inspect.iscoroutinefunction(create) or hasattr(type(client), "__aenter__")
    kind = AsyncWrapped if is_async else Wrapped
    Turn(session)  # refuses a session that it cannot work in
    return cast(C, kind(client, session, recall, extractor))


class _Wrapping:
    """What a wrapped client knows, and what it passes on."""

    def __init__(
        self, client: Any, session: Session, recall: Mapping[str, Any] | None, extractor: Extractor | None
    ) -> None:
        self.client = client
        self.session = session
        self._recall = recall
        self._extractor = extractor

    @property
    def chat(self) -> Self:
        """Where `completions` stands."""
        return self

    @property
    def completions(self) -> Self:
        """Where `create` stands."""
        return self

    def with_options(self, **options: Any) -> Self:
        """The same with other options of the client."""
        return type(self)(self.client.with_options(**options), self.session, self._recall, self._extractor)

    copy = with_options

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):  # what Python asks of an object is not asked of the client
            raise AttributeError(name)
        if name in _OTHERS or name in ("parse", "stream"):
            raise NotAStep(name, _INSTEAD)
        return getattr(self.client, name)

    def __repr__(self) -> str:
        return f"<{type(self.client).__name__} wrapped in {self.session!r}>"

    def _call(self, form: Mapping[str, Any]) -> _Call:
        return _Call(self.session, form, self._recall, self._extractor)


class Wrapped(_Wrapping):
    """A client that waits, whose calls are steps."""

    def create(self, **form: Any) -> Any:
        """As that of the client, and a step of the session: `wrap` says what becomes of the messages."""
        call = self._call(form)
        sent = copy_context().run(call.begin)
        try:
            answer = self.client.chat.completions.create(**sent)
            if form.get("stream"):
                return _Stream(answer, call)
            call.take(answer)
            call.write()
            call.extract()
        except BaseException as error:
            call.fail(error)
            raise
        call.end()
        return answer

    def __enter__(self) -> Self:
        self.client.__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        self.client.__exit__(*error)


class AsyncWrapped(_Wrapping):
    """A client that is awaited, whose calls are steps."""

    async def create(self, **form: Any) -> Any:
        """As that of the client, and a step of the session: `wrap` says what becomes of the messages."""
        call = self._call(form)
        sent = await settled(call.begin)
        try:
            answer = await self.client.chat.completions.create(**sent)
            if form.get("stream"):
                return _AsyncStream(answer, call)
            call.take(answer)
            await settled(call.write)
            await call.aextract()
        except BaseException as error:
            call.fail(error)
            raise
        await call.aend()
        return answer

    async def __aenter__(self) -> Self:
        await self.client.__aenter__()
        return self

    async def __aexit__(self, *error: Any) -> None:
        await self.client.__aexit__(*error)


class _Call:
    """One call under way, and the turn that it is.

    The turn is entered in no context of the caller: a stream that is abandoned must not stand in the way of the next.
    """

    def __init__(
        self,
        session: Session,
        form: Mapping[str, Any],
        recall: Mapping[str, Any] | None,
        extractor: Extractor | None,
    ) -> None:
        n = form.get("n")
        if isinstance(n, int) and n > 1:
            raise NotAStep(f"n={n}", "one call is one answer: ask so often, and each is a branch")
        messages = form.get("messages")
        if isinstance(messages, (str, Mapping)) or not isinstance(messages, Iterable):
            raise NotAStep("a call without messages", "pass messages=[…]")
        self._form = dict(form)
        self._messages = list(messages)
        self._session = session
        self._recall = recall
        self._extractor = extractor
        self._draft = Draft()
        self.is_over = False

    @property
    def is_answered(self) -> bool:
        """Whether the answer is whole."""
        return self._draft.finish is not None

    def begin(self) -> dict[str, Any]:
        """Place the messages, and say what is new; what is to be sent."""
        self._turn = Turn(self._session)
        self._turn.__enter__()
        try:
            found = place(self._session, self._turn.head, self._messages)
            self._turn.stand_at(found.at)
            for said, recalled in found.new:
                receipt = {RECALLED: recalled} if recalled else {}
                self._turn.say(said.role, said.text or None, meta={**said.meta(), **receipt})
            return {**self._form, "messages": self._recalled()}
        except BaseException as error:
            self.fail(error)
            raise

    def take(self, answer: Any) -> None:
        """Take in a completion or a chunk.  Raises: NoAnswer where it is neither."""
        try:
            self._draft.take(plain(answer))
        except (ValueError, TypeError, KeyError, AttributeError, OverflowError):
            raise NoAnswer(None) from None

    def write(self) -> None:
        """Write the answer down in the turn.  Raises: NoAnswer where there is none."""
        reply = self._draft.reply()
        if self._draft.choices == 0:
            raise NoAnswer(None)
        if reply.text:
            self._turn.write(reply.text)
        model = self._form.get("model")
        noted = {MODEL: model if isinstance(model, str) else None, FINISH: reply.finish}
        self._turn.note(**noted, **Said("assistant", reply.text, reply.calls).meta())

    def extract(self) -> None:
        """Remember what is found in the turn.  An answer stands, whatever becomes of that."""
        if self._extractor is not None:
            from branchmem.extract import extract_in

            try:
                extract_in(self._turn, self._extractor)
            except Exception as error:
                self._unextracted(error)

    async def aextract(self) -> None:
        """As `extract`."""
        if self._extractor is not None:
            from branchmem.extract import aextract_in

            try:
                await aextract_in(self._turn, self._extractor)
            except Exception as error:
                self._unextracted(error)

    def end(self) -> None:
        """Let the answer stand where it belongs, and the session at it, unless another moved that meanwhile."""
        self.is_over = True
        try:
            self._turn.__exit__(None, None, None)
        except RefMoved as moved:
            _logger.info("%s", moved)

    async def aend(self) -> None:
        """As `end`; who is cancelled in it before it is written ends the call as a failure does."""
        await settled(self.end, cancelled=self._turn.cancel)

    def fail(self, error: BaseException) -> None:
        """Let nothing of it stand at the session.  Nothing where it is over."""
        if not self.is_over:
            self.is_over = True
            self._turn.__exit__(type(error), error, error.__traceback__)

    def _recalled(self) -> list[Any]:
        """The messages as they are sent: with what is recalled for the last one of the user."""
        wanted = [said.text for said in map(partial(Said.of_wire, at=0), self._messages) if said.role == "user"]
        if self._recall is None or not wanted:
            return self._messages
        text = self._turn.recall(wanted[-1], **self._recall).text
        if not text:
            return self._messages
        first, *others = self._messages
        told = plain(first)
        if Said.of_wire(told, 0).is_instruction and isinstance(told.get("content"), str):
            return [{**told, "content": f"{told['content']}\n\n{text}"}, *others]
        return [{"role": "system", "content": text}, *self._messages]

    def _unextracted(self, error: Exception) -> None:
        _logger.warning("nothing was extracted from %s: %s: %s", self._turn.id, type(error).__name__, error)


class _Stream:
    """The chunks of an answer as they come; the step ends with the chunk that says why the answer ends."""

    def __init__(self, stream: Any, call: _Call) -> None:
        self._stream = stream
        self._call = call
        self._chunks = iter(stream)

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        call = self._call
        try:
            chunk = next(self._chunks, None)
            if call.is_over:
                if chunk is None:
                    raise StopIteration
                return chunk
            if chunk is None:
                raise NoAnswer(None)
            call.take(chunk)
            if not call.is_answered:
                return chunk
            call.write()
            call.extract()
        except BaseException as error:
            call.fail(error)
            raise
        call.end()
        return chunk

    def close(self) -> None:
        """End the connection; before the answer has ended, nothing of it stands."""
        self._call.fail(GeneratorExit())
        self._stream.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


class _AsyncStream:
    """As `_Stream`, awaited."""

    def __init__(self, stream: Any, call: _Call) -> None:
        self._stream = stream
        self._call = call
        self._chunks = aiter(stream)

    def __aiter__(self) -> AsyncIterator[Any]:
        return self

    async def __anext__(self) -> Any:
        call = self._call
        try:
            chunk = await anext(self._chunks, None)
            if call.is_over:
                if chunk is None:
                    raise StopAsyncIteration
                return chunk
            if chunk is None:
                raise NoAnswer(None)
            call.take(chunk)
            if not call.is_answered:
                return chunk
            await settled(call.write)
            await call.aextract()
        except BaseException as error:
            call.fail(error)
            raise
        await call.aend()
        return chunk

    async def close(self) -> None:
        """End the connection; before the answer has ended, nothing of it stands."""
        self._call.fail(GeneratorExit())
        await self._stream.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)
