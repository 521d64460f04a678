"""Skills that are tied to a branch: memories of kind "skill", visible by the rule where their sources are.

The key of such a memory is the name of the skill, its text the description and the body, its meta what else front
matter says.  Tying a library again writes only what differs from what is visible there: a new skill, or a new version,
which supersedes the old one.  What is no longer in the library stays, and what was taken back is not written again:
whoever retracted a skill must not find it there because a file was read once more.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

from branchmem import LEGACY, InvalidEvent, Memory, Message, Session, Step, StepView, Store, View, refs
from branchmem.canonical import new_id, now
from branchmem.errors import InvalidSkill, StepEnded
from branchmem.session import remembering
from branchmem.session.step import step_of
from branchmem.skills.library import Library, Problem, same_name
from branchmem.skills.skill import Skill
from branchmem.verdict import Policy, Reason

if TYPE_CHECKING:
    from branchmem.log import Writer

#: The kind of the memories that are skills.
KIND: Final = "skill"

# What such a view shows beyond a strict one was taken back there, and is current but for that.
_TAKEN_BACK: Final = Policy(Reason.RETRACTED)


@dataclass(frozen=True, slots=True)
class Tied:
    """What became of the skills of a library on a branch: names, and the memories that were written."""

    #: Written, and not there before.
    added: tuple[Memory, ...] = ()
    #: Written, and superseding what was there under the same name.
    changed: tuple[Memory, ...] = ()
    #: There already, as they are in the library.
    unchanged: tuple[str, ...] = ()
    #: Taken back there, and so not written.
    taken_back: tuple[str, ...] = ()
    #: There, and not in the library: they stay, until they are retracted.
    gone: tuple[str, ...] = ()
    #: Written, and hidden all the same, with why: what a standing retraction of the key covers, for instance.
    born_hidden: Mapping[str, tuple[str, ...]] = field(default_factory=dict, hash=False)

    @property
    def memories(self) -> tuple[Memory, ...]:
        """What was written."""
        return (*self.added, *self.changed)

    def __str__(self) -> str:
        """One line for each of these that there is."""
        said: dict[str, Iterable[str]] = {
            "added": (str(memory.key) for memory in self.added),
            "changed": (str(memory.key) for memory in self.changed),
            "unchanged": self.unchanged,
            "taken back before, and left out": self.taken_back,
            "not in the library, and kept": self.gone,
            "hidden all the same": (f"{name} ({'; '.join(why)})" for name, why in self.born_hidden.items()),
        }
        lines = (f"{what}: {', '.join(which)}" for what, which in said.items())
        return "\n".join(line for line in lines if not line.endswith(": ")) or "no skills"

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready; memories as their ids, by name."""
        return {
            "added": {str(memory.key): memory.id for memory in self.added},
            "changed": {str(memory.key): memory.id for memory in self.changed},
            "unchanged": list(self.unchanged),
            "taken_back": list(self.taken_back),
            "gone": list(self.gone),
            "born_hidden": {name: list(why) for name, why in self.born_hidden.items()},
        }


def remember(where: Session | Step | Store, library: Iterable[Skill], *, sources: Iterable[str | Message] = ()) -> Tied:
    """Tie skills to a branch; doing it again writes nothing.

    They come from `sources`, which lie on the path of the session, or else from its head.  In a step, or inside one of
    the session, they have the step's message for a source, and are written with it.  In a store they come from
    `sources`, and the deepest of these in each tree says what is there already.

    Raises: UnknownEvent; InvalidEvent for sources that no view there could show, and for a store without any;
    BadAnchor where the head is not attached; StepEnded; EventConflict where a step remembers a version again that it
    replaced itself.
    Cost: one commit, three views, and the skills that they show.
    """
    skills = library if isinstance(library, Library) else Library(tuple(library))
    given = remembering.named(sources, "sources")
    if isinstance(where, Step):
        return _in_step(where, skills, given)
    if isinstance(where, Store):
        return _in_store(where, skills, lambda writer: (_deepest(where, given), given), ())
    step = step_of(where)
    if step is not None and not step.is_over:
        return _in_step(step, skills, given)
    if step is not None and not given:
        raise StepEnded(step.id, "remembering skills", step.cancelled)

    def place(writer: Writer) -> tuple[Sequence[str], Sequence[str]]:
        heads = [refs.head(writer, ref) for ref in (where.ref, *where.beside)]
        return heads, given or heads[:1]

    return _in_store(where.store, skills, place, refs.TABLES)


def visible(view: View | StepView) -> Library:
    """The skills that a view shows.

    A memory that is no sound skill is a problem of the library, under its id.  Of several with one name the last in
    path order is the skill, and the others are problems where they say something else.
    Cost: as `view.memories`.
    """
    skills: dict[str, Skill] = {}
    problems = []
    for memory in view.memories(kind=KIND):
        try:
            skill = _skill(memory)
        except InvalidSkill as error:
            problems.append(Problem(memory.id, None, f"{error.field}: {error.why}"))
            continue
        before = skills.get(same_name(skill.name))
        if before is not None and before != skill:
            problems.append(Problem(str(before.memory), None, f"name: {skill.name} is that of {memory.id}, said later"))
        skills[same_name(skill.name)] = skill
    return Library(tuple(skills.values()), tuple(problems))


def _in_store(
    store: Store, skills: Library, place: Callable[[Writer], tuple[Sequence[str], Sequence[str]]], tables: Sequence[str]
) -> Tied:
    """Tie skills at once; `place` says at which anchors it is looked what is there, and what the skills come from."""
    drafts = [_memory(skill) for skill in skills]

    def plan(writer: Writer) -> tuple[Sequence[Memory], tuple[Tied, Sequence[str]]]:
        anchors, sources = place(writer)
        _require(store, sources, anchors)
        view = store.at(anchors, count=False)
        view.raise_for_problems()
        planned = _planned(drafts, view, store.at(anchors, policy=_TAKEN_BACK, count=False))
        tied = replace(
            planned,
            added=tuple(replace(memory, sources=tuple(sources)) for memory in planned.added),
            changed=tuple(replace(memory, sources=tuple(sources)) for memory in planned.changed),
        )
        return tied.memories, (tied, anchors)

    tied, anchors = store.transact(plan, tables=tables)[1]
    return _with_hidden(tied, store.at(anchors, count=False)) if tied.memories else tied


def _in_step(step: Step, skills: Library, sources: Sequence[str]) -> Tied:
    view = step.view()
    _require(step.session.store, sources, [step.base, *view.anchors[1:]])
    planned = _planned([_memory(skill) for skill in skills], view, step.view(_TAKEN_BACK))

    def kept(memory: Memory) -> Memory:
        return step.remember(
            memory.text,
            sources=sources,
            supersedes=memory.supersedes,
            kind=memory.kind,
            key=memory.key,
            importance=memory.importance,
            meta=memory.meta,
            created=memory.created,
        )

    tied = replace(planned, added=tuple(map(kept, planned.added)), changed=tuple(map(kept, planned.changed)))
    return _with_hidden(tied, step.view()) if tied.memories else tied


def _planned(drafts: Iterable[Memory], view: View | StepView, taken_back: View | StepView) -> Tied:
    """What is to be written, its sources aside."""
    there = _by_name(view.memories(kind=KIND))
    shown = {memory.id for memories in there.values() for memory in memories}
    rejected = _by_name(memory for memory in taken_back.memories(kind=KIND) if memory.id not in shown)
    added, changed, unchanged, left_out = [], [], [], []
    for draft in drafts:
        name = str(draft.key)
        old, back = there.pop(same_name(name), []), rejected.get(same_name(name), [])
        if old and all(_says_the_same(memory, draft) for memory in old):
            unchanged.append(name)
        elif any(_says_the_same(memory, draft) for memory in back) or (back and not old):
            left_out.append(name)
        elif old:
            changed.append(replace(draft, supersedes=tuple(memory.id for memory in old)))
        else:
            added.append(draft)
    gone = sorted(str(memories[-1].key) for memories in there.values())
    return Tied(tuple(added), tuple(changed), tuple(unchanged), tuple(left_out), tuple(gone))


def _with_hidden(tied: Tied, view: View | StepView) -> Tied:
    verdicts = {str(memory.key): view.explain(memory.id) for memory in tied.memories}
    hidden = {name: tuple(verdict.sentences()) for name, verdict in verdicts.items() if not verdict.visible}
    return replace(tied, born_hidden=hidden) if hidden else tied


def _require(store: Store, sources: Sequence[str], anchors: Sequence[str]) -> None:
    """Refuse sources from which no view at the anchors could show anything.  Raises: UnknownEvent; InvalidEvent."""
    tree = store.tree
    for source in sources:
        if not any(tree.is_ancestor(source, anchor) for anchor in anchors):
            raise InvalidEvent(
                f"{source} is not on the path of {', '.join(anchors)}: a skill from it would be hidden", source
            )
        if tree.parent(source) is LEGACY:
            raise InvalidEvent(
                f"{source} is a legacy message: a skill from it would be hidden, so name one below it", source
            )


def _deepest(store: Store, sources: Sequence[str]) -> list[str]:
    """Those of the sources that stand above no other.  Raises: UnknownEvent; InvalidEvent."""
    if not sources:
        raise InvalidEvent("skills are tied to messages: name them, sources=[…], or give a session", None)
    tree = store.tree
    return [
        source
        for source in dict.fromkeys(sources)
        if not any(source != other and tree.is_ancestor(source, other) for other in sources)
    ]


def _by_name(memories: Iterable[Memory]) -> dict[str, list[Memory]]:
    out: dict[str, list[Memory]] = {}
    for memory in memories:
        if memory.key is not None:
            out.setdefault(same_name(memory.key), []).append(memory)
    return out


def _memory(skill: Skill) -> Memory:
    """A skill as a memory that has no sources yet."""
    said = skill.front_matter()
    said.pop("name")
    return Memory(
        new_id(),
        skill.text,
        kind=KIND,
        key=skill.name,
        importance=said.pop("importance", 1.0),
        created=now(),
        meta=said,
    )


def _skill(memory: Memory) -> Skill:
    """The skill that a memory is; one that has no description begins with it.  Raises: InvalidSkill."""
    said: dict[str, object] = {**memory.meta, "name": memory.key, "importance": memory.importance}
    description = said.setdefault("description", memory.text.split("\n\n", 1)[0])
    if not isinstance(description, str) or not memory.text.startswith(description):
        raise InvalidSkill("text", "does not begin with the description")
    skill = Skill.from_front_matter(said, memory.text[len(description) :])
    return replace(skill, memory=memory.id)


def _says_the_same(memory: Memory, draft: Memory) -> bool:
    return (memory.key, memory.text, memory.importance, memory.meta) == (
        draft.key,
        draft.text,
        draft.importance,
        draft.meta,
    )
