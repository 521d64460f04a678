"""How the conversations of the Long part branch, one layout an operation, and what each is asked.

Every layout lays out one talk: a trunk, lines that are left again after several exchanges, and a line (or two) that
goes on for twenty and more, where the questions are asked.  What a question is about was mostly said early there, so
that its newest messages do not have it.  A layout draws whatever it may, in the same order for every language.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

from branchmem.branchbench.long.phrases import Subject
from branchmem.branchbench.long.talk import Act, Line, Talk

CORRECTED: Final = "The old value stands on the path, in the message that was corrected later."
TAKEN_BACK: Final = "The message that first stated it stands on the path; only the retraction forbids it."
SLIP: Final = (
    "What is forbidden corrects what is needed: a reader may hold that the correction is true on every branch."
)
ELSEWHERE: Final = "What is forbidden was stated in another conversation, which a memory of the user may span."
TAKEN_OVER: Final = "The value was said on another branch only: who reads the messages of this one cannot know it."


def edit(talk: Talk) -> None:
    """The user rewrites an earlier message, after several exchanges below it, and goes on from there."""
    first, second, third, lost, spare = talk.take_pairs(5)
    main = talk.start()
    main.fill(talk.draw.between(4, 6))
    place = main.place()
    for pair in (first, second, lost):
        main.tell(*pair)
    _wander(main)
    main.tell(*third)
    _wander(main)
    edited = talk.fork(place)
    acts = [partial(edited.tell, *told) for told in (first, second, third[:1], third[1:])]
    _go_on_with_a_correction(edited, acts, spare[0])
    for subject in (*first, talk.draw.pick(second), talk.draw.pick(third)):
        talk.ask(edited, "edit", subject)
    talk.ask_controls(edited, "edit", 2)


def regenerate(talk: Talk) -> None:
    """The assistant answers anew, twice: after the talk went on from its first answer, and shortly after another."""
    table, second, third, fourth = talk.take_requests(4)
    (pair,) = talk.take_pairs(1)
    main = talk.start()
    main.fill(talk.draw.between(4, 6))
    asked = main.request(table)
    main.request(second)
    main.tell(*pair)
    _wander(main)
    again = talk.fork(asked)
    again.answer(table)
    again.weave([partial(again.tell, *pair), partial(again.request, second)], talk.draw.between(13, 15))
    asked = again.request(third)
    again.request(fourth)
    again.go_on()
    newest = talk.fork(asked)
    newest.answer(third)
    newest.weave([newest.go_on, partial(newest.request, fourth)], talk.goal)
    for subject in (table, second, third, fourth, talk.draw.pick(pair)):
        talk.ask(newest, "regenerate", subject)
    talk.ask_controls(newest, "regenerate", 2)


def fork(talk: Talk) -> None:
    """Two lines of work from one checkpoint, both carried to their end; questions on either."""
    first, second, *own = talk.take_pairs(4)
    main = talk.start()
    main.fill(talk.draw.between(6, 8))
    main.exchange(*talk.draw.pick(talk.phrases.checkpoints))
    place = main.place()
    lines = [main, talk.fork(place)]
    for line, only_here in zip(lines, own, strict=True):
        acts = [partial(line.tell, *told) for told in (first, only_here, second[:1], second[1:])]
        line.weave(acts, talk.goal)
    for line, subject in zip(lines, talk.draw.shuffled(first), strict=True):
        talk.ask(line, "fork", subject)
        talk.ask(line, "fork", talk.draw.pick(second))
        talk.ask_controls(line, "fork", 1)


def nested_fork(talk: Talk) -> None:
    """A fork in a fork in a fork, three or four deep: each level settles something and is then left for the next."""
    levels = talk.draw.between(3, 4)
    pairs = talk.take_pairs(levels + 1)
    line = talk.start()
    line.fill(talk.draw.between(4, 5))
    for level in range(levels):
        place = line.place()
        line.tell(*pairs[level])
        line.tell(*pairs[level + 1])
        if talk.draw.happens(0.5):
            line.go_on()
        line = talk.fork(place)
        line.tell(*pairs[level])
        line.go_on()
    line.weave([line.go_on, partial(line.tell, *pairs[levels])], talk.goal)
    for pair in (pairs[0], pairs[1], talk.draw.pick(pairs[2:levels]), pairs[levels]):
        talk.ask(line, "nested_fork", talk.draw.pick(pair))
    talk.ask_controls(line, "nested_fork", 2)


def switch_back(talk: Talk) -> None:
    """The user tries another line for a while, then returns to the first and goes on there."""
    first, second, third, lost, spare = talk.take_pairs(5)
    main = talk.start()
    main.fill(talk.draw.between(4, 6))
    place = main.place()
    main.tell(*first)
    main.tell(*second)
    _wander(main)
    other = talk.fork(place)
    for pair in (second, third, lost):
        other.tell(*pair)
        if talk.draw.happens(0.5):
            other.go_on()
    other.tell(*first)
    if talk.draw.happens(0.5):
        main.exchange(*talk.draw.pick(talk.phrases.returns))
    _go_on_with_a_correction(main, [partial(main.tell, third[0]), partial(main.tell, third[1])], spare[0])
    for subject in (*first, talk.draw.pick(second), talk.draw.pick(third)):
        talk.ask(main, "switch_back", subject)
    talk.ask_controls(main, "switch_back", 2)


def correct(talk: Talk) -> None:
    """Corrections on the current line, one of them twice; and others on a line that was left, which hold only there."""
    first, second, third, lost = talk.take_pairs(4)
    main = talk.start()
    main.fill(talk.draw.between(2, 3))
    for pair in (first, second, third):
        main.tell(*pair)
        main.go_on()
    place = main.place()
    main.correct(first[0])
    main.tell(*lost)
    main.correct(second[0])
    _wander(main)
    kept = talk.fork(place)
    acts = [partial(kept.correct, subject) for subject in (second[1], third[0], third[1], third[0])]
    kept.weave(acts, talk.goal)
    for subject in (first[0], second[0]):
        talk.ask(kept, "correct", subject, contested=SLIP)
    for subject in (second[1], *third):
        talk.ask(kept, "correct", subject, contested=CORRECTED)
    talk.ask_controls(kept, "correct", 2)


def retract_branch(talk: Talk) -> None:
    """Something is taken back on one line only: there it is forbidden, on the other it is still the answer."""
    first, second, third = talk.take_pairs(3)
    main = talk.start()
    main.fill(talk.draw.between(3, 4))
    for pair in (first, second):
        main.tell(*pair)
        main.go_on()
    place = main.place()
    taken_back = [main.current[pair[0].id] for pair in (first, second)]
    acts: list[Act] = []
    for stated in taken_back:
        acts += (partial(main.retract, stated, "branch"), partial(main.tell, stated.subject))
    main.weave([*acts, partial(main.tell, *third)], talk.goal)
    other = talk.fork(place)
    other.weave([partial(other.tell, *third)], talk.goal)
    for stated in taken_back:
        talk.ask(main, "retract_branch", stated.subject, contested=TAKEN_BACK)
        talk.ask(other, "retract_branch", stated.subject)
    talk.ask_controls(main, "retract_branch", 1)
    talk.ask_controls(other, "retract_branch", 1)


def retract_tree(talk: Talk) -> None:
    """Something is taken back for a whole conversation: on both lines of it, but not by another conversation."""
    first, second, kept = talk.take_pairs(3)
    main = talk.start()
    main.fill(talk.draw.between(3, 4))
    for pair in (first, second, kept):
        main.tell(*pair)
    main.fill(talk.draw.between(8, 9))
    place = main.place()
    early, late = (main.current[pair[0].id] for pair in (first, second))
    main.retract(early, "tree")
    _wander(main)
    main.tell(early.subject)
    other = talk.fork(place)
    acts = [partial(other.tell, early.subject), partial(other.retract, late, "tree"), partial(other.tell, late.subject)]
    other.weave([*acts, other.go_on], talk.goal)
    elsewhere = talk.start()
    for subject in kept:
        elsewhere.retract(main.current[subject.id], "tree")
    elsewhere.tell(*kept)
    main.weave([partial(main.tell, late.subject), main.go_on], talk.goal)
    for line, stated in ((main, early), (other, early), (talk.draw.pick((main, other)), late)):
        talk.ask(line, "retract_tree", stated.subject, contested=TAKEN_BACK)
    for line, subject in zip((main, other), kept, strict=True):
        talk.ask(line, "retract_tree", subject, contested=ELSEWHERE)
        talk.ask_controls(line, "retract_tree", 1)


def retract_everywhere(talk: Talk) -> None:
    """Something is taken back for good, in another conversation too: it is forbidden on every line.

    So is what one line had taken over from another before it was taken back there.
    """
    first, second, shared = talk.take_pairs(3)
    main = talk.start()
    main.fill(talk.draw.between(3, 4))
    for pair in (first, second):
        main.tell(*pair)
    main.fill(talk.draw.between(8, 9))
    place = main.place()
    early, late = (main.current[pair[0].id] for pair in (first, second))
    main.tell(*shared)
    main.go_on()
    originals = [main.current[subject.id] for subject in shared]
    other = talk.fork(place)
    for original in originals:
        other.go_on()
        other.adopt(original)
    elsewhere = talk.start()
    for stated in (early, originals[0]):
        elsewhere.retract(stated, "everywhere")
    elsewhere.go_on()
    main.retract(originals[1], "everywhere")
    other.weave(
        [
            partial(other.tell, early.subject),
            partial(other.tell, *shared),
            partial(other.retract, late, "everywhere"),
            partial(other.tell, late.subject),
        ],
        talk.goal,
    )
    main.weave([partial(main.tell, early.subject), partial(main.tell, late.subject)], talk.goal)
    for line, stated in ((main, early), (other, early), (talk.draw.pick((main, other)), late)):
        talk.ask(line, "retract_everywhere", stated.subject, contested=TAKEN_BACK)
    for subject in shared:
        talk.ask(other, "retract_everywhere", subject)
    for line in (main, other):
        talk.ask_controls(line, "retract_everywhere", 1)


def adopt(talk: Talk) -> None:
    """From a line that was left, two things are taken over; what was said with them there stays behind."""
    first, second, third, lost = talk.take_pairs(4)
    main = talk.start()
    main.fill(talk.draw.between(4, 6))
    place = main.place()
    for pair in (first, second, third):
        main.tell(*pair)
        if talk.draw.happens(0.5):
            main.go_on()
    main.tell(*lost)
    found = [main.current[pair[0].id] for pair in (first, second)]
    left = [main.current[pair[1].id] for pair in (first, second)]
    here = talk.fork(place)
    acts = [
        partial(here.tell, third[0]),
        partial(here.adopt, found[0]),
        partial(here.tell, second[1]),
        partial(here.adopt, found[1]),
        partial(here.tell, third[1]),
    ]
    here.weave(acts, talk.goal)
    for taken, around in zip(found, left, strict=True):
        talk.ask(here, "adopt", taken.subject, also=[around], contested=TAKEN_OVER)
    talk.ask(here, "adopt", second[1])
    talk.ask(here, "adopt", talk.draw.pick(third))
    talk.ask_controls(here, "adopt", 2)


def _wander(line: Line) -> None:
    """Two exchanges or three about other things."""
    line.fill(line.depth + line.talk.draw.between(2, 3))


def _go_on_with_a_correction(line: Line, acts: Sequence[Act], subject: Subject) -> None:
    """To the end of the line; now and then the subject is stated and corrected on the way, and asked for."""
    talk = line.talk
    if talk.draw.happens(0.5):
        line.weave([*acts[:-1], partial(line.tell, subject)], talk.goal - 6)
        line.correct(subject)
        line.weave([line.go_on, acts[-1]], talk.goal)
        talk.ask(line, "correct", subject, contested=CORRECTED)
    else:
        line.weave(acts, talk.goal)


#: By operation, in the order in which the numbers of scenarios take them in turn.
LAYOUTS: Final[dict[str, Callable[[Talk], None]]] = {
    "edit": edit,
    "regenerate": regenerate,
    "fork": fork,
    "switch_back": switch_back,
    "correct": correct,
    "nested_fork": nested_fork,
    "retract_branch": retract_branch,
    "retract_tree": retract_tree,
    "retract_everywhere": retract_everywhere,
    "adopt": adopt,
}
