"""What the MCP server keeps, replaces and takes back on a branch, and that no other branch notices."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import branchmem as bm
import pytest
from calling import ask, edited, refused, talk, texts
from mcp.client.client import Client


@pytest.fixture
def store() -> Iterator[bm.Store]:
    with edited() as store:
        yield store


# Remembering


def test_a_memory_comes_from_the_anchor_unless_sources_are_named(store: bm.Store) -> None:
    async def remember(client: Client) -> None:
        kept = await ask(client, "add_memory", text="likes trains", key="hobby", importance=0.5)
        assert (kept["memory"]["source_ids"], kept["visible"], kept["added"]) == (["u1"], True, True)
        assert (await ask(client, "add_memory", text="likes trains", key="hobby"))["added"] is False
        upper = await ask(client, "add_memory", text="talks", source_ids=["chat"])
        assert upper["memory"]["source_ids"] == ["chat"]
        assert texts(await ask(client, "list_memories", anchor="other")) == {"The user is moving to Hangzhou", "talks"}

    talk(store, remember)


UNSEEN: list[tuple[dict[str, Any], str]] = [
    ({"source_ids": ["u2"]}, "SourceAstray"),
    ({"source_ids": ["nobody"]}, "UnknownEvent"),
    ({"source_ids": ["home"]}, "InvalidEvent"),
    ({"derived_from": ["u1"]}, "InvalidEvent"),
    ({"source_ids": ["u1"], "anchor": "chat"}, "SourceAstray"),
    ({"text": "x" * ((1 << 20) + 1)}, "InvalidEvent"),
    ({"text": ""}, "1 validation error"),
    ({"source_ids": ["u1"] * 1001}, "1 validation error"),
]


def test_a_memory_that_its_branch_could_not_see_is_not_written(store: bm.Store) -> None:
    before = store.seq

    async def remember(client: Client) -> None:
        for arguments, name in UNSEEN:
            assert (await refused(client, "add_memory", **{"text": "x", **arguments})).startswith(name)

    talk(store, remember)
    assert store.seq == before


def test_what_comes_from_an_answer_derives_from_what_the_answer_was_written_with(store: bm.Store) -> None:
    async def converse(client: Client) -> None:
        answer = await ask(client, "append_message", role="assistant", text="So, Chengdu.", recalled=["home"])
        kept = await ask(client, "add_memory", text="the answer said Chengdu", source_ids=["u1", answer["message_id"]])
        assert kept["memory"]["derived_from"] == ["home"]
        narrow = await ask(client, "add_memory", text="they asked", source_ids=["u1"])
        assert narrow["memory"]["derived_from"] == []
        new = await ask(client, "update_memory", memory_id=narrow["memory"]["id"], text="they asked twice")
        assert new["memory"]["derived_from"] == ["home"]
        again = await ask(client, "append_message", role="assistant", text="So.", recalled=[new["memory"]["id"]])
        third = await ask(client, "update_memory", memory_id=new["memory"]["id"], text="they asked thrice")
        assert (third["at"], third["memory"]["derived_from"]) == (again["at"], ["home"])
        taken = await ask(client, "delete_memory", memory_id="home")
        assert {"home", kept["memory"]["id"]} < set(taken["hidden"])
        assert "UnknownEvent" in await refused(client, "append_message", text="x", recalled=["u1"])
        store.append(
            [bm.Message("odd", "u1", meta={"recalled": ["nobody"]}), bm.Message("bad", "u1", meta={"recalled": 5})]
        )
        assert "memory nobody" in (await ask(client, "add_memory", anchor="odd", text="x"))["explanation"]
        assert "the receipt of bad is no list" in await refused(client, "add_memory", anchor="bad", text="x")
        assert (await ask(client, "add_memory", anchor="bad", text="x", source_ids=["u1"]))["visible"]

    talk(store, converse)


def test_an_update_is_a_new_version_on_its_branch_and_no_other(store: bm.Store) -> None:
    store.append([bm.Message("u3", "u1"), bm.Message("u3x", "u1")])

    async def change(client: Client) -> None:
        new = await ask(client, "update_memory", anchor="u3", memory_id="home", text="The user lives in Chengdu")
        assert new["memory"]["id"] != "home"
        assert (new["memory"]["supersedes"], new["memory"]["key"]) == (["home"], "home_city")
        assert set(new["memory"]["source_ids"]) == {"u1", "u3"}
        assert texts(await ask(client, "list_memories", anchor="u3")) == {"The user lives in Chengdu"}
        for anchor in ("u3x", "main"):
            assert texts(await ask(client, "list_memories", anchor=anchor)) == {"The user is moving to Chengdu"}
        said = await refused(client, "update_memory", anchor="u3", memory_id="home", text="again")
        assert said.endswith(f"memory {new['memory']['id']} replaces it here")
        assert (await refused(client, "update_memory", memory_id="elsewhere", text="mine")).startswith("MemoryHidden")

    talk(store, change)
    assert store.log.get("home").to_dict()["text"] == "The user is moving to Chengdu"


def test_an_update_goes_with_what_the_old_version_came_from_unless_it_cites_less(store: bm.Store) -> None:
    store.append([bm.Message("u3", "u1")])

    async def change(client: Client) -> None:
        first = await ask(client, "update_memory", anchor="u3", memory_id="home", text="Chengdu, in May")
        cited = await ask(client, "add_memory", anchor="u3", text="old")
        second = await ask(
            client, "update_memory", anchor="u3", memory_id=cited["memory"]["id"], text="new", source_ids=["u3"]
        )
        assert second["memory"]["source_ids"] == ["u3"]
        gone = await ask(client, "retract", anchor="u3", scope="branch", source_ids=["u1"])
        assert first["memory"]["id"] in gone["hidden"]
        assert texts(await ask(client, "list_memories", anchor="u3")) == {"new"}

    talk(store, change)


def test_a_delete_forgets_on_its_branch_and_no_other(store: bm.Store) -> None:
    store.append([bm.Message("u3", "u1"), bm.Message("u3x", "u1")])

    async def forget(client: Client) -> None:
        taken = await ask(client, "delete_memory", anchor="u3", memory_id="home", reason="asked to")
        assert (taken["hidden"], taken["shown"], taken["scope"]) == (["home"], [], "branch")
        assert texts(await ask(client, "list_memories", anchor="u3")) == set()
        assert texts(await ask(client, "list_memories", anchor="u3x")) == {"The user is moving to Chengdu"}
        assert "retraction" in await refused(client, "delete_memory", anchor="u3", memory_id="home")
        assert (await refused(client, "delete_memory", memory_id="elsewhere")).startswith("MemoryHidden")
        store.restore(taken["retraction_ids"][0], at="u3", scope="branch")
        assert texts(await ask(client, "list_memories", anchor="u3")) == {"The user is moving to Chengdu"}

    talk(store, forget)


def test_a_delete_brings_no_older_version_back(store: bm.Store) -> None:
    async def forget(client: Client) -> None:
        new = await ask(client, "update_memory", memory_id="home", text="The user lives in Chengdu")
        taken = await ask(client, "delete_memory", memory_id=new["memory"]["id"])
        assert (taken["hidden"], taken["shown"]) == ([new["memory"]["id"]], [])
        assert texts(await ask(client, "list_memories")) == set()

    talk(store, forget)


def test_a_memory_that_is_kept_again_after_it_was_deleted_says_that_it_is_not_seen(store: bm.Store) -> None:
    async def again(client: Client) -> None:
        await ask(client, "delete_memory", memory_id="home")
        kept = await ask(client, "add_memory", text="The user is moving to Chengdu", key="home_city")
        assert (kept["added"], kept["visible"]) == (False, False)
        assert "retraction" in kept["explanation"]

    talk(store, again)


def test_only_a_wider_scope_reaches_other_branches(store: bm.Store) -> None:
    async def take_back(client: Client) -> None:
        await ask(client, "retract", scope="branch", keys=["home_city"])
        assert len(texts(await ask(client, "list_memories", anchor="other"))) == 1
        await ask(client, "retract", scope="tree", memory_ids=["elsewhere"])
        assert texts(await ask(client, "list_memories", anchor="other")) == set()
        assert "scope" in await refused(client, "retract", memory_ids=["home"])
        assert (await refused(client, "retract", scope="tree")).startswith("InvalidEvent")
        assert (await refused(client, "retract", scope="tree", memory_ids=["nope"])).startswith("UnknownEvent")

    talk(store, take_back)


# Branches


def test_a_ref_moves_on_with_what_is_said_there_and_a_message_id_moves_nothing(store: bm.Store) -> None:
    async def converse(client: Client) -> None:
        said = await ask(client, "append_message", text="on main")
        assert (said["anchor"], said["parent_id"]) == ("main", "u1")
        assert store.refs["main"] == said["message_id"]
        below = await ask(client, "append_message", anchor="u1", text="from u1")
        assert (below["anchor"], below["parent_id"]) == (below["message_id"], "u1")
        assert store.refs["main"] == said["message_id"]
        assert store.tree.parent(below["message_id"]) == "u1"

    talk(store, converse)


@pytest.mark.parametrize("anchor", ["main", "u1"])
def test_a_message_with_an_id_is_said_once(store: bm.Store, anchor: str) -> None:
    async def converse(client: Client) -> None:
        first = await ask(client, "append_message", anchor=anchor, text="once", message_id="mine")
        before = store.seq
        assert await ask(client, "append_message", anchor=anchor, text="once", message_id="mine") == first
        assert store.seq == before
        said = await refused(client, "append_message", anchor=anchor, text="twice", message_id="mine")
        assert said.startswith("EventConflict: ")
        above = await refused(client, "append_message", anchor="chat", text="guess", message_id="u2")
        assert "take another message_id" in above
        assert "Hangzhou" not in above
        assert await refused(client, "append_message", anchor=anchor, text="x", message_id="home")

    talk(store, converse)


def test_the_id_of_something_erased_is_taken(store: bm.Store) -> None:
    async def converse(client: Client) -> None:
        said: dict[str, Any] = {"text": "secret", "message_id": "mine"}
        first = await ask(client, "append_message", anchor="u1", **said)
        store.erase(["mine", "home"])
        before = store.seq
        assert await ask(client, "append_message", anchor="u1", **said) == first
        for id in ("mine", "home"):
            again = await refused(client, "append_message", anchor="u2", text="another", message_id=id)
            assert again.startswith("EventConflict: ")
        assert store.seq == before

    talk(store, converse)


def test_nothing_is_remembered_of_an_answer_whose_receipt_was_erased(store: bm.Store) -> None:
    async def converse(client: Client) -> None:
        said = await ask(client, "append_message", text="You move to Chengdu", role="assistant", recalled=["home"])
        old = await ask(client, "add_memory", text="moves soon")
        store.erase([said["message_id"]], cascade=False)
        for source_ids in ([], [said["message_id"]]):
            arguments: dict[str, dict[str, Any]] = {"add_memory": {}, "update_memory": {"memory_id": "home"}}
            for tool, which in arguments.items():
                told = await refused(client, tool, text="Chengdu it is", source_ids=source_ids, **which)
                assert told.startswith("InvalidEvent: ")
                assert "was erased" in told
        await ask(client, "fork", name="alone")
        assert "was erased" in await refused(client, "add_memory", anchor="alone", text="Chengdu it is")
        await ask(client, "append_message", text="and now?")
        await ask(client, "add_memory", text="asks on")
        new = await ask(client, "update_memory", memory_id=old["memory"]["id"], text="moves now")
        assert new["memory"]["derived_from"] == ["home"]

    talk(store, converse)


def test_switching_writes_nothing_unless_a_ref_is_to_be_moved(store: bm.Store) -> None:
    async def go(client: Client) -> None:
        before = (store.seq, dict(store.refs.items()))
        assert await ask(client, "switch", to="other") == {"anchor": "other", "at": "u2", "visible": 1}
        assert await ask(client, "switch", to="chat") == {"anchor": "chat", "at": "chat", "visible": 0}
        assert (store.seq, dict(store.refs.items())) == before
        assert texts(await ask(client, "list_memories")) == {"The user is moving to Chengdu"}
        assert await ask(client, "switch", to="other", ref="main") == {"anchor": "main", "at": "u2", "visible": 1}
        assert (store.seq, store.refs["main"]) == (before[0], "u2")
        assert (await refused(client, "switch", to="u1", ref="nobody")).startswith("UnknownRef")
        assert (await refused(client, "switch", to="nobody")).startswith("UnknownRef")

    talk(store, go)


def test_a_fork_and_its_origin_do_not_see_what_the_other_adds(store: bm.Store) -> None:
    async def part(client: Client) -> None:
        assert (await ask(client, "fork", name="trial"))["at"] == "u1"
        assert (await ask(client, "fork", name="earlier", anchor="chat"))["visible"] == 0
        for name in ("main", "trial"):
            await ask(client, "append_message", anchor=name, text="x")
            await ask(client, "add_memory", anchor=name, text=f"from {name}")
        for name in ("main", "trial"):
            assert texts(await ask(client, "list_memories", anchor=name)) == {
                "The user is moving to Chengdu",
                f"from {name}",
            }
        assert (await refused(client, "fork", name="trial")).startswith("RefExists")
        assert (await refused(client, "fork", name=" ")).startswith("InvalidRef")

    talk(store, part)


def test_a_conversation_begins_empty_and_sees_nothing_of_the_others(store: bm.Store) -> None:
    async def begin(client: Client) -> None:
        begun = await ask(client, "start_conversation", name="new")
        assert (begun["anchor"], begun["visible"]) == ("new", 0)
        assert store.tree.parent(begun["at"]) is None
        assert (await refused(client, "start_conversation", name="new")).startswith("RefExists")
        assert (await refused(client, "start_conversation", name="a\nb")).startswith("InvalidRef")

    talk(store, begin)


def test_an_error_of_the_store_is_a_tool_error_and_nothing_is_half_written() -> None:
    with bm.open_temporary() as store:
        store.session("main")

        async def late(client: Client) -> None:
            store.close()
            assert (await refused(client, "append_message", text="x")).startswith("StoreClosed: ")

        talk(store, late)


# Two branches at one message


CHANGES: dict[str, tuple[str, dict[str, Any]]] = {
    "add": ("add_memory", {"text": "likes trains"}),
    "update": ("update_memory", {"memory_id": "home", "text": "The user lives in Chengdu"}),
    "update citing": ("update_memory", {"memory_id": "home", "text": "In Chengdu", "source_ids": ["u1"]}),
    "delete": ("delete_memory", {"memory_id": "home"}),
    "retract": ("retract", {"scope": "branch", "keys": ["home_city"]}),
}


@pytest.mark.parametrize(("change", "at"), [*((change, "trial") for change in CHANGES), ("add", "main")])
def test_what_a_fork_does_before_anything_is_said_there_its_origin_does_not_notice(
    store: bm.Store, change: str, at: str
) -> None:
    tool, arguments = CHANGES[change]

    async def part(client: Client) -> None:
        await ask(client, "fork", name="trial")
        answer = await ask(client, tool, anchor=at, **arguments)
        assert (answer["anchor"], store.refs[at]) == (at, answer["at"])
        other = "main" if at == "trial" else "trial"
        assert texts(await ask(client, "list_memories", anchor=other)) == {"The user is moving to Chengdu"}
        assert texts(await ask(client, "list_memories", anchor=at)) != {"The user is moving to Chengdu"}
        assert store.refs[other] == "u1"

    talk(store, part)


@pytest.mark.parametrize("change", ["add", "update", "retract"])
def test_what_a_ref_does_that_went_back_is_not_seen_where_it_came_from(store: bm.Store, change: str) -> None:
    tool, arguments = CHANGES[change]

    async def again(client: Client) -> None:
        first = (await ask(client, "append_message", role="assistant", text="first attempt"))["message_id"]
        await ask(client, "switch", to="u1", ref="main")
        await ask(client, tool, **arguments)
        assert texts(await ask(client, "list_memories", anchor=first)) == {"The user is moving to Chengdu"}
        assert texts(await ask(client, "list_memories")) != {"The user is moving to Chengdu"}

    talk(store, again)


def test_what_is_remembered_of_an_answer_that_two_branches_share_goes_with_what_that_was_written_with(
    store: bm.Store,
) -> None:
    async def part(client: Client) -> None:
        await ask(client, "append_message", role="assistant", text="So, Chengdu.", recalled=["home"])
        await ask(client, "fork", name="trial")
        kept = await ask(client, "add_memory", anchor="trial", text="The answer said Chengdu")
        assert kept["memory"]["derived_from"] == ["home"]
        taken = await ask(client, "delete_memory", anchor="trial", memory_id="home")
        assert taken["hidden"] == ["home", kept["memory"]["id"]]

    talk(store, part)


@pytest.mark.parametrize("below", ["a fork", "an adoption"])
def test_so_does_all_that_is_remembered_below_it_before_anything_else_is_said(store: bm.Store, below: str) -> None:
    async def remember(client: Client) -> None:
        await ask(client, "append_message", role="assistant", text="So, Chengdu.", recalled=["home"])
        if below == "a fork":
            await ask(client, "fork", name="trial")
        else:
            store.adopt(["elsewhere"], into="main")
        first = await ask(client, "add_memory", text="The answer said Chengdu", key="answer")
        again = await ask(client, "add_memory", text="The answer said Chengdu", key="answer")
        more = await ask(client, "add_memory", text="It did not say why")
        newer = await ask(client, "update_memory", memory_id=first["memory"]["id"], text="It said: Chengdu")
        assert (again["added"], again["memory"]["id"]) == (False, first["memory"]["id"])
        for kept in (first, more, newer):
            assert kept["memory"]["derived_from"] == ["home"]
        taken = await ask(client, "delete_memory", memory_id="home")
        assert set(taken["hidden"]) == {"home", more["memory"]["id"], newer["memory"]["id"]}

    talk(store, remember)


@pytest.mark.parametrize("change", ["add", "delete"])
def test_what_one_branch_does_while_another_parts_from_it_stays_its_own(
    store: bm.Store, change: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    tool, arguments = CHANGES[change]
    transact = store.transact

    def parting(self: bm.Store, *args: Any, **more: Any) -> Any:
        done = transact(*args, **more)
        if "trial" not in self.refs:
            self.refs.create("trial", self.refs["main"])
            before.update(self.at_ref("trial"))
        return done

    before: set[str] = set()

    async def race(client: Client) -> None:
        await ask(client, "append_message", text="hello")
        monkeypatch.setattr(bm.Store, "transact", parting)
        await ask(client, tool, **arguments)
        assert set(store.at_ref("trial")) == before

    talk(store, race)


def test_what_cites_a_message_that_two_branches_share_is_seen_on_both(store: bm.Store) -> None:
    async def part(client: Client) -> None:
        await ask(client, "fork", name="trial")
        await ask(client, "add_memory", anchor="trial", text="likes trains", source_ids=["u1"])
        assert "likes trains" in texts(await ask(client, "list_memories", anchor="main"))

    talk(store, part)


def test_what_is_refused_on_a_shared_message_leaves_nothing_behind(store: bm.Store) -> None:
    store.session("main").fork("trial")
    before = (store.seq, dict(store.refs.items()))

    async def fail(client: Client) -> None:
        for tool, arguments in (
            ("add_memory", {"text": "x", "derived_from": ["nobody"]}),
            ("update_memory", {"memory_id": "elsewhere", "text": "x"}),
            ("update_memory", {"memory_id": "home", "text": "x", "source_ids": ["u2"]}),
            ("delete_memory", {"memory_id": "elsewhere"}),
            ("retract", {"scope": "branch"}),
            ("retract", {"scope": "branch", "memory_ids": ["nobody"]}),
            ("retract", {"scope": "branch", "source_ids": ["home"]}),
        ):
            await refused(client, tool, **arguments)

    talk(store, fail)
    assert (store.seq, dict(store.refs.items())) == before


def test_a_memory_that_is_kept_twice_on_a_shared_message_is_one(store: bm.Store) -> None:
    async def repeat(client: Client) -> None:
        await ask(client, "fork", name="trial")
        first = await ask(client, "add_memory", text="likes trains")
        again = await ask(client, "add_memory", text="likes trains")
        assert (first["added"], again["added"]) == (True, False)
        assert first["memory"]["id"] == again["memory"]["id"]

    talk(store, repeat)
