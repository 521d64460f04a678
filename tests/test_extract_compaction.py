"""A prompt that is brought down to a budget: which stage is tried when, what each leaves, and what is never lost."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from random import Random
from typing import Any

import pytest
from branchmem import Message, Session
from branchmem.extract import (
    Compacted,
    InvalidExtraction,
    ModelSummariser,
    Passage,
    PromptTooLong,
    acompact,
    compact,
    extract,
    summary_of,
    without_frames,
)
from branchmem.extract.frames import EARLIER
from extracting import Scripted, counted, each, talk, visible_to_both
from figures import Figure

pytestmark = pytest.mark.usefixtures("without_disk")

Prompt = list[dict[str, Any]]
SYSTEM = {"role": "system", "content": "Be brief."}


def prompt_of(session: Session) -> tuple[Prompt, list[str | None]]:
    """The path of a session as a prompt, behind instructions."""
    messages = [session.store.log.get(id) for id in session.store.tree.path(session.head)[1:]]
    said = [message for message in messages if isinstance(message, Message)]
    return [SYSTEM, *({"role": one.role, "content": one.text} for one in said)], [None, *(one.id for one in said)]


def call(id: str, **arguments: Any) -> dict[str, Any]:
    function = {"name": "read", "arguments": json.dumps(arguments)}
    return {"role": "assistant", "content": None, "tool_calls": [{"id": id, "type": "function", "function": function}]}


def result(id: str, content: str) -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": id, "content": content}


def user(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


def stages(compacted: Compacted) -> list[str]:
    return [stage.name for stage in compacted.stages]


def words(text: str) -> int:
    return len(text.split())


def compacted(session: Session, budget: int, **options: Any) -> Compacted:
    messages, sources = prompt_of(session)
    options = {"place": session, "sources": sources, "summariser": counted, "tokens": words, **options}
    return compact(messages, budget=budget, **options)


LONG = "word " * 100


# The stages


def test_what_fits_stays_as_it_is(session: Session) -> None:
    messages, sources = prompt_of(session)

    out = compact(messages, budget=100, sources=sources)

    assert (list(out.messages), list(out.sources), out.stages, out.memories) == (messages, sources, (), ())
    assert out.tokens <= out.budget == 100


def test_results_of_tools_are_snipped_first_and_recent_ones_only_as_needed() -> None:
    messages = [user("go"), call("c1"), result("c1", f"first {LONG}last"), user("on"), call("c2"), result("c2", LONG)]
    full = compact(messages, budget=10_000, tokens=words).tokens

    one = compact(messages, budget=full - 10, keep_turns=1, snip_tokens=20, tokens=words)
    both = compact(messages, budget=one.tokens - 10, keep_turns=1, snip_tokens=20, tokens=words)

    assert (stages(one), [stage.changed for stage in one.stages]) == (["snip"], [1])
    text = one.messages[2]["content"]
    assert text.startswith("first word")
    assert text.endswith("word last")
    assert "tokens left out …]" in text
    assert one.messages[5]["content"] == LONG
    assert (one.stages[0].before, one.stages[0].after) == (full, one.tokens)
    assert [stage.changed for stage in both.stages] == [2]
    assert "tokens left out" in both.messages[5]["content"]


def test_then_old_turns_are_shortened_and_recent_ones_are_not() -> None:
    image = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}
    messages: Prompt = [
        SYSTEM | {"content": LONG},
        {"role": "user", "content": [{"type": "text", "text": LONG}, image]},
        {**call("c1", path="a.py", body=LONG), "content": LONG},
        result("c1", "done"),
        user(LONG),
    ]
    out = compact(messages, budget=300, keep_turns=1, shorten_tokens=10, tokens=words)

    assert stages(out) == ["snip", "shorten"]
    assert [stage.changed for stage in out.stages] == [0, 2]
    assert (out.messages[0]["content"], out.messages[4]["content"]) == (LONG, LONG)
    parts = out.messages[1]["content"]
    assert "tokens left out" in parts[0]["text"]
    assert parts[1] == {"type": "text", "text": "[image or file left out]"}
    arguments = json.loads(out.messages[2]["tool_calls"][0]["function"]["arguments"])
    assert arguments["path"] == "a.py"
    assert "tokens left out" in arguments["body"]
    assert messages[1]["content"][1] is image  # what was given is left alone


def test_then_ranges_of_turns_become_summaries_the_oldest_first(session: Session) -> None:
    talk(session, 6, text=lambda number: f"{number} {'word ' * 20}")

    out = compacted(session, 220, range_turns=2, shorten_tokens=1000)

    assert stages(out) == ["snip", "shorten", "collapse"]
    assert [memory.sources for memory in out.memories] == [("a0", "q0", "u1"), ("a1", "a2", "q1", "q2")]
    assert all((memory.kind, memory.key, memory.supersedes) == ("summary", None, ()) for memory in out.memories)
    assert out.messages[1] == user(f"{EARLIER}\n\n- u1,q0,a0\n- q1,a1,q2,a2")
    assert out.sources[:3] == (None, None, "q3")
    assert out.ids == tuple(memory.id for memory in out.memories)
    assert [session.view()[id].text for id in out.ids] == ["u1,q0,a0", "q1,a1,q2,a2"]


def test_a_summary_of_a_range_is_made_once(session: Session) -> None:
    talk(session, 6, text=lambda number: f"{number} {'word ' * 20}")
    first = compacted(session, 220, range_turns=2, shorten_tokens=1000)
    talk(session, 1, start=6)

    def unasked(passage: Passage) -> str:
        pytest.fail("summarised again")

    assert compacted(session, 250, range_turns=2, shorten_tokens=1000, summariser=unasked).ids == first.ids


def test_at_last_the_summary_of_the_session_stands_for_all_but_the_last_turns(session: Session) -> None:
    talk(session, 6, text=lambda number: f"{number} {'word ' * 20}")

    out = compacted(session, 130, range_turns=2, shorten_tokens=1000)

    assert stages(out) == ["snip", "shorten", "collapse", "summarise"]
    assert [message["role"] for message in out.messages] == ["system", "user", "user", "assistant", "user", "assistant"]
    assert out.sources == (None, None, "q4", "a4", "q5", "a5")
    assert out.memories == (summary_of(session),)
    assert out.memories[0].text == "u1,q0,a0,q1,a1,q2,a2,q3,a3"
    assert [stage.after for stage in out.stages[:-1]] == [stage.before for stage in out.stages[1:]]
    assert out.stages[-1].after == out.tokens <= 130


def test_a_prompt_that_grows_again_is_brought_down_again(session: Session) -> None:
    talk(session, 6, text=lambda number: f"{number} {'word ' * 20}")
    once = compacted(session, 220, range_turns=2, shorten_tokens=1000)
    talk(session, 3, start=6, text=lambda number: f"{number} {'word ' * 20}")
    messages, sources = prompt_of(session)
    grown = [*once.messages, *messages[len(messages) - 6 :]], [*once.sources, *sources[len(sources) - 6 :]]

    twice = compact(
        grown[0], budget=140, place=session, sources=grown[1], summariser=counted, range_turns=9, tokens=words
    )

    assert stages(twice)[-1] == "summarise"
    assert [EARLIER in str(form["content"]) for form in twice.messages] == [False, True, *[False] * 4]
    assert twice.memories[0].text.startswith("u1,q0,a0,q1")  # all of the path, not what was left of the prompt


def test_the_log_loses_nothing_and_gains_summaries_only(session: Session) -> None:
    talk(session, 6, text=lambda number: f"{number} {'word ' * 20}")
    before = list(session.store.log.events())
    head = session.head

    compacted(session, 130, range_turns=2, shorten_tokens=1000)

    after = list(session.store.log.events())
    assert (after[: len(before)], session.head) == (before, head)
    assert {event.type for event in after[len(before) :]} == {"memory"}


def test_a_prompt_that_cannot_be_brought_down_is_refused_with_what_was_tried(session: Session) -> None:
    talk(session, 3)

    with pytest.raises(PromptTooLong, match="of 52 tokens cannot be brought down to 10") as refused:
        compact(prompt_of(session)[0], budget=10, tokens=words)
    assert "summarise: 52 → 52 tokens, 0 messages (needs a session or store, a summariser" in str(refused.value)
    with pytest.raises(PromptTooLong, match=r"collapse: .*summarise: "):
        compacted(session, 10)


# What stays together, and what stays


@pytest.mark.soak
def test_a_call_and_its_result_go_together_or_stay_together(figure: Figure) -> None:
    random = Random(5)
    for _ in range(figure(60, 5000)):
        messages, sources = _random_prompt(random)
        try:
            out = compact(
                messages,
                budget=random.randrange(20, 400),
                keep_turns=random.randrange(1, 4),
                snip_tokens=5,
                shorten_tokens=3,
                tokens=words,
            )
        except PromptTooLong:
            continue
        calls = {one["id"] for form in out.messages for one in form.get("tool_calls") or ()}
        results = {form["tool_call_id"] for form in out.messages if form["role"] == "tool"}
        assert calls == results
        assert len(out.sources) == len(out.messages) or not sources
        assert out.tokens <= out.budget


def _random_prompt(random: Random) -> tuple[Prompt, list[str | None]]:
    messages: Prompt = [SYSTEM]
    for number in range(random.randrange(1, 8)):
        messages.append(user("word " * random.randrange(30)))
        if random.random() < 0.6:
            messages.append(call(f"c{number}", body="word " * random.randrange(30)))
            if random.random() < 0.3:
                messages.append(user("wait"))
            messages.append(result(f"c{number}", "word " * random.randrange(60)))
    return messages, []


def test_turns_with_a_call_that_is_answered_later_are_one(session: Session) -> None:
    store = session.store
    ids = [f"x{number}" for number in range(8)]
    store.append([Message(id, below, role="user", text=LONG) for id, below in zip(ids, ["u1", *ids], strict=False)])
    messages = [SYSTEM, user(LONG), call("c1"), user(LONG), result("c1", LONG), user(LONG), user(LONG), user("now")]

    out = compact(
        messages,
        budget=200,
        place=store,
        sources=[None, *ids[:7]],
        summariser=counted,
        keep_turns=2,
        range_turns=1,
        snip_tokens=1000,
        shorten_tokens=1000,
        tokens=words,
    )

    assert [memory.text for memory in out.memories] == ["x0,x1,x2,x3", "x4"]
    assert out.sources == (None, None, "x5", "x6")


def test_instructions_stay_where_they_are(session: Session) -> None:
    talk(session, 5, text=lambda number: f"{number} {'word ' * 20}")
    messages, sources = prompt_of(session)
    messages.insert(4, {"role": "developer", "content": LONG})
    sources.insert(4, None)

    out = compact(messages, budget=260, place=session, sources=sources, summariser=counted, tokens=words)

    assert (out.messages[0], out.messages[2]) == (SYSTEM, messages[4])


def test_turns_that_are_not_in_the_log_stay(session: Session) -> None:
    talk(session, 4, text=lambda number: f"{number} {'word ' * 20}")
    messages, sources = prompt_of(session)
    messages[1:1] = [user("an example"), {"role": "assistant", "content": "of an answer"}]
    sources[1:1] = [None, None]

    out = compact(messages, budget=140, place=session, sources=sources, summariser=counted, tokens=words)

    assert list(out.messages[1:3]) == messages[1:3]
    assert stages(out)[-1] == "summarise"
    assert out.stages[-1].note == "1 turns with messages that are not in the log stay as they are"


# Whatever stands in for turns


def test_what_was_taken_back_stands_in_no_summary(session: Session) -> None:
    talk(session, 6, text=lambda number: f"{number} {'word ' * 20}")
    memory = session.remember("likes fish", sources=["q1"])
    with session.step() as step:
        step.recall("fish")
        step.write("Fish, then.")
    session.store.retract(memories=[memory.id], at=session.head, scope="tree")

    for budget in (220, 130):
        texts = [one.text for one in compacted(session, budget, range_turns=2, shorten_tokens=1000).memories]
        assert texts
        assert not any("q1" in text or step.id in text for text in texts)


def test_what_is_taken_back_later_takes_the_summary_with_it(session: Session) -> None:
    memory = session.remember("likes fish", sources=["u1"])
    with session.step() as step:
        step.recall("fish")
        step.write("Fish, then. " + LONG)
    talk(session, 3, text=lambda number: f"{number} {'word ' * 20}")
    out = compacted(session, 150)
    assert [one.derived_from for one in out.memories] == [(memory.id,)]
    session.store.retract(memories=[memory.id], at=session.head, scope="branch")

    assert visible_to_both(session.store, session.head) == set()


def test_a_summary_in_a_prompt_is_no_source(session: Session) -> None:
    talk(session, 6, text=lambda number: f"{number} {'word ' * 20}")
    out = compacted(session, 130, range_turns=2, shorten_tokens=1000)
    block = str(out.messages[1]["content"])
    session.say("user", f"{block}\n\nSo?", id="pasted")

    extract(session, each, since="a5")

    assert without_frames(block) == ""
    (memory,) = [one for one in session.view().memories() if one.sources == ("pasted",)]
    assert memory.text == "So?"


def test_a_summary_that_is_longer_than_its_range_is_not_taken(session: Session) -> None:
    talk(session, 6)
    seq = session.store.seq

    with pytest.raises(PromptTooLong, match="2 of 2 ranges stay as they are"):
        compacted(session, 40, range_turns=2, summariser=lambda passage: LONG)

    assert session.store.seq == seq + 1  # the summary of the session, which is asked for whatever it takes


def test_a_model_summarises(session: Session) -> None:
    talk(session, 6, text=lambda number: f"{number} {'word ' * 20}")
    model = Scripted("They counted words.")

    out = compacted(session, 130, range_turns=9, shorten_tokens=1000, summariser=ModelSummariser(model))

    assert [memory.text for memory in out.memories] == ["They counted words."]


# Refusals, and event loops


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"budget": 0}, "budget=0"),
        ({"keep_turns": 0}, "keep_turns=0"),
        ({"range_turns": 0}, "range_turns=0"),
        ({"sources": ["u1"]}, "one id or None for each of 2 messages"),
        ({"sources": "u1"}, "one id or None"),
        ({"messages": "hello"}, "a list of messages"),
        ({"messages": [3]}, "a list of messages"),
        ({"messages": [user("hi"), {"role": "assistant", "tool_calls": [object()]}]}, r"messages\[1\].tool_calls"),
        ({"messages": [{"role": "assistant", "tool_calls": [{"function": object()}]}]}, r"messages\[0\].tool_calls"),
        ({"messages": [{"role": "assistant", "tool_calls": 5}]}, r"messages\[0\].tool_calls=5"),
    ],
)
def test_what_cannot_be_asked_is_refused(session: Session, options: Mapping[str, Any], says: str) -> None:
    asked: dict[str, Any] = {"messages": [SYSTEM, user("hi")], "budget": 100, "place": session, **options}
    with pytest.raises(InvalidExtraction, match=says):
        compact(asked.pop("messages"), **asked)


def test_messages_of_two_branches_are_refused(session: Session) -> None:
    talk(session, 3, text=lambda number: LONG)
    messages, sources = prompt_of(session)
    session.edit("q0", "otherwise", id="q0x")
    sources[2] = "q0x"

    with pytest.raises(InvalidExtraction, match="sources='q0x': it does not lie on the path of a2"):
        compact(messages, budget=100, place=session, sources=sources, summariser=counted, tokens=words)


def test_the_twin_does_the_same(session: Session) -> None:
    talk(session, 6, text=lambda number: f"{number} {'word ' * 20}")
    messages, sources = prompt_of(session)

    async def slowly(passage: Passage) -> str:
        await asyncio.sleep(0)
        return counted(passage)

    async def work() -> Compacted:
        return await acompact(
            messages, budget=130, place=session, sources=sources, summariser=slowly, shorten_tokens=1000, tokens=words
        )

    out = asyncio.run(work())
    given: Sequence[Mapping[str, Any]] = out.messages

    assert (stages(out)[-1], len(given)) == ("summarise", 6)
    assert json.dumps(out.to_dict())
    assert str(out).splitlines()[0] == f"{out.tokens} of 130 tokens"
