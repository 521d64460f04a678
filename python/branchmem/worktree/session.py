"""The session of a place: what is said on a branch bears its commit, and what is about the user goes to the profile.

A memory of a global kind gets a note in the profile for its source, and that alone, so that it is visible wherever
somebody stands on the profile, and nothing that happens to a branch touches it.  A session is held at one branch:
where its directory has been switched to another, it refuses to write.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

from branchmem import Memory, Message, Store, View, new_id
from branchmem.canonical import NO_META
from branchmem.errors import BranchSwitched, EventConflict, InvalidEvent, StepEnded, WorktreeUnknown
from branchmem.refs import TABLES, head, write_move
from branchmem.session import OnCancel, Session, Step, remembering
from branchmem.session.step import step_of
from branchmem.worktree import git
from branchmem.worktree.start import COMMIT

if TYPE_CHECKING:
    from branchmem.events import Event
    from branchmem.log import Writer
    from branchmem.worktree.git import Place

#: The ref under which the memories of global kinds live, those of all projects of a store.
PROFILE: Final = "profile"
#: The name in a note's meta under which the messages stand from which its memory was learned.
_FROM: Final = "from"


class WorktreeSession(Session):
    """The session of the branch on which a directory stood when it was taken, beside the profile.

    As `Session`; `say`, `edit` and steps note the commit that is checked out.  They raise BranchSwitched where the
    directory stands on another branch by then, and WorktreeUnknown; a step only when it is entered.  A fork is no
    branch of git: a session at a ref of any name, held at the same directory.
    """

    def __init__(self, store: Store, ref: str, place: Place, global_kinds: Iterable[str]) -> None:
        super().__init__(store, ref, [PROFILE])
        #: What git said of the directory when the session was taken.
        self.place = place
        self._prefix = ref.removesuffix(place.name)
        self.global_kinds = frozenset(global_kinds)

    def say(
        self,
        role: str,
        text: str | None,
        *,
        id: str | None = None,
        meta: Mapping[str, Any] = NO_META,
        created: datetime | None = None,
    ) -> Message:
        """As `Session.say`.  Cost: one commit of the store, and about 10 ms for git."""
        return super().say(role, text, id=id, meta=self._noting(meta, id), created=created)

    def edit(
        self,
        message: str | Message,
        text: str | None,
        *,
        id: str | None = None,
        meta: Mapping[str, Any] = NO_META,
        created: datetime | None = None,
    ) -> Message:
        """As `Session.edit`.  Cost: one commit of the store, and about 10 ms for git."""
        return super().edit(message, text, id=id, meta=self._noting(meta, id), created=created)

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
        """As `Session.remember`; one of a global kind is for all branches and projects, with or without sources.

        Its only source is a note in the profile; the messages that are given as sources are written down there, and
        decide nothing.  Inside a step of this session it is kept until the step has ended well.  What the profile
        knows already, with the same text and kind, is one memory with it.
        Raises: InvalidEvent where it derives from what the profile does not see, and so would not be global.
        """
        if kind not in self.global_kinds:
            return super().remember(
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
        memory = remembering.drafted(text, sources, derived_from, supersedes, kind, key, importance, meta, created)
        step = step_of(self)
        if isinstance(step, WorktreeStep):
            if not step.is_over:
                return step._keep(memory)
            if not memory.sources:
                raise StepEnded(step.id, "remember without sources", step.cancelled)
        return _write_down(self.store, [Note.of(self.store, memory)])[0]

    def step(
        self,
        *,
        role: str = "assistant",
        on_cancel: OnCancel = "drop",
        meta: Mapping[str, Any] = NO_META,
        created: datetime | None = None,
    ) -> WorktreeStep:
        """As `Session.step`; what it remembers of global kinds joins the profile where it ends well."""
        return WorktreeStep(self, role=role, on_cancel=on_cancel, meta=meta, created=created)

    def refuse_switched(self) -> Place:
        """What git says of the directory now.  Raises: BranchSwitched; WorktreeUnknown."""
        now = git.look(self.place.directory)
        if (now.common, now.name) != (self.place.common, self.place.name):
            prefix = self._prefix if now.common == self.place.common else f"{now.project}/"
            raise BranchSwitched(now.directory, self.ref, prefix + now.name)
        return now

    def _noting(self, meta: Mapping[str, Any], id: str | None) -> Mapping[str, Any]:
        """`meta` with the commit; that of the message which is repeated, where it was said before."""
        now = self.refuse_switched()
        if id is not None and self.store.skeleton(id).get("type") == Message.type:
            said = self.store.log.get(id)
            if isinstance(said, Message):
                return {**meta, COMMIT: said.meta[COMMIT]} if COMMIT in said.meta else meta
        return _with_commit(meta, now)


class WorktreeStep(Step):
    """As `Step`.  What it remembers of global kinds is in no view before it has ended well, and dropped otherwise.

    From then on it is about the user, not about the answer: it stays where the answer is regenerated, or its ref was
    moved meanwhile.  Where the profile came to know the same under another key meanwhile, both stand there.
    """

    def __init__(self, session: WorktreeSession, **options: Any) -> None:
        if COMMIT in options["meta"]:
            raise InvalidEvent(f"meta has {COMMIT}, which the step writes itself", COMMIT)
        super().__init__(session, **options)
        self._held = session
        self._notes: list[Note] = []

    @property
    def noted(self) -> tuple[Memory, ...]:
        """The memories of global kinds that will join the profile."""
        return tuple(note.memory for note in self._notes)

    def __enter__(self) -> WorktreeStep:
        super().__enter__()
        return self

    async def __aenter__(self) -> WorktreeStep:
        await super().__aenter__()
        return self

    def _begin(self) -> None:
        self._held.refuse_switched()
        super()._begin()

    def _keep(self, memory: Memory) -> Memory:
        if memory.kind not in self._held.global_kinds:
            for noted in self.noted:
                if noted.id in (*memory.derived_from, *memory.supersedes):
                    raise InvalidEvent(
                        f"{noted.id} joins the profile only when this step has ended well: remember what builds on it "
                        "after that, or as a global kind",
                        noted.id,
                    )
            return super()._keep(memory)
        with self._opened("step.remember") as part:
            sourced = replace(memory, sources=(*memory.sources, self.id))
            note = Note.of(self.session.store, sourced, noted=self.noted, pending=(self.id, *part.memories))
            known = note.known(self.session.store.at_ref(PROFILE, count=False), self.noted)
            if known is None:
                self._notes.append(note)
            return note.memory if known is None else known

    def _write(self) -> None:
        now = self._now()
        if now is not None:
            self._message = replace(self._message, meta=_with_commit(self._message.meta, now))
        super()._write()

    def _beside(self, writer: Writer) -> list[Event]:
        return _noted(self.session.store, writer, self._notes, beside_rivals=True)[0]

    def _now(self) -> Place | None:
        """The place with the commit at which its branch stands now; None where git does not say: the work is kept."""
        place = self._held.place
        try:
            now = git.look(place.directory)
            if now.name == place.name:
                return now
            if place.state == "branch":
                return replace(place, commit=git.branches(place.directory).get(place.name))
        except WorktreeUnknown:
            pass
        return None


@dataclass(frozen=True, slots=True)
class Note:
    """A memory of a global kind, and the message in the profile that will be its only source."""

    message: Message
    memory: Memory

    @classmethod
    def of(cls, store: Store, memory: Memory, *, noted: Sequence[Memory] = (), pending: Iterable[str] = ()) -> Note:
        """The note for a memory whose sources say from which messages it was learned.

        `noted` are memories that will join the profile before it, `pending` is what else is still to be written.
        Raises: UnknownEvent; InvalidEvent where it derives from what the profile does not see.
        """
        coming = {one.id for one in noted}
        remembering.require(store, memory, {*coming, *pending})
        view = store.at_ref(PROFILE, count=False)
        for upstream in memory.derived_from:
            if upstream not in coming and upstream not in view:
                raise InvalidEvent(
                    f"a memory of the global kind {memory.kind} cannot derive from {upstream}, which the profile does "
                    "not see: leave that out, or take a kind that is not global",
                    upstream,
                )
        meta = {_FROM: list(memory.sources)} if memory.sources else {}
        message = Message(new_id(), None, role="note", meta=meta, created=memory.created)
        return cls(message, replace(memory, sources=(message.id,)))

    def known(self, view: View, noted: Iterable[Memory] = ()) -> Memory | None:
        """The memory that the profile shows, or will show, with the same text and kind.

        Raises: EventConflict where each such differs in what cannot change.
        """
        rivals = []
        for one in (*view.memories(kind=self.memory.kind), *noted):
            try:
                if self._repeats(one):
                    return one
            except EventConflict as rival:
                rivals.append(rival)
        if rivals:
            raise rivals[0]
        return None

    def below(self, at: str, other: Mapping[str, str]) -> tuple[Message, Memory]:
        """What is written below a message of the profile, with other ids for memories that were known already."""
        memory = replace(
            self.memory,
            derived_from=tuple(other.get(id, id) for id in self.memory.derived_from),
            supersedes=tuple(other.get(id, id) for id in self.memory.supersedes),
        )
        return replace(self.message, parent=at), memory

    def _repeats(self, first: Memory) -> bool:
        return remembering.same(replace(first, sources=self.memory.sources), self.memory)


def _write_down(store: Store, notes: Sequence[Note]) -> list[Memory]:
    """Put notes below the head of the profile, in one transaction; the memories, or those known already."""
    return store.transact(lambda writer: _noted(store, writer, notes), tables=TABLES)[1]


def _noted(
    store: Store, writer: Writer, notes: Sequence[Note], *, beside_rivals: bool = False
) -> tuple[list[Event], list[Memory]]:
    """The events that put notes below the head of the profile, which is moved; what is known by then is left out.

    Raises: EventConflict where it is known under another key, unless both are to stand there.
    """
    at = head(writer, PROFILE)
    view = store.at(at, count=False)
    events: list[Event] = []
    kept: dict[str, Memory] = {}
    for note in notes:
        try:
            known = note.known(view)
        except EventConflict:
            if not beside_rivals:
                raise
            known = None
        if known is None:
            message, known = note.below(at, {id: one.id for id, one in kept.items()})
            events += (message, known)
            at = message.id
        kept[note.memory.id] = known
    if events:
        write_move(writer, PROFILE, at, "note")
    return events, list(kept.values())


def _with_commit(meta: Mapping[str, Any], place: Place) -> Mapping[str, Any]:
    return meta if place.common is None else {**meta, COMMIT: place.commit}
