"""What a log is asked, and its answer in plain values, which are the same whatever the order of arrival.

Every question is put to engine and reference in the same words.  An error is an
answer too, by its name.

Answers are worked out here and judged by who compares them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from itertools import compress
from random import Random
from typing import Any, Final, NamedTuple

import branchmem as bm
from branchmem.events import Event
from branchmem.selftest.forests import KEYS, MISSING, Batches

Anchors = tuple[str, ...]

_ALL: Final = bm.Reason((1 << 16) - 1)


class Question(NamedTuple):
    """What to ask of the view at these anchors, which is made after the first `after` batches, or at the end."""

    ask: str
    anchors: Anchors = ()
    policy: bm.Policy = bm.STRICT
    after: int | None = None


class Told(NamedTuple):
    """A log that was told everything, and the views that were made on the way; or how it failed."""

    log: Any
    views: dict[Question, Any]


def tell(make: Callable[[], Any], batches: Batches, questions: Sequence[Question], *, pester: bool = False) -> Told:
    """Tell a new log everything, and make the views that are asked for early; `pester`: ask for bitmaps, too."""
    views: dict[Question, Any] = {}
    log = None
    try:
        log = make()
        append = log.append if isinstance(log, bm.Store) else log.add
        for number, batch in enumerate(batches):
            for question in questions:
                if question.after == number:
                    views[question] = _or_error(
                        lambda log, asked: log.at(asked.anchors, policy=asked.policy), log, question
                    )
            append(batch)
            if pester:
                log.bitmaps([event.id for event in batch[:3]], policy=bm.COMPAT)
    except Exception as error:
        close(log)
        return Told(error, views)
    return Told(log, views)


def close(log: Any) -> None:
    """Close what has a file."""
    if isinstance(log, bm.Store):
        log.close()


def questions(random: Random, events: Sequence[Event], batches: int, *, content: bool) -> list[Question]:
    """Flags, views and explanations at every message, at what is none, and at several anchors; and all the rest.

    `content`: ask for what was written, too.
    """
    ids = [event.id for event in events]
    messages = [event.id for event in events if isinstance(event, bm.Message)]
    several = [tuple(random.sample([*messages, MISSING], random.choice((2, 2, 3, 4)))) for _ in range(8)]
    several.append(tuple(message for message in messages if message.endswith(".1"))[:20])
    odd = bm.Policy(random.choice((bm.Reason(random.getrandbits(16)), _ALL, _ALL ^ bm.Reason.SUPERSEDED)))
    policies = (bm.STRICT, bm.COMPAT, odd)
    out: list[Question] = []
    for anchors in [(), (MISSING,), (ids[-1],), *((id,) for id in messages), *several]:
        for policy in policies:
            out += [Question("flags", anchors, policy), Question("view", anchors, policy)]
        out.append(Question("explain", anchors, random.choice(policies)))
    for anchors in [(), (MISSING,), *((id,) for id in random.sample(messages, 4)), *random.sample(several, 4)]:
        out.append(Question("counted", anchors, random.choice(policies), random.randint(0, batches)))
        if content:
            out.append(Question("content", anchors, random.choice(policies), random.randint(0, batches)))
            out.append(Question("content", anchors, random.choice(policies)))
    bulk = tuple(random.sample(messages, min(8, len(messages))))
    return [*out, *(Question("bulk", bulk, policy) for policy in policies), Question("lists")]


def answer(told: Told, question: Question) -> Any:
    """The answer by ids; of a log that failed, how."""
    if isinstance(told.log, Exception):
        return type(told.log).__name__
    return _or_error(_answer, told, question)


def verdicts(question: Question, answered: Any) -> list[int]:
    """The verdicts of an answer, each by its flags."""
    if question.ask not in ("flags", "explain") or not isinstance(answered, dict):
        return []
    return [about if isinstance(about, int) else about["reasons"] for about in answered.values()]


def _or_error(ask: Callable[..., Any], *about: Any) -> Any:
    try:
        return ask(*about)
    except Exception as error:
        return type(error).__name__


def _answer(told: Told, question: Question) -> Any:
    log, ask = told.log, question.ask
    if ask == "lists":
        return _lists(log)
    if ask == "bulk":
        return _bulk(log, question.anchors, question.policy)
    view = told.views.get(question) or log.at(question.anchors, policy=question.policy, count=ask == "counted")
    ids = list(log.memory_ids)
    if isinstance(view, str) or ask == "content":
        return view if isinstance(view, str) else _content(log, view, sorted(ids))
    if ask == "flags":
        return dict(zip(ids, view.reasons().tolist(), strict=True))
    if ask == "explain":
        return _explained(view, [*sorted(ids)[:: max(1, len(ids) // 3)], MISSING])
    return _counted(log, view, sorted(ids)) if ask == "counted" else _view(view, ids)


def _view(view: Any, ids: list[str]) -> dict[str, Any]:
    """The problems and what is visible: said once where every way to ask says the same, else way by way."""
    answers = {way: sorted(ask(view, ids)) for way, ask in _WAYS.items()}
    shown = answers["ids"]
    agreed = all(answer == shown for answer in answers.values()) and len(view) == len(shown)
    return {"problems": int(view.problems), "visible": shown if agreed else {"len": len(view), **answers}}


_WAYS: Final[dict[str, Callable[[Any, list[str]], Iterable[str]]]] = {
    "ids": lambda view, ids: view.ids(),
    "iteration": lambda view, ids: view,
    "ordinals": lambda view, ids: [ids[ordinal] for ordinal in view.ordinals().tolist()],
    "mask": lambda view, ids: compress(ids, view.mask().tolist()),
    "bitmap": lambda view, ids: _set_bits(bytes(view.bitmap()), ids),
    "filter": lambda view, ids: view.filter([MISSING, *ids]),
    "in": lambda view, ids: [id for id in [MISSING, *ids] if id in view],
}


def _explained(view: Any, ids: Iterable[str]) -> dict[str, Any]:
    return {verdict.id: _verdict(verdict) for verdict in map(view.explain, ids)}


def _verdict(verdict: Any) -> dict[str, Any]:
    return {
        "visible": verdict.visible,
        "reasons": int(verdict.reasons),
        "culprits": {reason.name: list(verdict.culprits[reason]) for reason in sorted(verdict.culprits)},
        "parted": dict(verdict.parted),
        "retractions": {id: [placed.at, placed.scope, *placed.lifted] for id, placed in verdict.retractions.items()},
        "superseded_upstream": list(verdict.superseded_upstream),
    }


def _counted(log: Any, view: Any, ids: list[str]) -> dict[str, Any]:
    """Whatever a view counts, one question after the other, each with what it counted."""
    out: dict[str, Any] = {"problems": int(view.problems), "len": len(view)}
    before = _count(log)
    for name, ask in _COUNTED.items():
        out[name] = _or_error(ask, view, ids)
        after = _count(log)
        out[f"counted by {name}"] = dict(after - before)
        before = after
    return out


_COUNTED: Final[dict[str, Callable[[Any, list[str]], Any]]] = {
    "ids": lambda view, ids: sorted(view.ids()),
    "in": lambda view, ids: [id for id in [MISSING, *ids] if id in view],
    "filter": lambda view, ids: view.filter([MISSING, *ids]),
    "explain": lambda view, ids: _explained(view, [*ids, MISSING]),
    "reasons": lambda view, ids: sorted(view.reasons().tolist()),
    "mask": lambda view, ids: view.mask().tolist().count(True),
}


def _count(log: Any) -> Counter[str]:
    counters = log.counters()
    counts = Counter(
        {f"{way} {reason.name}": n for way in ("hidden", "admitted") for reason, n in counters[way].items()}
    )
    counts["unlisted"] = counters["unlisted"]
    return counts


def _content(log: Any, view: Any, ids: list[str]) -> dict[str, Any]:
    """What readers of content get: of a view, by key, and of the log."""
    return {
        "memories": _or_error(lambda: [_form(memory) for memory in view.memories()]),
        "get": {id: _or_error(lambda id: _form(view.get(id)), id) for id in [*ids, MISSING]},
        "current": {key: _or_error(lambda key: _form(view.current(key)), key) for key in KEYS},
        "log": {event.id: [log.log.is_erased(event.id), _form(event)] for event in log.log.events()},
        "digest": log.digest(),
    }


def _form(found: Any) -> Any:
    """An event as JSON-ready values; several, or none, likewise."""
    if isinstance(found, list):
        return [_form(event) for event in found]
    return found if found is None else found.to_dict()


def _lists(log: Any) -> dict[str, Any]:
    """What can be asked of the log as a whole.  The engine answers these to `check`; the reference by itself."""
    engine = getattr(log, "_engine", log)
    stay = {}
    for id, reasons in dict(engine.unshowable()).items():
        stay[id] = int(reasons)
    return {
        "unplaced": sorted(engine.unplaced()),
        "circles": sorted(engine.supersession_circles()),
        "unshowable": dict(sorted(stay.items())),
        "erased": [id for id in sorted([*log.memory_ids, *log.message_ids, MISSING]) if engine.is_erased(id)],
    }


def _bulk(log: Any, anchors: Anchors, policy: bm.Policy) -> dict[str, Any]:
    ids, memories = list(log.memory_ids), sorted(log.memory_ids)
    messages = [id for id in anchors if id in list(log.message_ids)]
    pairs = [(memory, message) for memory in memories for message in messages]
    left, right = [memory for memory, _ in pairs], [message for _, message in pairs]
    by_id = log.visible(left, right, policy=policy)
    by_ordinal = log.visible(log.memory_ordinals(left), log.message_ordinals(right), policy=policy)
    rows = log.bitmaps(messages, policy=policy)
    return {
        "visible": [pair for pair, shown in zip(pairs, by_id.tolist(), strict=True) if shown],
        "visible by ordinals": [pair for pair, shown in zip(pairs, by_ordinal.tolist(), strict=True) if shown],
        "bitmaps": [sorted(_set_bits(row.tobytes(), ids)) for row in rows],
    }


def _set_bits(bitmap: bytes, ids: Sequence[str]) -> list[str]:
    bits = int.from_bytes(bitmap, "little")
    return [id for ordinal, id in enumerate(ids) if bits >> ordinal & 1]
