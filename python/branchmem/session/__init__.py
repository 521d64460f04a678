"""A conversation at a ref: what an agent says, tries, takes back, and remembers while it does.

A session stands where its ref stands, whoever moves that.  What is said goes below the head; what is rejected
stays in the log, on a branch that the session has left.  No rule of visibility lives here: a session
decides which sources a memory gets, and the rule does the rest.

step         one attempt at an answer, and what is remembered with it
view         what a step sees before it is written
slice        the part of the log that decides about that
remembering  what may be remembered, and each once
settled      work in a thread, for async callers
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from copy import copy
from dataclasses import replace
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Any, Self, Unpack

from branchmem import refs
from branchmem.canonical import NO_META, new_id, now
from branchmem.errors import AmbiguousAnchor, BadMove, InvalidRef, NoStep, StepEnded, StepOpen
from branchmem.events import Memory, Message, conflict
from branchmem.session import remembering
from branchmem.session.settled import settled
from branchmem.session.step import RECALLED, OnCancel, Step, current_step, step_of
from branchmem.session.view import StepView
from branchmem.verdict import STRICT, Policy

if TYPE_CHECKING:
    from branchmem import Store, View
    from branchmem.log import Reader, Writer
    from branchmem.recall.conflicts import Options, Remembered
    from branchmem.recall.context import Recalled

__all__ = ["OnCancel", "Session", "Step", "StepView", "current_step"]


class Session:
    """A conversation at a ref of a store.  Holds nothing but names: several may work on one ref.

    A message may be given as such or by its id, and so may a memory.  `created` is now, unless it is given.
    Each verb has a twin for async callers (`asay`, `aedit` …), which works in a thread; who is cancelled in it finds
    it done, or not begun.  Every verb that moves the ref raises UnknownRef where that was deleted, and StepOpen
    inside a step of this session.
    """

    def __init__(self, store: Store, ref: str, beside: Iterable[str] = ()) -> None:
        if isinstance(beside, str):
            raise TypeError(f"beside is a list of refs: write beside=[{beside!r:.80}]")
        self.store = store
        #: The refs on whose heads its views stand as well.
        self.beside = tuple(dict.fromkeys(map(refs.valid_name, beside)))
        self._stand_at(ref)

    @classmethod
    def open(cls, store: Store, ref: str, *, beside: Iterable[str] = (), create: bool = True) -> Session:
        """The session at a ref, which is made with a root of its own if absent, unless not `create`.

        Raises: UnknownRef; AmbiguousAnchor where two of the refs stand in one tree.
        """
        session = cls(store, ref, beside)
        root = Message(new_id(), None, role="thread", created=now())

        def start(writer: Writer) -> tuple[list[Message], None]:
            if ref in refs.all_heads(writer):
                return [], None
            session._refuse_one_tree(writer)
            refs.write_move(writer, ref, root.id, "create")
            return [root], None

        if create and ref not in store.refs:
            store.transact(start, tables=refs.TABLES)
        store.snapshot(lambda reader: session._refuse_one_tree(reader, refs.head(reader, ref)), tables=refs.TABLES)
        return session

    @property
    def head(self) -> str:
        """The message where the ref stands now.  Raises: UnknownRef."""
        return self.store.refs[self.ref]

    def view(self, policy: Policy = STRICT) -> View:
        """What is visible at the head, and at the heads beside.  Raises: UnknownRef; AmbiguousAnchor."""
        return self.store.at_ref(self.ref, *self.beside, policy=policy)

    def say(
        self,
        role: str,
        text: str | None,
        *,
        id: str | None = None,
        meta: Mapping[str, Any] = NO_META,
        created: datetime | None = None,
    ) -> Message:
        """Append a message below the head and let the ref stand there.

        With an `id`, saying the same again is a no-op, where the ref has only moved on since: a call can be repeated.
        Raises: EventConflict where the id is taken; InvalidEvent.
        Cost: one commit.
        """
        self._refuse_in_step("session.say")
        draft = Message(new_id() if id is None else id, None, role=role, text=text, meta=meta, created=created or now())

        def plan(writer: Writer) -> tuple[list[Message], Message]:
            head = refs.head(writer, self.ref)
            said = self._said(draft, head, is_dated=created is not None)
            if said is not None:
                return [], said
            message = replace(draft, parent=head)
            refs.write_move(writer, self.ref, message.id, "say")
            return [message], message

        return self.store.transact(plan, tables=refs.TABLES)[1]

    def edit(
        self,
        message: str | Message,
        text: str | None,
        *,
        id: str | None = None,
        meta: Mapping[str, Any] = NO_META,
        created: datetime | None = None,
    ) -> Message:
        """Say a message otherwise: its sibling, of the same role, where the ref stands then.

        What was said below the old one stays there.  It has the receipt of the old one, unless `meta` has one: what an
        answer was written with stands behind what is made of it, too.  With an `id`, it can be repeated as `say` can.
        Raises: UnknownEvent; BadMove where it lies in another tree, is a root, whose sibling would be another tree, or
        was erased, so that its role is not known.
        """
        self._refuse_in_step("session.edit")
        old = _id(message)
        draft = Message(new_id() if id is None else id, None, text=text, meta=meta, created=created or now())

        def plan(writer: Writer) -> tuple[list[Message], Message]:
            head = refs.head(writer, self.ref)
            parent = self.store.tree.parent(old)
            if self.store.tree.common_ancestor(old, head) is None:
                raise BadMove(self.ref, old, "lies in another tree: switch there first")
            if not isinstance(parent, str):
                raise BadMove(
                    self.ref, old, "has no parent that a second version could hang under: start a new session"
                )
            if self.store.log.is_erased(old):
                raise BadMove(self.ref, old, f"was erased, and its role with it: rewind to {parent} and say it anew")
            edited = replace(draft, parent=parent, role=self._role(old), meta={**self._receipt(old), **draft.meta})
            said = self._said(edited, head, is_dated=created is not None)
            if said is not None and said.parent == parent:
                return [], said
            refs.write_move(writer, self.ref, edited.id, "edit")
            return [edited], edited

        return self.store.transact(plan, tables=refs.TABLES)[1]

    def regenerate(self) -> str:
        """Go up to the user's message that the head answers, for another attempt; the id of that message.

        It is the nearest above the head.  What the rejected answer remembered stays with it.
        Raises: BadMove where the head is a message of the user itself, or none is above it, or one between was erased:
        that may have been the user's.
        """
        self._refuse_in_step("session.regenerate")

        def above(head: str) -> str:
            if self._role(head) == "user":
                raise BadMove(self.ref, head, "is the user's, not answered yet: there is nothing to regenerate")
            at = self.store.tree.parent(head)
            while isinstance(at, str) and at in self.store.log:
                if self._role(at) == "user":
                    return at
                if self.store.log.is_erased(at):
                    raise BadMove(
                        self.ref, at, "was erased, and may be what the head answers: rewind to where you mean"
                    )
                at = self.store.tree.parent(at)
            raise BadMove(self.ref, head, "has no message with role user above it: rewind to where you mean")

        return self._move("regenerate", above)

    def rewind(self, message: str | Message) -> str:
        """Go up to a message on the path of the head; its id.

        Raises: UnknownEvent; BadMove where it is not on the path.
        """
        self._refuse_in_step("session.rewind")
        target = _id(message)

        def above(head: str) -> str:
            if not self.store.tree.is_ancestor(target, head):
                raise BadMove(self.ref, target, f"is not on the path of {head}: switch to it")
            return target

        return self._move("rewind", above)

    def switch(self, leaf: str | Message) -> str:
        """Go to any message of the log that is attached, a leaf as a rule; its id.

        Raises: UnknownEvent; BadMove where it is not attached; AmbiguousAnchor where a ref beside stands in its tree.
        """
        self._refuse_in_step("session.switch")
        target = _id(leaf)

        def there(head: str) -> str:
            top = self.store.tree.known_path(target)[0]
            if isinstance(self.store.tree.parent(top), str):
                raise BadMove(self.ref, target, "is not attached: a message above it is missing")
            return target

        return self._move("switch", there)

    def fork(self, name: str) -> Self:
        """A session like this one at a new ref where this one stands, beside the same refs.

        Raises: RefExists; InvalidRef.
        """
        fork = copy(self)
        fork._stand_at(name)

        def plan(writer: Writer) -> tuple[tuple[()], None]:
            refs.refuse_existing(writer, fork.ref)
            refs.write_move(writer, fork.ref, refs.head(writer, self.ref), "fork")
            return (), None

        self.store.transact(plan, tables=refs.TABLES)
        return fork

    def remember(
        self,
        text: str,
        *,
        sources: Iterable[str | Message] = (),
        derived_from: Iterable[str | Memory] = (),
        supersedes: Iterable[str | Memory] = (),
        kind: str = "fact",
        key: str | None = None,
        importance: float = 1.0,
        meta: Mapping[str, Any] = NO_META,
        created: datetime | None = None,
    ) -> Memory:
        """Append a memory that comes from these messages; without any, or with that of the step here: `step.remember`.

        The same text, sources and kind twice is one memory: the first, whether it is still visible or not.
        Raises: NoStep without sources outside a step; UnknownEvent for what is not in the log; EventConflict where the
        first derives from, replaces or is about something else; InvalidEvent.
        Cost: one commit, and a look at the memories that have one of the sources.
        """
        memory = remembering.drafted(text, sources, derived_from, supersedes, kind, key, importance, meta, created)
        step = step_of(self)
        if step is not None and not step.is_over and (not memory.sources or step.id in memory.sources):
            return step._keep(memory)
        if memory.sources:
            remembering.require(self.store, memory)
            return remembering.remember(self.store, memory)
        wanted = "remember without sources, the messages that it comes from,"
        if step is None:
            raise NoStep(wanted)
        raise StepEnded(step.id, wanted, step.cancelled)

    def remember_checked(self, text: str, **options: Unpack[Options]) -> Remembered:
        """As `remember`, after a look at what is visible at the head, or in the step here, and says something else.

        Takes what `remember` takes, and `resolve`, `threshold` and `embedder`:
        `branchmem.recall.conflicts.remember_checked`.
        """
        from branchmem.recall.conflicts import remember_checked

        return remember_checked(self, text, **options)

    def recall(self, message: str, *, used: bool = True, policy: Policy = STRICT, **options: Any) -> Recalled:
        """What of the view at the head belongs into a prompt, which counts as used, unless not `used`: `view.recall`.

        In a step, `step.recall` sees what the step remembers, and keeps a receipt.
        Raises: as `view` and `view.recall`.
        Cost: that of `view.recall`, and one commit; a store that is open for reading notes no use.
        """
        from branchmem.recall import context

        recall = context.recall_and_use if used else context.recall
        return recall(self.store, self.view(policy), message, **options)

    def step(
        self,
        *,
        role: str = "assistant",
        on_cancel: OnCancel = "drop",
        meta: Mapping[str, Any] = NO_META,
        created: datetime | None = None,
    ) -> Step:
        """One attempt at an answer, to be entered: `with session.step() as step`, or `async with`.

        Steps of other sessions may be entered inside of it, one of this session may not (StepOpen).
        """
        return Step(self, role=role, on_cancel=on_cancel, meta=meta, created=created)

    async def asay(
        self,
        role: str,
        text: str | None,
        *,
        id: str | None = None,
        meta: Mapping[str, Any] = NO_META,
        created: datetime | None = None,
    ) -> Message:
        """As `say`."""
        return await settled(partial(self.say, role, text, id=id, meta=meta, created=created))

    async def aedit(
        self,
        message: str | Message,
        text: str | None,
        *,
        id: str | None = None,
        meta: Mapping[str, Any] = NO_META,
        created: datetime | None = None,
    ) -> Message:
        """As `edit`."""
        return await settled(partial(self.edit, message, text, id=id, meta=meta, created=created))

    async def aregenerate(self) -> str:
        """As `regenerate`."""
        return await settled(self.regenerate)

    async def arewind(self, message: str | Message) -> str:
        """As `rewind`."""
        return await settled(partial(self.rewind, message))

    async def aswitch(self, leaf: str | Message) -> str:
        """As `switch`."""
        return await settled(partial(self.switch, leaf))

    async def afork(self, name: str) -> Self:
        """As `fork`."""
        return await settled(partial(self.fork, name))

    async def aremember(
        self,
        text: str,
        *,
        sources: Iterable[str | Message] = (),
        derived_from: Iterable[str | Memory] = (),
        supersedes: Iterable[str | Memory] = (),
        kind: str = "fact",
        key: str | None = None,
        importance: float = 1.0,
        meta: Mapping[str, Any] = NO_META,
        created: datetime | None = None,
    ) -> Memory:
        """As `remember`."""
        return await settled(
            partial(
                self.remember,
                text,
                sources=sources,
                derived_from=derived_from,
                supersedes=supersedes,
                kind=kind,
                key=key,
                importance=importance,
                meta=meta,
                created=created,
            )
        )

    async def aremember_checked(self, text: str, **options: Unpack[Options]) -> Remembered:
        """As `remember_checked`."""
        return await settled(partial(self.remember_checked, text, **options))

    async def arecall(self, message: str, *, used: bool = True, policy: Policy = STRICT, **options: Any) -> Recalled:
        """As `recall`."""
        return await settled(partial(self.recall, message, used=used, policy=policy, **options))

    def __repr__(self) -> str:
        beside = f" beside {', '.join(self.beside)}" if self.beside else ""
        return f"<Session {self.ref}{beside} of {self.store.path}>"

    def _stand_at(self, ref: str) -> None:
        self.ref = refs.valid_name(ref)
        if ref in self.beside:
            raise InvalidRef(ref, "a session stands there already, and so not beside it")

    def _is_same(self, other: Session) -> bool:
        """Whether both are at one ref of one file."""
        return (self.ref, self.store.path) == (other.ref, other.store.path)

    def _refuse_in_step(self, wanted: str) -> None:
        """Raises: StepOpen inside a step of a session at this ref."""
        step = step_of(self)
        if step is not None and step.is_open:
            raise StepOpen(self.ref, step.id, wanted)

    def _move(self, why: str, target: Callable[[str], str]) -> str:
        """Move the ref to what `target` makes of its head."""

        def plan(writer: Writer) -> tuple[tuple[()], str]:
            head = refs.head(writer, self.ref)
            found = target(head)
            self._refuse_one_tree(writer, found)
            if found != head:
                refs.write_move(writer, self.ref, found, why)
            return (), found

        return self.store.transact(plan, tables=refs.TABLES)[1]

    def _refuse_one_tree(self, reader: Reader, *head: str) -> None:
        """Raises: AmbiguousAnchor where two of the heads lie in one tree, be they one message; UnknownRef."""
        heads = (*head, *(refs.head(reader, name) for name in self.beside))
        seen: dict[str, str] = {}
        for anchor in heads if self.beside else ():
            top = self.store.tree.known_path(anchor)[0]
            if top in seen:
                raise AmbiguousAnchor(seen[top], anchor, top)
            seen[top] = anchor

    def _said(self, draft: Message, head: str, *, is_dated: bool) -> Message | None:
        """The message of the path that this repeats, its time aside unless `is_dated`.

        Raises: EventConflict where it says something else.
        """
        tree, log = self.store.tree, self.store.log
        if self.store.skeleton(draft.id).get("type") != Message.type or not tree.is_ancestor(draft.id, head):
            return None
        known = log.get(draft.id)
        if not isinstance(known, Message):
            return None
        again = replace(draft, parent=known.parent, created=draft.created if is_dated else known.created)
        if known != again and not log.is_erased(draft.id):
            raise conflict(draft.id, known.to_dict(), again.to_dict())
        return known

    def _receipt(self, id: str) -> dict[str, Any]:
        """What the meta of a message says that it was written with, readable or not."""
        message = self.store.log.get(id)
        known = message.meta if isinstance(message, Message) else NO_META
        return {RECALLED: known[RECALLED]} if RECALLED in known else {}

    def _role(self, id: str) -> str | None:
        message = self.store.log.get(id)
        return message.role if isinstance(message, Message) else None


def _id(message: str | Message) -> str:
    return message.id if isinstance(message, Message) else message
