"""An agent: what the user says becomes an answer, by recall, skills, prompt, compaction, model, extraction and a step.

In that order, and all of it in one turn: the ref of the session moves when the answer is written, and not before.  A
call that fails or is cancelled leaves the ref where it was, and what it said on a branch where nobody stands.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Generator, Iterable, Mapping, Sequence
from contextlib import aclosing, closing
from copy import copy
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Self

from branchmem import Message, Session
from branchmem.agent.tools import Tool
from branchmem.agent.turn import Turn
from branchmem.agent.wire import Said
from branchmem.agent.work import Answer, Work
from branchmem.chat import Asks, Reply
from branchmem.errors import BadMove, UnknownEvent
from branchmem.errors.agent import InvalidModel, InvalidTool, NoAnswer
from branchmem.session.settled import settled

if TYPE_CHECKING:
    import os

    from branchmem.extract import Extractor
    from branchmem.skills import Skill

#: What a user says: text, or parts as endpoints take them.
Content = str | Sequence[Mapping[str, Any]]
#: What begins a turn gives what the user says in it, None where that was said before.
Begin = Callable[[Turn], Content | None]


class Agent:
    """A model that answers in a session, and remembers.

    `system` is what it is told first; what is recalled follows it.  `tools` are functions with type hints, or `Tool`s.
    `recall` holds options of `step.recall` (`budget`, `k`, `embedder` …); None recalls nothing.  `skills` are those
    that it may use: without them, those that the branch shows.  `extractor` finds what to remember of a turn.
    `compaction` holds options of `branchmem.extract.compact`, a `budget` among them, for prompts that are longer.  A
    reply that calls tools is followed by another, `max_rounds` times in all.
    A tool works inside of the turn: `current_step().remember(…)`, or a parameter that is annotated `Step`, ties what it
    learns to the answer.  What it raises ends the turn, but for ToolRefused, which is told to the model.

    Every verb raises what the model raises (EndpointFailed), TurnEndless, NoAnswer, and what a step does (RefMoved
    where the session was moved meanwhile); then the session stands where it stood.
    Cost: that of the replies; one recall, and a commit for each message.
    """

    def __init__(
        self,
        session: Session,
        model: Asks,
        *,
        system: str = "",
        tools: Iterable[Callable[..., Any] | Tool] = (),
        skills: Iterable[Skill] | None = None,
        recall: Mapping[str, Any] | None = MappingProxyType({}),
        extractor: Extractor | None = None,
        compaction: Mapping[str, Any] | None = None,
        max_rounds: int = 16,
        max_tokens: int | None = None,
    ) -> None:
        if not callable(getattr(model, "ask", None)):
            name = model if isinstance(model, str) else type(model).__name__
            raise InvalidModel(name, "has no ask: give what has one, such as branchmem.chat.Chat of a name")
        if max_rounds < 1:
            raise ValueError(f"max_rounds is 1 at least, not {max_rounds}: a turn has one reply")
        self.session = session
        self.model = model
        self.system = system
        self.tools: dict[str, Tool] = {}
        for tool in map(Tool.of, tools):
            if tool.name in self.tools:
                raise InvalidTool(tool.name, "is the name of two tools: a model could not tell them apart")
            self.tools[tool.name] = tool
        self.skills = None if skills is None else tuple(skills)
        self.recall = recall
        self.extractor = extractor
        self.compaction = compaction
        self.max_rounds = max_rounds
        self.max_tokens = max_tokens

    def send(self, content: Content, *, paths: Iterable[str | os.PathLike[str]] = ()) -> Answer:
        """Say something as the user, and answer it.  `paths` are the files that are worked on: they call up skills."""
        return _last(self._run(partial(_say, content), paths, self._whole))

    def edit(self, message: str | Message, content: Content, *, paths: Iterable[str | os.PathLike[str]] = ()) -> Answer:
        """Say a message of the user otherwise, and answer that, on a branch of its own.

        Raises: UnknownEvent; BadMove for what is no message of the user in the tree of this session.
        """
        return _last(self._run(partial(_edit, message, content), paths, self._whole))

    def regenerate(self, *, paths: Iterable[str | os.PathLike[str]] = ()) -> Answer:
        """Answer once more what the user said last, or for the first time, beside the other answers.

        Raises: BadMove where the user said nothing on the path.
        """
        return _last(self._run(_again, paths, self._whole))

    def stream(
        self, content: Content, *, paths: Iterable[str | os.PathLike[str]] = ()
    ) -> Generator[str | Answer, None, None]:
        """As `send`: pieces of text as they come, and at last the answer.  To close it is to fail."""
        return self._run(partial(_say, content), paths, self._streamed)

    def stream_edit(
        self, message: str | Message, content: Content, *, paths: Iterable[str | os.PathLike[str]] = ()
    ) -> Generator[str | Answer, None, None]:
        """As `edit`, in pieces."""
        return self._run(partial(_edit, message, content), paths, self._streamed)

    def stream_regenerate(self, *, paths: Iterable[str | os.PathLike[str]] = ()) -> Generator[str | Answer, None, None]:
        """As `regenerate`, in pieces."""
        return self._run(_again, paths, self._streamed)

    def fork(self, name: str) -> Self:
        """An agent like this one, in a session of its own that begins where this one stands: `session.fork`."""
        return self._in(self.session.fork(name))

    def switch(self, leaf: str | Message) -> str:
        """Stand at another message, a leaf as a rule, and see what is visible there: `session.switch`."""
        return self.session.switch(leaf)

    async def asend(self, content: Content, *, paths: Iterable[str | os.PathLike[str]] = ()) -> Answer:
        """As `send`; who is cancelled in it ends the turn as a failure does."""
        return await _alast(self._arun(partial(_say, content), paths, self._awhole))

    async def aedit(
        self, message: str | Message, content: Content, *, paths: Iterable[str | os.PathLike[str]] = ()
    ) -> Answer:
        """As `edit`."""
        return await _alast(self._arun(partial(_edit, message, content), paths, self._awhole))

    async def aregenerate(self, *, paths: Iterable[str | os.PathLike[str]] = ()) -> Answer:
        """As `regenerate`."""
        return await _alast(self._arun(_again, paths, self._awhole))

    def astream(
        self, content: Content, *, paths: Iterable[str | os.PathLike[str]] = ()
    ) -> AsyncGenerator[str | Answer, None]:
        """As `stream`."""
        return self._arun(partial(_say, content), paths, self._astreamed)

    def astream_edit(
        self, message: str | Message, content: Content, *, paths: Iterable[str | os.PathLike[str]] = ()
    ) -> AsyncGenerator[str | Answer, None]:
        """As `stream_edit`."""
        return self._arun(partial(_edit, message, content), paths, self._astreamed)

    def astream_regenerate(self, *, paths: Iterable[str | os.PathLike[str]] = ()) -> AsyncGenerator[str | Answer, None]:
        """As `stream_regenerate`."""
        return self._arun(_again, paths, self._astreamed)

    async def afork(self, name: str) -> Self:
        """As `fork`."""
        return self._in(await self.session.afork(name))

    async def aswitch(self, leaf: str | Message) -> str:
        """As `switch`."""
        return await self.session.aswitch(leaf)

    def __repr__(self) -> str:
        return f"<Agent {self.model!r} in {self.session!r}>"

    def _in(self, session: Session) -> Self:
        other = copy(self)
        other.session = session
        return other

    def _run(
        self,
        begin: Begin,
        paths: Iterable[str | os.PathLike[str]],
        reply: Callable[[Work], Generator[str, None, Reply]],
    ) -> Generator[str | Answer, None, None]:
        with Turn(self.session) as turn:
            work = Work(self, turn, begin(turn))
            work.prepare(paths)
            while True:
                work.compact()
                for call in work.take((yield from reply(work))):
                    work.tell(call, work.called(call))
                if work.is_answered:
                    break
            work.extract()
        yield work.answer()

    async def _arun(
        self,
        begin: Begin,
        paths: Iterable[str | os.PathLike[str]],
        reply: Callable[[Work], AsyncGenerator[str | Reply, None]],
    ) -> AsyncGenerator[str | Answer, None]:
        async with Turn(self.session) as turn:
            work = Work(self, turn, await settled(partial(begin, turn)))
            await settled(partial(work.prepare, paths))
            while True:
                await work.acompact()
                whole: Reply | None = None
                async with aclosing(reply(work)) as pieces:
                    async for piece in pieces:
                        if isinstance(piece, Reply):
                            whole = piece
                        else:
                            yield piece
                for call in await settled(partial(work.take, _given(whole))):
                    told = await work.acalled(call)
                    await settled(partial(work.tell, call, told))
                if work.is_answered:
                    break
            await work.aextract()
        yield work.answer()

    def _whole(self, work: Work) -> Generator[str, None, Reply]:
        reply = self.model.ask(work.messages, tools=work.tools, max_tokens=self.max_tokens)
        if reply.text:
            yield reply.text
        return reply

    def _streamed(self, work: Work) -> Generator[str, None, Reply]:
        stream = getattr(self.model, "stream", None)
        if stream is None:
            return (yield from self._whole(work))
        whole: Reply | None = None
        with closing(stream(work.messages, tools=work.tools, max_tokens=self.max_tokens)) as pieces:
            for piece in pieces:
                if isinstance(piece, Reply):
                    whole = piece
                else:
                    yield piece
        return _given(whole)

    async def _awhole(self, work: Work) -> AsyncGenerator[str | Reply, None]:
        asked = getattr(self.model, "aask", None)
        if asked is None:  # a model that is no coroutine is asked in a thread, which who is cancelled leaves to itself
            reply = await asyncio.to_thread(
                partial(self.model.ask, work.messages, tools=work.tools, max_tokens=self.max_tokens)
            )
        else:
            reply = await asked(work.messages, tools=work.tools, max_tokens=self.max_tokens)
        if reply.text:
            yield reply.text
        yield reply

    async def _astreamed(self, work: Work) -> AsyncGenerator[str | Reply, None]:
        stream = getattr(self.model, "astream", None)
        pieces = (
            self._awhole(work)
            if stream is None
            else stream(work.messages, tools=work.tools, max_tokens=self.max_tokens)
        )
        async with aclosing(pieces):
            async for piece in pieces:
                yield piece


def _say(content: Content, turn: Turn) -> Content:
    said = Said.of_wire({"role": "user", "content": content}, 0)
    turn.say("user", content if isinstance(content, str) else said.text, meta=said.meta())
    return content


def _edit(message: str | Message, content: Content, turn: Turn) -> Content:
    id = message.id if isinstance(message, Message) else message
    store, ref = turn.session.store, turn.session.ref
    old = store.log.get(id) if id in store.log else None
    if not isinstance(old, Message):
        raise UnknownEvent(id, Message.type)
    if old.role != "user":
        raise BadMove(ref, id, "is not the user's: say it otherwise with session.edit, which answers nothing")
    if not isinstance(old.parent, str):
        raise BadMove(ref, id, "has no parent that a second version could hang under: start a new session")
    turn.stand_at(old.parent)
    return _say(content, turn)


def _again(turn: Turn) -> None:
    store = turn.session.store
    for id in reversed(store.tree.path(turn.head)):
        message = store.log.get(id)
        if isinstance(message, Message) and message.role == "user":
            turn.stand_at(id)
            return
        if store.log.is_erased(id):
            raise BadMove(turn.session.ref, id, "was erased, and may be what is to be answered: rewind above it")
    raise BadMove(turn.session.ref, turn.head, "has no message with role user at or above it: send one")


def _given(reply: Reply | None) -> Reply:
    if reply is None:
        raise NoAnswer(None)
    return reply


def _last(pieces: Generator[str | Answer, None, None]) -> Answer:
    *_, answer = pieces
    assert isinstance(answer, Answer)  # a turn that does not end in one raises
    return answer


async def _alast(pieces: AsyncGenerator[str | Answer, None]) -> Answer:
    async with aclosing(pieces):
        answer = [piece async for piece in pieces][-1]
    assert isinstance(answer, Answer)
    return answer
