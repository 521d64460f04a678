"""A session of the OpenAI Agents SDK with branches: each item is a message of the log, and a ref says where it stands.

The SDK keeps a list of items; here the list is the path of a ref.  What removes items moves the ref up, and what is
added goes below it, so that a rejected answer stays in the log, on a branch of its own, with all that was remembered
there.  A tool runs before its output is part of the list; what it remembers waits, in the log, for the message
that the output will be, and is seen where that is on the path, nowhere else.

What is left out: a session serves one run at a time, since the SDK says of no item which run it is from; fork for more.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, cast
from uuid import uuid4
from weakref import WeakKeyDictionary

from branchmem import refs
from branchmem.errors import BadMove, RefMoved
from branchmem.events import Memory, Message
from branchmem.extra import extra
from branchmem.session import Session, remembering
from branchmem.session.settled import settled
from branchmem.session.step import RECALLED
from branchmem.verdict import STRICT, Policy

with extra("agents", wanted="sessions of the OpenAI Agents SDK", name="openai-agents", package="openai-agents"):
    from agents.memory import SessionABC, SessionSettings
    from agents.memory.session_settings import resolve_session_limit

if TYPE_CHECKING:
    from agents import Agent, RunContextWrapper, TResponseInputItem
    from agents.tool_context import ToolContext

    from branchmem import Store, View
    from branchmem.log import Writer
    from branchmem.recall.context import Recalled

#: What the meta of a message holds: its item without the field that is its text, and the name of that field.
ITEM: Final = "item"
TEXT: Final = "text"

_ROLES: Final = ("user", "assistant", "system", "developer")
_NO_META: Final[Mapping[str, Any]] = MappingProxyType({})


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
        # where the run that is under way stands; what was recalled, and whether an answer has that as its receipt
        self._seen: str | None = None
        self._recalled: dict[str, bool] = {}
        self._calls: WeakKeyDictionary[ToolContext[Any], str] = WeakKeyDictionary()
        # by parent what was taken off the list, which the SDK may put back
        self._popped: dict[str, Message] = {}

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
        return await settled(partial(self._items, most))

    async def add_items(self, items: list[TResponseInputItem]) -> None:
        """Append items below the head, all or none.  Output of a tool brings in what the tool remembered.

        Raises: RefMoved; InvalidEvent for an item over 1 MiB.
        Cost: one commit; for an output nothing waits for, a look at each message above.
        """
        await settled(partial(self._add, items))

    async def pop_item(self) -> TResponseInputItem | None:
        """Take the last item off the list: stand at the message before it.  None where the list is empty."""
        return await settled(self._pop)

    async def clear_session(self) -> None:
        """Stand at the root of the conversation, so that the list is empty; all branches stay."""
        await settled(lambda: self._stand(self.session.rewind(self.store.tree.path(self.head)[0])))

    # Branches

    async def messages(self) -> list[Message]:
        """The messages of the items on the path, whose ids the verbs below take."""
        return await settled(self._messages)

    async def edit(self, message: str | Message, text: str) -> Message:
        """Say a message otherwise, beside the old one, and stand there; `Runner.run(agent, [], session=…)` answers it.

        Raises: as `Session.edit`; BadMove where the message is no text of somebody, but a call or its output.
        """
        return await settled(partial(self._edit, message, text))

    async def regenerate(self) -> str:
        """Stand at the user's message that the head answers; `Runner.run(agent, [], session=…)` answers it anew.

        Raises: as `Session.regenerate`.
        """
        return await settled(lambda: self._stand(self.session.regenerate()))

    async def rewind(self, message: str | Message) -> str:
        """Stand at a message on the path.  Raises: as `Session.rewind`."""
        return await settled(lambda: self._stand(self.session.rewind(message)))

    async def switch(self, leaf: str | Message) -> str:
        """Stand at any message, such as one of a branch that was left.  Raises: as `Session.switch`."""
        return await settled(lambda: self._stand(self.session.switch(leaf)))

    async def fork(self, session_id: str) -> BranchSession:
        """A session like this one, at a new ref where this one stands; both may run at a time.

        Raises: RefExists; InvalidRef.
        """

        def forked() -> BranchSession:
            self.session.fork(session_id)
            return BranchSession(session_id, self.store, session_settings=self.session_settings)

        return await settled(forked)

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
        from what was recalled in this run: what was taken back must not return by way of the model's own arguments.
        The same text, sources and kind twice in one call is one memory.
        Raises: as `Session.remember`.
        """
        return await settled(
            lambda: self._remember(
                tool,
                remembering.drafted(
                    text,
                    (*remembering.named(sources, "sources"), self._output_of(tool)),
                    tuple(self._recalled) if derived_from is None else derived_from,
                    supersedes,
                    kind,
                    key,
                    importance,
                    meta,
                    None,
                ),
            )
        )

    async def recall(self, message: str, **options: Any) -> Recalled:
        """What of the view belongs into a prompt for a message; what the model says in this run has it as receipt.

        Takes what `view.recall` takes.
        """
        recalled = await self.session.arecall(message, **options)
        self._recalled.update(dict.fromkeys(recalled.ids, False))
        return recalled

    def _remember(self, tool: ToolContext[Any], memory: Memory) -> Memory:
        remembering.require(self.store, memory, {self._output_of(tool)})
        return remembering.remember(self.store, memory)

    def _output_of(self, tool: ToolContext[Any]) -> str:
        """The id that the message with the output of a call will have: another one for each attempt."""
        known = self._calls.get(tool)
        if known is not None:
            return known
        base = self.head if self._seen is None else self._seen
        tried = 1
        while self._is_taken(_output(base, tool.tool_call_id, tried)):
            tried += 1
        return self._calls.setdefault(tool, _output(base, tool.tool_call_id, tried))

    def _is_taken(self, id: str) -> bool:
        return id in self.store.log or bool(self.store.memories_from(id))

    def _awaited(self, base: str, call: str) -> str | None:
        """The id of a message that memories of a call wait for: of its last attempt, at the nearest message above."""
        for above in reversed(self.store.tree.path(base)):
            tried = 0
            while self._is_taken(_output(above, call, tried + 1)):
                tried += 1
            if tried:
                last = _output(above, call, tried)
                return None if last in self.store.log else last
        return None

    # Items

    def _messages(self) -> list[Message]:
        path = self.store.tree.path(self.head)
        found = (self._message(id) for id in path)
        return [message for message in found if message is not None and item_of(message) is not None]

    def _message(self, id: str) -> Message | None:
        found = self.store.log.get(id)
        return found if isinstance(found, Message) else None

    def _items(self, limit: int | None) -> list[TResponseInputItem]:
        self._seen = self.head
        messages = self._messages()
        if limit is not None:
            messages = messages[-limit:] if limit > 0 else []
        return [cast("TResponseInputItem", item_of(message)) for message in messages]

    def _add(self, items: Sequence[TResponseInputItem]) -> None:
        if not items:
            return
        drafts = [self._draft(cast("Mapping[str, Any]", item)) for item in items]
        ref = self.session.ref

        def plan(writer: Writer) -> tuple[list[Message], tuple[str, str]]:
            head = refs.head(writer, ref)
            at = base = self._seen or head
            new: list[Message] = []
            for draft, call in drafts:
                awaited = None if call is None else self._awaited(base, call)
                known = self._popped.get(at)
                if awaited is None and not new and known is not None and item_of(known) == item_of(draft):
                    at = known.id
                    continue
                new.append(replace(draft, id=awaited or draft.id, parent=at))
                at = new[-1].id
            if self._seen in (None, head):
                refs.write_move(writer, ref, at, "say")
            return new, (head, at)

        _, (head, at) = self.store.transact(plan, tables=refs.TABLES)
        before, self._seen = self._seen, at
        roles = {draft.role for draft, _ in drafts}
        if "user" in roles:  # a streamed run recalls before its input is added: what no answer has yet belongs to it
            self._recalled = {id: False for id, is_told in self._recalled.items() if not is_told}
        if "assistant" in roles:
            self._recalled = dict.fromkeys(self._recalled, True)
        if before not in (None, head):
            raise RefMoved(ref, str(before), head, at)

    def _draft(self, item: Mapping[str, Any]) -> tuple[Message, str | None]:
        """A message for an item, and the call whose output it is."""
        told = json.loads(json.dumps(item))
        kind = str(told.get("type", "message"))
        role = told.get("role")
        call = told.get("call_id") if kind == "function_call_output" else None
        if not isinstance(role, str) or not role:
            role = "tool" if kind.endswith("_output") else "assistant"
        field = "output" if kind.endswith("_output") else "content"
        text = told.get(field)
        meta: dict[str, Any] = {}
        if isinstance(text, str):
            del told[field]
            if told != {"role": role} or role not in _ROLES:
                meta = {ITEM: told, TEXT: field}
        else:
            meta, text = {ITEM: told}, _text(text) if kind == "message" else None
        if role == "assistant" and self._recalled:
            meta[RECALLED] = sorted(self._recalled)
        message = Message(uuid4().hex, None, role=role, text=text, created=datetime.now(UTC), meta=meta)
        return message, call if isinstance(call, str) else None

    def _pop(self) -> TResponseInputItem | None:
        messages = self._messages()
        if not messages:
            return None
        last = messages[-1]
        self._popped[str(last.parent)] = last
        self._seen = self.session.rewind(str(last.parent))
        return cast("TResponseInputItem", item_of(last))

    def _edit(self, message: str | Message, text: str) -> Message:
        old = message if isinstance(message, Message) else self._message(message)
        if old is not None and (old.role not in _ROLES or "content" not in (item_of(old) or {})):
            raise BadMove(self.session.ref, old.id, "is a call or its output: rewind above it instead")
        edited = self.session.edit(message, text)
        self._stand(edited.id)
        return edited

    def _stand(self, message: str) -> str:
        """A run that begins now stands here, has recalled nothing, and puts nothing back."""
        self._seen = message
        self._recalled.clear()
        self._popped.clear()
        return message


def item_of(message: Message) -> dict[str, Any] | None:
    """The item that a message stands for; None for the root of a conversation, and what has no form for the SDK.

    What a session of branchmem said is an item with its role and text.
    """
    meta = message.to_dict().get("meta", {})
    if ITEM in meta:
        item: dict[str, Any] = meta[ITEM]
        return {**item, meta[TEXT]: message.text} if TEXT in meta else item
    is_said = message.role in _ROLES and message.text is not None
    return {"role": message.role, "content": message.text} if is_said else None


def instructions(
    session: BranchSession, text: str = "", **options: Any
) -> Callable[[RunContextWrapper[Any], Agent[Any]], Awaitable[str]]:
    """Instructions for an agent: `text`, and what of the branch belongs into a prompt for what the user said last.

        Agent(name="…", instructions=instructions(session, "You are …"), tools=[…])

    Takes what `view.recall` takes.  The SDK asks before each call of the model, so it is the branch of that moment.
    """

    async def recalled(context: RunContextWrapper[Any], agent: Agent[Any]) -> str:
        said = [message.text for message in await session.messages() if message.role == "user"]
        # a streamed run asks before its input is a message
        said += [_text(item.get("content")) for item in context.turn_input if item.get("role") == "user"]
        asked = next((text for text in reversed(said) if text), None)
        found = (await session.recall(asked, **options)).text if asked else ""
        return "\n\n".join(filter(None, (text, found)))

    return recalled


def _output(base: str, call: str, tried: int) -> str:
    """The id of the message with the output of a call that was made at `base`, the how many-th time."""
    return f"call:{hashlib.sha256(json.dumps([base, call, tried]).encode()).hexdigest()[:32]}"


def _text(content: Any) -> str | None:
    """The text of a message, that of its parts a line each; None where there is none."""
    if isinstance(content, str):
        return content
    parts = [part.get("text") for part in content if isinstance(part, dict)] if isinstance(content, list) else []
    return "\n".join(part for part in parts if isinstance(part, str) and part) or None
