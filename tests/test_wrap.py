"""A wrapped client: each call is a step where its messages belong, and what belongs nowhere is refused."""

from __future__ import annotations

import asyncio
import gc
import threading
from collections.abc import Iterator
from typing import Any, cast

import branchmem as bm
import pytest
from branchmem.agent import AsyncWrapped, Turn, Wrapped, wrap
from branchmem.chat import Reply
from branchmem.errors.agent import (
    ForeignSession,
    InvalidModel,
    NoAnswer,
    NotAStep,
    PlaceAmbiguous,
    PlaceUnknown,
)
from branchmem.extract import Found, Shown, extract
from branchmem.session import Session
from clients import AsyncClient, Client
from wrapping import ask, each_answer, memories, receipt, said, turns

pytestmark = pytest.mark.usefixtures("without_disk")


@pytest.fixture
def session() -> Iterator[Session]:
    with bm.open_temporary() as store:
        yield store.session("chat")


def test_each_call_is_a_step_and_its_answer_is_what_the_client_gave(session: Session) -> None:
    client = Client("One.", "Two.")
    wrapped = wrap(client, session)
    answer = ask(wrapped, turns("Hi"), temperature=0.5)
    assert answer.choices[0].message.content == "One."
    assert client.sent[0] == {"model": "m", "messages": turns("Hi"), "temperature": 0.5}
    ask(wrapped, turns("Hi", "One.", "Go on"))
    assert said(session) == ["Hi", "One.", "Go on", "Two."]
    message = session.store.log.get(session.head)
    assert isinstance(message, bm.Message)
    assert (message.role, message.meta["model"], message.meta["finish"]) == ("assistant", "m", "stop")


def test_a_stream_is_a_step_that_ends_with_the_answer(session: Session) -> None:
    wrapped = wrap(Client("One two."), session)
    head = session.head
    stream = ask(wrapped, turns("Hi"), stream=True)
    assert stream.response == "raw"
    words, is_whole = [], False
    for chunk in stream:
        for choice in chunk.choices:
            words.append(getattr(choice.delta, "content", ""))
            is_whole = is_whole or choice.finish_reason is not None
        assert (session.head != head) == is_whole
    assert "".join(words) == "One two."
    assert said(session) == ["Hi", "One two."]


def test_edit_regenerate_and_going_back_see_their_own_branch(session: Session) -> None:
    wrapped = wrap(Client("A1", "A2", "B2", "A2 again", "A3"), session, extractor=each_answer)
    ask(wrapped, turns("u1"))
    ask(wrapped, turns("u1", "A1", "u2"))
    assert memories(session) == ["m: A1", "m: A2"]
    ask(wrapped, turns("u1", "A1", "u2 edited"))
    assert memories(session) == ["m: A1", "m: B2"]
    ask(wrapped, turns("u1", "A1", "u2"))
    assert memories(session) == ["m: A1", "m: A2 again"]
    ask(wrapped, turns("u1", "A1", "u2", "A2", "u3"))
    assert memories(session) == ["m: A1", "m: A2", "m: A3"]
    assert len(session.store.message_ids) == 1 + 9


def test_the_plain_log_of_a_session_leaks_where_a_wrapped_client_does_not(session: Session) -> None:
    """What an application does that writes each call down at the head: an edit is one more turn there."""
    for text, answer in (("I like tea", "Tea!"), ("I like coffee", "Coffee!")):
        session.say("user", text)
        with session.step() as step:
            step.write(answer)
            step.remember(f"m: {answer}")
    assert memories(session) == ["m: Coffee!", "m: Tea!"]
    other = session.store.session("other")
    wrapped = wrap(Client("Tea!", "Coffee!"), other, extractor=each_answer)
    for text in ("I like tea", "I like coffee"):
        ask(wrapped, turns(text))
    assert memories(other) == ["m: Coffee!"]


def test_an_answer_that_the_application_edited_is_a_branch(session: Session) -> None:
    wrapped = wrap(Client("A1", "A2"), session, extractor=each_answer)
    ask(wrapped, turns("u1"))
    ask(wrapped, turns("u1", "mine", "u2"))
    assert (said(session), memories(session)) == (["u1", "mine", "u2", "A2"], ["m: A2"])


def test_what_was_taken_back_does_not_return_by_an_answer_that_the_application_edited(session: Session) -> None:
    memory = session.remember("The user likes tea.", sources=[session.say("user", "Tea is what I like.")])
    wrapped = wrap(Client("**You like tea.**", "Bye."), session, recall={})
    ask(wrapped, turns("Tea is what I like."))
    assert receipt(session) == (memory.id,)
    ask(wrapped, turns("Tea is what I like.", "You like tea.", "Bye"))  # the marks were taken out

    extract(session, lambda shown: [Found(str(one.text), (one.id,)) for one in shown.messages])
    session.store.retract(memories=[memory.id], at=session.head, scope="branch")

    assert memories(session) == ["Bye", "Bye.", "Tea is what I like."]


def test_an_answer_that_is_said_again_elsewhere_keeps_its_receipt(session: Session) -> None:
    memory = session.remember("The user likes tea.", sources=[session.store.tree.roots()[0]])
    wrapped = wrap(Client("You like tea.", "Bye."), session, recall={})
    ask(wrapped, turns("What do I like? Tea?"))
    ask(wrapped, turns("Hi", "Hello", "And?", "You like tea.", "Bye"))
    store = session.store
    path = [store.log.get(id) for id in store.tree.path(session.head)]
    receipts = [message.meta.get("recalled") for message in path if isinstance(message, bm.Message)]
    assert receipts[4] == (memory.id,)


def test_an_answer_is_not_edited_where_nobody_can_say_what_it_was_written_with(session: Session) -> None:
    u1 = session.say("user", "u1")
    a1 = bm.Message("a1", u1.id, role="assistant", text="A1", meta={"recalled": "home"})
    session.store.append([a1])
    session.switch("a1")
    wrapped = wrap(Client("A2"), session)
    before = session.store.seq
    with pytest.raises(bm.InvalidEvent, match=r"the receipt of a1 is no list .*: give the list a session of its own"):
        ask(wrapped, turns("u1", "mine", "u2"))
    assert session.store.seq == before
    ask(wrapped, turns("u1", "A1", "u2"))
    assert said(session) == ["u1", "A1", "u2", "A2"]


@pytest.mark.parametrize("stream", [False, True])
def test_a_call_that_fails_leaves_nothing_that_a_retry_sees(session: Session, stream: bool) -> None:
    failing = Reply("Half an", finish="break") if stream else ConnectionError("gone")
    wrapped = wrap(Client("A1", failing, "A2"), session, extractor=each_answer)
    ask(wrapped, turns("u1"))
    head = session.head
    with pytest.raises((ConnectionError, NoAnswer)):
        for _ in ask(wrapped, turns("u1", "A1", "u2"), stream=stream):
            pass
    assert (session.head, memories(session)) == (head, ["m: A1"])
    ask(wrapped, turns("u1", "A1", "u2"))
    assert (said(session), memories(session)) == (["u1", "A1", "u2", "A2"], ["m: A1", "m: A2"])
    assert len(session.store.message_ids) == 1 + 4


def test_a_stream_that_is_left_is_no_step_and_stands_in_nobodys_way(session: Session) -> None:
    wrapped = wrap(Client("One two.", "Three four.", "Five."), session)
    closed = ask(wrapped, turns("u1"), stream=True)
    next(closed)
    closed.close()
    assert closed._stream.closed
    left = ask(wrapped, turns("u1"), stream=True)
    next(left)
    assert said(session) == []
    ask(wrapped, turns("u1"))
    del left
    gc.collect()
    assert said(session) == ["u1", "Five."]


def test_who_stops_reading_at_the_end_of_the_answer_has_it(session: Session) -> None:
    wrapped = wrap(Client("One two."), session)
    with ask(wrapped, turns("u1"), stream=True) as stream:
        for chunk in stream:
            if chunk.choices[0].finish_reason:
                break
    assert said(session) == ["u1", "One two."]


def test_an_extractor_that_fails_costs_nobody_the_answer(session: Session) -> None:
    def broken(shown: Shown) -> list[Found]:
        raise KeyError("a bug")

    ask(wrap(Client("A1"), session, extractor=broken), turns("u1"))
    assert said(session) == ["u1", "A1"]


def test_of_two_equal_places_the_one_counts_where_the_session_stands(session: Session) -> None:
    wrapped = wrap(Client("Yes.", "Yes.", "More."), session, extractor=each_answer)
    ask(wrapped, turns("u1"))
    first = session.head
    ask(wrapped, turns("u1"))
    second = session.head
    ask(wrapped, turns("u1", "Yes.", "u2"))
    assert session.store.tree.is_ancestor(second, session.head)
    assert not session.store.tree.is_ancestor(first, session.head)


def test_of_two_equal_places_none_is_guessed(session: Session) -> None:
    client = Client("Yes.", "Yes.", "Other.", "More.")
    wrapped = wrap(client, session)
    ask(wrapped, turns("u1"))
    first = session.head
    ask(wrapped, turns("u1"))
    second = session.head
    ask(wrapped, turns("u1 edited"))
    with pytest.raises(PlaceAmbiguous, match="the first 2 of the messages fit 2 places") as refused:
        ask(wrapped, turns("u1", "Yes.", "u2"))
    assert set(refused.value.places) == {first, second}
    assert len(client.sent) == 3
    session.switch(first)
    ask(wrapped, turns("u1", "Yes.", "u2"))
    assert session.store.tree.is_ancestor(first, session.head)


def test_a_list_that_left_something_out_has_no_place(session: Session) -> None:
    client = Client("A1", "A2", "A3")
    wrapped = wrap(client, session)
    conversation = ["u1", "A1", "u2", "A2", "u3"]
    for end in (1, 3, 5):
        ask(wrapped, turns(*conversation[:end]))
    head = session.head
    for cut in (
        turns("u2", "A2", "u4"),
        turns("u1", "A1", "u3", "A3", "u4"),
        turns("", "A2", "u3", "A3")[1:],
        turns("u1", "A2", "u4"),
        turns("", "A2", "u4")[1:],
    ):
        with pytest.raises(PlaceUnknown, match="give the whole conversation"):
            ask(wrapped, cut)
    assert (session.head, len(client.sent), len(session.store.message_ids)) == (head, 3, 7)


def test_a_conversation_that_begins_with_a_message_has_one_beginning() -> None:
    with bm.open_temporary() as store:
        store.append([bm.Message("u1", None, role="user", text="u1")])
        store.refs.create("chat", "u1")
        wrapped = wrap(Client("A1", "A2"), store.session("chat"))
        ask(wrapped, turns("u1"))
        ask(wrapped, turns("u1", "A1", "u2"))
        with pytest.raises(PlaceUnknown, match="no root above it"):
            ask(wrapped, turns("other"))


def test_what_hangs_below_without_saying_anything_is_stood_at(session: Session) -> None:
    wrapped = wrap(Client("A1", "A2", "B1", "A2 again"), session)
    ask(wrapped, turns("u1"))
    store = session.store
    other = store.session("other")
    memory = other.remember("A thing.", sources=[other.say("user", "x")])
    store.adopt([memory.id], into="chat")
    ask(wrapped, turns("u1", "A1", "u2"))
    assert memories(session) == ["A thing."]
    ask(wrapped, turns("u1 edited"))
    assert memories(session) == []
    ask(wrapped, turns("u1", "A1", "u2"))
    assert memories(session) == ["A thing."]


@pytest.mark.parametrize("mine", [True, False])
def test_unless_another_branch_put_it_there_for_itself(session: Session, mine: bool) -> None:
    wrapped = wrap(Client("A1", "B1", "A2"), session)
    ask(wrapped, turns("u1"))
    branch = session if mine else session.fork("branch")
    branch.say("checkpoint", None)
    branch.remember("A thing.", sources=[branch.head])
    ask(wrapped, turns("another beginning"))
    ask(wrapped, turns("u1", "A1", "u2"))
    assert memories(session) == (["A thing."] if mine else [])


def test_what_two_branches_say_alike_is_one_place_only_where_an_answer_says_so(session: Session) -> None:
    wrapped = wrap(Client("A1", "A2", "A3"), session)
    ask(wrapped, turns("u1"))
    branch, store = session.fork("branch"), session.store
    other = store.session("other")
    store.adopt([other.remember("A thing.", sources=[other.say("user", "x")]).id], into="branch")
    ask(wrap(Client("B1"), branch), turns("u1", "A1", "go on"))
    ask(wrapped, turns("u1", "A1", "go on"))
    assert (memories(session), memories(branch)) == ([], ["A thing."])
    ask(wrapped, turns("u1", "A1", "go on", "B1", "and then?"))
    assert memories(session) == ["A thing."]


def test_a_list_without_a_turn_has_no_place(session: Session) -> None:
    for messages in ([], [{"role": "system", "content": "x"}]):
        with pytest.raises(PlaceUnknown, match="nothing besides instructions"):
            ask(wrap(Client("A1"), session), messages)


def test_what_would_be_no_step_is_refused_and_the_rest_is_the_clients(session: Session) -> None:
    client = Client("A1", "A2")
    wrapped = wrap(client, session)
    for refused in (
        lambda: wrapped.responses,
        lambda: wrapped.chat.completions.parse,
        lambda: wrapped.chat.completions.stream,
        lambda: wrapped.beta,
        lambda: ask(wrapped, turns("u1"), n=2),
        lambda: wrapped.chat.completions.create(model="m"),
        lambda: ask(wrapped, cast(Any, None)),
    ):
        with pytest.raises(NotAStep):
            refused()
    assert client.sent == []
    assert wrapped.models.list() == ["m"]
    ask(wrapped.with_options(timeout=3), turns("u1"))
    assert said(session) == ["u1", "A1"]
    wrapped.close()
    assert client.closed


def test_what_is_recalled_is_sent_and_never_said(session: Session) -> None:
    client = Client("A1", "A2", "A3")
    session.remember("The user lives in Chengdu.", sources=[session.store.tree.roots()[0]])
    wrapped = wrap(client, session, recall={"budget": 200})
    ask(wrapped, turns("What is in Chengdu?"))
    ask(wrapped, [{"role": "system", "content": "Be brief."}, *turns("What is in Chengdu?", "A1", "In Chengdu?")])
    first, second = (form["messages"] for form in client.sent)
    assert first[0]["role"] == "system"
    assert second[0]["content"].startswith("Be brief.\n\n")
    assert all("lives in Chengdu" in messages[0]["content"] for messages in (first, second))
    assert len(second) == 4
    store = session.store
    assert "lives" not in str(said(session))
    answer = store.log.get(session.head)
    assert isinstance(answer, bm.Message)
    assert len(answer.meta["recalled"]) == 1


def test_two_calls_at_once_on_two_branches_each_have_their_place(session: Session) -> None:
    wrapped = wrap(Client("A", "B"), session, extractor=each_answer)
    first, second = (ask(wrapped, turns(text), stream=True) for text in ("u1", "u2"))
    list(first)
    list(second)
    assert said(session) == ["u1", "A"]
    store = session.store
    leaves = sorted(str(said(session, leaf)) for leaf in store.tree.leaves())
    assert leaves == ["['u1', 'A']", "['u2', 'B']"]
    assert memories(session) == ["m: A"]


def test_an_async_client_is_wrapped_by_an_async_one(session: Session) -> None:
    wrapped = wrap(AsyncClient("A1", "A two", ConnectionError("gone"), "A3"), session, extractor=each_answer)
    kinds: list[type] = [type(one) for one in (wrapped, wrap(Client(), session))]
    assert kinds == [AsyncWrapped, Wrapped]

    async def work() -> None:
        answer = await ask(wrapped, turns("u1"))
        assert answer.choices[0].message.content == "A1"
        async with await ask(wrapped, turns("u1", "A1", "u2"), stream=True) as stream:
            async for _ in stream:
                pass
        assert said(session) == ["u1", "A1", "u2", "A two"]
        with pytest.raises(ConnectionError):
            await ask(wrapped, turns("u1", "A1", "u2", "A two", "u3"))
        assert said(session) == ["u1", "A1", "u2", "A two"]
        await ask(wrapped, turns("u1", "A1", "u2 edited"))
        assert memories(session) == ["m: A1", "m: A3"]

    asyncio.run(work())


def test_who_is_cancelled_before_the_answer_is_written_has_none(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    ends, cancelled = threading.Event(), threading.Event()
    end = Turn._end

    def slowly(turn: Turn, error: BaseException | None) -> None:
        ends.set()
        assert cancelled.wait(5)
        end(turn, error)

    async def leaves() -> None:
        call = asyncio.create_task(ask(wrap(AsyncClient("A1"), session), turns("u1")))
        while not ends.is_set():
            await asyncio.sleep(0)
        call.cancel()
        await asyncio.sleep(0)
        cancelled.set()
        with pytest.raises(asyncio.CancelledError):
            await call

    monkeypatch.setattr(Turn, "_end", slowly)
    head = session.head
    asyncio.run(leaves())
    assert session.head == head


def test_an_async_stream_that_is_left_is_no_step(session: Session) -> None:
    wrapped = wrap(AsyncClient("One two.", Reply("Half", finish="break")), session)

    async def work() -> None:
        stream = await ask(wrapped, turns("u1"), stream=True)
        await anext(stream)
        await stream.close()
        assert said(session) == []
        with pytest.raises(NoAnswer):
            async for _ in await ask(wrapped, turns("u1"), stream=True):
                pass
        assert said(session) == []

    asyncio.run(work())


def test_what_is_no_client_or_no_session_is_refused_by_name(session: Session) -> None:
    with pytest.raises(InvalidModel, match=r"object.*openai\.OpenAI"):
        wrap(object(), session)
    with pytest.raises(ForeignSession, match="str"):
        wrap(Client(), cast(Any, "chat"))


def test_a_session_with_steps_of_its_own_is_refused(session: Session) -> None:
    class Other(Session):
        def step(self, **options: Any) -> Any:
            return super().step(**options)

    with pytest.raises(ForeignSession):
        wrap(Client(), Other(session.store, "chat"))
