"""How a conversation with branches comes about: what is said on which line, and which facts hold there afterwards.

A talk is a log in the making; a line is where somebody is talking in it.  An exchange is a message of the user and
one of the assistant.  The one rule: no two statements of a scenario about one subject have the same value, so that a
value names the statement it came from; only an adoption repeats the value that it takes over.

A line's own account of what holds on it serves to choose what is said next and what is asked; whether it is true, the
validator decides, by the reference.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final
from zlib import crc32

from branchmem.branchbench.long.draws import Draw
from branchmem.branchbench.long.phrases import Phrases, Subject, Value
from branchmem.branchbench.scenario import Probe
from branchmem.errors.branchbench import PhrasesInvalid
from branchmem.events import Event, Memory, Message, Retraction, Scope

Pair = tuple[Subject, Subject]
Act = Callable[[], object]

#: So many facts a line makes for: what a retraction hides may be missing at its end.
VISIBLE: Final = 38

_LETTERS: Final = ("", "b", "c", "d", "e", "f", "g", "h")
_TURNS: Final = 5
_WORDINGS: Final = 3
_CHANCE_OF_REQUEST: Final = 0.07
_CHANCE_OF_SINGLE: Final = 0.6
_ECHOES_OF_TEN: Final = 3


@dataclass(frozen=True, slots=True)
class Stated:
    """A fact of the talk, and the value that it gives its subject."""

    fact: str
    subject: Subject
    value: Value
    adopts: Stated | None = None

    def is_from(self, other: Stated) -> bool:
        """Whether it is the other or was taken over from it."""
        return self is other or (self.adopts is not None and self.adopts.is_from(other))


@dataclass(frozen=True)
class Place:
    """A message to go on from, and what held there, by subject."""

    tree: int
    head: str
    depth: int
    current: dict[str, Stated]


class Talk:
    """One conversation, or two: its events as they happened, and its probes."""

    def __init__(self, phrases: Phrases, draw: Draw) -> None:
        self.phrases = phrases
        self.draw = draw
        self.events: list[Event] = []
        self.probes: list[Probe] = []
        #: How many exchanges a line has when it is asked about.
        self.goal = draw.between(28, 29)
        self._lines: list[Line] = []
        self._trees = 0
        self._facts = 0
        self._taken_back: list[tuple[Stated, Scope, int]] = []
        self._stated: dict[str, list[Stated]] = {}
        pairs = list(zip(phrases.subjects[::2], phrases.subjects[1::2], strict=True))
        self._pairs: list[Pair] = draw.shuffled(pairs)
        self._requests = draw.shuffled(phrases.requests)
        self._values: dict[str, list[Value]] = {one.id: draw.shuffled(one.values) for one in phrases.requests}
        for first, second in pairs:
            # Values that often come together: what is told in one message stays a limited set of texts.
            order, further = draw.shuffled(range(len(first.values))), draw.below(_TURNS)
            self._values[first.id] = [first.values[at] for at in order]
            self._values[second.id] = [second.values[(at + further) % len(second.values)] for at in order]

    def take_pairs(self, n: int) -> list[Pair]:
        """So many pairs of subjects that only the layout speaks of from now on, each in an order of chance."""
        taken, self._pairs = self._pairs[:n], self._pairs[n:]
        return [(pair[1], pair[0]) if self.draw.happens(0.5) else pair for pair in taken]

    def take_requests(self, n: int) -> list[Subject]:
        """So many requests that only the layout makes from now on."""
        taken, self._requests = self._requests[:n], self._requests[n:]
        return taken

    def start(self) -> Line:
        """A conversation, with its opening exchange: a tree of its own."""
        self._trees += 1
        line = self._line(self._trees, None, 0, {})
        line.exchange(*self.draw.pick(self.phrases.openings))
        return line

    def fork(self, place: Place) -> Line:
        """A new line from an earlier place; what has been taken back on all branches meanwhile is so here too."""
        current = dict(place.current)
        for stated, scope, tree in self._taken_back:
            if scope == "everywhere" or (scope == "tree" and tree == place.tree):
                _drop(current, stated)
        return self._line(place.tree, place.head, place.depth, current)

    def ask(
        self,
        line: Line,
        operation: str,
        subject: Subject,
        *,
        also: Sequence[Stated] = (),
        contested: str | None = None,
    ) -> None:
        """A probe where the line stands: what it says about the subject, and none of what was said elsewhere.

        `also` are facts about other subjects that must not come through either.
        """
        here = line.current[subject.id]
        hidden = [
            one for one in self._stated[subject.id] if one is not here and one.value.keyword != here.value.keyword
        ]
        forbids = [*hidden, *also]
        self.probes.append(
            Probe(
                id=f"p{len(self.probes) + 1}",
                anchor=line.head,
                operation=operation,
                question=self.draw.pick(subject.asks),
                accepted=(here.value.keyword,),
                forbidden=tuple(dict.fromkeys(one.value.keyword for one in forbids)),
                needs=(here.fact,),
                forbids=tuple(one.fact for one in forbids),
                contested=contested,
            )
        )

    def topic(self) -> str:
        """What the probes are about, in a few words."""
        subjects = {one.fact: one.subject for told in self._stated.values() for one in told}
        about = dict.fromkeys(subjects[probe.needs[0]].about for probe in self.probes)
        return ("、" if self.phrases.language == "zh" else ", ").join(about)

    def ask_controls(self, line: Line, operation: str, n: int) -> None:
        """`n` probes about what the line says and no other ever did: most of it said early."""
        asked = {probe.needs[0] for probe in self.probes}
        said_once = [
            one for one in line.current.values() if len(self._stated[one.subject.id]) == 1 and one.fact not in asked
        ]
        early = said_once[: max(n, len(said_once) // 2)]
        for one in self.draw.shuffled(early)[:n]:
            self.ask(line, operation, one.subject)

    def state(
        self, source: str, subject: Subject, *, supersedes: Stated | None = None, adopts: Stated | None = None
    ) -> Stated:
        """The fact of what `source`, the last message, has just stated; `value_of` told its value."""
        value = self.value_of(subject) if adopts is None else adopts.value
        self._facts += 1
        stated = Stated(f"f{self._facts}", subject, value, adopts)
        self.events.append(
            Memory(
                stated.fact,
                subject.fact.format(v=value.text),
                sources=[source],
                supersedes=[] if supersedes is None else [supersedes.fact],
                adopts=None if adopts is None else adopts.fact,
                key=subject.id,
            )
        )
        self._stated.setdefault(subject.id, []).append(stated)
        return stated

    def value_of(self, subject: Subject) -> Value:
        """What the next statement about the subject will say."""
        return self._values[subject.id][len(self._stated.get(subject.id, ()))]

    def take_back(self, line: Line, stated: Stated, scope: Scope) -> None:
        """The retraction of a fact at the last message of the line, and what follows from it for all lines."""
        retraction = f"r{len(self._taken_back) + 1}"
        self.events.append(Retraction(retraction, line.head, scope=scope, memories=[stated.fact]))
        self._taken_back.append((stated, scope, line.tree))
        for other in self._lines:
            if other is line or scope == "everywhere" or (scope == "tree" and other.tree == line.tree):
                _drop(other.current, stated)

    def next_pair(self, line: Line) -> Sequence[Subject]:
        """A pair of which the line has said nothing; nothing where there is none."""
        new = [pair for pair in self._pairs if not any(one.id in line.current for one in pair)]
        return self.draw.pick(new) if new else ()

    def next_single(self, line: Line) -> Sequence[Subject]:
        """One subject of which the line has said nothing: the other half of a pair, where there is one."""
        new = [[one for one in pair if one.id not in line.current] for pair in self._pairs]
        halves = [one for left in new if len(left) == 1 for one in left]
        wholes = [one for left in new if len(left) == 2 for one in left]
        return [self.draw.pick(halves or wholes)] if halves or wholes else ()

    def next_request(self, line: Line) -> Subject | None:
        """A request that the line has not made."""
        return next((one for one in self._requests if one.id not in line.current), None)

    def _line(self, tree: int, head: str | None, depth: int, current: dict[str, Stated]) -> Line:
        line = Line(self, tree, _LETTERS[len(self._lines)], head, depth, current)
        self._lines.append(line)
        return line


@dataclass
class Line:
    """Where somebody is talking: its last message, how many exchanges led there, and what holds by subject."""

    talk: Talk
    tree: int
    letter: str
    last: str | None
    depth: int
    current: dict[str, Stated]

    @property
    def head(self) -> str:
        assert self.last is not None, "a line begins with an exchange"
        return self.last

    def place(self) -> Place:
        """Where the line stands, to fork from later."""
        return Place(self.tree, self.head, self.depth, dict(self.current))

    def exchange(self, user: str, assistant: str) -> None:
        """Two messages that state nothing."""
        self._user(user)
        self._assistant(assistant)

    def tell(self, *subjects: Subject) -> None:
        """The user states one subject or two; an assistant that does not repeat it."""
        self._tell(subjects, echoes=False)

    def correct(self, subject: Subject) -> None:
        """The user states anew what the line has said of a subject, without the old value."""
        phrases, draw = self.talk.phrases, self.talk.draw
        old = self.current[subject.id]
        frame = draw.pick(phrases.corrections)
        self._user(frame.format(about=subject.about, state=self._statement(subject, draw.below(_WORDINGS))))
        self._hold(self.talk.state(self.head, subject, supersedes=old))
        self._assistant(draw.pick(phrases.correction_replies))

    def retract(self, stated: Stated, scope: Scope) -> None:
        """The user takes back what was said of a subject, without the value."""
        phrases, draw = self.talk.phrases, self.talk.draw
        self._user(draw.pick(phrases.retractions[scope]).format(about=stated.subject.about))
        self.talk.take_back(self, stated, scope)
        self._assistant(draw.pick(phrases.retraction_replies))

    def adopt(self, original: Stated) -> None:
        """The user takes over, here, what another line settled about a subject, without the value."""
        phrases, draw = self.talk.phrases, self.talk.draw
        self._user(draw.pick(phrases.adoptions).format(about=original.subject.about))
        self._hold(self.talk.state(self.head, original.subject, adopts=original))
        self._assistant(draw.pick(phrases.adoption_replies))

    def request(self, subject: Subject) -> Place:
        """The user asks for something and the assistant settles it; the place between the two, to answer anew from."""
        self._user(self.talk.draw.pick(subject.calls))
        asked = self.place()
        self.answer(subject)
        return asked

    def answer(self, subject: Subject) -> None:
        """The assistant settles what the user has just asked for."""
        self._assistant(self._statement(subject, self.talk.draw.below(_WORDINGS)))
        self._hold(self.talk.state(self.head, subject))

    def go_on(self) -> None:
        """One exchange about something that the line has not spoken of."""
        talk = self.talk
        left = talk.goal - self.depth - 1
        is_slow = len(self.current) + 1 + left * 3 // 2 < VISIBLE
        request = talk.next_request(self) if talk.draw.happens(_CHANCE_OF_REQUEST) else None
        if request is not None and not is_slow:
            self.request(request)
            return
        told: Sequence[Subject] = talk.next_pair(self)
        if not told or (talk.draw.happens(_CHANCE_OF_SINGLE) and not is_slow):
            told = talk.next_single(self)
        if not told:
            raise PhrasesInvalid(f"{talk.phrases.language}.yaml", f"no subject is left after {self.depth} exchanges")
        self._tell(told, echoes=True)

    def fill(self, until: int) -> None:
        """Go on about whatever has not come up, until the line has so many exchanges."""
        while self.depth < until:
            self.go_on()

    def weave(self, acts: Sequence[Act], until: int) -> None:
        """The acts, of one exchange each, in their order among other exchanges: the first at once, the last late.

        Between here and `until` there are two more exchanges than acts, at least.
        """
        span = until - self.depth
        between = self.talk.draw.shuffled(range(1, max(len(acts) - 1, span * 6 // 10)))[: max(len(acts) - 2, 0)]
        slots = [0, *sorted(between), span - 1 - self.talk.draw.below(3)]
        acts_at = dict(zip(slots, acts, strict=False))
        for slot in range(span):
            if slot in acts_at:
                acts_at[slot]()
            else:
                self.go_on()

    def _tell(self, subjects: Sequence[Subject], *, echoes: bool) -> None:
        phrases = self.talk.phrases
        wording = self.talk.draw.below(_WORDINGS)
        value = self.talk.value_of(subjects[0]).text
        first, *others = [self._statement(subject, wording) for subject in subjects]
        joint = _one_for(first, phrases.joints)
        text = phrases.joined(first, *(phrases.joined(joint, other) for other in others))
        self._user(text)
        for subject in subjects:
            self._hold(self.talk.state(self.head, subject))
        if echoes and len(subjects) == 1 and crc32(text.encode()) % 10 < _ECHOES_OF_TEN:
            reply = _one_for(text, phrases.echoes).format(V=value[0].upper() + value[1:])
        else:
            reply = _one_for(text, phrases.acknowledgements)
        self._assistant(phrases.joined(reply, *subjects[-1].tips))

    def _statement(self, subject: Subject, wording: int) -> str:
        return subject.states[wording % len(subject.states)].format(v=self.talk.value_of(subject).text)

    def _hold(self, stated: Stated) -> None:
        self.current.pop(stated.subject.id, None)
        self.current[stated.subject.id] = stated

    def _user(self, text: str) -> None:
        self.depth += 1
        self._say("user", text)

    def _assistant(self, text: str) -> None:
        self._say("assistant", text)

    def _say(self, role: str, text: str) -> None:
        id = f"{role[0]}{self.depth}{self.letter}"
        self.talk.events.append(Message(id, self.last, role=role, text=text[0].upper() + text[1:]))
        self.last = id


def _one_for(text: str, of: Sequence[str]) -> str:
    """One of several, always the same for the same text: an exchange is told apart by what the user says."""
    return of[crc32(text.encode()) % len(of)]


def _drop(current: dict[str, Stated], stated: Stated) -> None:
    here = current.get(stated.subject.id)
    if here is not None and here.is_from(stated):
        del current[stated.subject.id]
