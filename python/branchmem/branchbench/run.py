"""A run: every method, over every scenario, asked every probe; one row each.

A run holds no state but the calls that it has cached: killed, or out of time, it is started again with the same
words and goes on where it stood.  With several processes each takes whole scenarios; the rows are the same.

The one rule: no row of a method that does not play by the rules.  A context that is no list of texts, or over the
budget, is refused and ends the run; what a method raises is named with the method and the scenario.  Nothing is cut to
size here, since a cut context is not what the method supplied.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import cache, partial
from hashlib import sha256
from itertools import zip_longest
from multiprocessing import active_children, get_context, parent_process
from threading import Thread
from typing import TYPE_CHECKING, TypeVar, get_args

from branchmem.branchbench.measures import Row, judged
from branchmem.branchbench.methods.method import Method, Tools
from branchmem.branchbench.models.chat import Chat, Reply, Request
from branchmem.branchbench.scenario import Language, Probe, Scenario
from branchmem.errors import Error
from branchmem.errors.branchbench import ContextInvalid, ContextOverBudget, MethodFailed, ProcessLost

if TYPE_CHECKING:
    from branchmem.branchbench.models.answering import Answerer
    from branchmem.branchbench.models.embedding import Embedding

T = TypeVar("T")


class TimeIsUp(BaseException):
    """The run's time is over: what was asked is kept, and the same command goes on from there.

    Not an Exception, since frameworks under test catch those and go on without an answer.
    """


@dataclass
class Deadline:
    """A model that is asked nothing more once `time.monotonic()` has passed `until`: TimeIsUp instead.

    It stands between the cache and the model, so that what is kept is answered at any time.
    """

    chat: Chat
    until: float

    @property
    def name(self) -> str:
        return self.chat.name

    def ask(self, request: Request) -> Reply:
        if time.monotonic() > self.until:
            raise TimeIsUp
        return self.chat.ask(request)


@dataclass
class Metered:
    """A model whose calls are timed: `waited` seconds for them now, `cost` seconds when they were first asked."""

    chat: Chat
    waited: float = 0.0
    cost: float = 0.0

    @property
    def name(self) -> str:
        return self.chat.name

    def ask(self, request: Request) -> Reply:
        start = time.perf_counter()
        reply = self.chat.ask(request)
        self.waited += time.perf_counter() - start
        self.cost += reply.seconds
        return reply


@dataclass(frozen=True)
class Bench:
    """What answers and what is given to the methods; `meter` is the model that methods ask, where there is one.

    What `embedding` takes over texts that are new to it is nobody's time, since the next method has them for nothing;
    nor is the loading of packages.
    """

    tools: Tools
    answerer: Answerer
    meter: Metered | None = None
    embedding: Embedding | None = None

    def rows(self, scenario: Scenario, methods: Sequence[type[Method]]) -> Iterator[Row]:
        """The rows of one scenario, method by method, probe by probe.

        Raises: MethodFailed from what a method raises, but for branchmem's own errors, which pass with a note of the
        method; ContextInvalid, ContextOverBudget; TimeIsUp.  The method at work is closed whatever happens.
        """
        for kind in methods:
            yield from self._rows_of(scenario, kind)

    def _rows_of(self, scenario: Scenario, kind: type[Method]) -> Iterator[Row]:
        with _blamed(kind, scenario, "made"):
            kind.load()
            method, making = self._timed(partial(kind, scenario, self.tools))
        try:
            with _blamed(kind, scenario, "fed"):
                _, feeding = self._timed(method.feed)
            for probe in scenario.asked:
                with _blamed(kind, scenario, f"asked probe {probe.id}"):
                    context, finding = self._timed(partial(method.context, probe.anchor, probe.question))
                tokens = self._tokens(context, method, probe)
                answer = self.answerer.answer(scenario.language, probe.question, context)
                seconds = finding + (making + feeding) / len(scenario.asked)
                yield judged(scenario, probe, kind.name, context, tokens, seconds, answer)
        except BaseException:
            with suppress(Exception):  # what came first is what is told
                method.close()
            raise
        with _blamed(kind, scenario, "closed"):
            method.close()

    def _tokens(self, context: object, method: Method, probe: Probe) -> int:
        """The tokens of a context that is fit to be read."""
        place = (method.name, method.scenario.id, probe.id)
        if not isinstance(context, list):
            raise ContextInvalid(*place, type(context).__name__)
        for line in context:
            if not isinstance(line, str):
                raise ContextInvalid(*place, f"a list with {type(line).__name__} in it")
        tokens = sum(map(self.tools.count, context))
        if tokens > self.tools.budget:
            raise ContextOverBudget(*place, tokens, self.tools.budget)
        return tokens

    def _timed(self, work: Callable[[], T]) -> tuple[T, float]:
        """What `work` gives, and its seconds, calls that came from the cache as long as they once took."""
        known = self._otherwise_counted()
        start = time.perf_counter()
        result = work()
        seconds = time.perf_counter() - start
        return result, seconds + self._otherwise_counted() - known

    def _otherwise_counted(self) -> float:
        """Seconds that all work so far is to be charged beyond what the clock showed; negative where it is less."""
        seconds = self.meter.cost - self.meter.waited if self.meter else 0.0
        return seconds - self.embedding.seconds if self.embedding else seconds


@contextmanager
def _blamed(kind: type[Method], scenario: Scenario, work: str) -> Iterator[None]:
    try:
        yield
    except Error as error:
        error.add_note(f"method {kind.name}, scenario {scenario.id}, {work}")
        raise
    except Exception as error:
        why = " ".join(f"{type(error).__name__}: {error}".split())
        raise MethodFailed(kind.name, scenario.id, work, why) from error


def rows(
    scenarios: Sequence[Scenario], methods: Sequence[type[Method]], bench: Callable[[], Bench], jobs: int
) -> Iterator[list[Row]]:
    """The rows of each scenario, in the order of `scenarios`, as soon as they are there.

    `bench` is called once in each process; with more than one it and the methods must be such as can be pickled: they
    stand at the top of a module that can be imported.
    Raises: what `Bench.rows` raises; ProcessLost.  The scenarios before have then been given.  Who stops reading ends
    the processes; they end with this one, too, however that ends.
    """
    if jobs == 1:
        made = bench()
        for scenario in scenarios:
            yield list(made.rows(scenario, methods))
        return
    with ProcessPoolExecutor(jobs, get_context("spawn"), _equip, (bench,)) as pool:
        others = set(active_children())
        with _not_interrupted():
            found = [pool.submit(_rows, scenario, methods) for scenario in scenarios]
        try:
            for future in found:
                yield future.result()
        except BrokenProcessPool:
            raise ProcessLost(jobs) from None
        except BaseException:
            for process in set(active_children()) - others:
                process.terminate()
            raise


_bench: Callable[[], Bench]


@contextmanager
def _not_interrupted() -> Iterator[None]:
    """Processes that are started within do not hear Ctrl-C, which a terminal sends to all: this one ends them."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _equip(bench: Callable[[], Bench]) -> None:
    global _bench
    _bench = cache(bench)  # made at the first scenario, so that what it raises is what the run raises
    Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    """A process of a pool whose parent was killed would wait for its next scenario for ever."""
    parent = parent_process()
    assert parent is not None
    parent.join()
    while True:
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(1.0)


def _rows(scenario: Scenario, methods: Sequence[type[Method]]) -> list[Row]:
    before = signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # so that the method at work is closed
    try:
        return list(_bench().rows(scenario, methods))
    except SystemExit:  # the pool would take it for an answer, and ask on
        os._exit(1)
    finally:
        signal.signal(signal.SIGTERM, before)


def sample(scenarios: Iterable[Scenario], probes: int) -> list[Scenario]:
    """Whole scenarios, the languages in turn, until they have `probes` probes; all of them where there are fewer.

    Which ones come first is drawn by the hash of their ids, so that nobody picks; of the last some probes may not be
    asked.  It keeps them: what a method makes of a conversation does not depend on how much is asked of it.
    """
    drawn = sorted(scenarios, key=lambda scenario: sha256(scenario.id.encode()).digest())
    by_language = [[one for one in drawn if one.language == language] for language in get_args(Language)]
    chosen: list[Scenario] = []
    for scenario in (one for pair in zip_longest(*by_language) for one in pair if one is not None):
        if probes <= 0:
            break
        chosen.append(replace(scenario, at_most=min(probes, len(scenario.probes))))
        probes -= len(scenario.probes)
    return chosen
