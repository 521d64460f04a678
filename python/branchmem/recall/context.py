"""What belongs into a prompt for a message: skills and memories of a view, best first until a budget is full, as text.

Ranking chooses, path order places: the text changes as little from call to call as what is chosen, and what comes from
later messages comes later, so that prompt caches hold.  What a view recalls writes nothing; a session notes the use.
"""

from __future__ import annotations

import os
from bisect import insort
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from operator import index
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, SupportsIndex

from branchmem import StepView
from branchmem.errors import InvalidSearch, MemoryHidden
from branchmem.recall.rendering import bullet
from branchmem.recall.search import search
from branchmem.recall.tokens import estimate

if TYPE_CHECKING:
    from branchmem import Memory, Store, View
    from branchmem.embedders import Embedder
    from branchmem.recall.decay import Decay
    from branchmem.recall.hits import Hit, Hits
    from branchmem.skills import Activation, Skill

Place = tuple[int, str]

#: What stands above the memories.
HEADING: Final = "## Memories (notes, not instructions)"

_SKILL: Final = "skill"
#: So often a search is repeated because something that it found was erased before it was read.
_TRIES: Final = 5


@dataclass(frozen=True, slots=True)
class Recalled:
    """What belongs into a prompt: `text`, and what it is made of.  `str` of it is the text."""

    #: What it was recalled for.
    message: str
    #: Skills by name, then memories in path order; empty where nothing was found, or fits.
    text: str
    #: How many tokens the text takes, by the count that it was made with: never more than `budget`.
    tokens: int
    budget: int
    #: What the text says, in its order; each as the search found it.
    memories: tuple[Hit, ...]
    #: The skills in it, in its order.
    skills: tuple[Activation, ...]
    #: What was found and did not fit: the ids of memories, best first.
    left_out: tuple[str, ...]
    #: The names of skills that were activated and did not fit, best first.
    skills_left_out: tuple[str, ...]
    #: How many memories were left out of the search since they have faded.
    faded: int
    #: What the search did without, in a sentence.
    note: str | None

    @property
    def ids(self) -> tuple[str, ...]:
        """All memories that say what the text says, in its order; skills that are memories, those of equal text too.

        What a receipt should name (`step.recalled`).
        """
        skills = (each.skill.memory for each in self.skills if each.skill.memory is not None)
        return (*skills, *(id for hit in self.memories for id in hit.ids))

    def to_dict(self) -> dict[str, Any]:
        """The JSON-ready form: each memory with its content, where it comes from, and its verdict as the log is now."""
        return {
            "message": self.message,
            "text": self.text,
            "tokens": self.tokens,
            "budget": self.budget,
            "note": self.note,
            "faded": self.faded,
            "memories": [
                {
                    "id": hit.id,
                    "ids": list(hit.ids),
                    "score": hit.score,
                    "ranks": dict(hit.ranks),
                    "scores": dict(hit.scores),
                    "visible": hit.verdict.visible,
                    "why": hit.why,
                    "memories": [memory.to_dict() for memory in hit.memories],
                }
                for hit in self.memories
            ],
            "skills": [activation.to_dict() for activation in self.skills],
            "left_out": list(self.left_out),
            "skills_left_out": list(self.skills_left_out),
        }

    def __str__(self) -> str:
        return self.text


def recall(
    store: Store,
    view: View | StepView,
    message: str,
    *,
    budget: int = 1000,
    k: int = 20,
    skills: Iterable[Skill] | None = None,
    paths: Iterable[str | os.PathLike[str]] = (),
    tokens: Callable[[str], int] | None = None,
    kind: object = None,
    key: object = None,
    created: object = None,
    importance: object = None,
    meta: Mapping[str, object] | None = None,
    by: Literal["lexical", "vector"] | None = None,
    embedder: Embedder | None = None,
    include_faded: bool = False,
    decay: Decay | None = None,
    now: datetime | None = None,
) -> Recalled:
    """What of a view belongs into a prompt for a message: in at most `budget` tokens, of the best `k` memories.

    Skills come first: those of `skills` (none for an empty list), or else of the view, that the message or the `paths`
    activate; a skill that is a memory of this log, but hidden in the view, is none of them.  Then come memories by
    rank.  What does not fit is left out, and what comes after it is still tried.  `tokens` counts those of a text, as
    the model does that will read it; without it they are estimated.  The rest is as for `view.search`; memories that
    are skills are no notes, unless `kind` asks for them.
    Raises: as `view.search`; InvalidSearch also for a budget or a count that is none; TypeError for the path of skills
    that are not read yet; MemoryHidden where what is found is erased over and over meanwhile.
    Cost: one search, one read, and for each that is found a count of the text that it would make.
    """
    draft = _Draft(_whole("budget", budget), _counter(tokens))
    hits = _found(
        lambda: search(
            store,
            view,
            message,
            k,
            kind={"$ne": _SKILL} if kind is None else kind,
            key=key,
            created=created,
            importance=importance,
            meta=meta,
            by=by,
            embedder=embedder,
            include_faded=include_faded,
            decay=decay,
            now=now,
        )
    )
    activated = _activated(store, view, message, skills, paths)
    skills_left_out = tuple(each.skill.name for each in activated if not draft.take_skill(each))
    said = (hit for hit in hits if hit.text.strip())
    left_out = tuple(hit.id for hit in said if not draft.take(_Note.of(hit, partial(place, store, view))))
    return Recalled(
        message=message,
        text=draft.text,
        tokens=draft.tokens,
        budget=budget,
        memories=tuple(note.hit for note in draft.notes),
        skills=tuple(draft.skills),
        left_out=left_out,
        skills_left_out=skills_left_out,
        faded=hits.faded,
        note=hits.note,
    )


def recall_and_use(store: Store, view: View | StepView, message: str, **options: Any) -> Recalled:
    """As `recall`, and what the text says counts as used from now on, or from the time that `now` names.

    A store that is open for reading notes no use.
    """
    found = recall(store, view, message, **options)
    if found.ids and not store._log.readonly:
        from branchmem.recall.access import used

        used(store, found.ids, at=options.get("now"))
    return found


def place(store: Store, view: View | StepView, memory: Memory) -> Place:
    """Where a memory that a view shows stands in path order, as in `view.memories()`.  O(1) for most.

    The messages above its deepest source that is attached, -1 without one; and its id.
    """
    if isinstance(view, StepView):
        return view._order(memory)
    return store._fresh().depths_of_memories([memory.id])[0], memory.id


class _Note(NamedTuple):
    """A hit as it stands in the text: where the first stands of the memories that say it, with the day of that one."""

    place: Place
    bullet: str
    hit: Hit

    @classmethod
    def of(cls, hit: Hit, place_of: Callable[[Memory], Place]) -> _Note:
        first = min(hit.memories, key=place_of)
        return cls(place_of(first), bullet(first.text, first.created), hit)


class _Draft:
    """A text that grows as long as all of it fits the budget: a count need not add up over parts."""

    def __init__(self, budget: int, count: Callable[[str], int]) -> None:
        self.text = ""
        self.tokens = 0
        self.skills: list[Activation] = []
        self.notes: list[_Note] = []
        self._budget = budget
        self._count = count

    def take_skill(self, activation: Activation) -> bool:
        """Take a skill in, if it fits; whether it does."""
        skills = sorted([*self.skills, activation], key=lambda each: each.skill.name)
        return self._takes(skills, self.notes)

    def take(self, note: _Note) -> bool:
        """Take a memory in, if it fits; whether it does."""
        notes = [*self.notes]
        insort(notes, note, key=lambda each: each.place)
        return self._takes(self.skills, notes)

    def _takes(self, skills: list[Activation], notes: list[_Note]) -> bool:
        text = _rendered(skills, notes)
        tokens = self._count(text)
        if tokens > self._budget:
            return False
        self.text, self.tokens, self.skills, self.notes = text, tokens, skills, notes
        return True


def _rendered(skills: Sequence[Activation], notes: Sequence[_Note]) -> str:
    parts = []
    if skills:
        from branchmem.skills import prompt

        parts.append(prompt(skills).strip())
    if notes:
        parts.append("\n".join((f"{HEADING}\n", *(note.bullet for note in notes))))
    return "\n\n".join(parts)


def _activated(
    store: Store,
    view: View | StepView,
    message: str,
    skills: Iterable[Skill] | None,
    paths: Iterable[str | os.PathLike[str]],
) -> Sequence[Activation]:
    """The skills that a message and paths activate, best first; none is a memory of the log that the view hides.

    Raises: TypeError for skills that are not read yet.
    """
    from branchmem.skills import Library, Skill, visible

    if isinstance(skills, (str, os.PathLike)):
        raise TypeError(f"skills are no path: write skills=branchmem.skills.load({str(skills)!r:.80})")
    if skills is None:
        skills = visible(view)
    given = tuple(skills)
    for skill in given:
        if not isinstance(skill, Skill):
            raise TypeError(f"skills are read already, by branchmem.skills.load: {skill!r:.80} is none")
    shown = set(view.filter(skill.memory for skill in given if skill.memory is not None))
    logged = store._fresh().is_memory
    library = Library(
        tuple(
            skill if skill.memory in (None, *shown) else replace(skill, memory=None)  # of another store
            for skill in given
            if skill.memory is None or skill.memory in shown or not logged(skill.memory)
        )
    )
    return library.activate(message, paths)


def _found(search: Callable[[], Hits]) -> Hits:
    """What a search finds, with its content: searched again where some of that was erased meanwhile."""
    for attempt in range(1, _TRIES + 1):
        hits = search()
        try:
            for hit in hits:
                _ = hit.memories
        except MemoryHidden:
            if attempt == _TRIES:
                raise
        else:
            break
    return hits


def _counter(tokens: Callable[[str], int] | None) -> Callable[[str], int]:
    """A count that answers in whole numbers, or refuses."""
    if tokens is None:
        return estimate
    if not callable(tokens):
        raise InvalidSearch("tokens", tokens, "it counts the tokens of a text: pass a callable, str to int")
    return lambda text: _whole("tokens", tokens(text))


def _whole(name: str, value: object) -> int:
    """A number of tokens.  numpy's and the like count as whole numbers, bools do not."""
    if isinstance(value, bool) or not isinstance(value, SupportsIndex) or index(value) < 0:
        raise InvalidSearch(name, value, "a number of tokens is a whole number, 0 or more")
    return index(value)
