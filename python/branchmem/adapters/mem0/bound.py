"""Mem0's own class at a place of the tree: the same methods, over what can be seen from there.

Mem0's code runs as it is; what it calls its vector store, entity store and database is replaced for each call.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Mapping
from copy import copy
from dataclasses import dataclass
from functools import cache
from typing import Any

from branchmem.adapters.mem0 import errand as errands
from branchmem.adapters.mem0 import stores
from branchmem.adapters.mem0.entities import Entities
from branchmem.adapters.mem0.errand import Errand
from branchmem.adapters.mem0.history import History
from branchmem.adapters.mem0.place import Place
from branchmem.adapters.mem0.rows import Rows


@dataclass(frozen=True, slots=True)
class Footing:
    """What a bound Mem0 stands on: the Mem0 that was given, its place, and the sources that a caller named."""

    memory: Any
    place: Place
    sources: tuple[str, ...] | None

    def plain(self) -> Errand:
        """A call that changes what it names."""
        return errands.plain(self.place, self.sources)

    def adding(self, messages: object, infer: bool) -> Errand:
        """A call that adds messages."""
        return errands.adding(self.place, messages, self.sources, infer=infer)

    def rows(self, errand: Errand) -> Rows:
        """The vector store during an errand."""
        embedder = self.memory.embedding_model
        collection = str(self.memory.collection_name)
        return Rows(stores.vector_store(self.memory), collection, errand, lambda text: embedder.embed(text, "update"))

    def dress(self, memory: Any, errand: Errand) -> Any:
        """Give a copy of the Mem0 what it works with during an errand."""
        memory.vector_store = self.rows(errand)
        memory.db = History(self.memory.db, errand)
        memory._entity_store = Entities(lambda: stores.entity_store(self.memory), errand, stores.lock_of(self.memory))
        return memory


def bound(footing: Footing) -> Any:
    """A Mem0 like the one that was given, at a place; sync or async as that one is."""
    given: Any = type(footing.memory)
    memory = object.__new__(_bound_class(given))
    vars(memory).update(vars(footing.memory), _footing=footing)
    return footing.dress(memory, footing.plain())


@cache
def _bound_class(given: Any) -> type[Any]:
    awaited = inspect.iscoroutinefunction(given.add)
    return type(f"Branch{given.__name__}", (_AsyncBound if awaited else _Bound, given), {"__module__": __name__})


class _Standing:
    """What both kinds share."""

    _footing: Footing

    def _on(self, errand: Errand) -> Any:
        return self._footing.dress(copy(self), errand)

    def close(self) -> None:
        """Nothing: what is open belongs to the Mem0 that was given."""


class _Bound(_Standing):
    """The methods of Mem0 that write, in a call of their own each."""

    def add(self, messages: Any, **options: Any) -> Any:
        """As Mem0's; what was said of the same messages already is told under the id that it has."""
        errand = self._footing.adding(messages, bool(options.get("infer", True)))
        return _told(self._run(errand, "add", messages, **options), errand)

    def update(self, memory_id: Any, *args: Any, **options: Any) -> Any:
        """As Mem0's; the new version replaces the old one from here on, and the answer says its `id`."""
        errand = self._footing.plain()
        done = self._run(errand, "update", memory_id, *args, **options)
        return _with_id(done, errand, memory_id)

    def delete(self, memory_id: Any, **options: Any) -> Any:
        """As Mem0's: from here on, and on this branch only."""
        return self._run(self._footing.plain(), "delete", memory_id, **options)

    def delete_all(self, *args: Any, **options: Any) -> Any:
        """As Mem0's: from here on, and on this branch only."""
        done = self._run(self._footing.plain(), "delete_all", *args, **options)
        _take_back(self._footing, _owner(*args, **options))
        return done

    def reset(self) -> None:
        """Take back all that is visible here, from here on.  Nothing of other branches is touched."""
        _take_back(self._footing, {})

    def _run(self, errand: Errand, verb: str, *args: Any, **options: Any) -> Any:
        call: Callable[..., Any] = getattr(super(_Bound, self._on(errand)), verb)
        with errand.settled():
            return call(*args, **options)


class _AsyncBound(_Standing):
    """The methods of Mem0 that write, in a call of their own each, for async callers."""

    async def add(self, messages: Any, **options: Any) -> Any:
        """As `_Bound.add`."""
        errand = self._footing.adding(messages, bool(options.get("infer", True)))
        return _told(await self._run(errand, "add", messages, **options), errand)

    async def update(self, memory_id: Any, *args: Any, **options: Any) -> Any:
        """As `_Bound.update`."""
        errand = self._footing.plain()
        done = await self._run(errand, "update", memory_id, *args, **options)
        return _with_id(done, errand, memory_id)

    async def delete(self, memory_id: Any, **options: Any) -> Any:
        """As `_Bound.delete`."""
        return await self._run(self._footing.plain(), "delete", memory_id, **options)

    async def delete_all(self, *args: Any, **options: Any) -> Any:
        """As `_Bound.delete_all`."""
        done = await self._run(self._footing.plain(), "delete_all", *args, **options)
        await asyncio.to_thread(_take_back, self._footing, _owner(*args, **options))
        return done

    async def reset(self) -> None:
        """As `_Bound.reset`."""
        await asyncio.to_thread(_take_back, self._footing, {})

    async def _run(self, errand: Errand, verb: str, *args: Any, **options: Any) -> Any:
        call: Callable[..., Any] = getattr(super(_AsyncBound, self._on(errand)), verb)
        with errand.settled():
            return await call(*args, **options)


def _take_back(footing: Footing, owner: Mapping[str, object]) -> None:
    footing.rows(footing.plain()).take_back(owner)


def _owner(user_id: object = None, agent_id: object = None, run_id: object = None) -> dict[str, object]:
    """Whose memories a `delete_all` of Mem0 takes."""
    named = {"user_id": user_id, "agent_id": agent_id, "run_id": run_id}
    return {name: id for name, id in named.items() if id not in (None, "")}


def _told(done: Any, errand: Errand) -> Any:
    """The answer of an `add` with the ids that its memories have by now, each once."""
    results = done.get("results") if isinstance(done, dict) else done
    if not isinstance(results, list):
        return done
    told: dict[Any, Any] = {}
    for one in results:
        named = {**one, "id": errand.name(str(one["id"]))} if isinstance(one, dict) and one.get("id") else one
        told.setdefault(named["id"] if named is not one else id(one), named)
    return {**done, "results": list(told.values())} if isinstance(done, dict) else list(told.values())


def _with_id(done: Any, errand: Errand, memory_id: Any) -> Any:
    return {**done, "id": errand.name(str(memory_id))} if isinstance(done, dict) else done
