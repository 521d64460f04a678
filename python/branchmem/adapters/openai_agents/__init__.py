"""A session of the OpenAI Agents SDK with branches, for agents whose tools remember.

session  the session: a list that is the path of a ref, and memories that wait for the output of a call
runs     which run a call belongs to, and where that stands
items    items as messages of the log, and back
prompt   instructions that say what the branch knows
"""

from branchmem.adapters.openai_agents.prompt import instructions
from branchmem.adapters.openai_agents.session import BranchSession

__all__ = ["BranchSession", "instructions"]
