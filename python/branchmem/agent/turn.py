"""A turn: a step that also says what stands above its answer, the user's message, calls of tools and their results.

What a turn says is in the log at once, below the message where it stands, and no ref stands there until the turn ends
well: who stands at the ref sees nothing of a turn that is under way, failed or was cancelled, and neither does the
next attempt, whose messages are siblings.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextvars import Context, copy_context
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from branchmem import Message, Session, Step, new_id
from branchmem.canonical import NO_META, now
from branchmem.errors import BadMove, UnknownEvent
from branchmem.errors.agent import ForeignSession
from branchmem.session.step import RECALLED

if TYPE_CHECKING:
    from branchmem.session import OnCancel

#: What the meta of an answer says besides the receipt: the model that gave it, and why it ended.
MODEL, FINISH = "model", "finish"


class Turn(Step):
    """As a step, whose message stands below what the turn says.

    Raises: ForeignSession for a session whose steps do more than those of `Session`.
    """

    def __init__(self, session: Session, *, on_cancel: OnCancel = "drop", meta: Mapping[str, Any] = NO_META) -> None:
        if getattr(type(session), "step", None) is not Session.step:
            raise ForeignSession(type(session).__name__)
        super().__init__(session, on_cancel=on_cancel, meta=meta)

    @property
    def head(self) -> str:
        """Where the ref stood when the turn was entered, and must still stand when it ends."""
        return self._head

    def stand_at(self, message: str) -> None:
        """Let what the turn says go below another message of the log than the head.

        Raises: StepEnded; UnknownEvent; BadMove where it lies in another tree.
        """
        tree = self.session.store.tree
        with self._opened("turn.stand_at"):
            if message not in self.session.store.log:
                raise UnknownEvent(message, Message.type)
            if tree.common_ancestor(message, self.head) is None:
                raise BadMove(self.session.ref, message, "lies in another tree: switch there first")
            self._stand_below(message)

    def say(self, role: str, text: str | None, *, meta: Mapping[str, Any] = NO_META) -> Message:
        """Append a message below where the turn stands, and stand at it.

        What is not the user's was written with what the turn recalled, and bears that receipt: it is in the log, where
        somebody may go on from it, even if the turn fails.
        Raises: StepEnded; InvalidEvent.
        Cost: one commit.
        """
        with self._opened("turn.say"):
            if role != "user" and self.recalled:
                meta = {RECALLED: self.recalled, **meta}
            message = Message(new_id(), self.base, role=role, text=text, meta=meta, created=now())
            self.session.store.append([message])
            self._stand_below(message.id)
            return message

    def note(self, **meta: Any) -> None:
        """Add to the meta of the answer.  Raises: StepEnded; InvalidEvent for what no meta can hold."""
        with self._opened("turn.note"):
            self._message = replace(self._message, meta={**self._message.meta, **meta})

    def here(self) -> Context:
        """The context in which the turn was entered, where this is the current step, for what runs on its behalf."""
        return self._context.copy()

    def __enter__(self) -> Turn:
        super().__enter__()
        self._context = copy_context()
        return self

    async def __aenter__(self) -> Turn:
        await super().__aenter__()
        self._context = copy_context()
        return self
