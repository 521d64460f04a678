"""What two branches have each for themselves, and how one takes over what the other knows.

A merge is an explicit event: one message on the target, and below it one adopting memory for each
that the source sees and the target does not.  It carries no retraction, and it never takes over what
the target itself has taken back or replaced.  Ids say what is done and where, so two replicas that
do the same write the same events.

For whoever plans without writing (an import of a bundle on a trial engine):

    world = World(questions, content)              # a Store, an Engine or other Questions; id → Memory
    plan = plan_merge(world, source_head, into_head, strategy)
    if plan.undecided:                             # the strategy does not decide these: write nothing
        raise MergeConflict(ref, plan.undecided)
    events, head = plan.events, plan.after         # append all of them at once, then move the ref there

`plan(world, ids, into_head, strategy)` does the same for memories that are named.  Neither raises
MergeConflict itself, writes, or makes up anything at random; both raise BadAnchor where a head is
not attached.  A world must not change while it is asked: inside `store.transact`, or a trial of one's own.
"""

from branchmem.merge.conflicts import Conflict, Strategy
from branchmem.merge.plan import Plan, Resolved, plan, plan_merge
from branchmem.merge.receipts import Difference, Merged
from branchmem.merge.verbs import adopt, diff, merge
from branchmem.merge.world import World

__all__ = [
    "Conflict",
    "Difference",
    "Merged",
    "Plan",
    "Resolved",
    "Strategy",
    "World",
    "adopt",
    "diff",
    "merge",
    "plan",
    "plan_merge",
]
