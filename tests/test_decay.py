"""How memories fade: a function of time that nothing writes down, and what a search leaves out for it."""

from __future__ import annotations

import copy
import math
import pickle
import random
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import branchmem as bm
import pytest
from branchmem import Decay
from branchmem.errors import InvalidDecay, InvalidTime
from branchmem.recall import access, decay
from branchmem.recall.decay import report
from branchmem.recall.index import index_of
from logs import in_child

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
HOUR = timedelta(hours=1)
WEEK = timedelta(hours=168)
NEVER = Decay(math.inf, 0.0)
#: The default settings let 1.0 fall below 0.05 after so many half-lives.
FADED = 4.33


@pytest.fixture
def store(path: Path) -> Iterator[bm.Store]:
    """A store with one message."""
    with bm.open(path) as store:
        store.append([bm.Message("u1", None, role="user", text="hello")])
        yield store


def fact(id: str, *, age: timedelta | None = timedelta(0), text: str | None = None, **fields: Any) -> bm.Memory:
    """A memory about fish that was made so long before noon; None: nobody knows when."""
    created = None if age is None else NOON - age
    return bm.Memory(id, text or f"fish {id}", sources=["u1"], created=created, **fields)


def found(store: bm.Store, now: datetime = NOON, **options: Any) -> list[str]:
    return sorted(store.at("u1").search("fish", 100, now=now, **options).ids)


# The function.


@pytest.mark.parametrize("half_lives", [0, 1, 2, 3, 4, 40])
def test_half_of_the_importance_is_left_after_each_half_life(half_lives: int) -> None:
    memory = fact("a", age=half_lives * WEEK, importance=0.8)

    assert Decay().effective(memory, now=NOON) == 0.8 / 2**half_lives
    assert Decay(24.0).effective(memory, now=NOON) == 0.8 / 2 ** (7 * half_lives)


@pytest.mark.parametrize("seed", range(20))
def test_it_is_the_formula(seed: int) -> None:
    chance = random.Random(seed)
    age = timedelta(microseconds=chance.randrange(10**13))
    importance, half_life = chance.random(), chance.uniform(1, 1000)

    effective = Decay(half_life).effective(fact("a", age=age, importance=importance), now=NOON)

    assert effective == pytest.approx(importance * 2 ** (-(age / HOUR) / half_life), rel=1e-14), f"seed {seed}"


@pytest.mark.parametrize("seed", range(10))
def test_the_index_says_the_same_to_the_last_digit(store: bm.Store, seed: int) -> None:
    chance = random.Random(seed)
    decay = Decay(chance.uniform(1, 400), 0.05, {"guess": Decay(chance.uniform(0.1, 10)), "profile": NEVER})
    memories = [
        fact(
            f"m{number}",
            age=chance.choice([None, timedelta(microseconds=chance.randrange(-(10**10), 10**12))]),
            importance=chance.choice([1.0, 0.0, chance.random()]),
            kind=chance.choice(["fact", "guess", "profile"]),
        )
        for number in range(30)
    ]
    store.append(memories)
    for memory in chance.sample(memories, 10):
        store.used([memory], at=NOON + timedelta(microseconds=chance.randrange(-(10**11), 10**10)))

    index = index_of(store).current()
    effective = index.effective(store.at("u1"), decay.fading(NOON)).tolist()

    used = access.last_used(store, [memory.id for memory in memories])
    plain = [decay.effective(memory, used=used.get(memory.id), now=NOON) for memory in memories]
    assert effective == plain, f"seed {seed}"


def test_the_last_use_is_the_later_of_both_times() -> None:
    memory = fact("a", age=2 * WEEK)

    assert Decay().effective(memory, used=NOON - WEEK, now=NOON) == 0.5
    assert Decay().effective(memory, used=NOON - 3 * WEEK, now=NOON) == 0.25


def test_a_memory_without_any_time_has_not_begun_to_fade() -> None:
    assert Decay().effective(fact("a", age=None), now=NOON) == 1
    assert Decay().effective(fact("a", age=None), used=NOON - WEEK, now=NOON) == 0.5


def test_a_time_that_is_still_to_come_counts_as_now() -> None:
    assert Decay().effective(fact("a", age=-WEEK), now=NOON) == 1
    assert Decay().effective(fact("a", age=WEEK), used=NOON + WEEK, now=NOON) == 1


def test_kinds_fade_at_their_own_pace() -> None:
    decay = Decay(168.0, 0.05, {"guess": Decay(84.0, 0.5), "profile": NEVER})
    ages = {kind: fact("a", age=WEEK, kind=kind) for kind in ("fact", "guess", "profile")}

    effective = {kind: decay.effective(memory, now=NOON) for kind, memory in ages.items()}

    assert effective == {"fact": 0.5, "guess": 0.25, "profile": 1.0}
    assert {kind for kind, memory in ages.items() if decay.is_faded(memory, now=NOON)} == {"guess"}


def test_a_half_life_without_end_never_fades() -> None:
    ancient = bm.Memory("a", "fish", created=datetime(1, 1, 2, tzinfo=UTC), importance=0.3)

    assert NEVER.effective(ancient, now=datetime(9999, 12, 30, tzinfo=UTC)) == 0.3
    assert Decay(1e300).effective(ancient, now=datetime(9999, 12, 30, tzinfo=UTC)) == 0.3


@pytest.mark.parametrize(
    ("settings", "name"),
    [
        ({"half_life_hours": 0}, "half_life_hours"),
        ({"half_life_hours": -1.0}, "half_life_hours"),
        ({"half_life_hours": math.nan}, "half_life_hours"),
        ({"half_life_hours": "168"}, "half_life_hours"),
        ({"half_life_hours": True}, "half_life_hours"),
        ({"half_life_hours": 10**400}, "half_life_hours"),
        ({"floor": -0.1}, "floor"),
        ({"floor": 1.1}, "floor"),
        ({"floor": math.nan}, "floor"),
        ({"floor": None}, "floor"),
        ({"kinds": ["profile"]}, "kinds"),
        ({"kinds": {1: Decay()}}, "kinds"),
        ({"kinds": {"profile": 168.0}}, "kinds['profile']"),
        ({"kinds": {"profile": Decay(kinds={"fact": Decay()})}}, "kinds['profile']"),
    ],
    ids=repr,
)
def test_settings_with_which_nothing_could_fade_are_refused(settings: dict[str, Any], name: str) -> None:
    with pytest.raises(InvalidDecay) as refused:
        Decay(**settings)

    assert refused.value.name == name
    assert isinstance(refused.value, ValueError)
    assert str(refused.value).startswith(f"{name}=")


def test_settings_are_values() -> None:
    kinds = {"guess": Decay(1)}
    decay = Decay(12, 0.1, kinds)
    kinds["profile"] = NEVER

    assert decay == Decay(12.0, 0.1, {"guess": Decay(1.0, 0.05)}) != Decay(12)
    assert hash(decay) == hash(Decay(12.0, 0.1, {"guess": Decay(1)}))
    assert pickle.loads(pickle.dumps(decay)) == copy.deepcopy(decay) == decay
    assert decay.to_dict() == {
        "half_life_hours": 12.0,
        "floor": 0.1,
        "kinds": {"guess": {"half_life_hours": 1.0, "floor": 0.05}},
    }
    assert NEVER.to_dict() == {"half_life_hours": None, "floor": 0.0}


def test_a_time_without_offset_is_refused(store: bm.Store) -> None:
    naive = NOON.replace(tzinfo=None)

    with pytest.raises(InvalidTime, match="now="):
        Decay().effective(fact("a"), now=naive)
    with pytest.raises(InvalidTime, match="used="):
        Decay().effective(fact("a"), used=naive, now=NOON)
    with pytest.raises(InvalidTime, match="now="):
        report(store, store.at("u1"), now=naive)
    with pytest.raises(InvalidTime, match="now="):
        store.at("u1").search("fish", now=naive)


def test_decay_is_a_public_name_although_its_room_is_loaded_when_it_is_asked_for() -> None:
    assert Decay is decay.Decay
    assert "Decay" in bm.__all__
    with pytest.raises(AttributeError, match="Decoy"):
        getattr(bm, "Decoy")  # noqa: B009


# What a search leaves out.


def test_below_the_floor_a_memory_is_left_out_and_counted(store: bm.Store) -> None:
    store.append([fact("new"), fact("old", age=FADED * WEEK), fact("trifle", importance=0.04)])

    hits = store.at("u1").search("fish", now=NOON)

    assert (hits.ids, hits.faded) == (["new"], 2)
    assert found(store, include_faded=True) == ["new", "old", "trifle"]


def test_at_the_floor_a_memory_is_still_found(store: bm.Store) -> None:
    store.append([fact("at", age=2 * WEEK), fact("below", age=2 * WEEK + timedelta(microseconds=1))])

    assert found(store, decay=Decay(168.0, 0.25)) == ["at"]


def test_fading_changes_no_score(store: bm.Store) -> None:
    store.append([fact("new", text="fish and rice"), fact("old", age=9 * WEEK), fact("older", age=10 * WEEK)])
    view = store.at("u1")

    (alone,) = view.search("fish", now=NOON)
    all_three = {hit.id: hit.score for hit in view.search("fish", now=NOON, include_faded=True)}

    assert alone.score == all_three["new"]


def test_a_memory_that_is_used_comes_back(store: bm.Store) -> None:
    store.append([fact("old", age=9 * WEEK)])
    assert found(store) == []

    store.used(["old"], at=NOON - WEEK)

    assert found(store) == ["old"]
    assert found(store, NOON + 9 * WEEK) == []


def test_a_use_long_ago_brings_nothing_back(store: bm.Store) -> None:
    store.append([fact("old", age=9 * WEEK)])

    store.used(["old"], at=NOON - 8 * WEEK)

    assert found(store) == []


def test_what_has_faded_is_there_for_whoever_asks_by_id(store: bm.Store) -> None:
    store.append([fact("old", age=99 * WEEK, key="food")])
    view = store.at("u1")

    assert found(store) == []
    assert "old" in view
    assert view["old"].text == "fish old"
    assert [memory.id for memory in view.memories()] == ["old"]
    assert view.current("food") == view["old"]


def test_the_settings_of_a_store_hold_for_its_searches(store: bm.Store) -> None:
    store.append([fact("old", age=9 * WEEK), fact("hunch", age=HOUR, kind="guess")])
    assert store.decay == Decay()

    store.decay = Decay(math.inf, 0.0, {"guess": Decay(0.1)})

    assert found(store) == ["old"]
    assert found(store, decay=Decay()) == ["hunch"]


def test_what_is_no_setting_is_refused(store: bm.Store) -> None:
    with pytest.raises(InvalidDecay, match="decay=168"):
        store.decay = 168  # type: ignore[assignment]
    with pytest.raises(InvalidDecay, match="decay=168"):
        report(store, decay=168)  # type: ignore[arg-type]


def test_a_use_in_another_process_is_seen_by_the_next_search(store: bm.Store, path: Path) -> None:
    store.append([fact("old", age=9 * WEEK)])
    assert found(store) == []

    def work() -> int:
        with bm.open(path) as other:
            return other.used(["old"], at=NOON)

    assert in_child(work) == "1"
    assert found(store) == ["old"]


def test_a_use_through_another_store_on_the_file_is_seen(store: bm.Store, path: Path) -> None:
    store.append([fact("old", age=9 * WEEK)])
    assert found(store) == []

    with bm.open(path) as other:
        other.used(["old"], at=NOON)

    assert found(store) == ["old"]


def test_uses_are_remembered_when_the_store_is_opened_again(store: bm.Store, path: Path) -> None:
    store.append([fact("old", age=9 * WEEK)])
    store.used(["old"], at=NOON)
    store.close()

    with bm.open(path, readonly=True) as again:
        assert found(again) == ["old"]
        assert str(report(again, now=NOON)) == "1 scanned, 0 fading, 0 below the floor"


# The report.


def test_the_report_tells_fading_from_faded(store: bm.Store) -> None:
    store.append(
        [
            fact("new"),
            fact("timeless", age=None),
            fact("nearly", age=WEEK - timedelta(seconds=1)),
            fact("half", age=WEEK),
            fact("last", age=FADED * WEEK - HOUR * 2),
            fact("old", age=FADED * WEEK),
            fact("trifle", importance=0.01),
            fact("nothing", importance=0.0),
        ]
    )

    said = report(store, store.at("u1"), now=NOON)

    assert (said.scanned, said.fading, said.below_floor) == (8, 2, 3)
    assert said.fading_ids == ("half", "last")
    assert said.faded_ids == ("nothing", "old", "trifle")
    assert str(said) == "8 scanned, 2 fading, 3 below the floor"


def test_the_report_and_the_search_agree_about_what_has_faded(store: bm.Store) -> None:
    chance = random.Random(7)
    store.append([fact(f"m{n}", age=chance.random() * 9 * WEEK, importance=chance.random()) for n in range(60)])
    decay = Decay(100.0, 0.07)

    said = report(store, store.at("u1"), decay=decay, now=NOON)

    ids = {memory.id for memory in store.at("u1").memories()}
    assert 0 < said.below_floor < 60
    assert set(found(store, decay=decay)) == ids - set(said.faded_ids)


def test_what_does_not_lose_anything_is_not_fading(store: bm.Store) -> None:
    store.append([fact("nothing", importance=0.0), fact("old", age=99 * WEEK)])

    said = report(store, decay=NEVER, now=NOON)

    assert (said.scanned, said.fading, said.below_floor) == (2, 0, 0)


def test_how_much_must_be_lost_to_be_fading_can_be_said(store: bm.Store) -> None:
    store.append([fact("half", age=WEEK), fact("quarter", age=2 * WEEK)])

    assert report(store, now=NOON, fading_below=0.25).fading_ids == ("quarter",)
    assert report(store, now=NOON, fading_below=0.9).fading_ids == ("half", "quarter")
    with pytest.raises(InvalidDecay, match=r"fading_below=1\.5"):
        report(store, now=NOON, fading_below=1.5)


def test_the_report_of_a_view_counts_what_it_shows_and_that_of_a_store_all(store: bm.Store) -> None:
    store.append([bm.Message("u2", "u1"), bm.Message("u3", "u1"), fact("trunk", age=WEEK)])
    store.append([bm.Memory("left", "fish", sources=["u2"], created=NOON - 9 * WEEK)])
    store.append([bm.Memory("right", "fish", sources=["u3"], created=NOON - WEEK)])

    assert report(store, store.at("u2"), now=NOON).to_dict()["fading_ids"] == ["trunk"]
    assert report(store, store.at("u2"), now=NOON).faded_ids == ("left",)
    assert report(store, store.at(None), now=NOON).scanned == 0
    everything = report(store, now=NOON)
    assert (everything.scanned, everything.fading_ids, everything.faded_ids) == (3, ("right", "trunk"), ("left",))


def test_kinds_have_floors_of_their_own_in_the_report(store: bm.Store) -> None:
    store.append([fact(kind, age=2 * WEEK, kind=kind) for kind in ("fact", "guess", "profile")])
    decay = Decay(168.0, 0.05, {"guess": Decay(168.0, 0.5), "profile": NEVER})

    for view in (store.at("u1"), None):
        said = report(store, view, decay=decay, now=NOON)
        assert (said.fading_ids, said.faded_ids) == (("fact",), ("guess",))


def test_erased_memories_are_not_counted(store: bm.Store) -> None:
    store.append([fact("a", age=9 * WEEK), fact("b", age=9 * WEEK)])
    assert report(store, now=NOON).scanned == 2

    store.erase(["a"])

    assert report(store, now=NOON).faded_ids == ("b",)
    assert report(store, store.at("u1", policy=bm.Policy(bm.Reason.ERASED)), now=NOON).scanned == 1


def test_the_report_of_a_step_counts_what_it_remembers(session: bm.Session) -> None:
    session.remember("likes fish", sources=["u1"], created=NOON - 2 * WEEK)
    with session.step() as step:
        old = step.remember("likes rice", created=NOON - 9 * WEEK)
        first = session.remember("likes fish", sources=["u1"], created=NOON - 2 * WEEK)
        step.remember("likes tofu", supersedes=[first], kind="profile", created=NOON - 9 * WEEK)

        said = report(session.store, step.view(), decay=Decay(kinds={"profile": NEVER}), now=NOON)

    assert (said.scanned, said.fading, said.faded_ids) == (2, 0, (old.id,))
    assert report(session.store, session.view(), decay=Decay(kinds={"profile": NEVER}), now=NOON) == said


def test_asking_any_number_of_times_gives_the_same_and_writes_nothing(store: bm.Store, path: Path) -> None:
    chance = random.Random(3)
    store.append([fact(f"m{n}", age=chance.random() * 9 * WEEK, importance=chance.random()) for n in range(20)])
    store.used(["m1", "m2"], at=NOON)
    before, content = store.digest(), path.read_bytes()

    answers = {repr((report(store, now=NOON).to_dict(), found(store), found(store, NOON + WEEK))) for _ in range(5)}

    assert len(answers) == 1
    assert (store.digest(), path.read_bytes()) == (before, content)


def test_a_report_can_be_written_as_json(store: bm.Store) -> None:
    store.append([fact("half", age=WEEK)])

    assert report(store, now=NOON).to_dict() == {
        "scanned": 1,
        "fading": 1,
        "below_floor": 0,
        "fading_ids": ["half"],
        "below_floor_ids": [],
        "now": "2026-03-01T12:00:00.000000+00:00",
        "decay": {"half_life_hours": 168.0, "floor": 0.05},
        "fading_below": 0.5,
    }
