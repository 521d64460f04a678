"""The differential suite: does the engine answer as the reference does?

Random forests with everything that goes wrong in logs (orphans, circles, legacy
messages, sources and upstreams that are missing or of the wrong type) arrive in
shuffled order, in random batches, some events twice.  Every verdict is compared
by its flags, at every message and at several anchors at once, and so is each way
to ask for a whole view.  What differs is shrunk to a small case.

Prints nothing: a run is a Report.
"""

from __future__ import annotations

import logging
import secrets
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from itertools import compress
from random import Random
from typing import Any, Final

import branchmem as bm
from branchmem.events import Event
from branchmem.reference import Reference

Anchors = tuple[str, ...]
Batches = list[list[Event]]
Question = tuple[str, Anchors, bm.Policy]

# A broken engine fails everywhere: a few small cases say more than all of them.
MAX_CASES: Final = 3
MISSING: Final = "not here"
# Where bytes, code points and lengths of ids could be told apart.
_PREFIXES: Final = ("m", "M", "é", "ﬀ", "𝒳", "a long name that no small buffer holds ")


@dataclass(frozen=True, slots=True)
class Case:
    """One question that the two answer differently, on as few events as were found; JSON-ready.

    The engine takes in `batches` one after the other; `engine` and `reference`
    are the answers at `anchors` under a policy that lets `admit` through.
    """

    question: str
    anchors: list[str]
    admit: list[str]
    engine: Any
    reference: Any
    batches: list[list[dict[str, Any]]]


@dataclass(frozen=True, slots=True)
class Report:
    """What a run compared: `decisions` are verdicts compared by flags, `mismatches` answers that differ."""

    trees: int
    decisions: int
    mismatches: int
    seed: int
    cases: tuple[Case, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """The JSON-ready form."""
        return asdict(self)


def run(
    trees: int = 400,
    seed: int | None = None,
    progress: Callable[[int, int], None] | None = None,
    *,
    min_decisions: int = 0,
    engine: Callable[[], Any] | None = None,
) -> Report:
    """Compare engine and reference on `trees` random forests, each called a tree here.

    Goes on past `trees` until `min_decisions` verdicts have been compared.
    `progress` is called with the trees done and asked for after each; `engine`
    makes what is tested, `branchmem.Engine` unless something else is named.
    The logger `branchmem` is silent meanwhile.
    Cost: about 50 ms a tree, nearly all of it spent by the reference.
    """
    engine = engine or bm.Engine
    seed = secrets.randbits(32) if seed is None else seed
    done = decisions = mismatches = 0
    cases: list[Case] = []
    with _silence():
        while done < trees or decisions < min_decisions:
            random = Random(f"{seed} {done}")
            events = forest(random)
            batches = arrivals(random, events)
            questions = _questions(random, events)
            compared, differing = _compare(engine, batches, questions)
            decisions += compared
            mismatches += len(differing)
            if differing and len(cases) < MAX_CASES:
                cases.append(_shrink(engine, batches, differing[0]))
            done += 1
            if progress:
                progress(done, max(done, trees))
    return Report(done, decisions, mismatches, seed, tuple(cases))


def forest(random: Random) -> list[Event]:
    """A random log: some 30 messages in one to three trees and beside them, some 12 memories."""
    messages: list[bm.Message] = []
    for tree in range(random.randint(1, 3)):
        name = f"{random.choice(_PREFIXES)}{tree}."
        grown = [bm.Message(f"{name}0", bm.LEGACY if random.random() < 0.3 else None)]
        for number in range(1, random.randint(4, 18)):
            parent = grown[-1] if random.random() < 0.55 else random.choice(grown)
            grown.append(bm.Message(f"{name}{number}", parent.id))
        messages += grown
    memory_ids = [f"{random.choice(_PREFIXES)}-{number}" for number in range(random.randint(10, 15))]
    # What never attaches: below a parent that is not here, below a memory, in circles.
    messages.append(bm.Message("orphan", MISSING))
    messages += [bm.Message(f"orphan{number}", "orphan") for number in range(random.randint(0, 2))]
    messages.append(bm.Message("astray", random.choice(memory_ids)))
    messages += [bm.Message("x", "y"), bm.Message("y", "x"), bm.Message("below x", "x"), bm.Message("z", "z")]
    return [*messages, *_memories(random, messages, memory_ids)]


def _memories(random: Random, messages: Sequence[bm.Message], ids: Sequence[str]) -> Iterator[Event]:
    """Mostly from one path, so that they show somewhere; mostly derived from earlier ones, so not all in circles."""
    parents = {message.id: message.parent for message in messages}
    for number, id in enumerate(ids):
        path = [random.choice(messages).id]
        while len(path) < 40 and isinstance(parent := parents.get(path[-1]), str) and parent in parents:
            path.append(parent)
        sources = random.choices(path, k=random.choice((0, 1, 1, 1, 2, 3)))
        derived_from = []
        if number and random.random() < 0.4:
            derived_from.append(ids[number - 1] if random.random() < 0.6 else random.choice(ids[:number]))
        for chance, names, extra in (
            (0.25, [random.choice(messages).id], sources),
            (0.12, [MISSING, "nowhere"], sources),
            (0.05, ids, sources),
            (0.08, ids, derived_from),
            (0.05, [MISSING, path[0]], derived_from),
        ):
            if random.random() < chance:
                extra.append(random.choice(names))
        yield bm.Memory(id, f"text of {id}", sources=sources, derived_from=derived_from)


def arrivals(random: Random, events: Sequence[Event]) -> Batches:
    """The events in shuffled order, some of them twice, in batches of random sizes."""
    arriving = [*events, *random.sample(events, len(events) // 8)]
    random.shuffle(arriving)
    batches = []
    while arriving:
        size = random.choice((1, 2, 5, 20, 100))
        batches.append(arriving[:size])
        del arriving[:size]
    return batches


def _questions(random: Random, events: Sequence[Event]) -> list[Question]:
    """Flags at every message, at what is none, and at several anchors; whole views there under three policies."""
    ids = [event.id for event in events]
    messages = [event.id for event in events if isinstance(event, bm.Message)]
    several = [tuple(random.sample([*messages, MISSING], random.choice((2, 2, 3, 4)))) for _ in range(8)]
    odd = bm.Policy(bm.Reason(random.getrandbits(16)))
    out: list[Question] = []
    for anchors in [(), (MISSING,), (ids[-1],), *((id,) for id in messages), *several]:
        out.append(("flags", anchors, bm.STRICT))
        out += [("view", anchors, policy) for policy in (bm.STRICT, bm.COMPAT, odd)]
        out.append(("explain", anchors, random.choice((bm.STRICT, bm.COMPAT, odd))))
    bulk = tuple(random.sample(messages, min(8, len(messages))))
    out += [("bulk", bulk, policy) for policy in (bm.STRICT, bm.COMPAT, odd)]
    return out


def _compare(engine: Callable[[], Any], batches: Batches, questions: Sequence[Question]) -> tuple[int, list[Question]]:
    """How many verdicts were compared by flags, and which questions were answered differently."""
    both = _replay(engine, batches)
    decisions = 0
    differing = []
    for question in questions:
        ours, right = (_answer(target, question) for target in both)
        if question[0] == "flags" and isinstance(right, dict):
            decisions += len(right)
        if ours != right:
            differing.append(question)
    return decisions, differing


def _replay(engine: Callable[[], Any], batches: Batches) -> tuple[Any, Reference]:
    """An engine that was asked for bitmaps after each batch, or how it failed, and a reference with the same events."""
    right = Reference()
    for batch in batches:
        right.add(batch)
    ours = engine()
    try:
        for batch in batches:
            ours.add(batch)
            ours.bitmaps([event.id for event in batch[:3]], policy=bm.COMPAT)
    except Exception as error:
        return error, right
    return ours, right


def _answer(target: Any, question: Question) -> Any:
    """The answer by ids, which are the same whatever the order of arrival; an error by its name."""
    name, anchors, policy = question
    if isinstance(target, Exception):
        return type(target).__name__
    try:
        if name == "bulk":
            return _bulk(target, anchors, policy)
        view = target.at(anchors, policy=policy, count=False)
        ids = list(target.memory_ids)
        if name == "flags":
            return dict(zip(ids, view.reasons().tolist(), strict=True))
        return _view(view, ids) if name == "view" else _explain(view, sorted(ids)[:: max(1, len(ids) // 3)])
    except Exception as error:
        return type(error).__name__


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


def _explain(view: Any, ids: Sequence[str]) -> dict[str, Any]:
    verdicts = [view.explain(id) for id in [*ids, MISSING]]
    return {
        verdict.id: {
            "visible": verdict.visible,
            "reasons": int(verdict.reasons),
            "culprits": {reason.name: list(verdict.culprits[reason]) for reason in sorted(verdict.culprits)},
            "parted": dict(verdict.parted),
        }
        for verdict in verdicts
    }


def _bulk(target: Any, anchors: Anchors, policy: bm.Policy) -> dict[str, Any]:
    ids, memories = list(target.memory_ids), sorted(target.memory_ids)
    messages = [id for id in anchors if id in list(target.message_ids)]
    pairs = [(memory, message) for memory in memories for message in messages]
    left, right = [memory for memory, _ in pairs], [message for _, message in pairs]
    by_id = target.visible(left, right, policy=policy)
    by_ordinal = target.visible(target.memory_ordinals(left), target.message_ordinals(right), policy=policy)
    rows = target.bitmaps(messages, policy=policy)
    return {
        "visible": [pair for pair, shown in zip(pairs, by_id.tolist(), strict=True) if shown],
        "visible by ordinals": [pair for pair, shown in zip(pairs, by_ordinal.tolist(), strict=True) if shown],
        "bitmaps": [sorted(_set_bits(row.tobytes(), ids)) for row in rows],
    }


def _set_bits(bitmap: bytes, ids: Sequence[str]) -> list[str]:
    bits = int.from_bytes(bitmap, "little")
    return [id for ordinal, id in enumerate(ids) if bits >> ordinal & 1]


def _shrink(engine: Callable[[], Any], batches: Batches, question: Question) -> Case:
    """Leave out events, many at a time and then one by one, for as long as the answers still differ."""

    def differs(events: list[tuple[int, Event]]) -> bool:
        return bool(_compare(engine, _regroup(events), [question])[1])

    kept = [(number, event) for number, batch in enumerate(batches) for event in batch]
    size = len(kept) // 2
    while size:
        start, before = 0, len(kept)
        while start < len(kept):
            fewer = kept[:start] + kept[start + size :]
            if differs(fewer):
                kept = fewer
            else:
                start += size
        size = size // 2 if size > 1 or len(kept) == before else 1
    batches = _regroup(kept)
    ours, right = (_answer(target, question) for target in _replay(engine, batches))
    name, anchors, policy = question
    told = [[event.to_dict() for event in batch] for batch in batches]
    return Case(name, list(anchors), list(policy.admit.names()), ours, right, told)


def _regroup(events: Sequence[tuple[int, Event]]) -> Batches:
    batches: dict[int, list[Event]] = {}
    for number, event in events:
        batches.setdefault(number, []).append(event)
    return list(batches.values())


@contextmanager
def _silence() -> Iterator[None]:
    logger = logging.getLogger("branchmem")
    before, logger.disabled = logger.disabled, True
    try:
        yield
    finally:
        logger.disabled = before
