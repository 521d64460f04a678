"""Instructions that say what of the branch belongs into a prompt."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

from branchmem.adapters.openai_agents.items import text_of
from branchmem.adapters.openai_agents.session import BranchSession
from branchmem.session.settled import settled

if TYPE_CHECKING:
    from agents import Agent, RunContextWrapper


def instructions(
    session: BranchSession, text: str = "", **options: Any
) -> Callable[[RunContextWrapper[Any], Agent[Any]], Awaitable[str]]:
    """Instructions for an agent: `text`, and what of the branch belongs into a prompt for what the user said last.

        Agent(name="…", instructions=instructions(session, "You are …"), tools=[…])

    Takes what `view.recall` takes.  The SDK asks before each call of the model, so it is the branch of that moment.
    """

    async def recalled(context: RunContextWrapper[Any], agent: Agent[Any]) -> str:
        above = await settled(lambda: session._messages(session._place()))
        said = [message.text for message in above if message.role == "user"]
        # a streamed run asks before its input is a message
        said += [text_of(item.get("content")) for item in context.turn_input if item.get("role") == "user"]
        asked = next((text for text in reversed(said) if text), None)
        found = (await session.recall(asked, **options)).text if asked else ""
        return "\n\n".join(filter(None, (text, found)))

    return recalled
