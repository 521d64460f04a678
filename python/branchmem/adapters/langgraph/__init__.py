"""LangGraph: long-term memory that belongs to the branch of a thread on which it was written.

A checkpoint is a message of the tree, its parent's child; an item that a step puts is a memory that comes from the
checkpoint which the step produces.  So a fork, an edit or a replay starts with what was known where it starts, and
switching back brings back what was known there.  What crosses threads is said to, in `shared`: all else belongs to its
thread.

    store = BranchStore(bm.open("alice.bmem"), shared=[("profile",)])
    graph = builder.compile(checkpointer=branching(saver, store), store=store)

store     BranchStore, a LangGraph store over a branchmem store
wrapping  branching, which wraps a checkpointer
saver     a checkpointer that is wrapped
lacking   what a checkpointer has to tell of the checkpoints above one
places    where a call stands: its run, its task, the checkpoints that these started from
naming    what threads, checkpoints and items are called in a store
pending   what was put and no checkpoint has yet
commits   what a checkpoint makes of that
returning what a subgraph brings with it that goes back
seeing    what a call sees
items     items as memories, and memories as items
matching  filters of a search, conditions of a listing
meaning   items by meaning
threads   deleting, copying and pruning
sweeping  items that have outlived their time
"""

from branchmem.extra import extra

with extra("langgraph", wanted="BranchStore and branching", name="langgraph"):
    import langgraph.store.base  # noqa: F401

from branchmem.adapters.langgraph.saver import BranchingSaver
from branchmem.adapters.langgraph.store import BranchStore
from branchmem.adapters.langgraph.wrapping import branching

__all__ = ["BranchStore", "BranchingSaver", "branching"]
