"""The compiled codec and the plain one are twins: the same bytes, the same refusals."""

from __future__ import annotations

import random
import struct
import zlib
from pathlib import Path

import pytest
from branchmem import _core
from branchmem.codec import Interner, decode_block, encode_block
from branchmem.events import Erasure, Event, Memory, Message, Restoration, Retraction
from hypothesis import given, settings
from hypothesis import strategies as st

SEED = 20_240_607
IDS = st.sampled_from(["a", "b", "é", "x" * 31, "y" * 32, "z" * 255, "日" * 85 + "q"])
SETS = st.lists(IDS, max_size=4)
SCOPES = st.sampled_from(["branch", "tree", "everywhere"])
HEADER = 20


def events() -> st.SearchStrategy[Event]:
    named = st.lists(IDS, min_size=1, max_size=3)
    return st.one_of(
        st.builds(Message, IDS, st.none() | IDS),
        st.builds(
            lambda id, sources, up, replaced, adopts, kind, key: Memory(
                id, "", sources=sources, derived_from=up, supersedes=replaced, adopts=adopts, kind=kind, key=key
            ),
            IDS, SETS, SETS, SETS, st.none() | IDS, st.sampled_from(["fact", "note"]), st.none() | IDS,
        ),
        st.builds(
            lambda id, at, scope, memories, sources, keys, standing: Retraction(
                id, at, scope=scope, memories=memories, sources=sources, keys=keys, standing=standing
            ),
            IDS, IDS, SCOPES, named, SETS, SETS, st.booleans(),
        ),
        st.builds(lambda id, at, scope, what: Restoration(id, at, scope=scope, retraction=what), IDS, IDS, SCOPES, IDS),
        st.builds(lambda id, targets, cascade: Erasure(id, targets, cascade=cascade), IDS, named, st.booleans()),
    )  # fmt: skip


@settings(derandomize=True, max_examples=300, deadline=None)
@given(st.lists(events(), min_size=1, max_size=12))
def test_both_write_the_same_block(batch: list[Event]) -> None:
    skeletons = [event.skeleton() for event in batch]

    ((first_seq, block),) = _core.Engine(1).encode(skeletons)

    assert first_seq == 0
    assert block == encode_block(0, skeletons, Interner())


def test_a_batch_is_cut_into_blocks_of_a_thousand_that_follow_on_each_other() -> None:
    batch = [Message(f"m{at}", f"m{at - 1}" if at else None).skeleton() for at in range(2500)]
    interner = Interner()

    blocks = _core.Engine(1).encode(batch)

    assert [first_seq for first_seq, _ in blocks] == [0, 1000, 2000]
    assert [skeleton for seq, block in blocks for skeleton in decode_block(seq, block, interner)] == batch


def sealed(payload: bytes, count: int) -> bytes:
    header = struct.pack("<B3xIQ", 1, count, 0)
    return header + struct.pack("<I", zlib.crc32(payload, zlib.crc32(header, zlib.crc32(bytes(8))))) + payload


def test_both_accept_and_refuse_the_same_bytes() -> None:
    """Random changes behind a true checksum: 20,000 blocks, most of them refused."""
    print("seed", SEED)
    rng = random.Random(SEED)
    accepted = 0
    for _ in range(20_000):
        batch = [
            Message("m", rng.choice([None, "p", "m"])),
            Memory("x", "", sources=rng.sample(["m", "p", "q"], rng.randrange(3)), derived_from=["x"], key="k"),
        ]
        payload = bytearray(encode_block(0, [event.skeleton() for event in batch], Interner())[HEADER:])
        for _ in range(rng.randrange(3)):
            place = rng.randrange(len(payload))
            change = rng.choice(["set", "cut", "put"])
            payload[place : place + (change != "put")] = b"" if change == "cut" else bytes([rng.randrange(256)])
        block = sealed(bytes(payload), 2)

        plain, compiled = outcome_of_plain(block), outcome_of_compiled(block)

        assert plain == compiled, block.hex()
        accepted += plain == "read"
    assert accepted > 5_000


def outcome_of_plain(block: bytes) -> str:
    try:
        decode_block(0, block, Interner())
    except ValueError:
        return "refused"
    return "read"


def outcome_of_compiled(block: bytes) -> str:
    try:
        _core.Engine(1).fold([(0, block)])
    except _core.BlockError as error:
        why, newer = error.args
        # What a later version obeys, and two events of one id, are sound bytes that the engine does not fold.
        return "read" if newer or why == "two events of the log bear one id" else "refused"
    return "read"


def test_the_golden_block_is_read_to_the_skeletons_of_its_events() -> None:
    golden = (Path(__file__).parent / "golden" / "block-1.bin").read_bytes()
    skeletons = decode_block(1, golden, Interner())
    engine = _core.Engine(1)

    ((_, block),) = engine.encode(skeletons)
    engine.fold([(0, block)])

    assert block[HEADER:] == golden[HEADER:]
    assert [engine.skeleton(id) for id in engine.event_ids(0, 99)] == list(enumerate(skeletons))


def test_a_log_that_needs_a_later_version_leaves_no_trace() -> None:
    engine = _core.Engine(1)
    later = bytearray(encode_block(0, [Message("a", None).skeleton(), Message("b", "a").skeleton()], Interner()))
    later[0] += 1

    with pytest.raises(_core.BlockError) as raised:
        engine.fold([(0, bytes(later))])

    assert raised.value.args[1]
    assert (engine.seq, engine.event_seq("a")) == (0, None)
    engine.fold([(0, encode_block(0, [Message("a", None).skeleton()], Interner()))])
