"""Damaged files by the thousand: nothing wrong is ever read, and with `verify` nobody dies of one."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from random import Random

import pytest
from damage import PARTLY, REFUSED, RIGHT, Original, damaged, fates, originals
from figures import Figure, Quote

SEED = 20260402
HARMLESS = {RIGHT, REFUSED, PARTLY}


@pytest.mark.soak
@pytest.mark.parametrize("verify", [True, False], ids=["verify", "plain"])
def test_damage_is_an_error_and_never_a_wrong_record(
    tmp_path: Path, figure: Figure, quote: Quote, verify: bool
) -> None:
    sound = originals(tmp_path)
    count = figure(2_000, 50_000)

    def make(number: int) -> Original:
        random = Random(f"{SEED} {number}")
        whole, events = random.choice(sound)
        return damaged(random, whole), events

    fate = fates(tmp_path / "damaged.bmem", count, make, verify=verify)

    found = {
        chr(kind): [number for number, became in enumerate(fate) if became == kind]
        for kind in set(fate) - HARMLESS - (set() if verify else {ord("d")})
    }
    assert found == {}, f"seed {SEED}"
    counts = Counter(fate)
    assert min(counts[kind] for kind in HARMLESS) > count // 100, "the damage is too harmless, or too great"
    quote(
        f"{count:,} damaged files, {'with verify' if verify else 'plain open'}: {counts[REFUSED]:,} refused, "
        f"{counts[PARTLY]:,} without a part, {counts[RIGHT]:,} right, {counts[ord('d')]:,} deaths, 0 wrong records"
    )


def test_files_that_nothing_happened_to_are_right(tmp_path: Path) -> None:
    sound = originals(tmp_path)

    fate = fates(tmp_path / "sound.bmem", len(sound), lambda number: sound[number], verify=True)

    assert set(fate) == {RIGHT}


def test_a_worker_that_dies_is_counted_and_followed_by_another(tmp_path: Path) -> None:
    sound = originals(tmp_path)
    whole, events = sound[0]

    def make(number: int) -> Original:
        if number == 2:
            raise SystemExit
        return whole, events if number != 4 else [events[1], *events[1:]]

    assert fates(tmp_path / "some.bmem", 6, make, verify=False) == b"rrdrwr"
