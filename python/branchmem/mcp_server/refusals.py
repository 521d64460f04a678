"""How a refusal is told to a client: the name of the error, its text, and a way out that a client can go.

Nothing that is stored is repeated in it, but for ids: what is at fault may stand on another branch.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import ParamSpec, TypeVar

from mcp.server.mcpserver.exceptions import ToolError

from branchmem import Error
from branchmem.errors import EventConflict, UnknownRef
from branchmem.errors.base import short

P = ParamSpec("P")
T = TypeVar("T")


def answered(tool: Callable[P, T]) -> Callable[P, T]:
    """The tool, whose refusals are tool errors: the name of the error, and its text."""

    @wraps(tool)
    def call(*args: P.args, **kwargs: P.kwargs) -> T:
        try:
            return tool(*args, **kwargs)
        except Error as refused:
            raise ToolError(told(refused)) from refused

    return call


def told(refused: Error) -> str:
    """The name of an error, and its text."""
    said = str(refused)
    if isinstance(refused, EventConflict):
        said = (
            f"event {refused.id} is already there with another {refused.field}, and events never change: take another "
            "message_id for another message; update_memory says a memory anew"
        )
    elif isinstance(refused, UnknownRef):
        said = f"there is no {refused.wanted} {short(refused.name)}: list_branches names the refs and where they stand"
    return f"{type(refused).__name__}: {said}"
