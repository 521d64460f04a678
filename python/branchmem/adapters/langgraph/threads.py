"""What becomes of memories where a checkpointer deletes, copies or prunes: the same, and nothing of other threads."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from hashlib import sha256
from typing import TYPE_CHECKING, Final

from branchmem import Memory, Message
from branchmem import refs as refs_of
from branchmem.adapters.langgraph import pending
from branchmem.adapters.langgraph.commits import is_later
from branchmem.adapters.langgraph.naming import checkpoint_message, thread_message, thread_ref
from branchmem.canonical import MAX_REFERENCES, new_id, now
from branchmem.events import Erasure, Event, Restoration, Retraction
from branchmem.verdict import STRICT, Policy, Reason

if TYPE_CHECKING:
    from branchmem import Store
    from branchmem.log import Writer

_TABLES: Final = (*pending.TABLES, *refs_of.TABLES)

#: What shows what comes from other threads as well.
_WITH_OTHER_TREES: Final = Policy(Reason.OTHER_TREE)


def delete(store: Store, thread: str) -> None:
    """Erase all that was remembered in a thread, for good, with all that was derived from it; its ref goes.

    Cost: the ids of all messages; one commit.
    """

    def plan(writer: Writer) -> tuple[list[Event], None]:
        if refs_of.all_heads(writer).get(thread_ref(thread)) is not None:
            refs_of.write_move(writer, thread_ref(thread), None, "delete")
        pending.remove(writer, pending.rows_of(writer, thread))
        return _erasures(_messages(store, thread), cascade=True), None

    store.transact(plan, tables=_TABLES)


def forget(store: Store, thread: str, checkpoints: Iterable[str]) -> None:
    """Erase what was remembered at some checkpoints of a thread, and all that was derived from it."""
    gone = set(checkpoints)
    messages = [checkpoint_message(thread, checkpoint) for checkpoint in sorted(gone)]

    def plan(writer: Writer) -> tuple[list[Event], None]:
        rows = pending.rows_of(writer, thread)
        pending.remove(writer, [row for row in rows if any(level.base in gone for level in row.levels)])
        return _erasures([message for message in messages if store.skeleton(message)], cascade=True), None

    store.transact(plan, tables=pending.TABLES)


def stand(store: Store, thread: str, latest: str | None) -> None:
    """Let the ref of a thread stand at its latest checkpoint, where a later one was deleted; without any, it goes."""
    message = None if latest is None else checkpoint_message(thread, latest)

    def plan(writer: Writer) -> tuple[tuple[()], None]:
        head = refs_of.all_heads(writer).get(thread_ref(thread))
        if head is not None and (message is None or (store.skeleton(message) and is_later(head, message))):
            refs_of.write_move(writer, thread_ref(thread), message, "delete")
        return (), None

    store.transact(plan, tables=refs_of.TABLES)


def prune(store: Store, thread: str, kept: Sequence[str]) -> None:
    """Erase the memories of a thread that none of the checkpoints that are kept shows; without any, all of it.

    What was derived from several threads stays, as long as it is the other threads alone that are missing.
    Cost: the ids of all messages, and a view for each checkpoint that is kept; one commit.
    """
    if not kept:
        delete(store, thread)
        return
    messages = _messages(store, thread)
    memories = {memory for message in messages for memory in store.memories_from(message)}
    for checkpoint in kept:
        message = checkpoint_message(thread, checkpoint)
        if store.skeleton(message):
            for policy in (STRICT, _WITH_OTHER_TREES):
                memories.difference_update(store.at(message, policy=policy, count=False).filter(list(memories)))
    gone = sorted(memory for memory in memories if not store.log.is_erased(memory))

    def plan(writer: Writer) -> tuple[list[Event], None]:
        rows = pending.rows_of(writer, thread)
        pending.remove(writer, [row for row in rows if all(level.base not in kept for level in row.levels)])
        return _erasures(gone, cascade=False), None

    store.transact(plan, tables=_TABLES)


def copy(store: Store, source: str, target: str) -> None:
    """Copy the tree of a thread, with its memories and what takes them back there; what is erased stays behind.

    The copies are memories of their own: they stay where the thread that they came from is deleted.  What was copied
    before is not copied again, and what was copied from `target` is not copied back.
    Cost: the ids of all messages, and a look at every retraction of the log; a commit, and one for each time at which
    an item was used last.
    """
    if source == target:
        return
    messages = _messages(store, source)
    above = {parent for message in messages if isinstance(parent := store.tree.parent(message), str)}
    named = {message: checkpoint_message(target, message.rpartition("@")[2]) for message in above.union(messages)}
    named[thread_message(source)] = thread_message(target)
    memories = [
        memory
        for message in messages
        for id in store.memories_from(message)
        if not store.log.is_erased(id) and isinstance(memory := store.log.get(id), Memory)
    ]
    name = _names(store, source, target)
    named |= {memory.id: name(memory.id) for memory in memories}
    events: list[Event] = []
    if not store.skeleton(thread_message(target)):
        events.append(Message(thread_message(target), None, role="thread"))
    for message in messages:
        original = store.log.get(message)
        if isinstance(original, Message) and not store.skeleton(named[message]):
            events.append(replace(original, id=named[message], parent=_named(named, [original.parent])[0]))
    for memory in {memory.id: memory for memory in memories if not store.skeleton(named[memory.id])}.values():
        events.append(
            replace(
                memory,
                id=named[memory.id],
                sources=_named(named, memory.sources),
                derived_from=_named(named, memory.derived_from),
                supersedes=_named(named, memory.supersedes),
                adopts=_adopted(store, named, memory),
            )
        )
    events += _changes(store, named, name)

    def plan(writer: Writer) -> tuple[list[Event], None]:
        heads = refs_of.all_heads(writer)
        head = named.get(str(heads.get(thread_ref(source))))
        if head is not None and is_later(head, heads.get(thread_ref(target))):
            refs_of.write_move(writer, thread_ref(target), head, "copy")
        known = {row.id for row in pending.rows_of(writer, target)}
        rows = [
            replace(
                row,
                thread=target,
                wanted=(),
                taken={
                    namespace: (checkpoint, named.get(str(memory)))
                    for namespace, (checkpoint, memory) in row.taken.items()
                },
            )
            for row in pending.rows_of(writer, source)
            if (row.done or row.taken) and row.id not in known
        ]
        pending.add(writer, rows)
        return events, None

    store.transact(plan, tables=_TABLES)
    for id, moment in store.last_used([memory.id for memory in memories if "ttl" in memory.meta]).items():
        store.used([named[id]], at=moment)


def _changes(store: Store, named: dict[str, str], name: Callable[[str], str]) -> list[Event]:
    """What takes back memories of the thread, or stands in it, and what lifts that, in the names of the copy."""
    events: list[Event] = []
    for event in store.log.events(type=Retraction.type):
        if not isinstance(event, Retraction):
            continue
        is_placed = event.at in named and event.scope != "everywhere"
        if is_placed or not named.keys().isdisjoint([*event.memories, *event.sources]):
            events.append(
                replace(
                    event,
                    id=name(event.id),
                    at=named.get(str(event.at), event.at),
                    memories=_named(named, event.memories),
                    sources=_named(named, event.sources),
                )
            )
            named[event.id] = events[-1].id
    for restoration in store.log.events(type=Restoration.type):
        if isinstance(restoration, Restoration) and restoration.retraction in named:
            events.append(
                replace(
                    restoration,
                    id=name(restoration.id),
                    at=named.get(str(restoration.at), restoration.at),
                    retraction=named[restoration.retraction],
                )
            )
    return [event for event in events if not store.skeleton(event.id)]


def _names(store: Store, source: str, target: str) -> Callable[[str], str]:
    """What an event of a thread is called in another: as what it is a copy of, where it came from there."""
    known = [memory for message in _messages(store, target) for memory in store.memories_from(message)]
    known += [event.id for type in (Retraction.type, Restoration.type) for event in store.log.events(type=type)]
    originals = {_copy_id(id, source): id for id in known}
    return lambda id: originals.get(id) or _copy_id(id, target)


def _copy_id(id: str, target: str) -> str:
    """What the copy of an event in a thread is called: the same each time, so that a thread can be copied again."""
    return sha256(f"{id}@{target}".encode(errors="surrogatepass")).hexdigest()[:48]


def _adopted(store: Store, named: dict[str, str], memory: Memory) -> str | None:
    """What the copy of a memory takes over: nothing that was erased, since what erases it again would take the copy."""
    if memory.adopts is None or memory.adopts in named:
        return named.get(str(memory.adopts))
    return None if store.log.is_erased(memory.adopts) else memory.adopts


def _named(named: dict[str, str], ids: Iterable[object]) -> tuple[str, ...]:
    return tuple(named.get(str(id), str(id)) for id in ids)


def _messages(store: Store, thread: str) -> list[str]:
    """The messages of a thread, parents first; at last those of subgraphs of which nobody knows where they stand."""
    found = _below(store, thread_message(thread))
    known, name = set(found), checkpoint_message(thread, "")
    return found + [id for id in store.message_ids if id.rpartition("@")[0] + "@" == name and id not in known]


def _below(store: Store, root: str) -> list[str]:
    """The messages below one, parents first."""
    found: list[str] = []
    waiting = [root] if store.skeleton(root) else []
    while waiting:
        children = store.tree.children(waiting.pop())
        found += children
        waiting += children
    return found


def _erasures(targets: Sequence[str], *, cascade: bool) -> list[Event]:
    moment = now()
    return [
        Erasure(new_id(), targets[start : start + MAX_REFERENCES], cascade=cascade, created=moment)
        for start in range(0, len(targets), MAX_REFERENCES)
    ]
