"""What the tools do with a store: each is one call of the library, made at the place where the call stands.

The docstrings are what models read.  No rule of visibility lives here, and nothing is kept between calls: two clients
on two branches meet only in the log.  What branchmem refuses is a tool error that says the way out.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Annotated, Any, get_args

from mcp.server.mcpserver import Context
from pydantic import Field

from branchmem import Memory, Message, Store, View, new_id
from branchmem import refs as refs_
from branchmem.changes.names import with_older_versions
from branchmem.errors import UnknownEvent
from branchmem.errors.mcp_server import SourceAstray
from branchmem.events import Retraction
from branchmem.mcp_server.forms import (
    Anchor,
    Beside,
    Branches,
    Explained,
    HitForm,
    Hits,
    Ids,
    Kept,
    Key,
    Kind,
    Limit,
    Memories,
    OneMemory,
    Optional,
    Role,
    Said,
    ScopeName,
    Sources,
    Standing,
    TakenBack,
    explained,
    memory_form,
)
from branchmem.mcp_server.place import META, Place, apart, called_from, now, place, step_alone
from branchmem.mcp_server.refusals import answered
from branchmem.mcp_server.trees import branches
from branchmem.session import Session, remembering
from branchmem.session.step import RECALLED, still_written_with


class Tools:
    """The tools of one store.  Safe under threads, as the store is."""

    def __init__(self, store: Store, ref: str | None) -> None:
        self.store = store
        #: Where a call stands that gives no anchor.
        self.ref = ref

    # reading

    @answered
    def search_memories(
        self,
        query: Annotated[str, Field(description="What to look for, in words.")],
        context: Context,
        anchor: Anchor = "",
        limit: Limit = 10,
        kind: Kind = "",
        key: Key = "",
        beside: Beside = (),
    ) -> Hits:
        """Search the memories that this branch sees, best first. What other branches remember is never found."""
        here = self._here(context, anchor, "search_memories")
        hits = self._view(here, beside).search(query, limit, kind=kind or None, key=key or None)
        found = tuple(HitForm(score=hit.score, memory=memory_form(hit.memory)) for hit in hits)
        return Hits(anchor=here.anchor, at=here.at, hits=found, faded=hits.faded, note=hits.note)

    @answered
    def get_memory(self, memory_id: str, context: Context, anchor: Anchor = "", beside: Beside = ()) -> OneMemory:
        """Read one memory by its id, if this branch sees it; else the error says what hides it."""
        here = self._here(context, anchor, "get_memory")
        memory = self._view(here, beside)[memory_id]
        return OneMemory(anchor=here.anchor, at=here.at, memory=memory_form(memory))

    @answered
    def list_memories(
        self,
        context: Context,
        anchor: Anchor = "",
        kind: Kind = "",
        key: Key = "",
        limit: Limit = 50,
        offset: Annotated[
            int, Field(ge=0, le=1 << 31, description="How many to pass over: next_offset of the page before.")
        ] = 0,
        beside: Beside = (),
    ) -> Memories:
        """List the memories that this branch sees, in the order of the conversation."""
        here = self._here(context, anchor, "list_memories")
        return listed(here, self._view(here, beside), kind=kind, key=key, limit=limit, offset=offset)

    @answered
    def explain_visibility(
        self, memory_id: str, context: Context, anchor: Anchor = "", beside: Beside = ()
    ) -> Explained:
        """Say whether this branch sees a memory, and why, or why not: the ids at fault, never the text of it."""
        here = self._here(context, anchor, "explain_visibility")
        return explained(self._view(here, beside).explain(memory_id), anchor=here.anchor, at=here.at)

    @answered
    def list_branches(self, context: Context, anchor: Anchor = "", limit: Limit = 50) -> Branches:
        """List the named branches, and the leaves of the conversation where this call stands: ids and names alone."""
        is_placed = bool(anchor) or self.ref is not None or META in _meta(context)
        here = self._here(context, anchor, "list_branches") if is_placed else None
        return branches(self.store, here, limit)

    # remembering

    @answered
    def add_memory(
        self,
        text: Annotated[
            str, Field(min_length=1, description="What to remember: one fact, in a sentence that stands by itself.")
        ],
        context: Context,
        anchor: Anchor = "",
        source_ids: Sources = (),
        derived_from: Annotated[Ids, Field(description="Ids of the memories that the text was derived from.")] = (),
        kind: Annotated[str, Field(description="fact, preference, summary …")] = "fact",
        key: Annotated[Optional, Field(description="What it is about, as home_city.")] = "",
        importance: Annotated[float, Field(ge=0, le=1)] = 1.0,
    ) -> Kept:
        """Remember a fact on this branch. It is seen below the messages that it comes from, and on no other branch.

        What comes from an answer also derives from the memories that the answer was written with.
        """
        here = self._here(context, anchor, "add_memory")
        draft = remembering.drafted(
            text, source_ids or (here.at,), derived_from, (), kind, key or None, importance, {}, None
        )
        remembering.require(self.store, draft)
        self._refuse_astray(source_ids, here.at)
        step = step_alone()

        def plan(writer: Any) -> tuple[list[Message | Memory], tuple[Place, Memory]]:
            at = here if source_ids else now(writer, here)
            there, before = (at, []) if source_ids else apart(self.store, writer, at, step)
            derived = (*draft.derived_from, *self._receipts(source_ids or (at.at,)))
            new = replace(draft, sources=source_ids or (there.at,), derived_from=derived)
            first = remembering.known(self.store, new)
            if first is not None and remembering.same(first, new):
                return [], (there, first)
            return [*before, new], (there, new)

        there, kept = self.store.transact(plan, tables=refs_.TABLES)[1]
        return self._kept(there, kept, added=kept.id == draft.id)

    @answered
    def update_memory(
        self,
        memory_id: str,
        text: Annotated[str, Field(min_length=1, description="What it says from now on.")],
        context: Context,
        anchor: Anchor = "",
        source_ids: Sources = (),
        importance: Annotated[float | None, Field(ge=0, le=1)] = None,
    ) -> Kept:
        """Replace a memory by a new version on this branch; other branches keep the old one.

        The answer has the id of the new version. It comes from source_ids, or from all that the old one came from, and
        from the anchor.
        """
        here = self._here(context, anchor, "update_memory")
        id, step = new_id(), step_alone()

        def plan(writer: Any) -> tuple[list[Message | Memory], tuple[Place, Memory]]:
            at = now(writer, here)
            old = self.store.at(at.at)[memory_id]
            there, before = apart(self.store, writer, at, step)
            cited = (*(source_ids or old.sources), there.at)
            self._refuse_astray(source_ids, at.at)
            kept = [source for source in old.sources if not self.store.log.is_erased(source)]
            receipts = self._receipts(source_ids or (*kept, at.at))
            derived = {*receipts} if source_ids else {*old.derived_from, *receipts}
            weight = old.importance if importance is None else importance
            draft = remembering.drafted(text, cited, derived - {old.id}, [old], old.kind, old.key, weight, {}, None)
            remembering.require(self.store, draft, {step.id})
            new = replace(draft, id=id, adopts=None if source_ids else old.adopts)
            return [*before, new], (there, new)

        there, new = self.store.transact(plan, tables=refs_.TABLES)[1]
        return self._kept(there, new, added=True)

    @answered
    def delete_memory(
        self,
        memory_id: str,
        context: Context,
        anchor: Anchor = "",
        reason: Annotated[Optional, Field(description="Why, for people who look at the log.")] = "",
    ) -> TakenBack:
        """Forget a memory on this branch, from here on; other branches keep it. With it go its older versions.

        Nothing is erased: what must be gone for good is erased with the command line, branchmem erase.
        """
        here = self._here(context, anchor, "delete_memory")
        return self._taken_back(here, "branch", memories=[memory_id], reason=reason, are_seen=True)

    @answered
    def retract(
        self,
        scope: Annotated[
            ScopeName,
            Field(description="branch: from the anchor down. tree: the whole conversation. everywhere: all of them."),
        ],
        context: Context,
        memory_ids: Annotated[Ids, Field(description="These memories.")] = (),
        source_ids: Annotated[Ids, Field(description="All that came from these messages.")] = (),
        keys: Annotated[Ids, Field(description="All that is about these keys and was stated so far.")] = (),
        anchor: Anchor = "",
        reason: Annotated[Optional, Field(description="Why, for people who look at the log.")] = "",
    ) -> TakenBack:
        """Take memories back: "don't bring this up again". What was derived from them goes with them.

        Scopes tree and everywhere reach other branches: use them only where the user means all of them.
        """
        here = self._here(context, anchor, "retract")
        for ids, type in ((memory_ids, Memory.type), (source_ids, Message.type)):
            self._refuse_unknown(ids, type)
        return self._taken_back(here, scope, memories=memory_ids, sources=source_ids, keys=keys, reason=reason)

    # branches

    @answered
    def append_message(
        self,
        text: str,
        context: Context,
        role: Annotated[Role, Field(description="Who said it.")] = "user",
        anchor: Anchor = "",
        message_id: Annotated[
            Optional, Field(description="An id of your own: the same call again is then a no-op.")
        ] = "",
        recalled: Annotated[
            Ids, Field(description="For an answer: ids of the memories that it was written with.")
        ] = (),
    ) -> Said:
        """Append a message to this branch, and send the anchor of the answer with the next call.

        A ref moves on to the message; below the id of a message it goes on, or begins, a branch that has no name.
        """
        here = self._here(context, anchor, "append_message")
        self._refuse_unknown(recalled, Memory.type)
        meta = {RECALLED: sorted(set(recalled))} if recalled else {}
        if here.ref is not None:
            said = Session(self.store, here.ref).say(role, text, id=message_id or None, meta=meta)
        else:
            created = datetime.now(UTC)
            draft = Message(message_id or new_id(), here.at, role=role, text=text, meta=meta, created=created)
            said = self._said_below(draft)
        anchor = said.id if here.ref is None else here.ref
        parent = said.parent if isinstance(said.parent, str) else None
        return Said(anchor=anchor, at=said.id, message_id=said.id, parent_id=parent)

    @answered
    def switch(
        self,
        to: Annotated[str, Field(description="The branch: the name of a ref, or the id of any message.")],
        ref: Annotated[Optional, Field(description="A ref to move there. Left out, nothing is moved.")] = "",
    ) -> Standing:
        """Go to another branch, or back to an earlier message: send the anchor of the answer from now on.

        The server remembers no place of yours. With ref, that ref is moved there, for all who use it.
        """
        there = place(self.store, to)
        if not ref:
            return self._standing(there)
        return self._standing(Place(Session(self.store, ref).switch(there.at), ref))

    @answered
    def fork(
        self,
        name: Annotated[str, Field(description="A new name.")],
        context: Context,
        anchor: Anchor = "",
    ) -> Standing:
        """Start a named branch where this call stands; neither sees what the other adds from now on."""
        here = self._here(context, anchor, "fork")
        if here.ref is None:
            self.store.refs.create(name, here.at)
            return self._standing(Place(here.at, name))
        return self._standing(Place(Session(self.store, here.ref).fork(name).head, name))

    @answered
    def start_conversation(
        self, name: Annotated[str, Field(description="A new name for its first branch.")]
    ) -> Standing:
        """Start a conversation of its own, empty, with a named branch: it sees nothing of the others."""
        root = Message(new_id(), None, role="thread", created=datetime.now(UTC))
        refs_.valid_name(name)

        def plan(writer: Any) -> tuple[list[Message], None]:
            refs_.refuse_existing(writer, name)
            refs_.write_move(writer, name, root.id, "create")
            return [root], None

        self.store.transact(plan, tables=refs_.TABLES)
        return self._standing(Place(root.id, name))

    # what they share

    def _here(self, context: Context, anchor: str, wanted: str) -> Place:
        return called_from(self.store, anchor, _meta(context), self.ref, wanted=wanted)

    def _view(self, here: Place, beside: Iterable[str]) -> View:
        return self.store.at([here.at, *(place(self.store, name).at for name in beside)])

    def _refuse_unknown(self, ids: Iterable[str], type: str) -> None:
        for id in ids:
            if self.store.skeleton(id).get("type") != type:
                raise UnknownEvent(id, type)

    def _refuse_astray(self, sources: Iterable[str], at: str) -> None:
        for id in sources:
            if not self.store.tree.is_ancestor(id, at):
                raise SourceAstray(id, at)

    def _receipts(self, sources: Iterable[str]) -> tuple[str, ...]:
        """The memories that those of the sources were written with that are answers with a receipt.

        A source without a word, as an adoption or a branch that goes on alone begins with, says what stands above it.
        Raises: InvalidEvent where a receipt cannot be read, or was erased.
        """
        found: dict[str, None] = {}
        for id in sources:
            at: object = id
            while isinstance(at, str) and isinstance(message := self.store.log.get(at), Message):
                instead = "cite other messages in source_ids"
                found.update(dict.fromkeys(still_written_with(self.store, message, instead=instead)))
                is_silent = message.text is None and message.role not in get_args(Role)
                at = message.parent if is_silent else None
        return tuple(found)

    def _said_below(self, draft: Message) -> Message:
        """Append a message below its parent; as it is there already, it stays.  Raises: EventConflict."""

        def plan(_writer: Any) -> tuple[list[Message], Message]:
            known = self.store.log.get(draft.id) if draft.id in self.store.log else None
            said = replace(draft, created=known.created) if isinstance(known, Message) else draft
            return [said], said

        return self.store.transact(plan, tables=())[1]

    def _kept(self, here: Place, memory: Memory, *, added: bool) -> Kept:
        verdict = self.store.at(here.at).explain(memory.id)
        return Kept(
            anchor=here.anchor,
            at=here.at,
            memory=memory_form(memory),
            added=added,
            visible=verdict.visible,
            explanation=str(verdict),
        )

    def _taken_back(
        self,
        here: Place,
        scope: ScopeName,
        *,
        memories: Sequence[str] = (),
        sources: Sequence[str] = (),
        keys: Sequence[str] = (),
        reason: str,
        are_seen: bool = False,
    ) -> TakenBack:
        """Write a retraction, all in one transaction; `are_seen`: of memories that must be visible there."""
        id, step = new_id(), step_alone()

        def plan(writer: Any) -> tuple[list[Message | Retraction], tuple[Place, View]]:
            at = now(writer, here)
            seen = self.store.at(at.at, count=False)
            for memory in memories if are_seen else ():
                seen[memory]
            there, before = apart(self.store, writer, at, step) if scope == "branch" else (at, [])
            named = with_older_versions(self.store._fresh(), memories)
            taken = Retraction(
                id, there.at, scope=scope, memories=named, sources=sources, keys=keys, reason=reason or None
            )
            return [*before, taken], (there, seen)

        there, seen = self.store.transact(plan, tables=refs_.TABLES)[1]
        sees = self.store.at(there.at, count=False)
        before, after = frozenset(seen), frozenset(sees)
        return TakenBack(
            anchor=there.anchor,
            at=there.at,
            retraction_ids=(id,),
            scope=scope,
            hidden=tuple(id for id in seen if id not in after),
            shown=tuple(id for id in sees if id not in before),
        )

    def _standing(self, there: Place) -> Standing:
        return Standing(anchor=there.anchor, at=there.at, visible=len(self.store.at(there.at)))


def listed(here: Place, view: View, *, kind: str, key: str, limit: int, offset: int) -> Memories:
    """A page of what a view shows."""
    found = view.memories(kind=kind or None, key=key or None, limit=offset + limit + 1)
    more = len(found) > offset + limit
    return Memories(
        anchor=here.anchor,
        at=here.at,
        memories=tuple(map(memory_form, found[offset : offset + limit])),
        visible=len(view),
        next_offset=offset + limit if more else None,
    )


def _meta(context: Context) -> dict[str, Any]:
    return dict(context.request_context.meta or {})
