"""What a new memory contradicts, among the memories that are visible where it is remembered, and what becomes of these.

In conflict may be what has the same key, what has the same text, and, where there is an embedder, what is similar.
Similarity proposes and never decides: facts that must stand side by side are more alike than corrections are.  What is
hidden here is no candidate, and what is superseded is so only where the new memory is live: nothing here is a second
rule of visibility.  Nobody waits in a transaction while it is decided; who writes looks again, inside of one, whether
it was decided on what is there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, replace
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, TypedDict, TypeVar, cast, get_args

from branchmem import EventConflict, Memory, MemoryHidden, Message, Session, Step, StepView, Store, View, refs
from branchmem.canonical import NO_META
from branchmem.embedders import embed
from branchmem.errors import InvalidResolution, InvalidSearch, Undecided
from branchmem.session import remembering
from branchmem.session.step import step_of

if TYPE_CHECKING:
    from branchmem import Appended
    from branchmem.embedders import Embedder
    from branchmem.events import Event
    from branchmem.log import Writer

__all__ = ["Conflict", "Options", "Remembered", "remember_checked"]

T = TypeVar("T")

#: What may become of a conflict.
Resolution = Literal["supersede", "keep_both", "keep_existing"]
#: One for all conflicts, or who decides: about all of them, or about some, by the ids of the memories that are there.
Resolve = Resolution | Callable[[Memory, Sequence["Conflict"]], Resolution | Mapping[str, Resolution]]
By = Literal["key", "text", "similarity"]

_RESOLUTIONS: Final[tuple[str, ...]] = get_args(Resolution)
_WRITE: Final = f"write one of {', '.join(map(repr, _RESOLUTIONS))}, or a callable that decides"
_NO_EMBEDDER: Final = "by key and text only: no embedder"
#: Cosine from which on a memory is proposed.
_THRESHOLD: Final = 0.80
#: So often it is decided anew, where others change what it was decided on.
_ATTEMPTS: Final = 5
#: So many are looked at first, and then so many times more.
_FIRST: Final = 16


class Options(TypedDict, total=False):
    """What `remember_checked` takes beside the text: what `remember` does, and how conflicts are found and resolved."""

    sources: Iterable[str | Message]
    derived_from: Iterable[str | Memory]
    supersedes: Iterable[str | Memory]
    kind: str
    key: str | None
    importance: float
    meta: Mapping[str, Any]
    created: datetime | None
    resolve: Resolve
    threshold: float
    embedder: Embedder | None


@dataclass(frozen=True, slots=True)
class Conflict:
    """A memory that is visible here and may contradict the new one."""

    memory: Memory
    by: By
    """What they have in common: the key, or else the text, or else what they mean."""
    similarity: float | None = None
    """The cosine of the two texts; None without an embedder."""
    done: Literal["superseded", "kept", "kept_existing"] | None = None
    """What became of it; None until that is decided."""

    def to_dict(self) -> dict[str, Any]:
        """The JSON-ready form."""
        return {
            "memory": self.memory.to_dict(),
            "by": self.by,
            "similarity": self.similarity,
            "done": self.done,
        }

    def __str__(self) -> str:
        alike = "" if self.similarity is None else f", cosine {self.similarity:.2f}"
        done = "" if self.done is None else f": {self.done.replace('_', ' ')}"
        return f"{self.memory.id} (by {self.by}{alike}){done}"


@dataclass(frozen=True, slots=True)
class Remembered:
    """What was remembered, what it was in conflict with, and what was done."""

    memory: Memory
    """The new memory, or the one that was there and stays."""
    conflicts: tuple[Conflict, ...]
    """First those by key, in path order, then by text, by id, then by similarity, the most similar first."""
    done: Literal["added", "kept_both", "superseded", "kept_existing", "known"]
    """`added`: nothing was in conflict.  `kept_both`: added beside all that was.  `superseded`: added in the place of
    some.  `kept_existing` and `known`, where this very memory was there already: nothing was written."""
    note: str | None = None
    """What the search for conflicts did without, in a sentence."""

    def to_dict(self) -> dict[str, Any]:
        """The JSON-ready form."""
        return {
            "memory": self.memory.to_dict(),
            "conflicts": [conflict.to_dict() for conflict in self.conflicts],
            "done": self.done,
            "note": self.note,
        }

    def __str__(self) -> str:
        found = "".join(f"; {conflict}" for conflict in self.conflicts)
        return f"{self.memory.id} {self.done.replace('_', ' ')}{found}"


def remember_checked(
    place: Session | Step,
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
    resolve: Resolve = "keep_both",
    threshold: float = _THRESHOLD,
    embedder: Embedder | None = None,
) -> Remembered:
    """Remember as `place.remember` does, after a look at what is visible there and says something else.

    In conflict are memories with the same key, with the same text, and with a cosine of `threshold` or more, for
    `embedder` or that of the store.  `resolve` says what becomes of those by key or text: the new one replaces
    them (`supersede`), stands beside them (`keep_both`), or is not written (`keep_existing`).  What is merely similar
    is listed and stays.  A callable decides about all: it is given the new memory, not yet written and under an id
    that will not be its own, and the conflicts; it answers with one of these words, or with one for each id, and what
    it leaves out stays.  It may be asked again, where others remember meanwhile.

    The same text, kind and key, visible already, is that memory: no event is written, and it counts as used.
    Raises: InvalidResolution; Undecided where others changed the memories about the key each time it was decided;
    InvalidSearch for `threshold`; what `place.remember`, the embedder and the callable raise.  Nothing was written
    then.
    Cost: that of `remember`; the memories about the key or with the text, and with an embedder one text embedded and
    one vector each that is visible.
    """
    draft = remembering.drafted(text, sources, derived_from, supersedes, kind, key, importance, meta, created)
    _check(resolve, threshold)
    here = _here(place, draft)
    embedder = here.store.embedder if embedder is None else embedder
    note = _NO_EMBEDDER if embedder is None else None
    for _ in range(_ATTEMPTS):
        view = here.view()
        alike = _Alike.of(here.store, view, draft)
        if alike.known is not None:
            here.use(alike.known, draft)
            return Remembered(alike.known, _decided(alike.conflicts({}), {}), "known", note)
        found = alike.conflicts({})
        if embedder is not None and len(view):
            cosines, similar = _similar(here.store, view, draft, alike, threshold, embedder)
            found = (*alike.conflicts(cosines), *similar)
        conflicts = _decided(found, _words(resolve, draft, found))
        existing = next((one.memory for one in conflicts if one.done == "kept_existing"), None)
        if existing is not None:
            here.use(existing, draft)
            return Remembered(existing, conflicts, "kept_existing", note)
        replaced = [one.memory.id for one in conflicts if one.done == "superseded"]
        try:
            memory, is_new = here.remember(draft, replaced, alike.about)
        except _Changed:
            continue
        if not is_new:
            return Remembered(memory, _decided(found, {}), "known", note)
        return Remembered(memory, conflicts, "superseded" if replaced else "kept_both" if found else "added", note)
    raise Undecided(str(key), _ATTEMPTS)


def _here(place: Session | Step, draft: Memory) -> _InSession | _InStep:
    """Where a memory would be remembered: as `Session.remember` decides."""
    if isinstance(place, Step):
        return _InStep(place)
    step = step_of(place)
    if step is not None and not step.is_over and (not draft.sources or step.id in draft.sources):
        return _InStep(step)
    return _InSession(place)


class _Changed(Exception):
    """The memories about the key are not those that it was decided on."""


class _InSession:
    """At the head of a session."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self.store = session.store

    def view(self) -> View:
        return self._session.view()

    def use(self, memory: Memory, draft: Memory) -> None:
        self.store.used([memory], at=draft.created)

    def remember(self, draft: Memory, replaced: Sequence[str], about: frozenset[str]) -> tuple[Memory, bool]:
        """Remember in the session's own way, unless something else is visible about the key by then.

        Also whether that is new: where the very memory was there, whatever has replaced it since, it is not.
        """

        def look_again() -> None:
            if draft.key is not None:
                head = self.store.at_ref(self._session.ref, *self._session.beside, count=False)
                _refuse_changed(head, draft.key, about)

        looking = _Looking(self.store, look_again)
        session = copy(self._session)
        session.store = cast(Store, looking)
        try:
            memory = session.remember(**_fields(draft, replaced))
        except EventConflict as taken:
            first = self.store.log.get(taken.id)
            if not (replaced and taken.field == "supersedes" and isinstance(first, Memory) and first.key == draft.key):
                raise
            return first, False
        return memory, looking.added > 0


class _InStep:
    """In a step that is open."""

    def __init__(self, step: Step) -> None:
        self._step = step
        self.store = step.session.store

    def view(self) -> StepView:
        return self._step.view()

    def use(self, memory: Memory, draft: Memory) -> None:
        self._step._restated.append(memory.id)

    def remember(self, draft: Memory, replaced: Sequence[str], about: frozenset[str]) -> tuple[Memory, bool]:
        with self._step._alone():
            if draft.key is not None:
                _refuse_changed(self._step.view(), draft.key, about)
            before = {memory.id for memory in self._step.memories}
            memory = self._step.remember(**_fields(draft, replaced))
            return memory, memory.id not in before and memory.id not in self.store.log


class _Looking:
    """A store that looks again at what was decided on, inside of the transaction in which it is written."""

    def __init__(self, store: Store, look: Callable[[], None]) -> None:
        self._store = store
        self._look = look
        self.added = 0

    def transact(
        self, plan: Callable[[Writer], tuple[Iterable[Event], T]], *, tables: Sequence[str]
    ) -> tuple[Appended, T]:
        def planned(writer: Writer) -> tuple[Iterable[Event], T]:
            self._look()
            return plan(writer)

        appended, out = self._store.transact(planned, tables=tuple({*tables, *refs.TABLES}))
        self.added += appended.added
        return appended, out

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)


class _Alike(NamedTuple):
    """The memories of a view that have the key or the text of a new one."""

    by_key: list[Memory]
    by_text: list[Memory]
    """Those that have another key, or none."""
    known: Memory | None
    """The one that says the very same, and replaces what the new one is to replace."""

    @classmethod
    def of(cls, store: Store, view: View | StepView, draft: Memory) -> _Alike:
        by_key = [] if draft.key is None else view.memories(key=draft.key)
        equal = _with_text(store, view, draft)
        ids = {memory.id for memory in by_key}
        known = next((memory for memory in equal if _is_known(memory, draft)), None)
        return cls(by_key, [memory for memory in equal if memory.id not in ids], known)

    @property
    def about(self) -> frozenset[str]:
        """The ids of those with the key."""
        return frozenset(memory.id for memory in self.by_key)

    def conflicts(self, cosines: Mapping[str, float]) -> tuple[Conflict, ...]:
        """All but the known one, as conflicts to decide about."""
        found = [Conflict(memory, "key", cosines.get(memory.id)) for memory in self.by_key]
        found += [Conflict(memory, "text", cosines.get(memory.id)) for memory in self.by_text]
        return tuple(one for one in found if self.known is None or one.memory.id != self.known.id)


def _is_known(memory: Memory, draft: Memory) -> bool:
    says_the_same = (memory.text, memory.kind, memory.key) == (draft.text, draft.kind, draft.key)
    return says_the_same and set(memory.supersedes) >= set(draft.supersedes)


def _with_text(store: Store, view: View | StepView, draft: Memory) -> list[Memory]:
    """The memories that a view shows with the text of the new one, by id."""
    from branchmem.recall.index import index_of
    from branchmem.recall.search import shown_by

    shown = shown_by(store, view)
    own = [memory.id for memory in shown.own if memory.text == draft.text]
    return _read(view, sorted([*index_of(store).current().saying(shown.log, draft.text), *own]))


def _similar(
    store: Store, view: View | StepView, draft: Memory, alike: _Alike, threshold: float, embedder: Embedder
) -> tuple[dict[str, float], list[Conflict]]:
    """The cosines of those that are alike otherwise, and what is so similar that it is proposed, most similar first.

    Texts are compared as texts, not as queries.
    """
    from branchmem.recall.search import cosines_of

    (row,) = embed(embedder, [draft.text])
    others = [*alike.by_key, *alike.by_text]
    k = _FIRST
    while True:
        near = view.nearest(row, k, embedder=embedder)
        if len(near) < k or near[-1][1] < threshold:
            break
        k *= _FIRST
    cosines = dict(near)
    cosines |= cosines_of(store, [memory for memory in others if memory.id not in cosines], row, embedder)
    ids = {memory.id for memory in others}
    proposed = [id for id, cosine in near if cosine >= threshold and id not in ids]
    return cosines, [Conflict(memory, "similarity", cosines[memory.id]) for memory in _read(view, proposed)]


def _words(resolve: Resolve, draft: Memory, conflicts: tuple[Conflict, ...]) -> Mapping[str, str]:
    """What becomes of each conflict, by the id of its memory; what is not named stays.  Raises: InvalidResolution."""
    ids = [conflict.memory.id for conflict in conflicts]
    if not callable(resolve):
        return {one.memory.id: resolve for one in conflicts if one.by != "similarity"}
    if not conflicts:
        return {}
    answer: object = resolve(draft, conflicts)
    if isinstance(answer, Mapping):
        words = dict(answer)
        for id in words:
            if id not in ids:
                raise InvalidResolution(id, f"the answer names what is in no conflict: these are {', '.join(ids)}")
    else:
        words = dict.fromkeys(ids, answer)
    for word in words.values():
        if word not in _RESOLUTIONS:
            raise InvalidResolution(word, f"the answer must be one of {', '.join(_RESOLUTIONS)}, or map ids to these")
    return words


def _decided(conflicts: Iterable[Conflict], words: Mapping[str, str]) -> tuple[Conflict, ...]:
    """The conflicts with what becomes of each: nothing is superseded where something that is there is kept instead."""
    keeps = "keep_existing" in words.values()

    def done(conflict: Conflict) -> Literal["superseded", "kept", "kept_existing"]:
        word = words.get(conflict.memory.id)
        if word == "keep_existing":
            return "kept_existing"
        return "superseded" if word == "supersede" and not keeps else "kept"

    return tuple(replace(conflict, done=done(conflict)) for conflict in conflicts)


def _refuse_changed(view: View | StepView, key: str, about: frozenset[str]) -> None:
    if about != {memory.id for memory in view.memories(key=key)}:
        raise _Changed


def _fields(draft: Memory, replaced: Sequence[str]) -> dict[str, Any]:
    """What `remember` takes, of a memory that replaces some more."""
    return {
        "text": draft.text,
        "sources": draft.sources,
        "derived_from": draft.derived_from,
        "supersedes": (*draft.supersedes, *replaced),
        "kind": draft.kind,
        "key": draft.key,
        "importance": draft.importance,
        "meta": draft.meta,
        "created": draft.created,
    }


def _read(view: View | StepView, ids: Iterable[str]) -> list[Memory]:
    """The memories of a view with these ids, without those that were erased meanwhile."""
    found = []
    for id in ids:
        try:
            found.append(view[id])
        except MemoryHidden:
            continue
    return found


def _check(resolve: object, threshold: object) -> None:
    """Raises: InvalidResolution; InvalidSearch."""
    if resolve == "ask":
        raise InvalidResolution(resolve, "who is asked? pass the callable that decides in its place: resolve=decide")
    if not callable(resolve) and resolve not in _RESOLUTIONS:
        raise InvalidResolution(resolve, _WRITE)
    is_number = isinstance(threshold, (int, float)) and not isinstance(threshold, bool)
    if not (is_number and -1 <= cast(float, threshold) <= 1):
        raise InvalidSearch("threshold", threshold, "a cosine lies in -1..1, and so does the least that is similar")
