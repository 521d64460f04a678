"""Skills as text for a prompt.

The same skills give the same text, whatever called them up and in whatever order they come: no scores stand in it,
so that prompt caches hold.  A body is instructions, and handed on as it is; but it cannot end its own frame.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final
from xml.sax.saxutils import quoteattr

from branchmem.skills.activation import Activation
from branchmem.skills.skill import Skill

# What may be read as the tag of a skill: between `<` and the word stands nothing that is part of a word.
_FRAME: Final = re.compile(r"<(?=[^\w<>]*skill\b)", re.IGNORECASE)


def prompt(skills: Iterable[Skill | Activation]) -> str:
    """The text of skills, by name; of several with one name the first.  Empty where there are none.

    Each stands between `<skill name="…">` and `</skill>`: its description, the tools that it allows, the folder where
    the files of an Agent Skill are, and its body.
    """
    chosen: dict[str, Skill] = {}
    for one in skills:
        skill = one.skill if isinstance(one, Activation) else one
        chosen.setdefault(skill.name, skill)
    return "\n\n".join(_framed(chosen[name]) for name in sorted(chosen))


def inner(text: str) -> str:
    """A text as it stands in a prompt: it can neither begin nor end a skill."""
    return _FRAME.sub("&lt;", text)


def _framed(skill: Skill) -> str:
    head = [skill.description]
    if skill.tools_allowed:
        head.append(f"Tools allowed: {', '.join(skill.tools_allowed)}")
    if skill.folder is not None:
        head.append(f"Files of this skill: {skill.folder}")
    said = inner("\n".join(head) + (f"\n\n{skill.body}" if skill.body else ""))
    return f"<skill name={quoteattr(skill.name)}>\n{said}\n</skill>"
