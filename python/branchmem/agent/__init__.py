"""Agents on a session: the loop that recalls, asks a model and remembers, in one step; and clients that are wrapped.

Nothing here decides what is visible: an agent stands where its session stands, and sees what the rule shows there.

loop      the agent: from what the user says to an answer
work      one turn under way
turn      a step that also says what stands above its answer
tools     functions as tools of a model
wire      messages as endpoints take them
placing   where a list of messages belongs in the tree of a session
wrapping  each call of an OpenAI-style client as a step
swarm     several agents, each on a fork, and what the lead adopts of them
"""

from branchmem.agent.loop import Agent
from branchmem.agent.swarm import Finding, Swarm
from branchmem.agent.tools import Tool
from branchmem.agent.turn import Turn
from branchmem.agent.work import Answer
from branchmem.agent.wrapping import AsyncWrapped, Wrapped, wrap

__all__ = ["Agent", "Answer", "AsyncWrapped", "Finding", "Swarm", "Tool", "Turn", "Wrapped", "wrap"]
