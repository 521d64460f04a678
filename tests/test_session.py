"""A conversation at a ref: what the verbs of a session move, write and refuse."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import branchmem as bm
import pytest
from branchmem import LEGACY, Memory, Message
from branchmem.errors import BadMove, InvalidRef, NoStep, RefExists, UnknownRef
from branchmem.events import Erasure
from branchmem.session import Session


@pytest.fixture
def store() -> Iterator[bm.Store]:
    with bm.open_temporary() as store:
        yield store


@pytest.fixture
def session(store: bm.Store) -> Session:
    return store.session("chat")


def path_of(session: Session) -> list[str | None]:
    """What was said, from the root to the head."""
    return [message.text for message in messages(session)[1:]]


def messages(session: Session) -> list[Message]:
    found = [session.store.log.get(id) for id in session.store.tree.path(session.head)]
    return [event for event in found if isinstance(event, Message)]


# Opening


def test_a_ref_that_is_absent_is_made_with_a_root_of_its_own(store: bm.Store) -> None:
    session = store.session("chat")
    root = store.log.get(session.head)

    assert isinstance(root, Message)
    assert (root.parent, root.role) == (None, "thread")
    assert [move.why for move in store.refs.log("chat")] == ["create"]
    assert store.session("chat").head == session.head
    assert store.session("other").head != session.head
    assert (session.store, session.ref, session.beside) == (store, "chat", ())
    assert store.seq == 2


def test_a_ref_that_may_not_be_made_must_be_there(store: bm.Store) -> None:
    with pytest.raises(UnknownRef, match="no ref 'chat'"):
        store.session("chat", create=False)
    assert store.seq == 0


@pytest.mark.parametrize(
    ("beside", "error", "says"),
    [
        (["profile"], UnknownRef, "no ref 'profile'"),
        ("profile", TypeError, r"beside=\['profile'\]"),
        (["chat"], InvalidRef, "stands there already"),
        ([""], InvalidRef, "1 to 256 bytes"),
    ],
)
def test_what_a_session_cannot_stand_beside_is_refused_before_anything_is_made(
    store: bm.Store, beside: list[str], error: type[Exception], says: str
) -> None:
    with pytest.raises(error, match=says):
        store.session("chat", beside=beside)
    assert (store.seq, len(store.refs)) == (0, 0)


def test_two_refs_of_one_tree_cannot_stand_beside_each_other(store: bm.Store) -> None:
    store.session("chat").fork("fork")

    with pytest.raises(bm.AmbiguousAnchor):
        store.session("chat", beside=["fork"])
    with pytest.raises(bm.AmbiguousAnchor):
        store.session("new", beside=["chat", "fork"])
    assert set(store.refs) == {"chat", "fork"}


def test_a_session_opens_on_a_store_for_reading_and_says_nothing_there(path: Path) -> None:
    with bm.open(path) as store:
        said = store.session("chat").say("user", "hello")
    with bm.open(path, readonly=True) as store:
        session = store.session("chat")

        assert session.head == said.id
        with pytest.raises(bm.StoreReadOnly):
            session.say("user", "more")
        with pytest.raises(bm.StoreReadOnly):
            store.session("other")
        with pytest.raises(bm.StoreReadOnly), session.step():
            pytest.fail("a model was asked, though nothing can be kept of it")


def test_a_closed_store_says_so(session: Session) -> None:
    session.store.close()

    for use in (lambda: session.head, session.view, lambda: session.say("user", "x"), session.step):
        with pytest.raises(bm.StoreClosed):
            use()


# Saying, and going about


def test_what_is_said_hangs_below_the_head_and_moves_the_ref(session: Session) -> None:
    first = session.say("user", "I'm moving to Chengdu", meta={"n": 1})
    second = session.say("assistant", "Noted", id="a1")

    assert (second.id, second.parent, session.head) == ("a1", first.id, "a1")
    assert session.store.log.get(first.id) == first
    assert first.meta == {"n": 1}
    assert [move.why for move in session.store.refs.log("chat")] == ["create", "say", "say"]


def test_saying_the_same_again_under_one_id_is_a_no_op(session: Session) -> None:
    first = session.say("user", "hello", id="u1")
    session.say("assistant", "hi", id="a1")

    assert session.say("user", "hello", id="u1") == first
    assert session.head == "a1"
    with pytest.raises(bm.EventConflict, match="another text"):
        session.say("user", "something else", id="u1")
    session.rewind(first.parent if isinstance(first.parent, str) else "")
    with pytest.raises(bm.EventConflict, match="another parent"):
        session.say("assistant", "hi", id="a1")


def test_what_was_said_and_erased_is_not_said_again(session: Session) -> None:
    session.say("user", "I live in Chengdu", id="u1")
    session.store.erase(["u1"])

    again = session.say("user", "I live in Chengdu", id="u1")

    assert (again.text, session.head) == (None, "u1")
    assert "Chengdu" not in str(session.store.log.get("u1"))


def test_an_edit_is_a_sibling_of_the_same_role(session: Session) -> None:
    first = session.say("user", "I'm moving to Chengdu")
    home = session.remember("The user moves to Chengdu", sources=[first])
    session.say("assistant", "Noted")

    edited = session.edit(first, "I'm moving to Hangzhou")

    assert (edited.parent, edited.role, session.head) == (first.parent, "user", edited.id)
    assert home.id not in session.view()
    session.switch(first)
    assert home.id in session.view()


def test_an_edited_answer_has_the_receipt_of_the_answer(session: Session) -> None:
    home = session.remember("lives in Chengdu", sources=[session.say("user", "I live in Chengdu")])
    with session.step() as step:
        step.recalled = [home]
    edited = session.edit(step.id, "In Chengdu, take line 1.", id="e", meta={"by": "user"})

    assert dict(edited.meta) == {"by": "user", "recalled": (home.id,)}
    assert session.edit(step.id, "In Chengdu, take line 1.", id="e", meta={"by": "user"}) == edited
    assert session.edit(edited, "Take line 1.", meta={"recalled": ()}).meta["recalled"] == ()
    session.say("tool", "4", id="odd", meta={"recalled": "nobody can read this"})
    assert session.edit("odd", "5").meta["recalled"] == "nobody can read this"


def test_an_edit_can_be_repeated_under_its_id(session: Session) -> None:
    first = session.say("user", "a")
    edited = session.edit(first, "b", id="e")
    answer = session.say("assistant", "c")

    assert session.edit(first, "b", id="e") == edited
    assert session.head == answer.id
    with pytest.raises(bm.EventConflict, match="another text"):
        session.edit(first, "d", id="e")
    with pytest.raises(bm.EventConflict, match="another parent"):
        session.edit(session.say("user", "d"), "b", id="e")


def test_an_edit_starts_no_other_tree(session: Session) -> None:
    root = session.head
    elsewhere = session.store.session("other").say("user", "x")
    session.store.append([Message("old", LEGACY), Message("newer", "old")])

    with pytest.raises(BadMove, match="has no parent that a second version could hang under: start a new session"):
        session.edit(root, "x")
    with pytest.raises(BadMove, match="lies in another tree: switch there first"):
        session.edit(elsewhere, "x")
    with pytest.raises(bm.UnknownEvent, match="no message nothing"):
        session.edit("nothing", "x")
    session.switch("newer")
    with pytest.raises(BadMove, match="has no parent"):
        session.edit("old", "x")
    assert session.edit("newer", "x").parent == "old"


def test_regenerating_goes_up_to_the_message_of_the_user(session: Session) -> None:
    asked = session.say("user", "Where do I live?")
    session.say("assistant", "calls a tool")
    session.say("tool", "Chengdu")
    session.say("assistant", "In Chengdu")

    assert session.regenerate() == asked.id == session.head
    with pytest.raises(BadMove, match=f"{asked.id} is the user's, not answered yet: there is nothing to regenerate"):
        session.regenerate()
    assert [move.why for move in session.store.refs.log("chat")].count("regenerate") == 1


def test_regenerating_needs_a_message_of_the_user(session: Session) -> None:
    greeting = session.say("assistant", "Hello!")

    with pytest.raises(BadMove, match="no message with role user above it"):
        session.regenerate()
    assert session.head == greeting.id


def test_what_was_erased_is_taken_for_nobodys(session: Session) -> None:
    """Its role went with its content: it is neither passed over as the assistant's nor edited into nobody's."""
    for id, role in {"u1": "user", "a1": "assistant", "u2": "user", "a2": "assistant"}.items():
        session.say(role, id, id=id)
    session.store.erase(["u2", "a2"])

    with pytest.raises(BadMove, match="message u2 was erased, and may be what the head answers"):
        session.regenerate()
    with pytest.raises(BadMove, match="message u2 was erased, and its role with it: rewind to a1"):
        session.edit("u2", "anew")
    assert session.head == "a2"
    session.store.erase(["a1"])
    session.rewind("a1")
    assert session.regenerate() == "u1"


def test_rewinding_stays_on_the_path(session: Session) -> None:
    first, second, third = (session.say("user", text) for text in "abc")

    assert session.rewind(second) == second.id
    assert session.rewind(second.id) == second.id
    assert path_of(session) == ["a", "b"]
    with pytest.raises(BadMove, match=f"{third.id} is not on the path of {second.id}: switch to it"):
        session.rewind(third)
    assert session.rewind(first) == session.head
    moves = session.store.refs.log("chat")
    assert [(move.why, move.after) for move in moves[-3:]] == [
        ("say", third.id),
        ("rewind", second.id),
        ("rewind", first.id),
    ]


def test_switching_goes_to_any_attached_message_and_back(session: Session) -> None:
    first = session.say("user", "a")
    other = session.edit(first, "b")
    elsewhere = session.store.session("other").say("user", "c")
    before = session.store.seq

    for target in (first, other, elsewhere):
        assert session.switch(target) == session.head == target.id
    assert session.store.seq == before
    session.store.append([Message("orphan", "not here")])
    with pytest.raises(BadMove, match="is not attached"):
        session.switch("orphan")
    with pytest.raises(bm.UnknownEvent, match="no message nothing"):
        session.switch("nothing")


def test_a_fork_goes_its_own_way(session: Session) -> None:
    common = session.say("user", "a")
    fork = session.fork("try")
    fork.say("user", "b")

    assert (fork.ref, session.head, path_of(fork)) == ("try", common.id, ["a", "b"])
    with pytest.raises(RefExists, match="'try' is there already"):
        session.fork("try")
    with pytest.raises(InvalidRef):
        session.fork("no\nname")


@pytest.mark.parametrize(
    "verb",
    [
        lambda session: session.say("user", "x"),
        lambda session: session.edit("a1", "x"),
        lambda session: session.regenerate(),
        lambda session: session.rewind("a1"),
        lambda session: session.switch("a1"),
        lambda session: session.fork("new"),
        lambda session: session.view(),
        lambda session: session.step().__enter__(),
    ],
    ids=["say", "edit", "regenerate", "rewind", "switch", "fork", "view", "step"],
)
def test_a_ref_that_was_deleted_under_a_session_is_named(session: Session, verb: Callable[[Session], object]) -> None:
    session.say("assistant", "hi", id="a1")
    session.store.refs.delete("chat")
    before = session.store.digest()

    with pytest.raises(UnknownRef, match="no ref 'chat'"):
        verb(session)
    assert session.store.digest() == before
    session.store.refs.undo("chat")
    assert session.head == "a1"


# Remembering


def test_remembering_outside_a_step_needs_sources_and_says_what_to_do(session: Session) -> None:
    with pytest.raises(NoStep, match=r"remember without sources.*with session\.step\(\) as step") as raised:
        session.remember("The user likes tea")

    assert "tea" not in str(raised.value)
    assert session.store.seq == 1


def test_the_same_text_sources_and_kind_twice_is_one_memory(session: Session) -> None:
    said = session.say("user", "I like tea")
    other = session.say("user", "really")
    first = session.remember("likes tea", sources=[said])
    before = session.store.seq

    assert session.remember("likes tea", sources=[said.id, said.id], importance=0.2) == first
    assert session.store.seq == before
    for differing in (
        session.remember("likes tea!", sources=[said]),
        session.remember("likes tea", sources=[said, other]),
        session.remember("likes tea", sources=[other]),
        session.remember("likes tea", sources=[said], kind="summary"),
    ):
        assert differing.id != first.id


@pytest.mark.parametrize("field", ["key", "derived_from", "supersedes"])
def test_a_memory_is_not_made_another_by_remembering_it_again(session: Session, field: str) -> None:
    said = session.say("user", "I like tea")
    older = session.remember("drinks", sources=[said])
    first = session.remember("likes tea", sources=[said])

    with pytest.raises(bm.EventConflict, match=f"another {field}") as raised:
        session.remember("likes tea", sources=[said], **{field: "drink" if field == "key" else [older]})  # type: ignore[arg-type]
    assert raised.value.id == first.id


def test_what_is_hidden_is_still_the_first(session: Session) -> None:
    said = session.say("user", "I like tea")
    first = session.remember("likes tea", sources=[said])
    session.store.retract([first.id], at=said.id, scope="branch")

    assert session.remember("likes tea", sources=[said]) == first
    assert first.id not in session.view()


def test_what_was_erased_or_taken_over_is_no_first(session: Session) -> None:
    said = session.say("user", "I like tea")
    first = session.remember("likes tea", sources=[said])
    session.store.append([Memory("taken", "likes coffee", sources=[said.id], adopts=first.id)])
    session.store.append([Erasure("gone", [first.id], cascade=False)])

    again = session.remember("likes tea", sources=[said])

    assert again.id != first.id
    assert session.remember("likes tea", sources=[said]) == again
    assert session.remember("likes coffee", sources=[said]).id != "taken"
    assert session.remember("", sources=[said]).id != first.id


def test_a_memory_names_what_is_there_in_its_place(session: Session) -> None:
    said = session.say("user", "x")
    fact = session.remember("fact", sources=[said])

    with pytest.raises(bm.UnknownEvent, match="no message nothing"):
        session.remember("a", sources=["nothing"])
    with pytest.raises(bm.UnknownEvent, match="no memory nothing"):
        session.remember("a", sources=[said], derived_from=["nothing"])
    with pytest.raises(bm.InvalidEvent, match="is a memory, not a message: a memory belongs into derived_from"):
        session.remember("a", sources=[fact.id])
    with pytest.raises(bm.InvalidEvent, match="is a message, not a memory: a message belongs into sources"):
        session.remember("a", sources=[said], supersedes=[said.id])
    with pytest.raises(bm.InvalidEvent, match=r"sources is a list: write sources=\["):
        session.remember("a", sources=said)  # type: ignore[arg-type]
    with pytest.raises(bm.InvalidEvent, match=r"sources is a list: write sources=\["):
        session.remember("a", sources=said.id)
    assert session.store.seq == 3


def test_a_session_also_stands_on_the_heads_beside(store: bm.Store) -> None:
    profile = store.session("profile")
    vegan = profile.remember("The user is vegan", sources=[profile.say("note", "vegan")])
    session = store.session("chat", beside=["profile", "profile"])
    said = session.say("user", "Dinner?")
    both = session.remember("Dinner should be vegan", sources=[said], derived_from=[vegan])

    assert session.beside == ("profile",)
    assert {vegan.id, both.id} == set(session.view()) == set(session.fork("try").view())
    assert set(store.session("plain").view()) == set()
    assert both.id not in store.at(said.id)
    with pytest.raises(bm.AmbiguousAnchor):
        session.switch(profile.head)
    assert session.head == said.id
    store.refs.delete("profile")
    with pytest.raises(UnknownRef, match="'profile'"):
        session.view()
