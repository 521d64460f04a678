"""What the tools answer with, and what they take: the shapes that the server publishes as JSON schemas.

An answer is ids, numbers and the text of memories that the anchor sees; never that of a message, nor of anything
hidden.  `anchor` is what to send with the next call, `at` the message that it stood for in this one.
"""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from branchmem import Memory, Verdict

#: At most so many things in one answer.
MOST: Final = 200
#: At most so many ids in one list of a call.
MOST_IDS: Final = 1000


def _text(value: Any) -> Any:
    return "" if value is None else value


def _list(value: Any) -> Any:
    return () if value is None else value


# An empty string is nothing given: so hosts see one type, and the SDK does not read "null" or "[1]" as JSON.
Anchor = Annotated[
    str,
    BeforeValidator(_text),
    Field(
        description="Where this call stands: the name of a ref (branch) or the id of a message. Left out: that of "
        "_meta branchmem/anchor, else the ref the server was started with."
    ),
]
Optional = Annotated[str, BeforeValidator(_text)]
Ids = Annotated[tuple[str, ...], BeforeValidator(_list), Field(max_length=MOST_IDS)]
Beside = Annotated[
    tuple[str, ...],
    BeforeValidator(_list),
    Field(
        max_length=MOST_IDS, description="Refs or messages in other conversations that are seen as well, one of each."
    ),
]
Sources = Annotated[
    tuple[str, ...],
    BeforeValidator(_list),
    Field(
        max_length=MOST_IDS,
        description="Ids of the messages that the text comes from, all on the path of the anchor; else the anchor.",
    ),
]
Kind = Annotated[str, BeforeValidator(_text), Field(description="Only memories of this kind.")]
Key = Annotated[str, BeforeValidator(_text), Field(description="Only memories about this key.")]
Limit = Annotated[int, Field(ge=1, le=MOST, description="At most so many.")]
Role = Literal["user", "assistant", "system", "tool"]
ScopeName = Literal["branch", "tree", "everywhere"]


class Form(BaseModel):
    """Frozen; what stands below a field describes it in the schema."""

    model_config = ConfigDict(frozen=True, use_attribute_docstrings=True)


class MemoryForm(Form):
    """A memory that the anchor sees."""

    id: str
    text: str
    kind: str
    key: str | None
    """What it is about, as home_city."""
    importance: float
    created: str | None
    """ISO 8601."""
    source_ids: tuple[str, ...]
    """The messages that it was derived from."""
    derived_from: tuple[str, ...]
    """The memories that it was derived from."""
    supersedes: tuple[str, ...]
    """The memories that it replaces."""


class Answer(Form):
    """What every answer about a branch begins with."""

    anchor: str
    """Send this as anchor with the next call, to stay on this branch."""
    at: str
    """The id of the message where this call stood."""


class Kept(Answer):
    """A memory was kept."""

    memory: MemoryForm
    added: bool
    """False where the log had it already: the same text from the same sources is one memory."""
    visible: bool
    """Whether the anchor sees it."""
    explanation: str
    """Why it is visible, or what hides it."""


class HitForm(Form):
    """A memory that fits, and how well: compare scores within one answer only."""

    score: float
    memory: MemoryForm


class Hits(Answer):
    """What fits the query, best first."""

    hits: tuple[HitForm, ...]
    faded: int
    """How many more would have been candidates, but had faded since nobody used them."""
    note: str | None
    """What the search did without."""


class OneMemory(Answer):
    """A memory that the anchor sees."""

    memory: MemoryForm


class Memories(Answer):
    """What the anchor sees, in the order of the conversation."""

    memories: tuple[MemoryForm, ...]
    visible: int
    """How many the anchor sees in all, of every kind and key."""
    next_offset: int | None
    """Where the next page begins; null where this was the last."""


class TakenBack(Answer):
    """A retraction was written."""

    retraction_ids: tuple[str, ...]
    scope: ScopeName
    hidden: tuple[str, ...]
    """The memories that the anchor saw before, and does not see any more."""
    shown: tuple[str, ...]
    """The memories that came back in their place."""


class Said(Answer):
    """A message was appended; it is where the branch stands now."""

    message_id: str
    parent_id: str | None


class Standing(Answer):
    """Where a branch stands now."""

    visible: int
    """How many memories are visible there."""


class Branch(Form):
    """A ref: a name for a message, which is where the branch stands."""

    name: str
    at: str
    root: str
    """The first message of its conversation."""
    depth: int | None
    """How many messages stand above; null where one above is missing."""


class Leaf(Form):
    """The last message of a branch, named or not."""

    id: str
    refs: tuple[str, ...]
    parts_at: str | None
    """Where this branch parts from the path of the anchor."""


class Branches(Form):
    """The refs of the store, and the leaves of the conversation where the call stands."""

    anchor: str | None
    at: str | None
    refs: tuple[Branch, ...]
    leaves: tuple[Leaf, ...]
    """The latest first; none without an anchor."""
    leaves_in_all: int


class Explained(Answer):
    """What the anchor sees of a memory, and why."""

    memory_id: str
    visible: bool
    reasons: tuple[str, ...]
    culprits: dict[str, tuple[str, ...]]
    """For each reason, the ids at fault."""
    explanation: str


class TreeMessage(Form):
    """A message of a conversation: its place, not its text."""

    id: str
    parent_id: str | None
    role: str | None
    refs: tuple[str, ...]


class TreeForm(Form):
    """A conversation with all its branches, from its first message down."""

    root: str
    messages: tuple[TreeMessage, ...]
    more: bool
    """Whether there are more messages than an answer holds."""


def memory_form(memory: Memory) -> MemoryForm:
    """A memory as an answer holds it."""
    return MemoryForm(
        id=memory.id,
        text=memory.text or "",
        kind=memory.kind,
        key=memory.key,
        importance=memory.importance,
        created=None if memory.created is None else memory.created.isoformat(timespec="microseconds"),
        source_ids=memory.sources,
        derived_from=memory.derived_from,
        supersedes=memory.supersedes,
    )


def explained(verdict: Verdict, *, anchor: str, at: str) -> Explained:
    """A verdict as an answer holds it."""
    return Explained(
        anchor=anchor,
        at=at,
        memory_id=_printable(verdict.id),
        visible=verdict.visible,
        reasons=verdict.reasons.names(),
        culprits={str(reason.name): tuple(map(_printable, ids)) for reason, ids in verdict.culprits.items()},
        explanation=_printable(str(verdict)),
    )


def _printable(text: str) -> str:
    """What was asked for may be no text that JSON can hold: a lone surrogate is spelled out."""
    return text.encode(errors="backslashreplace").decode()
