"""What language models are asked: the one prompt for answers, and those for summaries and facts.

They are part of the published figures: a changed word is another benchmark, and asks for another run.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from branchmem.branchbench.models.chat import Request, Turn
from branchmem.branchbench.scenario import Language

UNKNOWN: Final[dict[Language, str]] = {"en": "I don't know.", "zh": "不知道。"}

ANSWER: Final[dict[Language, str]] = {
    "en": "Answer the question with what the context says, in one short sentence. "
    "If the context does not tell, answer: I don't know.",
    "zh": "请根据上下文用一句简短的话回答问题。如果上下文没有提到，就回答：不知道。",
}

SUMMARY: Final[dict[Language, str]] = {
    "en": "You keep a summary of a conversation for later. Write the new summary: keep every concrete detail of the "
    "old summary that still holds, add what is new. At most 80 words, plain sentences, nothing else.",
    "zh": "你负责为以后保存对话摘要。请写出新的摘要：保留旧摘要中仍然有效的具体信息，加入新的内容。"
    "不超过一百二十字，用平实的句子，不要写别的。",
}

FACTS: Final[dict[Language, str]] = {
    "en": "List the lasting facts that the user states in the message, one short sentence a line, each complete in "
    "itself and about the user or the task. No numbering. If there is none, write: none",
    "zh": "请列出用户在消息中陈述的值得长期记住的事实，每行一个简短完整的句子，内容关于用户或任务。"
    "不要编号。如果没有，就写：无",
}

_LABELS: Final[dict[Language, tuple[str, str, str, str]]] = {
    "en": ("Context:", "Question:", "Old summary:", "New:"),
    "zh": ("上下文：", "问题：", "旧摘要：", "新内容："),
}
_NOTHING: Final[dict[Language, str]] = {"en": "(nothing)", "zh": "（无）"}


def answer(language: Language, question: str, context: Sequence[str]) -> Request:
    """The question with its context."""
    head, ask, _, _ = _LABELS[language]
    lines = "\n".join(context) or _NOTHING[language]
    return _request(ANSWER[language], f"{head}\n{lines}\n\n{ask} {question}", 48)


def summary(language: Language, old: str, new: Sequence[str]) -> Request:
    """What was summed up so far, and what has come since."""
    _, _, before, after = _LABELS[language]
    lines = "\n".join(new)
    return _request(SUMMARY[language], f"{before}\n{old or _NOTHING[language]}\n\n{after}\n{lines}", 160)


def facts(language: Language, message: str) -> Request:
    """One message of the user."""
    return _request(FACTS[language], message, 96)


def _request(system: str, user: str, max_tokens: int) -> Request:
    return Request((Turn("system", system), Turn("user", user)), max_tokens)
