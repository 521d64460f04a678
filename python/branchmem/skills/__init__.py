"""Skills: what an agent knows how to do, in Markdown files; which of them a message calls up, and their text.

A skill is a value.  It is read from a file, or from the memories that a view shows: a skill that is tied to a branch
is visible by the rule, like any memory, and nothing here is a second rule of it.  Nothing of a skill is ever run.

skill       the value, what its fields may hold, and the fields that Agent Skills allow
parsing     one file: front matter in YAML, then Markdown
library     the skills of folders, and what is wrong with the rest
keywords    whether a word stands in a text
globs       whether a path fits a pattern
activation  which skills a message and some paths call up
prompt      their text
tied        skills as memories of a branch
"""

from branchmem.skills.activation import Activation
from branchmem.skills.library import Library, Problem, load
from branchmem.skills.parsing import parse
from branchmem.skills.prompt import prompt
from branchmem.skills.skill import Skill
from branchmem.skills.tied import KIND, Tied, remember, visible

__all__ = [
    "KIND",
    "Activation",
    "Library",
    "Problem",
    "Skill",
    "Tied",
    "load",
    "parse",
    "prompt",
    "remember",
    "visible",
]
