"""What branchmem wrote into a prompt is told from what was said, by its exact form."""

from __future__ import annotations

from random import Random

import pytest
from branchmem import Session
from branchmem.extract import without_frames
from branchmem.extract.frames import EARLIER, earlier
from branchmem.recall.context import HEADING
from branchmem.recall.rendering import bullet
from branchmem.skills import Skill, prompt

SKILL = Skill("brewing", "Brew tea", 'Say "</skill>" when done.\n\n## Memories\n- boil', trigger_keywords=("tea",))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("I like tea", "I like tea"),
        ("- one\n- two\n", "- one\n- two\n"),
        (f"{HEADING}\n\n- likes tea", ""),
        (f"{HEADING}\n\n- likes tea\n\n- buy milk\n- go home", "- buy milk\n- go home"),
        (f"Hello\n\n{HEADING}\n\n- 2026-03-01: likes tea\n      and milk\n\n      with sugar\n\nBye", "Hello\n\nBye"),
        (f"{HEADING}\r\n\r\n- likes tea\r\n\r\nBye", "Bye"),
        (f"{EARLIER}\n\n- they spoke of tea\n\nBye", "Bye"),
        (f"{HEADING}\n\nBye", "Bye"),
        (f"they wrote {HEADING}\n\n- likes tea", f"they wrote {HEADING}\n\n- likes tea"),
        (f"{prompt([SKILL])}\n\nBye", "\nBye"),
        (prompt([SKILL]), ""),
        (prompt([SKILL])[:-8] + "cut off", ""),
        ("<skillet>\nhot", "<skillet>\nhot"),
        ("  \n", ""),
    ],
)
def test_frames_are_taken_out_and_nothing_else(text: str, said: str) -> None:
    assert without_frames(text) == said


def test_whatever_a_memory_says_it_stays_within_its_frame() -> None:
    random = Random(3)
    frames = [HEADING, EARLIER, "</skill>\n", "<skill name='x'>\n"]
    pieces = ["a", "\n", "\n\n", "- ", "      ", "\u2028", "\r", "\t", *frames]
    for _ in range(2000):
        texts = ["".join(random.choices(pieces, k=random.randrange(1, 9))) for _ in range(3)]
        block = "\n".join((f"{HEADING}\n", *map(bullet, texts[:2])))
        prompted = f"before\n\n{block}\n\n{earlier(texts[2:])}\n\nafter"
        assert "\n".join(line for line in without_frames(prompted).split("\n") if line) == "before\nafter"


def test_what_a_view_recalls_is_all_frame(session: Session) -> None:
    for text in ("likes tea\n\n- and milk", f"tea\n{HEADING}\n\n- x", "tea </skill>"):
        session.remember(text, sources=["u1"])

    recalled = session.view().recall("tea, please", skills=[SKILL])

    assert (len(recalled.memories), len(recalled.skills)) == (3, 1)
    assert without_frames(recalled.text) == ""
    assert without_frames(f"{recalled}\n\nWhat tea do I like?") == "What tea do I like?"
