"""`BranchStore`: a LangGraph store whose items belong to the branch of the thread on which they were put.

In a task, what is put is pending until the step's checkpoint is saved; what is read is the view at the checkpoint that
the step started from, with what the run has put since.  Namespaces that are `shared` cross threads and branches, as in
any other store.  A call of which nobody can say where it stands is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import datetime, timedelta
from functools import partial
from typing import Any

from langchain_core.runnables import RunnableConfig
from langgraph.store.base import (
    BaseStore,
    GetOp,
    IndexConfig,
    Item,
    ListNamespacesOp,
    Op,
    PutOp,
    Result,
    SearchItem,
    SearchOp,
    TTLConfig,
    validate_op_namespace,
)

from branchmem import Pool, Store
from branchmem.adapters.langgraph import commits, matching, pending
from branchmem.adapters.langgraph.items import Found, Namespace, meta_of, text_of
from branchmem.adapters.langgraph.meaning import Meaning, Vectors, nearest
from branchmem.adapters.langgraph.naming import checkpoint_message, item_key
from branchmem.adapters.langgraph.pending import Row
from branchmem.adapters.langgraph.places import (
    Place,
    Runs,
    attempt_of,
    current_config,
    is_in_task,
    is_replay,
    levels_of,
    task_of,
    thread_of,
)
from branchmem.adapters.langgraph.seeing import Seen, items_of
from branchmem.canonical import now
from branchmem.errors import InvalidOwner
from branchmem.errors.langgraph import NoCheckpoint, UnknownCheckpoint
from branchmem.session.settled import settled

#: Names the owner of the memories from the configuration of a run.
OwnerOf = Callable[[RunnableConfig], str]

_NO_CONFIG: RunnableConfig = {"configurable": {}}
_DAY = timedelta(days=1)


class BranchStore(BaseStore):
    """A `BaseStore` over a branchmem store: of one owner, or of a pool where `owner` names whose a run is.

    Goes with a checkpointer that was wrapped by `branching(saver, store)`.  `shared` lists prefixes of namespaces whose
    items cross threads and branches; `index` and `ttl` are those of LangGraph's own stores.  Threads, processes
    and event loops may share it.

    Raises: NoCheckpoint from every call that stands nowhere; the errors of a store.
    Cost: a put or delete is one commit; a get is a view, a search reads every item that the view shows.
    """

    supports_ttl = True

    def __init__(
        self,
        store: Store | Pool,
        *,
        owner: OwnerOf | None = None,
        shared: Iterable[Sequence[str]] = (),
        index: IndexConfig | None = None,
        ttl: TTLConfig | None = None,
        clock: Callable[[], datetime] = now,
    ) -> None:
        if isinstance(store, Pool) != (owner is not None):
            raise TypeError("a pool needs owner=, a function from a run's configuration to the owner; a store has one")
        if isinstance(shared, str) or any(isinstance(prefix, str) for prefix in shared):
            raise TypeError(f"shared is a list of namespaces, each a tuple of labels: write [({shared!r:.80},)]")
        self.shared: tuple[Namespace, ...] = tuple(tuple(prefix) for prefix in shared)
        self.ttl_config = ttl
        self.runs = Runs()
        self._store = store
        self._owner = owner
        self._clock = clock
        self._meaning = None if index is None else Meaning(index)
        #: The configuration given to `at`, and the task in which it was given.
        self._at = ContextVar[tuple[RunnableConfig, str | None] | None]("branchmem.langgraph.at", default=None)

    @contextmanager
    def at(self, config: RunnableConfig) -> Iterator[BranchStore]:
        """Stand at a checkpoint that was saved, as `graph.get_state(config).config` names it, in a run or outside.

        What is put belongs to that checkpoint, and so to every branch below it.  A configuration that names no
        checkpoint says whose store is meant, for what is shared.  A task of a graph that is run meanwhile stands at its
        own step.
        Raises: UnknownCheckpoint.
        """
        thread, checkpoint = thread_of(config), config.get("configurable", {}).get("checkpoint_id")
        if checkpoint:
            with self.opened(config) as store:
                if not commits.is_known(store, str(thread), checkpoint):
                    raise UnknownCheckpoint(str(thread), checkpoint)
        token = self._at.set((config, task_of(current_config())))
        try:
            yield self
        finally:
            self._at.reset(token)

    @contextmanager
    def opened(self, config: RunnableConfig) -> Iterator[Store]:
        """The store of the owner of a run, open for a while."""
        with self.opened_of(self.owner_of(config)) as store:
            yield store

    @contextmanager
    def opened_of(self, owner: str | None) -> Iterator[Store]:
        """The store of an owner, open for a while; None where the store has one alone."""
        if isinstance(self._store, Pool):
            if owner is None:
                raise InvalidOwner(owner, "owner= must name whose a run is, by what its configuration says")
            with self._store.open(owner) as store:
                yield store
        else:
            yield self._store

    @property
    def has_owners(self) -> bool:
        """Whether runs have owners, since the store is a pool."""
        return self._owner is not None

    def owner_of(self, config: RunnableConfig) -> str | None:
        """Whose a run is; None where the store has one owner."""
        return None if self._owner is None else self._owner(config)

    def batch(self, ops: Iterable[Op]) -> list[Result]:
        """Do several things: all reads first, as of before the puts, in whatever order; of two puts the last wins."""
        listed = list(ops)
        vectors = None if self._meaning is None else self._meaning.vectors(*_embedded(listed))
        return self._batch(*self._here(), listed, vectors)

    async def abatch(self, ops: Iterable[Op]) -> list[Result]:
        """As `batch`, in a thread; who is cancelled finds it done or not begun."""
        listed, here = list(ops), self._here()
        vectors = None if self._meaning is None else await self._meaning.avectors(*_embedded(listed))
        return await settled(partial(self._batch, *here, listed, vectors))

    def sweep_ttl(self, config: RunnableConfig | None = None) -> int:
        """Erase every item whose time is over, on all branches, and say how many versions that were.

        `config` says whose, where the store is a pool.
        Cost: reads every memory that is an item; one commit.
        """
        from branchmem.adapters.langgraph.sweeping import sweep

        with self.opened(config or _NO_CONFIG) as store:
            return sweep(store, self._clock())

    def collect(self, config: RunnableConfig | None = None, *, older_than: timedelta = _DAY) -> int:
        """Remove what crashed steps have put and nothing will ever take, if it is older; how many items that were.

        Nobody sees it meanwhile.  `config` says whose, where the store is a pool.
        Cost: a look at all that is pending; one commit, where anything is removed.
        """
        with self.opened(config or _NO_CONFIG) as store:
            return pending.collect(store, older_than, self._clock())

    def is_shared(self, namespace: Namespace) -> bool:
        """Whether the items of a namespace cross threads."""
        return any(namespace[: len(prefix)] == prefix for prefix in self.shared)

    def _here(self) -> tuple[RunnableConfig, bool]:
        """The configuration that says where this call stands, and whether it is that of `at`, not that of the task."""
        given, here = self._at.get(), current_config()
        if given is not None and given[1] == task_of(here):
            return given[0], True
        return here or _NO_CONFIG, False

    def _batch(
        self, config: RunnableConfig, is_given: bool, ops: Sequence[Op], vectors: Vectors | None
    ) -> list[Result]:
        for op in ops:
            validate_op_namespace(op)
        rows, queries = vectors or ([[] for op in ops if isinstance(op, PutOp)], {})
        puts: dict[tuple[Namespace, str], tuple[PutOp, list[list[float]]]] = {}
        for op, vector in zip((op for op in ops if isinstance(op, PutOp)), rows, strict=True):
            puts[tuple(op.namespace), op.key] = (op, vector)
        anchored = [each for each in map(_namespace, ops) if not self.is_shared(each)]
        stand = self._stand(config, is_given, anchored[0]) if anchored else None
        with self.opened(config) as store:
            reads = [op for op in ops if not isinstance(op, PutOp)]
            seen = items_of(store, stand, is_shared=bool(self.shared)) if reads else None
            answers = [None if isinstance(op, PutOp) or seen is None else self._read(seen, op, queries) for op in ops]
            if seen is not None:
                self._refresh(store, ops, answers, seen)
            self._write(store, stand, list(puts.values()))
        return [_result(op, answer) for op, answer in zip(ops, answers, strict=True)]

    def _stand(self, config: RunnableConfig, is_given: bool, namespace: Namespace) -> Place | str:
        """The task, or the message, at which a call stands.  Raises: NoCheckpoint."""
        if is_given:
            checkpoint = config.get("configurable", {}).get("checkpoint_id")
            if not checkpoint:
                raise NoCheckpoint(namespace, "the configuration given to at() names none")
            return checkpoint_message(str(thread_of(config)), checkpoint)
        if not is_in_task(config):
            raise NoCheckpoint(
                namespace,
                "this call is made in no task of a graph; a thread that a task started does not know the "
                "task, so start it with contextvars.copy_context().run",
            )
        if getattr(config["configurable"].get("__pregel_checkpointer"), "branch_store", None) is not self:
            raise NoCheckpoint(namespace, "the graph has no checkpointer that is branching(saver, store) of this store")
        run = self.runs.of(config)
        levels = () if run is None else levels_of(config, run.tasks)
        if run is None or not levels:
            raise NoCheckpoint(namespace, "the run of this task is not known here: it must begin in this process")
        run.is_replay |= is_replay(config)
        if run.product(levels[0].base) is None:
            run.attempt(levels[-1], attempt_of(config))
        return Place(run, levels, run.attempts_at(levels, attempt_of(config)))

    def _read(self, seen: Seen, op: Op, queries: Mapping[str, list[float]]) -> Any:
        is_over = self._is_over(seen)
        if isinstance(op, GetOp):
            found = seen.get(item_key(tuple(op.namespace), op.key))
            return None if found is None or is_over(found) else found
        if isinstance(op, ListNamespacesOp):
            return matching.namespaces((item.namespace for item in seen.all() if not is_over(item)), op)
        if not isinstance(op, SearchOp):
            raise ValueError(f"there is no operation {type(op).__name__}")
        prefix = tuple(op.namespace_prefix)
        fitting = [
            item
            for item in seen.all()
            if item.namespace[: len(prefix)] == prefix and not is_over(item) and matching.fits(item.value, op.filter)
        ]
        query = queries.get(op.query or "")
        scored: list[tuple[Found, float | None]]
        scored = [(item, None) for item in fitting] if query is None else nearest(fitting, query)
        return scored[op.offset : op.offset + op.limit]

    def _is_over(self, seen: Seen) -> Callable[[Found], bool]:
        if not (self.ttl_config or {}).get("omit_expired", False):
            return lambda item: False
        moment = self._clock()
        return lambda item: item.ttl is not None and seen.last_use(item) + item.ttl <= moment

    def _refresh(self, store: Store, ops: Sequence[Op], answers: Sequence[Any], seen: Seen) -> None:
        """Note that what was read was used, where that prolongs its life."""
        used: list[Found] = []
        for op, answer in zip(ops, answers, strict=True):
            if isinstance(op, GetOp) and op.refresh_ttl and answer is not None:
                used.append(answer)
            elif isinstance(op, SearchOp) and op.refresh_ttl:
                used += (item for item, _ in answer)
        ids = [item.memory for item in used if item.ttl is not None and item.memory is not None]
        if ids:
            store.used(ids, at=self._clock())

    def _write(self, store: Store, stand: Place | str | None, puts: Sequence[tuple[PutOp, list[list[float]]]]) -> None:
        shared: list[Row] = []
        own: list[Row] = []
        moment = self._clock()
        for op, vectors in puts:
            namespace = tuple(op.namespace)
            text = None if op.value is None else text_of(namespace, op.key, op.value)
            meta = meta_of(namespace, op.key, moment, op.ttl, vectors)
            is_shared = self.is_shared(namespace)
            place = stand if isinstance(stand, Place) and not is_shared else None
            row = commits.row_of(item_key(namespace, op.key), text, meta, moment, place)
            (shared if is_shared else own).append(row)
        if shared:
            commits.put_shared(store, shared)
        if own and isinstance(stand, Place):
            stand.run.has_put = True
            commits.put_by(store, stand, own)
        elif own and isinstance(stand, str):
            commits.put_at(store, stand, own)


def _embedded(ops: Sequence[Op]) -> tuple[list[PutOp], list[SearchOp]]:
    return [op for op in ops if isinstance(op, PutOp)], [op for op in ops if isinstance(op, SearchOp)]


def _namespace(op: Op) -> Namespace:
    if isinstance(op, SearchOp):
        return tuple(op.namespace_prefix)
    if isinstance(op, ListNamespacesOp):
        paths = (condition.path for condition in op.match_conditions or () if condition.match_type == "prefix")
        return tuple(next(paths, ()))
    return tuple(op.namespace)


def _result(op: Op, answer: Any) -> Result:
    if isinstance(op, SearchOp):
        return [
            SearchItem(item.namespace, item.key, item.value, item.created, item.updated, score)
            for item, score in answer
        ]
    if isinstance(op, GetOp) and answer is not None:
        return Item(
            value=answer.value,
            key=answer.key,
            namespace=answer.namespace,
            created_at=answer.created,
            updated_at=answer.updated,
        )
    result: Result = answer
    return result
