"""What a store answers: its trees, a view at an anchor, why a memory is hidden."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextlib import suppress
from typing import Annotated, Any

import typer

import branchmem as bm
from branchmem import terminal
from branchmem.cli.forms import (
    POLICIES,
    AsJson,
    PolicyName,
    StorePath,
    Which,
    hidden,
    named,
    reading,
    verdict_form,
    view_form,
)
from branchmem.events import Retraction
from branchmem.terminal import say, say_json, show, width

Refs = Annotated[list[str] | None, typer.Option("--ref", metavar="NAME", help="Stand where this ref does.")]


def trees(store: StorePath, as_json: AsJson = False) -> None:
    """List the conversations: their roots, how many messages and leaves they have, how they begin."""
    with reading(store) as log:
        found = [tree_form(log, root) for root in log.tree.roots()]
        detached = len(log.message_ids) - sum(tree["messages"] for tree in found)
        if as_json:
            say_json(trees=found, detached=detached)
        else:
            show(terminal.tree_rows(found, width=width()))
            show(terminal.count_lines("not shown", {"messages below one that is missing, or in a circle": detached}))


def tree_form(store: bm.Store, root: str) -> dict[str, Any]:
    """The JSON-ready summary of one tree."""
    messages = terminal.below(store, root)
    texts = (terminal.message(store, id).text for id in messages)
    return {
        "root": root,
        "messages": len(messages),
        "leaves": len(store.tree.leaves(root)),
        "latest_leaf": store.tree.latest_leaf(root),
        "begins": next(filter(None, texts), None),
    }


def tree(
    store: StorePath,
    root: Annotated[str, typer.Argument(metavar="ROOT", help="A root, or any message: what is below it is drawn.")],
    as_json: AsJson = False,
) -> None:
    """Draw the tree under ROOT, with the path to its latest leaf."""
    with reading(store) as log:
        (top,) = named(log, [root])
        log.tree.parent(top)  # refuses what is no message, before anything is printed
        leaf = None
        with suppress(bm.UnknownEvent):  # what is detached has no leaf to stand on
            leaf = log.tree.latest_leaf(top)
        if as_json:
            say_json(root=top, latest_leaf=leaf, messages=[message_form(log, id) for id in terminal.below(log, top)])
        else:
            path = set(log.tree.path(leaf)) if leaf else ()
            say(f"{terminal.plain(top)}  ({'● leads to the latest leaf' if leaf else 'detached'})")
            show(terminal.tree_lines(log, top, width=width(), path=path))


def message_form(store: bm.Store, id: str) -> dict[str, Any]:
    """The JSON-ready form of a message, and its children."""
    return {**terminal.message(store, id).to_dict(), "children": list(store.tree.children(id))}


def standing(store: bm.Store, anchors: Sequence[str] | None, refs: Sequence[str] | None) -> list[str]:
    """The messages to stand on: those that were named, and those of refs."""
    return [*named(store, anchors or ()), *store.refs.heads(refs or ())]


def view(
    store: StorePath,
    anchors: Annotated[list[str] | None, typer.Argument(metavar="ANCHOR…", help="Messages to stand on.")] = None,
    refs: Refs = None,
    policy: Which = PolicyName.strict,
    kind: Annotated[str | None, typer.Option(help="Only memories of this kind.")] = None,
    key: Annotated[str | None, typer.Option(help="Only memories with this key.")] = None,
    limit: Annotated[int | None, typer.Option(min=0, max=sys.maxsize, help="At most so many memories.")] = None,
    as_json: AsJson = False,
) -> None:
    """List what may be remembered at ANCHOR, or at a ref: at one message, or one of each tree."""
    with reading(store) as log:
        answer = log.at(standing(log, anchors, refs), policy=POLICIES[policy])
        memories = answer.memories(kind=kind, key=key, limit=limit)
        if as_json:
            say_json(policy=policy, **view_form(answer, memories))
        else:
            say(terminal.view_line(answer, len(log.memory_ids)))
            show(terminal.memory_lines(memories, width=width()))
            show(terminal.count_lines("hidden here, by the first reason", hidden(answer)))
        if not answer.policy.admits(answer.problems):
            answer.raise_for_problems()


def explain(
    store: StorePath,
    memory: Annotated[str, typer.Argument(metavar="MEMORY", help="The memory to explain.")],
    at: Annotated[list[str] | None, typer.Option("--at", metavar="ANCHOR", help="Where to stand; once a tree.")] = None,
    refs: Refs = None,
    policy: Which = PolicyName.strict,
    reasons: Annotated[
        bool, typer.Option("--reasons", help="Print why it was retracted, too: that may repeat what was taken back.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Say whether MEMORY is visible at ANCHOR, and name what is at fault."""
    with reading(store) as log:
        verdict = log.at(standing(log, at, refs), policy=POLICIES[policy]).explain(*named(log, [memory]))
        given = {id: reason_of(log, id) for id in verdict.retractions} if reasons else None
        if as_json:
            say_json(**verdict_form(verdict), **({} if given is None else {"retraction_reasons": given}))
        else:
            show(terminal.verdict_lines(verdict, width=width(), given=given or {}))


def reason_of(store: bm.Store, retraction: str) -> str | None:
    """What a retraction of the log says of why it was made."""
    found = store.log.get(retraction)
    assert isinstance(found, Retraction)
    return found.reason
