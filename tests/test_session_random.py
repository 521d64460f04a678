"""A session that edits, regenerates, rewinds, cancels and switches back at random: every view equals the reference."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from random import Random

import branchmem as bm
import pytest
from branchmem import COMPAT, STRICT, Memory, Message
from branchmem.errors import BadMove, RefMoved
from branchmem.events import SCOPES, Event
from branchmem.reference import Reference
from branchmem.session import Session, Step, StepView
from figures import Figure, Quote
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule

KEYS = (None, "home", "diet")
OPERATIONS = 10_000


class Failed(Exception):
    pass


class Conversation:
    """A session and what it should be: its head, and a reference that was told the same events."""

    def __init__(self, random: Random, store: bm.Store) -> None:
        self.random = random
        self.store = store
        self.reference = Reference()
        self.done: Counter[str] = Counter()
        self.profile = store.session("profile")
        self.session = store.session("chat", beside=["profile"] if random.random() < 0.5 else [])
        self.head = self.session.head
        self.profile_head = self.profile.head
        self.take_in()
        self.acts: list[tuple[Callable[[], object], int]] = [
            (self.say, 5),
            (self.edit, 3),
            (self.regenerate, 3),
            (self.rewind, 2),
            (self.switch, 3),
            (self.remember, 2),
            (self.note, 1),
            (self.take_back, 1),
            (self.answer, 6),
            (self.fail, 2),
            (self.cancel, 2),
            (self.lose, 1),
        ]

    def act(self) -> None:
        """Do something, and look."""
        act, weights = zip(*self.acts, strict=True)
        (chosen,) = self.random.choices(act, weights)
        chosen()
        self.done[chosen.__name__] += 1
        self.take_in()
        assert self.session.head == self.head
        policy = self.random.choice((STRICT, STRICT, STRICT, COMPAT))
        assert self.session.view(policy).ids() == self.reference.at(self.anchors(), policy=policy).ids()

    def anchors(self, head: str | None = None) -> list[str]:
        return [head or self.head, *([self.profile_head] if self.session.beside else [])]

    def take_in(self) -> None:
        """Tell the reference what has come into the log."""
        self.reference.add(self.store.log.events(self.reference.seq))

    def messages(self) -> list[str]:
        root = self.store.tree.path(self.head)[0]
        return [id for id in self.store.message_ids if self.store.tree.is_ancestor(root, id)]

    def some(self, ids: list[str], most: int) -> list[str]:
        return self.random.sample(ids, min(len(ids), self.random.randrange(most + 1)))

    # What the user does

    def say(self) -> None:
        said = self.session.say(self.random.choice(("user", "user", "tool")), "text")
        assert said.parent == self.head
        self.head = said.id

    def edit(self) -> None:
        message = self.random.choice(self.messages())
        parent = self.store.tree.parent(message)
        if parent is None:
            with pytest.raises(BadMove):
                self.session.edit(message, "text")
            return
        edited = self.session.edit(message, "text")
        assert edited.parent == parent
        self.head = edited.id

    def regenerate(self) -> None:
        path = [self.store.log.get(id) for id in self.store.tree.path(self.head)]
        asked = [event.id for event in path if isinstance(event, Message) and event.role == "user"]
        if not asked or asked[-1] == self.head:
            with pytest.raises(BadMove):
                self.session.regenerate()
            return
        assert self.session.regenerate() == asked[-1]
        self.head = asked[-1]

    def rewind(self) -> None:
        self.head = self.session.rewind(self.random.choice(self.store.tree.path(self.head)))

    def switch(self) -> None:
        self.head = self.session.switch(self.random.choice(self.messages()))

    def remember(self) -> None:
        path = self.store.tree.path(self.head)
        sources = self.random.sample(path, min(len(path), self.random.choice((1, 1, 2))))
        before = self.store.seq
        first = self.session.remember("fact", sources=sources)
        assert self.session.remember("fact", sources=sources) == first
        assert self.store.seq <= before + 1

    def note(self) -> None:
        said = self.profile.say("note", "text")
        self.profile.remember("known", sources=[said], key=self.random.choice(KEYS))
        self.profile_head = said.id

    def take_back(self) -> None:
        known = list(self.store.memory_ids)
        keys = [key for key in KEYS if key and self.random.random() < 0.3]
        if known or keys:
            named = self.some(known, 2) or ([] if keys else [self.random.choice(known)])
            self.store.retract(named, keys=keys, at=self.head, scope=self.random.choice(SCOPES))

    # What the agent does

    def attempt(self, step: Step, then: Callable[[], object]) -> StepView:
        with step:
            assert step.base == self.head
            for _ in range(self.random.choice((0, 1, 1, 3))):
                own = [memory.id for memory in step.memories]
                known = self.session.view().ids()
                step.remember(
                    f"{len(own)}",
                    derived_from=self.some(known, 1),
                    supersedes=self.some([*known, *own], 2),
                    key=self.random.choice(KEYS),
                )
            step.recalled = self.session.view()
            view = step.view()
            written: list[Event] = [Message(step.id, step.base), *step.memories]
            trial = Reference()
            trial.add([*self.reference.log.events(), *written])
            assert view.ids() == trial.at(self.anchors(step.id)).ids()
            then()
        return view

    def answer(self) -> None:
        step = self.session.step()
        view = self.attempt(step, lambda: None)
        self.head = step.id
        assert self.session.view().ids() == view.ids()

    def fail(self) -> None:
        step = self.session.step(on_cancel=self.random.choice(("drop", "keep")))

        def fail() -> None:
            raise Failed

        with pytest.raises(Failed):
            self.attempt(step, fail)

    def cancel(self) -> None:
        step = self.session.step(on_cancel=self.random.choice(("drop", "keep")))
        self.attempt(step, step.cancel)

    def lose(self) -> None:
        """Somebody else moves the ref under a step."""
        step = self.session.step()
        elsewhere = self.random.choice([id for id in self.messages() if id != self.head] or [self.head])
        if elsewhere == self.head:
            return
        with pytest.raises(RefMoved) as raised:
            self.attempt(step, lambda: self.store.refs.move("chat", elsewhere))
        assert raised.value.kept == step.id
        self.head = elsewhere


class Sessions(RuleBasedStateMachine):
    """The same turns, chosen by Hypothesis: what fails is told in the fewest of them."""

    def __init__(self) -> None:
        super().__init__()
        self.store = bm.open_temporary()
        self.conversation = Conversation(Random(0), self.store)

    @rule(chance=st.randoms(use_true_random=False))
    def act(self, chance: Random) -> None:
        self.conversation.random = chance
        self.conversation.act()

    def teardown(self) -> None:
        assert self.conversation.reference.digest() == self.store.digest()
        self.store.close()


TestSessions = Sessions.TestCase
TestSessions.settings = settings(
    max_examples=60,
    stateful_step_count=40,
    derandomize=True,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)


@pytest.mark.soak
@pytest.mark.usefixtures("without_disk")
def test_ten_thousand_random_turns_show_what_the_reference_shows(figure: Figure, quote: Quote) -> None:
    each = figure(100, 1_000)
    done: Counter[str] = Counter()
    memories = 0
    for seed in range(OPERATIONS // each):
        print("seed", seed)
        with bm.open_temporary() as store:
            conversation = Conversation(Random(f"session {seed}"), store)
            for _ in range(each):
                conversation.act()
            assert conversation.reference.digest() == store.digest()
            done += conversation.done
            memories += len(store.memory_ids)
    assert done.total() == OPERATIONS
    assert min(done.values()) > 100, done
    quote(f"sessions: {OPERATIONS:,} random turns, {memories:,} memories, every view as the reference shows it")


def test_a_memory_of_a_rejected_answer_is_never_seen_by_the_next() -> None:
    """The row above in its simplest form: what was rejected shows at its own message alone."""
    with bm.open_temporary() as store:
        session: Session = store.session("chat")
        session.say("user", "Where should I go?")
        rejected: list[Memory] = []
        for number in range(20):
            with session.step() as step:
                assert step.view().ids() == []
                rejected.append(step.remember(f"fact {number}"))
            session.regenerate()
        assert session.view().ids() == []
        for memory in rejected:
            assert store.at(memory.sources[0]).ids() == [memory.id]
