"""One turn under way: its prompt, the replies that it came to, and what becomes of them.

The steps of the loop, each by itself, for callers that wait and for those that do not.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from branchmem import Memory, Message
from branchmem.agent.tools import chosen
from branchmem.agent.turn import FINISH, Turn
from branchmem.agent.wire import Said, plain, prompt
from branchmem.chat import Call, Reply
from branchmem.errors import StepEnded
from branchmem.errors.agent import InvalidTool, NoAnswer, ToolRefused, TurnEndless

if TYPE_CHECKING:
    import os

    from branchmem.agent.loop import Agent, Content
    from branchmem.extract import Compacted, Extracted
    from branchmem.recall import Recalled

_logger: Final = logging.getLogger("branchmem")


@dataclass(frozen=True, slots=True)
class Answer:
    """What became of a turn.  `str` of it is the text."""

    #: The id of the message, at which the session stands now.
    id: str
    text: str
    #: What it was written with: memories and skills; None where nothing was to be recalled.
    recalled: Recalled | None
    #: What the turn remembers: what its tools did, and what was extracted.
    memories: tuple[Memory, ...]
    #: The tools that were called, in order.
    calls: tuple[Call, ...]
    #: What became of the extraction; None where there is no extractor, or it failed.
    extracted: Extracted | None
    #: Why nothing was extracted: the answer stands all the same, and `branchmem.extract.extract` can do it later.
    unextracted: Exception | None
    #: What was made shorter in the prompt of the last reply.
    compacted: Compacted | None
    finish: str | None
    #: Of all replies of the turn; 0 where the model says none.
    prompt_tokens: int
    completion_tokens: int

    def __str__(self) -> str:
        return self.text


class Work:
    """One turn under way: its prompt, and what it came to so far."""

    def __init__(self, agent: Agent, turn: Turn, content: Content | None) -> None:
        self.agent = agent
        self.turn = turn
        self._content = content
        self.messages: list[Mapping[str, Any]] = []
        #: For each the message of the log that it is; None for instructions.
        self._sources: list[str | None] = []
        self.tools = [tool.wire for tool in agent.tools.values()]
        self.is_answered = False
        self._recalled: Recalled | None = None
        self._compacted: Compacted | None = None
        self._extracted: Extracted | None = None
        self._unextracted: Exception | None = None
        self._calls: list[Call] = []
        self._rounds = 0
        self._finish: str | None = None
        self._tokens = (0, 0)

    def prepare(self, paths: Iterable[str | os.PathLike[str]]) -> None:
        """Recall, skills, prompt."""
        agent, store = self.agent, self.turn.session.store
        path = [event for event in map(store.log.get, store.tree.path(self.turn.base)) if isinstance(event, Message)]
        told = [agent.system] if agent.system else []
        if agent.recall is not None:
            wanted = path[-1].text or ""
            options = {"skills": agent.skills, "paths": paths, **agent.recall}
            self._recalled = self.turn.recall(wanted, **options)
            if self._recalled.text:
                told.append(self._recalled.text)
        if told:
            self._add({"role": "system", "content": "\n\n".join(told)}, None)
        for form, id in prompt(path):
            self._add(form, id)
        if self._content is not None and not isinstance(self._content, str) and self._sources[-1:] == [self.turn.base]:
            # as it was given: the log keeps no large part, such as an image
            self.messages[-1] = {**self.messages[-1], "content": plain(self._content)}

    def compact(self) -> None:
        """Make the prompt shorter, where that is wanted, and count the reply that comes."""
        self._count()
        if self.agent.compaction is not None:
            from branchmem.extract import compact

            self._shorten(compact(self.messages, **self._compaction()))

    async def acompact(self) -> None:
        """As `compact`."""
        self._count()
        if self.agent.compaction is not None:
            from branchmem.extract import acompact

            self._shorten(await acompact(self.messages, **self._compaction()))

    def take(self, reply: Reply) -> tuple[Call, ...]:
        """Write down a reply: as the answer, or as a message that calls tools; the calls."""
        self._tokens = (self._tokens[0] + reply.prompt_tokens, self._tokens[1] + reply.completion_tokens)
        self._finish = reply.finish
        if not reply.calls:
            if not reply.text.strip():
                raise NoAnswer(reply.finish)
            self.turn.write(reply.text)
            self.turn.note(**{FINISH: reply.finish})
            self.is_answered = True
            return ()
        self._calls += reply.calls
        self._say(Said("assistant", reply.text, reply.calls))
        return reply.calls

    def tell(self, call: Call, text: str) -> None:
        """Write down the result of a call."""
        self._say(Said("tool", text, call=call.id, name=call.name))

    def called(self, call: Call) -> str:
        """What a tool says, or why it was not called."""
        try:
            tool = chosen(self.agent.tools, call)
            arguments = tool.arguments(call, self.turn)
            if tool.is_async:
                raise InvalidTool(tool.name, "is a coroutine: ask the agent by asend or astream")
            value = self.turn.here().run(tool.function, **arguments)
        except ToolRefused as refused:
            return f"Refused: {refused}"
        return tool.text(value)

    async def acalled(self, call: Call) -> str:
        """As `called`; a tool that is no coroutine works in a thread."""
        try:
            tool = chosen(self.agent.tools, call)
            arguments = tool.arguments(call, self.turn)
            here = self.turn.here()
            if tool.is_async:
                value = await asyncio.create_task(tool.function(**arguments), context=here)
            else:
                working = partial(here.run, tool.function, **arguments)
                value = await asyncio.get_running_loop().run_in_executor(None, working)
        except ToolRefused as refused:
            return f"Refused: {refused}"
        return tool.text(value)

    def extract(self) -> None:
        """Remember what is found in the turn.  An answer stands, whatever becomes of that."""
        if self.agent.extractor is None:
            return
        from branchmem.extract import extract_in

        try:
            self._extracted = extract_in(self.turn, self.agent.extractor)
        except Exception as error:
            self._failed(error)

    async def aextract(self) -> None:
        """As `extract`."""
        if self.agent.extractor is None:
            return
        from branchmem.extract import aextract_in

        try:
            self._extracted = await aextract_in(self.turn, self.agent.extractor)
        except Exception as error:
            self._failed(error)

    def answer(self) -> Answer:
        """What became of it.  Raises: StepEnded where it was cancelled at its end, and nothing of it stands."""
        if self.turn.cancelled:
            raise StepEnded(self.turn.id, "its answer", cancelled=True)
        return Answer(
            id=self.turn.id,
            text=self.turn.text,
            recalled=self._recalled,
            memories=self.turn.memories,
            calls=tuple(self._calls),
            extracted=self._extracted,
            unextracted=self._unextracted,
            compacted=self._compacted,
            finish=self._finish,
            prompt_tokens=self._tokens[0],
            completion_tokens=self._tokens[1],
        )

    def _say(self, said: Said) -> None:
        message = self.turn.say(said.role, said.text or None, meta=said.meta())
        self._add(said.wire(), message.id)

    def _add(self, form: Mapping[str, Any], id: str | None) -> None:
        self.messages.append(form)
        self._sources.append(id)

    def _count(self) -> None:
        self._rounds += 1
        if self._rounds > self.agent.max_rounds:
            raise TurnEndless(self.agent.max_rounds)

    def _compaction(self) -> dict[str, Any]:
        return {"place": self.turn.session, "sources": self._sources, **(self.agent.compaction or {})}

    def _shorten(self, compacted: Compacted) -> None:
        """Go on with what fits; summaries that stand in it are part of the receipt."""
        self.messages, self._sources = list(compacted.messages), list(compacted.sources)
        self._compacted = compacted
        if compacted.ids:
            self.turn.recalled = (*self.turn.recalled, *compacted.ids)

    def _failed(self, error: Exception) -> None:
        self._unextracted = error
        _logger.warning("nothing was extracted from %s: %s: %s", self.turn.id, type(error).__name__, error)
