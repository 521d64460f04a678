"""A session of the OpenAI Agents SDK with branches: each item is a message of the log, and a ref says where it stands.

The SDK keeps a list of items; here the list is the path of a ref.  What removes items moves the ref up, and what is
added goes below it, so that a rejected answer stays in the log, on a branch of its own, with all that was remembered
there.  A tool runs before its output is part of the list; what it remembers waits, in the log, for the message
that the output will be, and is seen where that is on the path, nowhere else.

What is left out: a session serves one run at a time, since the SDK says of no item which run it is from; fork for more.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast
from weakref import WeakKeyDictionary

from branchmem import refs
from branchmem.adapters.openai_agents.items import ROLES, drafted, is_output, item_of
from branchmem.adapters.openai_agents.runs import Run, Runs
from branchmem.errors import BadMove, RefMoved
from branchmem.events import Memory, Message
from branchmem.extra import extra
from branchmem.session import Session, remembering
from branchmem.session.settled import settled
from branchmem.session.step import RECALLED, receipt_of, still_written_with
from branchmem.verdict import STRICT, Policy

with extra("agents", wanted="sessions of the OpenAI Agents SDK", name="openai-agents", package="openai-agents"):
    from agents.memory import SessionABC, SessionSettings
    from agents.memory.session_settings import resolve_session_limit

if TYPE_CHECKING:
    from agents import TResponseInputItem
    from agents.tool_context import ToolContext

    from branchmem import Store, View
    from branchmem.log import Writer
    from branchmem.recall.context import Recalled

_NO_META: Final[Mapping[str, Any]] = MappingProxyType({})
T = TypeVar("T", str, Message)


class BranchSession(SessionABC):
    """A session for `Runner.run(agent, input, session=…)`; `session_id` is the name of its ref in the store.

    Where another session moves the ref during a run, what the run adds goes below what it saw, as a branch, and
    RefMoved names its last message: nothing is lost, and nothing is put below what was not seen.
    Raises: InvalidRef; StoreReadOnly where the ref is to be made.
    """

    def __init__(self, session_id: str, store: Store, *, session_settings: SessionSettings | None = None) -> None:
        self.session_id = session_id
        self.session_settings = session_settings
        #: The session of branchmem that this one stands on.
        self.session = Session.open(store, session_id)
        self._runs = Runs()
        self._calls: WeakKeyDictionary[ToolContext[Any], str] = WeakKeyDictionary()

    @property
    def store(self) -> Store:
        """The store."""
        return self.session.store

    @property
    def head(self) -> str:
        """The message where the session stands: that of the last item, or the root of the conversation."""
        return self.session.head

    def view(self, policy: Policy = STRICT) -> View:
        """What is visible where the session stands."""
        return self.session.view(policy)

    # What the SDK asks

    async def get_items(self, limit: int | None = None) -> list[TResponseInputItem]:
        """The items on the path, the oldest first; the last `limit` of them.  Cost: a read an item."""
        most = resolve_session_limit(limit, self.session_settings)
        at, items = await settled(partial(self._items, most))
        self._runs.go_on(at)
        return items

    async def add_items(self, items: list[TResponseInputItem]) -> None:
        """Append items below the head, all or none.  Output of a tool brings in what the tool remembered.

        Raises: RefMoved; InvalidEvent for an item over 1 MiB, or where it is unknown what the turn was written with;
        BadMove for an output that a memory waits for, where its call was made on another branch.
        Cost: one commit, and a read a message of the turn; for an output, a look at each message above.
        """
        await settled(partial(self._add, items, self._runs.own()))

    async def pop_item(self) -> TResponseInputItem | None:
        """Take the last item off the list: stand at the message before it.  None where the list is empty.

        Raises: BadMove where it is a root itself, as in a conversation that came from elsewhere.
        """
        return await settled(partial(self._pop, self._runs.own()))

    async def clear_session(self) -> None:
        """Stand at the root of the conversation, so that the list is empty; all branches stay.

        Raises: BadMove where the root is an item itself.
        """
        await self._stand(self._clear)

    # Branches

    async def messages(self) -> list[Message]:
        """The messages of the items on the path, whose ids the verbs below take."""
        return await settled(lambda: self._messages(self.head))

    async def edit(self, message: str | Message, text: str) -> Message:
        """Say a message otherwise, beside the old one, and stand there; `Runner.run(agent, [], session=…)` answers it.

        Raises: as `Session.edit`; BadMove where the message is no text of somebody, but a call or its output.
        """
        return await self._stand(partial(self._edit, message, text))

    async def regenerate(self) -> str:
        """Stand at the user's message that the head answers; `Runner.run(agent, [], session=…)` answers it anew.

        Raises: as `Session.regenerate`.
        """
        return await self._stand(self.session.regenerate)

    async def rewind(self, message: str | Message) -> str:
        """Stand at a message on the path.  Raises: as `Session.rewind`."""
        return await self._stand(partial(self.session.rewind, message))

    async def switch(self, leaf: str | Message) -> str:
        """Stand at any message, such as one of a branch that was left.  Raises: as `Session.switch`."""
        return await self._stand(partial(self.session.switch, leaf))

    async def fork(self, session_id: str) -> BranchSession:
        """A session like this one, at a new ref where this one stands; both may run at a time.

        Raises: RefExists; InvalidRef.
        """
        await self.session.afork(session_id)
        return await settled(partial(BranchSession, session_id, self.store, session_settings=self.session_settings))

    # Memory

    async def remember(
        self,
        tool: ToolContext[Any],
        text: str,
        *,
        sources: Iterable[str | Message] = (),
        derived_from: Iterable[str | Memory] | None = None,
        supersedes: Iterable[str | Memory] = (),
        kind: str = "fact",
        key: str | None = None,
        importance: float = 1.0,
        meta: Mapping[str, Any] = _NO_META,
    ) -> Memory:
        """Keep a memory from within a tool; it comes from the output of the call, and is seen once that is added.

        It is in the log at once, and waits there for the output, whichever process adds that; where the call never
        ends, it is never seen.  A call that is made again has memories of its own.  Without `derived_from`, it derives
        from what was recalled in this run, and from what this turn was written with so far, in whichever process: what
        was taken back must not return by way of the model's own arguments.
        The same text, sources and kind twice in one call is one memory.
        Raises: as `Session.remember`; InvalidEvent where it is unknown what the turn was written with.
        """

        def remembered() -> Memory:
            output, shown = self._output_of(tool), set[str]()
            if derived_from is None:
                shown = self._runs.here().recalled.keys() | self._written_with(self._place())
            given, upstream = (*remembering.named(sources, "sources"), output), derived_from or shown
            memory = remembering.drafted(text, given, upstream, supersedes, kind, key, importance, meta, None)
            remembering.require(self.store, memory, {output, *shown})
            return remembering.remember(self.store, memory)

        return await settled(remembered)

    async def recall(self, message: str, **options: Any) -> Recalled:
        """What belongs into a prompt for a message; what the model says in this run has it as receipt.

        It is seen from where the run stands, whoever moves the ref meanwhile.  Takes what `Session.recall` takes.
        """
        recalled = await settled(partial(self._recall, message, **options))
        self._runs.here().recalled.update(dict.fromkeys(recalled.ids, False))
        return recalled

    def _recall(self, message: str, *, used: bool = True, policy: Policy = STRICT, **options: Any) -> Recalled:
        from branchmem.recall import context

        recall = context.recall_and_use if used else context.recall
        return recall(self.store, self.store.at(self._place(), policy=policy), message, **options)

    def _place(self) -> str:
        """Where the run stands; the head, where there was none."""
        return self._runs.here().at or self.head

    def _written_with(self, at: str) -> set[str]:
        """The memories that what follows the last message of the user above was written with.

        Raises: InvalidEvent where nobody knows.
        """
        found: set[str] = set()
        for message in filter(None, map(self._message, reversed(self.store.tree.path(at)))):
            if message.role == "user":
                break
            found.update(still_written_with(self.store, message, instead="rewind above it"))
        return found

    def _output_of(self, tool: ToolContext[Any]) -> str:
        """The id that the message with the output of a call will have: another one for each attempt."""
        known = self._calls.get(tool)
        if known is not None:
            return known
        base = self._place()
        tried = 1
        while self._is_taken(self._output(base, tool.tool_call_id, tried)):
            tried += 1
        return self._calls.setdefault(tool, self._output(base, tool.tool_call_id, tried))

    def _output(self, base: str, call: str, tried: int) -> str:
        """The id of the message with the output of a call that this session makes at `base`, the how many-th time."""
        made = json.dumps([self.session_id, base, call, tried])
        return f"call:{hashlib.sha256(made.encode()).hexdigest()[:32]}"

    def _is_taken(self, id: str) -> bool:
        return id in self.store.log or bool(self.store.memories_from(id))

    def _awaited(self, base: str, call: str) -> str | None:
        """The id of a message that memories of a call wait for: of its last attempt, at the nearest message above."""
        for above in reversed(self.store.tree.path(base)):
            tried = 0
            while self._is_taken(self._output(above, call, tried + 1)):
                tried += 1
            if tried:
                last = self._output(above, call, tried)
                return None if last in self.store.log else last
        return None

    def _is_made(self, call: str, above: str, drafts: Iterable[Message]) -> bool:
        """Whether a call is among some drafts, or on the path above them."""
        path = (self._message(id) for id in reversed(self.store.tree.path(above)))
        items = (item_of(message) or {} for message in (*drafts, *filter(None, path)))
        return any(item.get("call_id") == call and not is_output(item) for item in items)

    # Items

    def _messages(self, head: str) -> list[Message]:
        found = (self._message(id) for id in self.store.tree.path(head))
        return [message for message in found if message is not None and item_of(message) is not None]

    def _message(self, id: str) -> Message | None:
        found = self.store.log.get(id)
        return found if isinstance(found, Message) else None

    def _items(self, limit: int | None) -> tuple[str, list[TResponseInputItem]]:
        head = self.head
        messages = self._messages(head)
        if limit is not None:
            messages = messages[-limit:] if limit > 0 else []
        return head, [cast("TResponseInputItem", item_of(message)) for message in messages]

    def _add(self, items: Sequence[TResponseInputItem], run: Run) -> None:
        if not items:
            return
        drafts = [drafted(cast("Mapping[str, Any]", item)) for item in items]
        ref = self.session.ref

        def plan(writer: Writer) -> tuple[list[Message], tuple[str, str]]:
            head = refs.head(writer, ref)
            at = base = run.at or head
            turn: set[str] | None = None
            new: list[Message] = []
            for draft, call in drafts:
                awaited = None if call is None else self._awaited(base, call)
                if awaited is not None and any(one.id == awaited for one in new):
                    awaited = None
                if awaited is not None and not self._is_made(str(call), str(new[0].parent) if new else at, new):
                    why = f"has no call {call} at or above it: switch to where that was made, and resume there"
                    raise BadMove(ref, base, why)
                if draft.role == "user":
                    turn = set()
                elif draft.role == "assistant" and turn is None:
                    turn = self._written_with(base)
                receipt = run.recalled.keys() | (turn or ()) if draft.role == "assistant" else ()
                said = replace(draft, meta={**draft.meta, RECALLED: sorted(receipt)}) if receipt else draft
                known = run.popped.get(at)
                if awaited is None and not new and known is not None and _is_again(said, known):
                    at = known.id
                    continue
                new.append(replace(said, id=awaited or said.id, parent=at))
                at = new[-1].id
            if run.at in (None, head):
                refs.write_move(writer, ref, at, "say")
            return new, (head, at)

        _, (head, at) = self.store.transact(plan, tables=refs.TABLES)
        before, run.at = run.at, at
        roles = {draft.role for draft, _ in drafts}
        if "user" in roles:  # a streamed run recalls before its input is added: what no answer has yet belongs to it
            run.recalled = {id: False for id, is_told in run.recalled.items() if not is_told}
        if "assistant" in roles:
            run.recalled = dict.fromkeys(run.recalled, True)
        if before not in (None, head):
            raise RefMoved(ref, str(before), head, at)

    def _pop(self, run: Run) -> TResponseInputItem | None:
        messages = self._messages(self.head)
        if not messages:
            return None
        last = messages[-1]
        if not isinstance(last.parent, str):
            raise self._nothing_above(last.id)
        run.popped[last.parent] = last
        run.at = self.session.rewind(last.parent)
        return cast("TResponseInputItem", item_of(last))

    def _clear(self) -> str:
        root = self.store.tree.path(self.head)[0]
        if self._messages(root):
            raise self._nothing_above(root)
        return self.session.rewind(root)

    def _nothing_above(self, root: str) -> BadMove:
        return BadMove(self.session.ref, root, "is an item with nothing above it: start a new session")

    def _edit(self, message: str | Message, text: str) -> Message:
        old = message if isinstance(message, Message) else self._message(message)
        if old is not None and (old.role not in ROLES or "content" not in (item_of(old) or {})):
            raise BadMove(self.session.ref, old.id, "is a call or its output: rewind above it instead")
        return self.session.edit(message, text)

    async def _stand(self, move: Callable[[], T]) -> T:
        """Move; a run that begins now stands there, has recalled nothing, and puts nothing back."""
        try:
            moved = await settled(move)
        except asyncio.CancelledError:
            self._runs.begin(Run())
            raise
        self._runs.begin(Run(moved.id if isinstance(moved, Message) else moved))
        return moved


def _is_again(said: Message, known: Message) -> bool:
    """Whether a message says to the letter what is known, and was written with nothing else."""
    receipt = receipt_of(known)
    return receipt is not None and item_of(said) == item_of(known) and {*said.meta.get(RECALLED, ())} <= {*receipt}
