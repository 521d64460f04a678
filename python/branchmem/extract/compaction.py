"""A prompt that is brought down to a budget, in four stages, each tried before the next and each reported.

What changes is the prompt.  The log loses nothing: what stands in for turns is summaries, memories that come from the
messages of these turns, so that who answers by them can name them in its receipt.  What frames the conversation and the
last turns stay; a call of a tool and its result stay together or go together.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

from branchmem import Memory, Message, Session, Store
from branchmem.errors.extract import InvalidExtraction, PromptTooLong
from branchmem.extract.asking import arun, run
from branchmem.extract.cutting import Count, counter, whole
from branchmem.extract.frames import earlier
from branchmem.extract.place import Place, place_of
from branchmem.extract.provenance import usable
from branchmem.extract.shown import all_said
from branchmem.extract.summaries import Passage, Summariser, of_range, refreshed
from branchmem.extract.turns import Prompted, read, turns

Name = Literal["snip", "shorten", "collapse", "summarise"]

_NO_SUMMARISER: Final = "needs a session or store, a summariser, and the sources of the messages"


@dataclass(frozen=True, slots=True)
class Stage:
    """One stage that was tried, and the tokens of the whole prompt before and after it."""

    name: Name
    before: int
    after: int
    #: How many messages it shortened, or put a summary in the place of.
    changed: int
    #: What it did without, in a sentence.
    note: str | None = None

    def to_dict(self) -> dict[str, Any]:
        """The JSON-ready form."""
        return {
            "name": self.name,
            "before": self.before,
            "after": self.after,
            "changed": self.changed,
            "note": self.note,
        }

    def __str__(self) -> str:
        note = f" ({self.note})" if self.note else ""
        return f"{self.name}: {self.before} → {self.after} tokens, {self.changed} messages{note}"


@dataclass(frozen=True, slots=True)
class Compacted:
    """A prompt that fits, and what was done for it."""

    messages: tuple[Mapping[str, Any], ...]
    #: For each message that of the log, None where it is none.
    sources: tuple[str | None, ...]
    tokens: int
    budget: int
    #: What was tried, in its order: nothing where the prompt fitted as it was.
    stages: tuple[Stage, ...]
    #: The summaries that stand in it.
    memories: tuple[Memory, ...]

    @property
    def ids(self) -> tuple[str, ...]:
        """The ids of the summaries in it: what a receipt should name beside what was recalled (`step.recalled`)."""
        return tuple(memory.id for memory in self.memories)

    def to_dict(self) -> dict[str, Any]:
        """The JSON-ready form, without the prompt itself."""
        return {
            "tokens": self.tokens,
            "budget": self.budget,
            "stages": [stage.to_dict() for stage in self.stages],
            "memories": list(self.ids),
        }

    def __str__(self) -> str:
        return "\n".join((f"{self.tokens} of {self.budget} tokens", *map(str, self.stages)))


def compact(
    messages: Sequence[Mapping[str, Any]],
    *,
    budget: int,
    place: Session | Store | None = None,
    sources: Sequence[str | None] = (),
    summariser: Summariser | None = None,
    keep_turns: int = 2,
    snip_tokens: int = 400,
    shorten_tokens: int = 150,
    range_turns: int = 4,
    tokens: Count | None = None,
) -> Compacted:
    """Bring messages, in the form of OpenAI's, down to `budget` tokens, of which about four a message are its frame.

    A turn goes from a message of the user to the next; the last `keep_turns` are kept.  Tried in this order:

    1. `snip`: results of tools of more than `snip_tokens` lose their middle; in the last turns, only as needed;
    2. `shorten`: so does all of more than `shorten_tokens` in old turns; images and files are named in one line;
    3. `collapse`: of `range_turns` old turns each, the oldest first, the summary takes the place; it is made once;
    4. `summarise`: for all old turns stands the summary of the session, refreshed down to there.

    As soon as it fits, the rest is not tried.  3 and 4 need `place`, `summariser`, and in `sources` for each message
    that of the log that it is.  They leave turns as they are in which a message has none, and never say what was taken
    back.  `tokens` counts those of a text.
    Raises: InvalidExtraction; PromptTooLong where all of it does not suffice; as `summarise`.
    Cost: a count of each text a stage; a call of the summariser and a commit for each summary that is made.
    """
    work = _compacting(
        messages, budget, place, sources, summariser, keep_turns, snip_tokens, shorten_tokens, range_turns, tokens
    )
    return run(work, summariser or _unasked)


async def acompact(
    messages: Sequence[Mapping[str, Any]],
    *,
    budget: int,
    place: Session | Store | None = None,
    sources: Sequence[str | None] = (),
    summariser: Callable[[Passage], Any] | None = None,
    keep_turns: int = 2,
    snip_tokens: int = 400,
    shorten_tokens: int = 150,
    range_turns: int = 4,
    tokens: Count | None = None,
) -> Compacted:
    """As `compact`; the summariser is called in a thread, and may be async."""
    work = _compacting(
        messages, budget, place, sources, summariser, keep_turns, snip_tokens, shorten_tokens, range_turns, tokens
    )
    return await arun(work, _unasked if summariser is None else getattr(summariser, "aread", summariser))


def _compacting(
    messages: Sequence[Mapping[str, Any]],
    budget: int,
    place: Session | Store | None,
    sources: Sequence[str | None],
    summariser: object,
    keep_turns: int,
    snip_tokens: int,
    shorten_tokens: int,
    range_turns: int,
    tokens: Count | None,
) -> Generator[Passage, Any, Compacted]:
    count = counter(tokens)
    draft = _Draft(read(messages, sources), whole("keep_turns", keep_turns, 1), count)
    budget = whole("budget", budget, 1)
    snip, shorten = whole("snip_tokens", snip_tokens, 1), whole("shorten_tokens", shorten_tokens, 1)
    length = whole("range_turns", range_turns, 1)
    stages: list[Stage] = []
    before = draft.tokens()

    def tried(name: Name, changed: int, note: str | None = None) -> bool:
        """Report a stage; whether the prompt fits by now."""
        nonlocal before
        after = draft.tokens()
        stages.append(Stage(name, before, after, changed, note))
        before = after
        return after <= budget

    def done() -> Compacted:
        forms, of = draft.rendered()
        return Compacted(forms, of, draft.tokens(), budget, tuple(stages), draft.memories())

    if before <= budget or tried("snip", draft.snip(snip, budget)) or tried("shorten", draft.shorten(shorten)):
        return done()
    at = None if summariser is None else _place(place, sources)
    if at is None:
        tried("collapse", 0, _NO_SUMMARISER)
        tried("summarise", 0, _NO_SUMMARISER)
        raise _too_long(before, budget, stages)
    if tried("collapse", *(yield from draft.collapse(at, length, budget))):
        return done()
    if tried("summarise", *(yield from draft.summarise(at))):
        return done()
    raise _too_long(before, budget, stages)


class _Draft:
    """A prompt while it is brought down."""

    def __init__(self, messages: list[Prompted], keep_turns: int, count: Count) -> None:
        self._messages = messages
        self._count = count
        found = turns(messages)
        #: Summaries that a compaction before this one put in the place of turns; they are none themselves.
        self._earlier = [turn for turn in found if all(messages[place].stands_in for place in turn)]
        real = [turn for turn in found if turn not in self._earlier]
        self._old = real[: max(0, len(real) - keep_turns)]
        self._recent = real[len(self._old) :]
        #: What stands in for messages, by the place of the first of them.
        self._summaries: dict[int, Memory] = {}
        self._gone: set[int] = set()

    def tokens(self) -> int:
        return sum(Prompted(form).tokens(self._count) for form in self.rendered()[0])

    def memories(self) -> tuple[Memory, ...]:
        return tuple(self._summaries[place] for place in sorted(self._summaries))

    def rendered(self) -> tuple[tuple[Mapping[str, Any], ...], tuple[str | None, ...]]:
        """The messages, and those of the log that they are."""
        out: list[Prompted] = []
        block: list[str] = []

        def close() -> None:
            if block:
                out.append(Prompted({"role": "user", "content": earlier(block)}))
                block.clear()

        for place, message in enumerate(self._messages):
            if place in self._summaries:
                block.append(self._summaries[place].text)
            if place not in self._gone:
                close()
                out.append(message)
        close()
        return tuple(message.form for message in out), tuple(message.source for message in out)

    def snip(self, tokens: int, budget: int) -> int:
        """Snip the results of tools: all in old turns, and in the others the oldest first, until it fits."""
        changed = self._change(self._results(self._old), lambda said: said.shortened(tokens, self._count))
        for place in self._results(self._recent):
            if self.tokens() <= budget:
                break
            changed += self._change([place], lambda said: said.shortened(tokens, self._count))
        return changed

    def shorten(self, tokens: int) -> int:
        """Shorten what old turns say."""

        def short(said: Prompted) -> Prompted:
            return said.without_parts().shortened(tokens, self._count).with_short_arguments(tokens, self._count)

        return self._change((place for turn in self._old for place in turn), short)

    def collapse(self, at: Place, length: int, budget: int) -> Generator[Passage, Any, tuple[int, str | None]]:
        """Put summaries in the place of whole ranges of old turns, the oldest first, until it fits."""
        left = 0
        ranges = [self._old[start : start + length] for start in range(0, len(self._old) - length + 1, length)]
        for some in ranges:
            if self.tokens() <= budget:
                break
            places = [place for turn in some for place in turn]
            memory = yield from self._summary_of(at, places)
            if memory is None:
                left += 1
                continue
            self._gone.update(places)
            self._summaries[places[0]] = memory
        note = f"{left} of {len(ranges)} ranges stay as they are" if left else None
        if not ranges:
            note = "no range is full yet"
        return len(self._gone), note

    def summarise(self, at: Place) -> Generator[Passage, Any, tuple[int, str | None]]:
        """Put the summary of the session in the place of all old turns."""
        some = [turn for turn in self._old if self._sources(turn) is not None]
        left = len(self._old) - len(some)
        places = [place for turn in some for place in turn]
        if places:
            ids = {id for turn in some for id in self._sources(turn) or ()}
            until = max(ids, key=at.path.index)
            memory = yield from refreshed(at, until, self._count)
            before = [] if memory is None else [place for turn in self._earlier for place in turn]
            self._gone = {*places, *before}
            self._summaries = {} if memory is None else {min(self._gone): memory}
        return len(places), f"{left} turns with messages that are not in the log stay as they are" if left else None

    def _summary_of(self, at: Place, places: Sequence[int]) -> Generator[Passage, Any, Memory | None]:
        """The summary of some messages; None where they are not all in the log, or it would not be shorter."""
        ids = self._sources(places)
        messages = [] if ids is None else usable(at, all_said(at.store, ids), None)
        if not messages:
            return None
        size = sum(self._messages[place].tokens(self._count) for place in places)
        return (yield from of_range(at, messages, lambda text: self._count(earlier([text])) < size))

    def _sources(self, places: Iterable[int]) -> list[str] | None:
        """The messages of the log that some are, in their order; None where one is none."""
        found: dict[str, None] = {}
        for place in places:
            source = self._messages[place].source
            if source is None:
                return None
            found[source] = None
        return list(found)

    def _results(self, some: Iterable[Sequence[int]]) -> list[int]:
        return [place for turn in some for place in turn if self._messages[place].role == "tool"]

    def _change(self, places: Iterable[int], change: Callable[[Prompted], Prompted]) -> int:
        """Change messages; how many became others."""
        changed = 0
        for place in places:
            before = self._messages[place]
            self._messages[place] = change(before)
            changed += self._messages[place] is not before
        return changed


def _place(place: Session | Store | None, sources: Sequence[str | None]) -> Place | None:
    """Where the messages of a prompt lie in the log: at the deepest of them; None where that cannot be said.

    Raises: InvalidExtraction where they do not lie on one path; UnknownEvent.
    """
    ids = [id for id in sources if id is not None]
    if place is None or not ids:
        return None
    store = place.store if isinstance(place, Session) else place
    deepest = max(ids, key=lambda id: store.tree.depth(id) or 0)
    at = place_of(place, deepest)
    astray = next((id for id in ids if id not in at.path), None)
    if astray is not None:
        raise InvalidExtraction("sources", astray, f"it does not lie on the path of {deepest}")
    return at


def _too_long(tokens: int, budget: int, stages: Iterable[Stage]) -> PromptTooLong:
    return PromptTooLong(tokens, budget, "; ".join(map(str, stages)))


def _unasked(passage: Passage) -> Message:
    raise AssertionError("unreachable: nothing is summarised without a summariser")
