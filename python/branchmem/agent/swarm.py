"""Several agents on one store, each on a fork of its own, and what their lead adopts of what they found.

No member sees what another tries.  What a member found, which is visible where it stands and was not where it began,
is taken over at the lead's head by `store.adopt`: explicitly, each once, and never by moving the lead to a fork.  Where
the lead has left the path on which a fork began, or on which it was set to work again, nothing is taken over: the fork
knows what the lead's branch does not.  So work elsewhere than where the fork began is begun with a message without a
word, which says where the lead stands.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import os
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, TypeVar, cast

import branchmem
from branchmem import Message, RefExists, Session, StepOpen
from branchmem.errors.agent import ForeignSession, ForkAstray, MemberFailed
from branchmem.session.settled import settled
from branchmem.session.step import step_of

if TYPE_CHECKING:
    from branchmem.merge import Merged

T = TypeVar("T")

#: The role of a message at which a member was set to work again, and what in its meta says where the lead stood.
_SET_TO_WORK, _LEAD = "swarm", "lead"


@dataclass(frozen=True, slots=True)
class Finding(Generic[T]):
    """What became of a member's work, and what the lead adopted of it."""

    name: str
    #: Its fork, which stays.
    ref: str
    #: What its work returned; None where it failed.
    value: T | None
    #: Why it failed, or could not be adopted.  What it had found by then is not; `swarm.adopt` does so.
    error: BaseException | None
    #: What the lead took over; None where the member failed.
    adopted: Merged | None

    def result(self) -> T:
        """What its work returned.  Raises: MemberFailed, from what its work raised."""
        if self.error is not None:
            raise MemberFailed(self.name, f"{type(self.error).__name__}: {self.error}") from self.error
        return self.value  # type: ignore[return-value]  # work that did not fail has returned it


class Swarm:
    """The forks of one session, the lead's: `<ref>/<name>` for each member.

    Raises: ForeignSession for a session that is not that of a store.
    """

    def __init__(self, lead: Session) -> None:
        if type(lead).step is not Session.step:
            raise ForeignSession(type(lead).__name__)
        self.lead = lead

    def member(self, name: str) -> Session:
        """The session of a member: its fork, which is made where the lead stands now unless it is there.

        Raises: InvalidRef; ForkAstray where it is there and began, or was set to work, on another branch.
        """
        ref = self._ref(name)
        with suppress(RefExists):
            return self.lead.fork(ref)
        self._refuse_astray(ref)
        return Session(self.lead.store, ref, self.lead.beside)

    def found(self, name: str) -> tuple[str, ...]:
        """The ids of the memories that a member sees and the lead does not, by arrival; summaries of its fork aside.

        Raises: UnknownRef; ForkAstray where the lead stands on another branch than that on which the fork began, or
        was set to work by `run` or `run_processes`.
        """
        from branchmem.extract.provenance import SUMMARY

        store = self.lead.store
        self._refuse_astray(self._ref(name))
        known = frozenset(store.at_ref(self.lead.ref).ids())
        own = (id for id in store.at_ref(self._ref(name)).ids() if id not in known)
        return tuple(id for id in own if store.skeleton(id).get("kind") != SUMMARY)

    def adopt(self, name: str) -> Merged:
        """Take over, at the lead's head, what a member found; what was taken over before is left as it is.

        Raises: as `found`; StepOpen inside a step of the lead, which could not end where the lead has moved.
        Cost: both views, and that of `store.adopt`.
        """
        self._refuse_in_step("swarm.adopt")
        return self.lead.store.adopt(self.found(name), into=self.lead.ref)

    async def run(self, work: Mapping[str, Callable[[Session], Awaitable[T]]]) -> dict[str, Finding[T]]:
        """Let each member work in a task of its own, and adopt what it found as soon as it has ended.

        Who fails does not keep the others from it: `finding.result()` raises what it raised.  Who is cancelled in this
        cancels them all.
        Raises: as `member`; StepOpen inside a step of the lead.
        """
        self._refuse_in_step("swarm.run")
        members = await settled(lambda: self._set_to_work(work))

        async def one(name: str) -> Finding[T]:
            task = cast("asyncio.Task[Any]", asyncio.current_task())
            try:
                value = await work[name](members[name])
                adopted = await settled(lambda: self.adopt(name))
            except (Exception, asyncio.CancelledError) as error:
                # else something that the member waited for was cancelled, and not the member
                if isinstance(error, asyncio.CancelledError) and task.cancelling():
                    raise
                return Finding(name, self._ref(name), None, error, None)
            return Finding(name, self._ref(name), value, None, adopted)

        async with asyncio.TaskGroup() as tasks:
            running = {name: tasks.create_task(one(name)) for name in work}
        return {name: task.result() for name, task in running.items()}

    def run_processes(
        self, work: Mapping[str, Callable[[Session], T]], *, processes: int | None = None
    ) -> dict[str, Finding[T]]:
        """As `run`, each member in a process that opens the store itself: at most so many at a time, or as CPUs are.

        What a member does and what it returns must be picklable: a function of a module, a `partial` of one.
        Raises: as `member`; StepOpen inside a step of the lead.
        """
        self._refuse_in_step("swarm.run_processes")
        path, beside = self.lead.store.path, self.lead.beside
        self._set_to_work(work)
        count = min(len(work), processes or os.cpu_count() or 1)
        if not work:
            return {}
        with ProcessPoolExecutor(count, multiprocessing.get_context("spawn")) as pool:
            running = {pool.submit(_at_work, path, self._ref(name), beside, done): name for name, done in work.items()}
            found = {finding.name: finding for finding in self._findings(running)}
        return {name: found[name] for name in work}

    def __repr__(self) -> str:
        return f"<Swarm of {self.lead!r}>"

    def _findings(self, running: Mapping[Future[T], str]) -> Iterator[Finding[T]]:
        for future in as_completed(running):
            name = running[future]
            error, adopted = future.exception(), None
            if error is None:
                try:
                    adopted = self.adopt(name)
                except Exception as refused:
                    error = refused
            yield Finding(name, self._ref(name), future.result() if error is None else None, error, adopted)

    def _refuse_in_step(self, wanted: str) -> None:
        step = step_of(self.lead)
        if step is not None and step.is_open:
            raise StepOpen(self.lead.ref, step.id, wanted)

    def _set_to_work(self, names: Iterable[str]) -> dict[str, Session]:
        members, at = {name: self.member(name) for name in names}, self.lead.head
        for member in members.values():
            if self._places(member.ref)[-1] != at:
                member.say(_SET_TO_WORK, None, meta={_LEAD: at})
        return members

    def _refuse_astray(self, ref: str) -> None:
        store, lead = self.lead.store, self.lead.ref
        at = store.refs[lead]
        for place in self._places(ref):
            if not store.tree.is_ancestor(place, at):
                raise ForkAstray(ref, place, lead)

    def _places(self, ref: str) -> list[str]:
        """Where the lead stood when a fork was made, and each time that it was set to work elsewhere."""
        store = self.lead.store
        moves = reversed(store.refs.log(ref))
        began = next(str(move.after) for move in moves if move.before is None and move.why != "undo")
        path = map(store.log.get, store.tree.path(store.refs[ref]))
        work = (one for one in path if isinstance(one, Message) and one.role == _SET_TO_WORK)
        return [began, *(str(one.meta.get(_LEAD)) for one in work)]

    def _ref(self, name: str) -> str:
        return f"{self.lead.ref}/{name}"


def _at_work(path: Any, ref: str, beside: tuple[str, ...], work: Callable[[Session], T]) -> T:
    """What a member does, in its process."""
    with branchmem.open(path, create=False) as store:
        return work(Session(store, ref, beside))
