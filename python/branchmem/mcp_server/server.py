"""The MCP server of one store: which tools, resources and prompts there are, and what they promise a host.

Tools say of themselves whether they only read and whether they take something away; a store that is open for reading
has the reading ones alone.  What they do stands in `tools`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, Final

from mcp.server.mcpserver import Context, MCPServer
from mcp.server.mcpserver.exceptions import ResourceError, ResourceNotFoundError
from mcp.server.mcpserver.resources import ResourceSecurity
from mcp.server.mcpserver.tools import Tool
from mcp.shared.exceptions import MCPError
from mcp_types import INVALID_PARAMS, ToolAnnotations
from pydantic import Field, create_model

import branchmem as bm
from branchmem.errors import UnknownRef
from branchmem.mcp_server.forms import MOST, Form, Optional
from branchmem.mcp_server.place import META, called_from, place
from branchmem.mcp_server.refusals import told
from branchmem.mcp_server.tools import Tools, listed
from branchmem.mcp_server.trees import branches, tree_form
from branchmem.refs import valid_name

INSTRUCTIONS: Final = f"""\
Memory for conversations that branch. A memory is seen only where all the messages that it comes from are on the path \
of the anchor: what one branch learned, another never sees.
Say with each call where you stand: anchor=<ref or message id> (or _meta {META}). Every answer has the anchor to send \
next. To work on another branch, send its anchor (switch, fork and list_branches give them); nothing else is needed.
Tell the server what is said (append_message) before you remember what it said (add_memory)."""

JSON: Final = "application/json"
# Nothing of a URI names a file: ids may hold what a path may not.
_ANY_ID: Final = ResourceSecurity(reject_path_traversal=False, reject_absolute_paths=False, reject_null_bytes=False)


def server(store: bm.Store, *, ref: str | None = None, readonly: bool = False) -> MCPServer[Any]:
    """An MCP server of an open store, to be run over any transport; `ref` is where a call stands that does not say.

    With `readonly` it has no tool that writes.  The ref need not be there yet.  Closing the store is the caller's.
    Raises: InvalidRef.
    """
    if ref is not None:
        valid_name(ref)
    tools = Tools(store, ref)
    made: MCPServer[Any] = MCPServer(
        "branchmem",
        title="branchmem",
        version=bm.__version__,
        instructions=INSTRUCTIONS,
        tools=[*_reading(tools), *(() if readonly else _writing(tools))],
        log_level="WARNING",
    )
    _add_resources(made, store, ref)
    _add_prompts(made, store, ref)
    return made


def _reading(tools: Tools) -> list[Tool]:
    return [
        _tool(tools.search_memories, "Search memories", reads=True),
        _tool(tools.get_memory, "Read a memory", reads=True),
        _tool(tools.list_memories, "List memories", reads=True),
        _tool(tools.list_branches, "List branches", reads=True),
        _tool(tools.explain_visibility, "Explain why a memory is seen or hidden", reads=True),
    ]


def _writing(tools: Tools) -> list[Tool]:
    return [
        _tool(tools.add_memory, "Remember"),
        _tool(tools.update_memory, "Replace a memory", takes_away=True),
        _tool(tools.delete_memory, "Forget a memory", takes_away=True),
        _tool(tools.append_message, "Append a message", repeatable=False),
        _tool(tools.switch, "Go to another branch"),
        _tool(tools.fork, "Start a branch"),
        _tool(tools.start_conversation, "Start a conversation"),
        _tool(tools.retract, "Take memories back", takes_away=True, repeatable=False),
    ]


def _tool(
    function: Callable[..., Any],
    title: str,
    *,
    reads: bool = False,
    takes_away: bool = False,
    repeatable: bool = True,
) -> Tool:
    """A tool that refuses arguments which it does not have: a misspelt anchor must not be taken for none."""
    hints = ToolAnnotations(
        title=title,
        read_only_hint=reads,
        destructive_hint=takes_away,
        idempotent_hint=repeatable,
        open_world_hint=False,
    )
    description = " ".join((function.__doc__ or "").split())
    tool = Tool.from_function(function, title=title, description=description, annotations=hints, structured_output=True)
    given = tool.fn_metadata.arg_model
    closed = create_model(given.__name__, __base__=given, __cls_kwargs__={"extra": "forbid"})
    tool.fn_metadata.arg_model = closed
    tool.parameters = closed.model_json_schema(by_alias=True)
    return tool


def _add_resources(made: MCPServer[Any], store: bm.Store, ref: str | None) -> None:
    def refs_of_the_store() -> str:
        return _read(lambda: branches(store, None, MOST))

    def memories_here() -> str:
        return memories_of_branch(str(ref))

    def memories_of_branch(anchor: str) -> str:
        def read() -> Form:
            here = place(store, anchor)
            return listed(here, store.at(here.at), kind="", key="", limit=MOST, offset=0)

        return _read(read)

    def tree_of_branch(anchor: str) -> str:
        return _read(lambda: tree_form(store, place(store, anchor)))

    made.resource(
        "branchmem://branches",
        name="branches",
        title="Branches",
        description="The refs of the store, and where each stands.",
        mime_type=JSON,
    )(refs_of_the_store)
    if ref is not None:
        made.resource(
            "branchmem://memories",
            name="memories",
            title="Memories",
            description=f"What the ref {ref} sees, in the order of the conversation.",
            mime_type=JSON,
        )(memories_here)
    made.resource(
        "branchmem://branch/{anchor}/memories",
        name="branch_memories",
        title="Memories of a branch",
        description="What a ref or a message sees, in the order of the conversation.",
        mime_type=JSON,
        security=_ANY_ID,
    )(memories_of_branch)
    made.resource(
        "branchmem://tree/{anchor}",
        name="tree",
        title="Tree of a conversation",
        description="The conversation of a ref or a message with all its branches: ids and roles, no texts.",
        mime_type=JSON,
        security=_ANY_ID,
    )(tree_of_branch)


def _read(form: Callable[[], Form]) -> str:
    """The JSON of a resource.  Raises: ResourceNotFoundError for a place that there is not; ResourceError."""
    try:
        return form().model_dump_json(indent=2)
    except UnknownRef as unknown:
        raise ResourceNotFoundError(told(unknown)) from unknown
    except bm.Error as refused:
        raise ResourceError(told(refused)) from refused


def _add_prompts(made: MCPServer[Any], store: bm.Store, ref: str | None) -> None:
    def recall(
        message: Annotated[str, Field(description="What is to be answered.")],
        context: Context,
        anchor: Annotated[Optional, Field(description="A ref or a message; left out, where the server stands.")] = "",
    ) -> str:
        try:
            here = called_from(store, anchor, context.request_context.meta, ref, wanted="recall")
            found = store.at(here.at).recall(message)
        except bm.Error as refused:
            raise MCPError(code=INVALID_PARAMS, message=told(refused)) from refused
        return f"{found.text}\n\n{message}" if found.text else message

    def work_on_branch(anchor: Annotated[str, Field(description="The ref or the message to stand at.")]) -> str:
        return (
            f"Work on the branch {anchor} of the memory server branchmem. Send anchor={anchor!r} with each call of its "
            "tools, and the anchor of an answer with the call after it. Append each message of mine and each answer of "
            "yours (append_message) before you remember what it said (add_memory). Where I say that something was "
            "wrong or is to be forgotten, use update_memory, delete_memory or retract with scope branch."
        )

    made.prompt(
        title="Answer with what is remembered",
        description="A message, under what this branch remembers that fits it.",
    )(recall)
    made.prompt(
        title="Work on a branch",
        description="Instructions for a model to keep to one branch, and to remember on it.",
    )(work_on_branch)
