"""Shapes that break what recurses or is quadratic: seconds each, and the answers are asserted, not the times."""

from __future__ import annotations

import struct
from collections.abc import Iterator

import branchmem as bm
import pytest
from branchmem import Memory, Message, Reason

MILLION = 1_000_000
MANY = 100_000


def chain(length: int) -> Iterator[Message]:
    yield Message("m0", None)
    for number in range(1, length):
        yield Message(f"m{number}", f"m{number - 1}")


def fan(width: int) -> Iterator[Message]:
    yield Message("top", None)
    for number in range(width):
        yield Message(f"m{number}", "top")


def note(number: int, *sources: str, upstream: int | None = None) -> Memory:
    return Memory(f"k{number}", "", sources=sources, derived_from=[] if upstream is None else [f"k{upstream}"])


def test_a_chain_of_a_million_messages() -> None:
    engine = bm.Engine()
    engine.add(chain(MILLION))
    engine.add(note(number, f"m{number * 1000}") for number in range(1000))

    assert len(engine.at(f"m{MILLION - 1}")) == 1000
    assert len(engine.at("m500000")) == 501
    assert engine.at("m0").explain("k999").culprits == {Reason.FUTURE: ("m999000",)}
    assert engine.visible(["k500", "k500"], ["m500000", "m499999"]).tolist() == [True, False]
    assert engine.bitmaps(["m0", "m999999"]).sum(axis=1).tolist() == [1, 125 * 255]
    assert len(engine.tree.path(f"m{MILLION - 1}")) == MILLION
    assert engine.tree.is_ancestor("m3", "m999999")
    assert engine.tree.common_ancestor("m999999", "m5") == "m5"
    assert engine.tree.leaves() == ["m999999"]
    assert engine.tree.latest_leaf("m0") == "m999999"


def test_a_chain_that_arrives_leaf_first_attaches_at_once() -> None:
    engine = bm.Engine()
    messages = list(chain(MANY * 3))
    root = messages.pop(0)
    engine.add([note(1, f"m{MANY * 3 - 1}")])
    for start in range(0, len(messages), 1000):
        engine.add(reversed(messages[-start - 1000 : len(messages) - start]))
    anchor = messages[-1].id
    assert engine.at(anchor).problems == Reason.DETACHED_ANCHOR

    engine.add([root])

    assert list(engine.at(anchor)) == ["k1"]
    assert engine.at("m7").explain("k1").reasons == Reason.FUTURE


def test_a_fan_of_a_million_siblings() -> None:
    engine = bm.Engine()
    engine.add(fan(MILLION))
    engine.add(note(number, f"m{number * 1000}", "top") for number in range(1000))

    assert list(engine.at("m42000")) == ["k42"]
    assert list(engine.at("m42001")) == []
    assert engine.at("m1").explain("k42").parted == {"m42000": "top"}
    assert engine.visible(["k1", "k2"], ["m1000", "m1000"]).tolist() == [True, False]
    siblings, index = engine.tree.siblings("m77")
    assert (len(siblings), index) == (MILLION, 77)
    assert len(engine.tree.leaves()) == MILLION
    assert engine.tree.latest_leaf("top") == f"m{MILLION - 1}"


@pytest.mark.parametrize("arrival", ["in order", "backwards", "inside out"])
def test_a_derivation_chain_of_100_000_memories(arrival: str) -> None:
    """Each comes from the one before and from a message of its own, on one path."""
    engine = bm.Engine()
    memories = [note(number, f"m{number}", upstream=number - 1 if number else None) for number in range(MANY)]
    if arrival == "backwards":
        memories.reverse()
    elif arrival == "inside out":
        memories = memories[1::2] + memories[::2]
    if arrival == "in order":
        engine.add(chain(MANY))
    for start in range(0, MANY, 10_000):
        engine.add(memories[start : start + 10_000])
    if arrival != "in order":
        engine.add(chain(MANY))

    assert len(engine.at(f"m{MANY - 1}")) == MANY
    assert sorted(engine.at("m4")) == ["k0", "k1", "k2", "k3", "k4"]
    assert engine.visible(["k99999", "k99999"], ["m99998", "m99999"]).tolist() == [False, True]
    verdict = engine.at("m99990").explain("k99999")
    assert verdict.culprits == {Reason.FUTURE: tuple(f"m{number}" for number in range(99991, MANY))}


def test_a_derivation_chain_over_nothing_is_hidden_and_completes_when_the_last_link_arrives() -> None:
    engine = bm.Engine()
    engine.add([Message("c", None)])
    engine.add(note(number, upstream=number - 1) for number in range(1, MANY))
    assert engine.at("c").explain("k99999").culprits[Reason.MISSING_UPSTREAM] == ("k0",)
    assert len(engine.at("c", policy=bm.COMPAT)) == MANY - 1

    engine.add([note(0, "c")])

    assert len(engine.at("c")) == MANY


def test_a_circle_of_100_000_memories() -> None:
    engine = bm.Engine()
    engine.add([Message("c", None)])
    engine.add(note(number, "c", upstream=(number + 1) % MANY) for number in range(MANY))

    assert len(engine.at("c")) == 0
    assert set(engine.at("c").reasons().tolist()) == {Reason.UPSTREAM_CYCLE}
    assert len(engine.at("c").explain("k5").culprits[Reason.UPSTREAM_CYCLE]) == MANY


@pytest.mark.parametrize("backwards", [False, True])
def test_a_star_of_siblings_with_a_derivation_chain_over_it(backwards: bool) -> None:
    """From the second on, each memory has sources on ever more siblings: a fork that shows nowhere."""
    engine = bm.Engine()
    memories = [note(number, f"m{number}", upstream=number - 1 if number else None) for number in range(MANY)]
    engine.add(fan(MANY))
    engine.add(reversed(memories) if backwards else memories)

    assert list(engine.at("m0")) == ["k0"]
    assert list(engine.at("m99999")) == []
    assert set(engine.at("top").reasons().tolist()) == {Reason.FUTURE}
    assert engine.at("m1").explain("k1").culprits == {Reason.SIBLING: ("m0",)}
    assert engine.visible(["k0", "k1"], ["m0", "m1"]).tolist() == [True, False]


def test_100_000_memories_whose_sources_arrive_after_them() -> None:
    engine = bm.Engine()
    engine.add(note(number, f"m{number}", f"m{number // 2}") for number in range(MANY))
    assert set(engine.at(None).reasons().tolist()) == {Reason.NO_ANCHOR | Reason.MISSING_SOURCE}

    messages = list(chain(MANY))
    engine.add(messages[MANY // 2 :])
    assert len(engine.at("m60000", policy=bm.COMPAT)) == 0
    assert engine.at(None).reasons()[[0, MANY - 1]].tolist() == [
        Reason.NO_ANCHOR | Reason.MISSING_SOURCE,
        Reason.NO_ANCHOR | Reason.MISSING_SOURCE | Reason.DETACHED_SOURCE,
    ]
    engine.add(messages[: MANY // 2])

    assert len(engine.at("m99999")) == MANY
    assert len(engine.at("m499")) == 500
    assert engine.at("m9").explain("k19").culprits == {Reason.FUTURE: ("m19",)}


def test_roaring_bytes_hold_the_ordinals() -> None:
    """Three containers of 65,536 ordinals: full, scattered, nearly empty."""
    engine = bm.Engine()
    engine.add([Message("c", None), Message("u", "c")])
    shown = [number for number in range(131_100) if number < 65_536 or (number % 3 == 0 and number < 131_072)]
    visible = set(shown)
    engine.add(note(number, "c" if number in visible else "u") for number in range(131_100))
    shown += [131_099]
    engine.add([note(131_100, "c")])

    view = engine.at("c")
    expected = view.ordinals().tolist()
    assert expected == [*shown[:-1], 131_100]
    assert unrolled(view.roaring()) == expected
    assert unrolled(engine.at("nope").roaring()) == []


def unrolled(data: bytes) -> list[int]:
    """The numbers in a portable Roaring bitmap of 32 bits (github.com/RoaringBitmap/RoaringFormatSpec)."""
    (cookie,) = struct.unpack_from("<I", data)
    has_runs = cookie & 0xFFFF == 12347
    if has_runs:
        containers, place = (cookie >> 16) + 1, 4
        runs = int.from_bytes(data[place : (place := place + (containers + 7) // 8)], "little")
    else:
        assert cookie == 12346
        containers, place, runs = struct.unpack_from("<I", data, 4)[0], 8, 0
    heads = [struct.unpack_from("<HH", data, place + 4 * number) for number in range(containers)]
    place += 4 * containers + (4 * containers if not has_runs or containers >= 4 else 0)
    numbers: list[int] = []
    for number, (key, last) in enumerate(heads):
        if runs >> number & 1:
            (count,) = struct.unpack_from("<H", data, place)
            pairs = struct.iter_unpack("<HH", data[place + 2 : place + 2 + 4 * count])
            low = [value for start, more in pairs for value in range(start, start + more + 1)]
            place += 2 + 4 * count
        elif last + 1 > 4096:
            bits = int.from_bytes(data[place : place + 8192], "little")
            low = [value for value, bit in enumerate(f"{bits:065536b}"[::-1]) if bit == "1"]
            place += 8192
        else:
            low = list(struct.unpack_from(f"<{last + 1}H", data, place))
            place += 2 * (last + 1)
        numbers += [key << 16 | value for value in low]
    assert place == len(data)
    return numbers


@pytest.mark.parametrize("missing", [False, True], ids=["whole", "one source missing"])
def test_a_derivation_over_a_hundred_thousand_trees(missing: bool) -> None:
    """Each memory rests on one more tree than the one before: ever more anchors are needed."""
    count = 100_000
    engine = bm.Engine()
    engine.add([bm.Message(f"r{at}", None) for at in range(count)])
    engine.add(
        bm.Memory(
            f"m{at}",
            "",
            sources=[f"r{at}", *(["nowhere"] if missing and not at else [])],
            derived_from=[f"m{at - 1}"] if at else [],
        )
        for at in range(count)
    )

    for anchors in (1, 2, 8, 9, 50):
        stand = [f"r{at}" for at in range(anchors)]
        assert len(engine.at(stand)) == (0 if missing else anchors)
        assert len(engine.at(stand, policy=bm.COMPAT)) == anchors
    assert len(engine.at("r5", policy=bm.Policy(bm.Reason.OTHER_TREE | bm.Reason.MISSING_SOURCE))) == count
    assert int((engine.at("r5").reasons() & bm.Reason.OTHER_TREE != 0).sum()) == count
    shown = engine.visible([f"m{at}" for at in range(count)], ["r0"] * count, policy=bm.COMPAT)
    assert shown.nonzero()[0].tolist() == [0]
    assert len(engine.at("r5").explain(f"m{count - 1}").culprits[bm.Reason.OTHER_TREE]) == count - 1
