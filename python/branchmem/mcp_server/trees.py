"""Where the branches are: names, ids and how they hang together, without a word of what was said on them."""

from __future__ import annotations

from collections import deque
from typing import Final

from branchmem import Message, Store
from branchmem.mcp_server.forms import Branch, Branches, Leaf, TreeForm, TreeMessage
from branchmem.mcp_server.place import Place

#: So many messages of a conversation are listed at most.
MOST_MESSAGES: Final = 2000


def branches(store: Store, here: Place | None, limit: int) -> Branches:
    """The refs, and at most `limit` leaves of the tree of a place, the latest first.

    Cost: the paths of all refs and of the leaves that are listed.
    """
    heads = dict(store.refs.items())
    tree = store.tree
    leaves = [] if here is None else tree.leaves(tree.known_path(here.at)[0])
    return Branches(
        anchor=None if here is None else here.anchor,
        at=None if here is None else here.at,
        refs=tuple(
            Branch(name=name, at=at, root=tree.known_path(at)[0], depth=tree.depth(at)) for name, at in heads.items()
        ),
        leaves=tuple(
            Leaf(
                id=leaf,
                refs=_names(heads, leaf),
                parts_at=None if here is None else tree.common_ancestor(leaf, here.at),
            )
            for leaf in reversed(leaves[-limit:])
        ),
        leaves_in_all=len(leaves),
    )


def tree_form(store: Store, here: Place) -> TreeForm:
    """The tree of a place, from its root down, level by level: at most `MOST_MESSAGES`.

    Cost: one read a message.
    """
    heads = dict(store.refs.items())
    root = store.tree.known_path(here.at)[0]
    listed: list[TreeMessage] = []
    waiting = deque([root])
    while waiting and len(listed) < MOST_MESSAGES:
        id = waiting.popleft()
        waiting += store.tree.children(id)
        message, parent = store.log.get(id), store.tree.parent(id)
        listed.append(
            TreeMessage(
                id=id,
                parent_id=parent if isinstance(parent, str) else None,
                role=message.role if isinstance(message, Message) else None,
                refs=_names(heads, id),
            )
        )
    return TreeForm(root=root, messages=tuple(listed), more=bool(waiting))


def _names(heads: dict[str, str], id: str) -> tuple[str, ...]:
    return tuple(name for name, at in heads.items() if at == id)
