"""Which events does a difference need?  The others are left out, then what an event names beside the matter.

Whatever is tried is kept if the difference is still there: it need not be the same one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final

import branchmem as bm
from branchmem.errors import InvalidEvent
from branchmem.events import Event
from branchmem.selftest.answers import Question
from branchmem.selftest.forests import Batches

# An event and the batch that it arrives in.
_Arrivals = list[tuple[int, Event]]
_Differs = Callable[[Batches, Question], bool]
_LISTS: Final = ("sources", "derived_from", "supersedes", "memories", "keys", "targets")
_PLAIN: Final = ("adopts", "key", "standing", "reason")


def shrunk(batches: Batches, question: Question, differs: _Differs) -> tuple[Batches, Question]:
    """Fewer and smaller events for which `differs` still holds, and the question put to them."""

    def still(arriving: _Arrivals) -> bool:
        return differs(*_grouped(arriving, question))

    kept = _fewer([(number, event) for number, batch in enumerate(batches) for event in batch], still)
    for place, (number, event) in enumerate(kept):
        met, tried = {event}, True
        while tried:
            tried = False
            for form in _simpler(kept[place][1], kept):
                if form in met:
                    continue
                met.add(form)
                simpler = [*kept[:place], (number, form), *kept[place + 1 :]]
                if still(simpler):
                    kept, tried = simpler, True
                    break
    return _grouped(_fewer(kept, still), question)


def _fewer(kept: _Arrivals, still: Callable[[_Arrivals], bool]) -> _Arrivals:
    """Leave out events, many at a time and then one by one."""
    size = len(kept) // 2
    while size:
        start, before = 0, len(kept)
        while start < len(kept):
            fewer = kept[:start] + kept[start + size :]
            if still(fewer):
                kept = fewer
            else:
                start += size
        size = size // 2 if size > 1 or len(kept) == before else 1
    return kept


def _simpler(event: Event, kept: _Arrivals) -> Iterator[Event]:
    """The event with one name less, without what is optional, or one step higher in its tree."""
    form = event.to_dict()
    for name in _LISTS:
        for place in range(len(form.get(name, ()))):
            yield from _made(form, name, [*form[name][:place], *form[name][place + 1 :]])
    for name in _PLAIN:
        if form.get(name):
            yield from _made({one: value for one, value in form.items() if one != name})
    if isinstance(event, bm.Message):
        above = (one for _, one in kept if isinstance(one, bm.Message) and one.id == event.parent != event.id)
        yield from (bm.Message(event.id, parent.parent) for parent in above if parent.parent != event.parent)


def _made(form: dict[str, Any], name: str | None = None, value: Any = None) -> Iterator[Event]:
    try:
        yield bm.event_from_dict(form if name is None else {**form, name: value})
    except InvalidEvent:
        return


def _grouped(arriving: _Arrivals, question: Question) -> tuple[Batches, Question]:
    """The batches that are left, and the question of a view that is made where it was made before."""
    numbers = sorted({number for number, _ in arriving})
    batches = [[event for own, event in arriving if own == number] for number in numbers]
    if question.after is None:
        return batches, question
    return batches, question._replace(after=sum(number < question.after for number in numbers))
