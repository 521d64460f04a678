"""`BranchStore` is a `BaseStore`: what LangGraph promises of any store holds for ours, shared or on a branch."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import branchmem as bm
import pytest
from branchmem.adapters.langgraph import BranchStore, branching
from branchmem.errors import BadEmbedding, DimensionMismatch, InvalidFilter
from branchmem.errors.langgraph import UnfitItem
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.store.base import (
    GetOp,
    InvalidNamespaceError,
    ListNamespacesOp,
    MatchCondition,
    PutOp,
    SearchOp,
)
from langgraph.store.memory import InMemoryStore
from worlds import State, chat, got, thread

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)


class Clock:
    """A clock that stands until it is moved on, but for a microsecond a look."""

    def __init__(self) -> None:
        self.now = NOON

    def __call__(self) -> datetime:
        self.now += timedelta(microseconds=1)
        return self.now


def letters(texts: list[str]) -> list[list[float]]:
    """How often a text has each of four letters, and something of everything."""
    return [[float(text.count(letter)) for letter in "aeio"] + [0.01] for text in texts]


async def aletters(texts: list[str]) -> list[list[float]]:
    return letters(texts)


INDEX: Any = {"dims": 5, "embed": letters, "fields": ["text"]}


@pytest.fixture(params=["shared", "branch"])
def opened(request: pytest.FixtureRequest) -> Iterator[Callable[..., BranchStore]]:
    """Makes stores that can be used as they are: all of it shared, or at a checkpoint."""
    with bm.open_temporary() as store:
        entered = []

        def make(**options: Any) -> BranchStore:
            branches = BranchStore(store, shared=[()] if request.param == "shared" else [], **options)
            if request.param == "branch":
                graph = chat(lambda state: State(answers=["yes"])).compile(
                    checkpointer=branching(InMemorySaver(), branches), store=branches
                )
                graph.invoke({"said": ["a"]}, thread())
                entered.append(branches.at(graph.get_state(thread()).config))
                entered[-1].__enter__()
            return branches

        yield make
        for each in entered:
            each.__exit__(None, None, None)


@pytest.fixture
def store(opened: Callable[..., BranchStore]) -> BranchStore:
    """A store that can be used as it is."""
    return opened()


def keys(items: Any) -> list[str]:
    return [item.key for item in items]


def test_what_is_put_can_be_got_and_replaced_and_deleted(store: BranchStore) -> None:
    store.put(("users", "ann"), "home", {"city": "Chengdu", "since": [2020, {"month": 1.5}], "left": None})
    first = got(store, ("users", "ann"), "home")
    store.put(("users", "ann"), "home", {"city": "杭州"})
    second = got(store, ("users", "ann"), "home")
    store.delete(("users", "ann"), "home")

    assert first.value == {"city": "Chengdu", "since": [2020, {"month": 1.5}], "left": None}
    assert (first.namespace, first.key) == (("users", "ann"), "home")
    assert second.value == {"city": "杭州"}
    assert second.created_at == first.created_at
    assert first.created_at <= first.updated_at <= second.updated_at
    assert store.get(("users", "ann"), "home") is None
    assert store.search(("users",)) == []


def test_what_was_deleted_can_be_put_again(store: BranchStore) -> None:
    for turn in range(3):
        store.put(("n",), "k", {"turn": turn})
        assert got(store, ("n",), "k").value == {"turn": turn}
        store.delete(("n",), "k")
        assert store.get(("n",), "k") is None
        store.delete(("n",), "k")
    store.put(("n",), "k", {"turn": 3})
    assert [item.value for item in store.search(("n",))] == [{"turn": 3}]


def test_items_are_told_apart_by_namespace_and_key(store: BranchStore) -> None:
    places = [(("a",), "b"), (("a", "b"), ""), (("a",), "b..c"), (("a:b",), "c"), (("a",), "b:c"), (("a",), "k" * 400)]
    for number, (namespace, key) in enumerate(places):
        store.put(namespace, key, {"number": number})

    assert [got(store, namespace, key).value["number"] for namespace, key in places] == list(range(len(places)))


@pytest.mark.parametrize("namespace", [(), ("a.b",), ("",), ("langgraph", "x"), (1,), ("a\0b",)])
def test_a_namespace_that_is_none_is_refused(store: BranchStore, namespace: Any) -> None:
    with pytest.raises(InvalidNamespaceError):
        store.put(namespace, "k", {"a": 1})


@pytest.mark.parametrize("op", [PutOp(("a.b",), "k", {}), GetOp(("a.b",), "k"), SearchOp(("a.b",))])
def test_so_it_is_in_a_batch(store: BranchStore, op: Any) -> None:
    with pytest.raises(InvalidNamespaceError):
        store.batch([op])


@pytest.mark.parametrize("value", [{"a": object()}, {"a": {1, 2}}, ["a"]])
def test_a_value_that_json_cannot_hold_is_refused_and_named(store: BranchStore, value: Any) -> None:
    with pytest.raises(UnfitItem) as refused:
        store.put(("n",), "k", value)
    assert (refused.value.namespace, refused.value.key) == (("n",), "k")
    assert store.get(("n",), "k") is None


@pytest.mark.parametrize(
    ("wanted", "found"),
    [
        ({"kind": "tea"}, "ab"),
        ({"kind": {"$eq": "tea"}}, "ab"),
        ({"kind": {"$ne": "tea"}}, "cd"),
        ({"cups": {"$gt": 2}}, "bc"),
        ({"cups": {"$gte": 2}}, "abc"),
        ({"cups": {"$lt": 3}}, "a"),
        ({"cups": {"$lte": 3}}, "ab"),
        ({"cups": {"$gt": 1, "$lt": 4}, "kind": "tea"}, "ab"),
        ({"from": {"city": "Yibin"}}, "c"),
        ({"from": {"cups": {"$gt": 1}}}, ""),
        ({"tags": ["x", "y"]}, "d"),
        ({"tags": ["x"]}, ""),
        ({"absent": None}, "abcd"),
        ({}, "abcd"),
    ],
)
def test_filters(store: BranchStore, wanted: dict[str, Any], found: str) -> None:
    store.put(("n",), "a", {"kind": "tea", "cups": 2})
    store.put(("n",), "b", {"kind": "tea", "cups": 3.0})
    store.put(("n",), "c", {"kind": "coffee", "cups": 4, "from": {"city": "Yibin", "far": True}})
    store.put(("n",), "d", {"cups": "many", "tags": ["x", "y"]})

    assert "".join(sorted(keys(store.search(("n",), filter=wanted)))) == found


def test_texts_are_ordered_as_texts(store: BranchStore) -> None:
    for day in ("2026-01-01", "2026-02-01"):
        store.put(("n",), day, {"day": day})

    assert keys(store.search(("n",), filter={"day": {"$gt": "2026-01-15"}})) == ["2026-02-01"]


def test_numbers_are_ordered_however_large_they_are(store: BranchStore) -> None:
    store.put(("n",), "k", {"large": 10**400, "small": 1.5})

    assert keys(store.search(("n",), filter={"large": {"$gt": 10**400 - 1}, "small": {"$lt": 10**400}})) == ["k"]
    assert keys(store.search(("n",), filter={"large": {"$lte": "7"}})) == []


def test_an_operator_that_there_is_none_is_refused(store: BranchStore) -> None:
    store.put(("n",), "a", {"cups": 2})
    with pytest.raises(InvalidFilter, match=r"\$near"):
        store.search(("n",), filter={"cups": {"$near": 2}})


def test_pages_cover_all_items_once(store: BranchStore) -> None:
    for number in range(7):
        store.put(("n", str(number % 2)), f"k{number}", {"number": number})
    pages = [store.search(("n",), limit=3, offset=offset) for offset in (0, 3, 6, 9)]

    assert [len(page) for page in pages] == [3, 3, 1, 0]
    assert sorted(keys(item for page in pages for item in page)) == [f"k{number}" for number in range(7)]
    assert len(store.search(("n", "1"))) == 3
    assert len(store.search((), limit=100)) == 7


def test_namespaces_are_listed_by_prefix_suffix_wildcards_and_depth(store: BranchStore) -> None:
    for namespace in [("a", "b", "c"), ("a", "b", "d", "e"), ("a", "b", "d", "i"), ("a", "b", "f"), ("a", "c", "f")]:
        store.put(namespace, "k", {"x": 1})
        store.put(namespace, "l", {"x": 1})
    store.put(("z",), "k", {"x": 1})
    store.delete(("z",), "k")

    assert store.list_namespaces() == [
        ("a", "b", "c"), ("a", "b", "d", "e"), ("a", "b", "d", "i"), ("a", "b", "f"), ("a", "c", "f")
    ]  # fmt: skip
    assert store.list_namespaces(prefix=("a", "b"), max_depth=3) == [("a", "b", "c"), ("a", "b", "d"), ("a", "b", "f")]
    assert store.list_namespaces(suffix=("f",)) == [("a", "b", "f"), ("a", "c", "f")]
    assert store.list_namespaces(prefix=("a", "*", "f")) == [("a", "b", "f"), ("a", "c", "f")]
    assert store.list_namespaces(prefix=("a", "b"), suffix=("*", "i")) == [("a", "b", "d", "i")]
    assert store.list_namespaces(limit=2, offset=1) == [("a", "b", "d", "e"), ("a", "b", "d", "i")]
    assert store.list_namespaces(prefix=("q",)) == []


def test_answers_of_a_batch_stand_where_their_operations_do(store: BranchStore) -> None:
    store.put(("n",), "old", {"x": 1})
    answers: list[Any] = store.batch(
        [
            SearchOp(("n",)),
            PutOp(("n",), "new", {"x": 2}),
            GetOp(("n",), "old"),
            GetOp(("n",), "new"),
            ListNamespacesOp((MatchCondition("prefix", ("n",)),)),
            PutOp(("n",), "old", None),
        ]
    )
    found, put, again, missing, spaces, none = answers

    assert (keys(found), put, again.key, missing, spaces, none) == (["old"], None, "old", None, [("n",)], None)
    assert keys(store.search(("n",))) == ["new"]


def test_of_two_puts_of_a_batch_the_last_one_wins(store: BranchStore) -> None:
    store.batch([PutOp(("n",), "k", {"x": 1}), PutOp(("n",), "k", {"x": 2}), PutOp(("n",), "gone", {"x": 1})])
    store.batch([PutOp(("n",), "gone", None), PutOp(("n",), "k", None), PutOp(("n",), "k", {"x": 3})])

    assert [(item.key, item.value) for item in store.search(("n",))] == [("k", {"x": 3})]


def test_an_unknown_operation_is_refused(store: BranchStore) -> None:
    with pytest.raises((ValueError, AttributeError, TypeError)):
        store.batch(["get"])  # type: ignore[list-item]  # no operation, on purpose


def test_the_asynchronous_side_answers_the_same(opened: Callable[..., BranchStore]) -> None:
    store = opened(index={**INDEX, "embed": aletters})

    async def work() -> Any:
        await asyncio.gather(*(store.aput(("n",), name, {"text": name}) for name in ("aaa", "eee", "ooo")))
        await store.adelete(("n",), "ooo")
        item = await store.aget(("n",), "aaa")
        return (
            item and item.value,
            keys(await store.asearch(("n",), query="e")),
            await store.alist_namespaces(),
        )

    assert asyncio.run(work()) == ({"text": "aaa"}, ["eee", "aaa"], [("n",)])


def test_search_by_meaning_as_langgraph_does_it(opened: Callable[..., BranchStore]) -> None:
    store = opened(index=INDEX)
    values: dict[str, dict[str, Any]] = {
        "first": {"text": "aaa"},
        "second": {"text": "ae", "more": [{"text": "iii"}]},
        "third": {"text": "ooo"},
        "fourth": {"other": "aaaa"},
    }
    for key, value in values.items():
        store.put(("n",), key, value)
    store.put(("n",), "hidden", {"text": "aaa"}, index=False)
    store.put(("n",), "deep", {"text": "o", "more": [{"text": "ooo"}, {"text": "iii"}]}, index=["more[*].text"])

    by_a = store.search(("n",), query="a")
    assert keys(by_a)[:2] == ["first", "second"]
    assert by_a[0].score == pytest.approx(1.0, abs=0.01)
    assert [item.key for item in by_a if item.score is None] == ["fourth", "hidden"]
    assert keys(store.search(("n",), query="i", limit=1)) == ["deep"]
    assert keys(store.search(("n",), query="a", limit=1, offset=1)) == ["second"]
    assert keys(store.search(("n",), query="a", filter={"other": "aaaa"})) == ["fourth"]
    assert all(item.score is None for item in store.search(("n",)))


def test_the_whole_value_is_embedded_where_no_field_is_named(opened: Callable[..., BranchStore]) -> None:
    texts = []

    def embed(given: list[str]) -> list[list[float]]:
        texts.extend(given)
        return letters(given)

    opened(index={"dims": 5, "embed": embed}).put(("n",), "k", {"b": "é", "a": 1})
    assert texts == ['{"a": 1, "b": "é"}']


def test_vectors_of_another_length_are_refused(opened: Callable[..., BranchStore]) -> None:
    with pytest.raises(DimensionMismatch):
        opened(index={**INDEX, "dims": 3}).put(("n",), "k", {"text": "aaa"})


@pytest.mark.parametrize("given", [None, [], [1.0], [["a"]], [[]], [[1.0], [1.0]], [[float("nan")]], [[1e300]]])
def test_what_is_not_one_row_of_finite_numbers_a_text_is_refused(
    opened: Callable[..., BranchStore], given: Any
) -> None:
    store = opened(index={"dims": 1, "embed": lambda texts: given, "fields": ["text"]})
    with pytest.raises(BadEmbedding):
        store.put(("n",), "k", {"text": "aaa"})
    assert store.get(("n",), "k") is None


def test_items_live_as_long_as_they_were_given_to(opened: Callable[..., BranchStore]) -> None:
    clock = Clock()
    store = opened(ttl={"default_ttl": 10, "omit_expired": True}, clock=clock)
    store.put(("n",), "short", {"x": 1})
    store.put(("n",), "long", {"x": 1}, ttl=60)
    store.put(("n",), "ever", {"x": 1}, ttl=None)

    clock.now += timedelta(minutes=9)
    assert len(store.search(("n",), refresh_ttl=False)) == 3
    assert store.get(("n",), "short") is not None  # it begins anew
    clock.now += timedelta(minutes=9)
    assert store.get(("n",), "short", refresh_ttl=False) is not None
    clock.now += timedelta(minutes=2)
    assert store.get(("n",), "short") is None
    assert keys(store.search(("n",), refresh_ttl=False)) == ["long", "ever"]
    clock.now += timedelta(minutes=60)
    assert keys(store.search(("n",))) == ["ever"]
    assert store.list_namespaces() == [("n",)]
    assert store.sweep_ttl() == 2
    assert store.sweep_ttl() == 0


def test_items_whose_time_is_over_are_there_until_they_are_swept(opened: Callable[..., BranchStore]) -> None:
    clock = Clock()
    store = opened(ttl={}, clock=clock)
    store.put(("n",), "k", {"text": "first"})
    store.put(("n",), "k", {"text": "second"}, ttl=1)
    clock.now += timedelta(minutes=2)

    assert got(store, ("n",), "k", refresh_ttl=False).value == {"text": "second"}
    assert store.sweep_ttl() == 1
    assert store.get(("n",), "k") is None  # the version that it replaced does not come back


def drawn(seed: int) -> list[list[Any]]:
    """Batches of operations over few names, so that they meet."""
    dice = random.Random(seed)
    namespaces = [("a",), ("a", "b"), ("a", "c"), ("d", "b")]

    def op() -> Any:
        namespace, key = dice.choice(namespaces), dice.choice("xyz")
        match dice.randrange(6):
            case 0 | 1:
                return PutOp(namespace, key, {"text": dice.choice(["a", "ee", "io"]), "n": dice.randrange(4)})
            case 2:
                return PutOp(namespace, key, None)
            case 3:
                return GetOp(namespace, key)
            case 4:
                wanted = dice.choice([None, {"n": {"$gte": 2}}, {"text": "a"}])
                return SearchOp(dice.choice([(), ("a",), namespace]), wanted, limit=100)
            case _:
                return ListNamespacesOp(max_depth=dice.choice([None, 1]))

    return [[op() for _ in range(dice.randrange(1, 4))] for _ in range(25)]


def listed(plain: InMemoryStore, op: Any) -> Any:
    """The namespaces that have an item; the store of LangGraph lists whatever it was asked for, too."""
    full = {item.namespace for item in plain.search((), limit=1000)}
    return sorted({namespace[: op.max_depth] for namespace in full})


def shown(result: Any) -> Any:
    """An answer without times and in an order of its own."""
    if isinstance(result, list):
        return sorted((each if isinstance(each, tuple) else shown(each)) for each in result)
    return None if result is None else (result.namespace, result.key, sorted(result.value.items()))


@pytest.mark.parametrize("seed", range(4))
def test_any_operations_are_answered_as_by_the_store_of_langgraph(store: BranchStore, seed: int) -> None:
    plain = InMemoryStore()
    for batch in drawn(seed):
        spaces = {at: listed(plain, op) for at, op in enumerate(batch) if isinstance(op, ListNamespacesOp)}
        expected = list(map(shown, plain.batch(batch)))
        for at, namespaces in spaces.items():
            expected[at] = namespaces

        assert list(map(shown, store.batch(batch))) == expected
