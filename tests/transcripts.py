"""Claude Code transcripts for tests: the samples, lines as Claude Code spells them, and a session of any length."""

from __future__ import annotations

import json
import random
from collections.abc import Iterable
from pathlib import Path
from typing import Any
from uuid import UUID

SAMPLES = Path(__file__).parent / "samples" / "claude_code"
NAMES = sorted(path.name for path in SAMPLES.glob("*.jsonl"))
COMPACTED_EVERY = 10_000


def line(uuid: str, parent: str | None, content: object = "", role: str = "user", **rest: Any) -> dict[str, Any]:
    """A line with a message; `rest` adds fields or replaces them."""
    return {
        "type": role,
        "uuid": uuid,
        "parentUuid": parent,
        "sessionId": "s",
        "timestamp": "2026-03-01T10:00:00.000Z",
        "message": {"role": role, "content": content},
        **rest,
    }


def answer(uuid: str, parent: str | None, id: str, *blocks: dict[str, Any], **rest: Any) -> dict[str, Any]:
    """A line of the answer `id` of the model."""
    message = {"id": id, "role": "assistant", "content": list(blocks)}
    return line(uuid, parent, role="assistant", **{"message": message, **rest})


def text(said: str) -> dict[str, Any]:
    return {"type": "text", "text": said}


def call(id: str) -> dict[str, Any]:
    return {"type": "tool_use", "id": id, "name": "Bash", "input": {}}


def returned(id: str) -> dict[str, Any]:
    return {"type": "tool_result", "tool_use_id": id, "content": "done"}


def boundary(uuid: str, logical: str | None, **rest: Any) -> dict[str, Any]:
    """The line at which a conversation was compacted."""
    bare = line(uuid, None, role="system", subtype="compact_boundary", content="Conversation compacted", **rest)
    del bare["message"]
    return bare | {"logicalParentUuid": logical}


def summary(uuid: str, parent: str | None, said: str = "so far", **rest: Any) -> dict[str, Any]:
    return line(uuid, parent, said, isCompactSummary=True, **rest)


def written(path: Path, lines: Iterable[object]) -> Path:
    """Write lines: objects as JSON, bytes as they are."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(
        b"".join((each if isinstance(each, bytes) else json.dumps(each).encode()) + b"\n" for each in lines)
    )
    return path


def long_session(path: Path, size: int, seed: int) -> int:
    """Write a session of at least `size` bytes and return its messages: 1.8 kB a line, compacted every 10,000 lines."""
    chance = random.Random(seed)
    words = "".join(chance.choices("abcdefgh ", k=10_000))
    made = 0
    parent: str | None = None
    with path.open("wb") as file:
        while file.tell() < size:
            uuid = str(UUID(int=chance.getrandbits(128)))
            step = made % 4
            start = chance.randrange(len(words) // 2)
            said = words[start : start + chance.randrange(800, 2200)]
            compacted = made >= COMPACTED_EVERY
            if compacted and made % COMPACTED_EVERY == 0:
                form = boundary(uuid, parent)
            elif compacted and made % COMPACTED_EVERY == 1:
                form = summary(uuid, parent, said)
            elif step == 0:
                form = line(uuid, parent, said)
            elif step == 3:
                form = line(uuid, parent, [returned(f"toolu_{made - 1}")], toolUseResult={"stdout": said})
            else:
                block = call(f"toolu_{made}") | {"input": {"command": said}} if step == 2 else text(said)
                form = answer(uuid, parent, f"msg_{made // 4}", block)
            file.write(json.dumps(form | {"cwd": "/home/alice/project", "version": "2.1.100"}).encode() + b"\n")
            parent = uuid
            made += 1
    return made
