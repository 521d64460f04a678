"""The tools of the MCP server: what each says of itself, keeps, replaces, takes back, and refuses."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import branchmem as bm
import pytest
from branchmem.mcp_server import server
from calling import MODES, ask, edited, refused, talk, texts
from mcp.client.client import Client

READING = {"search_memories", "get_memory", "list_memories", "list_branches", "explain_visibility"}
WRITING = {
    *("add_memory", "update_memory", "delete_memory", "append_message", "switch", "fork", "start_conversation"),
    "retract",
}
TAKING_AWAY = {"update_memory", "delete_memory", "retract"}


@pytest.fixture
def store() -> Iterator[bm.Store]:
    with edited() as store:
        yield store


# What the server says of itself


@pytest.mark.parametrize("mode", MODES)
def test_each_tool_says_what_it_takes_answers_and_does(store: bm.Store, mode: str) -> None:
    async def look(client: Client) -> None:
        tools = {tool.name: tool for tool in (await client.list_tools()).tools}
        assert set(tools) == READING | WRITING
        for name, tool in tools.items():
            assert tool.title
            assert len(tool.description or "") > 40
            assert tool.input_schema["additionalProperties"] is False
            assert tool.output_schema is not None
            assert tool.output_schema["required"]
            hints = tool.annotations
            assert hints is not None
            assert hints.read_only_hint is (name in READING)
            assert hints.destructive_hint is (name in TAKING_AWAY)
            assert hints.idempotent_hint is (name not in ("append_message", "retract"))
            assert hints.open_world_hint is False
            if name not in ("start_conversation", "switch"):
                assert tool.input_schema["properties"]["anchor"]["type"] == "string"
                assert "anchor" not in tool.input_schema.get("required", ())

    talk(store, look, mode=mode)


def test_a_server_for_reading_has_no_tool_that_writes(store: bm.Store) -> None:
    tools = server(store, ref="main", readonly=True)._tool_manager.list_tools()

    assert {tool.name for tool in tools} == READING


@pytest.mark.parametrize("mode", MODES)
def test_resources_are_the_memories_of_a_branch_and_the_tree_without_a_text(store: bm.Store, mode: str) -> None:
    store.refs.create("feature/../x y", "u2")

    async def read(client: Client) -> None:
        async def text(uri: str) -> str:
            (content,) = (await client.read_resource(uri)).contents
            assert content.mime_type == "application/json"
            return str(getattr(content, "text", ""))

        listed = {resource.uri for resource in (await client.list_resources()).resources}
        assert listed == {"branchmem://branches", "branchmem://memories"}
        templates = (await client.list_resource_templates()).resource_templates
        assert {template.uri_template for template in templates} == {
            "branchmem://branch/{anchor}/memories",
            "branchmem://tree/{anchor}",
        }
        assert "Chengdu" in await text("branchmem://memories")
        assert "Hangzhou" not in await text("branchmem://memories")
        assert "Hangzhou" in await text("branchmem://branch/other/memories")
        assert "Hangzhou" in await text("branchmem://branch/feature%2F..%2Fx%20y/memories")
        for uri in ("branchmem://branches", "branchmem://tree/main"):
            said = await text(uri)
            assert '"u2"' in said
            assert "moving" not in said
        for uri in ("branchmem://tree/nobody", "branchmem://branch/nobody/memories", "branchmem://nothing"):
            with pytest.raises(Exception, match=r"nobody|nothing"):
                await client.read_resource(uri)

    talk(store, read, mode=mode)


def test_prompts_recall_for_a_message_and_tell_a_model_to_keep_to_a_branch(store: bm.Store) -> None:
    async def read(client: Client) -> None:
        prompts = {prompt.name: prompt for prompt in (await client.list_prompts()).prompts}
        assert all(prompt.description for prompt in prompts.values())
        assert set(prompts) == {"recall", "work_on_branch"}

        async def text(name: str, **arguments: str) -> str:
            (message,) = (await client.get_prompt(name, arguments)).messages
            return str(getattr(message.content, "text", ""))

        said = await text("recall", message="Where is the user moving?", anchor="other")
        assert "Hangzhou" in said
        assert "Chengdu" not in said
        assert said.endswith("\n\nWhere is the user moving?")
        assert "anchor='other'" in await text("work_on_branch", anchor="other")
        with pytest.raises(Exception, match="UnknownRef: there is no ref or message 'nobody'"):
            await client.get_prompt("recall", {"message": "?", "anchor": "nobody"})

    talk(store, read)


# Where a call stands


def test_an_argument_is_before_meta_and_meta_before_the_ref_of_the_server(store: bm.Store) -> None:
    async def look(client: Client) -> None:
        for meta, arguments, seen in (
            (None, {}, "Chengdu"),
            ({"branchmem/anchor": "other"}, {}, "Hangzhou"),
            ({"branchmem/anchor": "u2"}, {}, "Hangzhou"),
            ({"branchmem/anchor": "other"}, {"anchor": "main"}, "Chengdu"),
            ({"branchmem/anchor": "other"}, {"anchor": "u1"}, "Chengdu"),
            ({"branchmem/anchor": "other"}, {"anchor": None}, "Hangzhou"),
        ):
            found = await ask(client, "list_memories", meta, **arguments)
            assert texts(found) == {f"The user is moving to {seen}"}

    talk(store, look)


def test_without_an_anchor_nothing_is_read_or_written(store: bm.Store) -> None:
    before = store.seq

    async def look(client: Client) -> None:
        for tool, arguments in (
            ("search_memories", {"query": "Chengdu"}),
            ("get_memory", {"memory_id": "home"}),
            ("list_memories", {}),
            ("explain_visibility", {"memory_id": "home"}),
            ("add_memory", {"text": "x"}),
            ("add_memory", {"text": "x", "source_ids": ["u1"]}),
            ("update_memory", {"memory_id": "home", "text": "x"}),
            ("delete_memory", {"memory_id": "home"}),
            ("append_message", {"text": "x"}),
            ("fork", {"name": "new"}),
            ("retract", {"scope": "everywhere", "memory_ids": ["home"]}),
        ):
            said = await refused(client, tool, **arguments)
            assert said.startswith(f"NoAnchor: {tool} needs an anchor")
            assert "anchor=<ref or message id>" in said

    talk(store, look, ref=None)
    assert store.seq == before


NO_ANCHORS: list[tuple[dict[str, Any], dict[str, Any], str]] = [
    ({"branchmem/anchor": 7}, {}, "InvalidAnchor"),
    ({"branchmem/anchor": ""}, {}, "InvalidAnchor"),
    ({"branchmem/anchor": ["main"]}, {}, "InvalidAnchor"),
    ({"branchmem/anchor": "nobody"}, {}, "UnknownRef"),
    ({}, {"anchor": "nobody"}, "UnknownRef"),
    ({}, {"anchor": "null"}, "UnknownRef"),
    ({}, {"anchor": "detached"}, "BadAnchor"),
    ({}, {"anchor": "home"}, "UnknownRef"),
    ({}, {"anchor": "u2"}, "AmbiguousName"),
    ({}, {"beside": ["other"]}, "AmbiguousAnchor"),
]


def test_what_is_no_anchor_is_refused_and_never_passed_over(store: bm.Store) -> None:
    store.append([bm.Message("detached", "not here")])
    store.refs.create("u2", "u1")

    async def look(client: Client) -> None:
        for meta, arguments, name in NO_ANCHORS:
            said = await refused(client, "list_memories", meta, **arguments)
            assert said.startswith(f"{name}: ")
            if name == "UnknownRef":
                assert "list_branches" in said

    talk(store, look)


def test_an_argument_that_a_tool_does_not_have_is_refused(store: bm.Store) -> None:
    async def look(client: Client) -> None:
        tried: dict[str, Any] = {"anchr": "other", "branch": "other", "anchor": ["other"], "limit": 0}
        for name, value in tried.items():
            assert name in await refused(client, "list_memories", **{name: value})

    talk(store, look)


# Reading


def test_a_branch_finds_nothing_of_its_sibling(store: bm.Store) -> None:
    async def look(client: Client) -> None:
        assert texts(await ask(client, "search_memories", query="Hangzhou Chengdu moving")) == {
            "The user is moving to Chengdu"
        }
        assert (await ask(client, "get_memory", memory_id="home"))["memory"]["key"] == "home_city"
        said = await refused(client, "get_memory", memory_id="elsewhere")
        assert said == (
            "MemoryHidden: memory elsewhere is hidden here: "
            "source u2 is on a sibling branch that parts from the path at chat"
        )
        explained = await ask(client, "explain_visibility", memory_id="elsewhere")
        assert (explained["visible"], explained["reasons"]) == (False, ["SIBLING"])
        assert explained["culprits"] == {"SIBLING": ["u2"]}
        assert "Hangzhou" not in str(explained)

    talk(store, look)


def test_a_view_stands_beside_another_conversation_where_it_is_told_to(store: bm.Store) -> None:
    store.append([bm.Message("profile", None), bm.Memory("vegan", "The user is vegan", sources=["profile"])])

    async def look(client: Client) -> None:
        assert len(texts(await ask(client, "list_memories"))) == 1
        assert texts(await ask(client, "list_memories", beside=["profile"])) == {
            "The user is vegan",
            "The user is moving to Chengdu",
        }

    talk(store, look)


def test_a_list_has_pages(store: bm.Store) -> None:
    store.append([bm.Memory(f"m{n}", f"fact {n}", sources=["u1"]) for n in range(5)])

    async def look(client: Client) -> None:
        seen: list[str] = []
        offset: int | None = 0
        while offset is not None:
            page = await ask(client, "list_memories", limit=4, offset=offset)
            assert page["visible"] == 6
            seen += [memory["id"] for memory in page["memories"]]
            offset = page["next_offset"]
        assert seen == ["home", *(f"m{n}" for n in range(5))]
        assert len((await ask(client, "list_memories", kind="fact", key="home_city"))["memories"]) == 1

    talk(store, look)


def test_branches_are_listed_by_names_and_ids_alone(store: bm.Store) -> None:
    async def look(client: Client) -> None:
        found = await ask(client, "list_branches")
        assert [(ref["name"], ref["at"], ref["root"]) for ref in found["refs"]] == [
            ("main", "u1", "chat"),
            ("other", "u2", "chat"),
        ]
        assert [(leaf["id"], leaf["refs"], leaf["parts_at"]) for leaf in found["leaves"]] == [
            ("u2", ["other"], "chat"),
            ("u1", ["main"], "u1"),
        ]
        assert "moving" not in str(found)
        assert (await ask(client, "list_branches", limit=1))["leaves_in_all"] == 2

    talk(store, look)


def test_branches_are_listed_where_no_call_stands_anywhere(store: bm.Store) -> None:
    async def look(client: Client) -> None:
        found = await ask(client, "list_branches", {"progressToken": 1})
        assert (found["anchor"], found["leaves"], len(found["refs"])) == (None, [], 2)

    talk(store, look, ref=None)


HOSTILE = ["", " ", "\0", "\ud800", "x" * 300, "null", "[1]", "\u202eevil"]


def test_whatever_text_stands_for_an_id_or_a_name_the_answer_is_a_sentence(store: bm.Store) -> None:
    async def try_all(client: Client) -> None:
        tried = 0
        for tool in (await client.list_tools()).tools:
            properties = tool.input_schema["properties"]
            good = {"scope": "branch", "text": "x", "query": "x", "name": "n", "to": "main", "memory_id": "home"}
            needed = {name: good[name] for name in tool.input_schema.get("required", ())}
            for name, schema in properties.items():
                for text in HOSTILE:
                    value: object = [text] if schema.get("type") == "array" else text
                    result = await client.call_tool(tool.name, {**needed, name: value})
                    said = str(getattr(result.content[0], "text", ""))
                    assert said != f"Error executing tool {tool.name}", (tool.name, name, text)
                    assert "Traceback" not in said
                    tried += 1
        assert tried > 300

    talk(store, try_all)
