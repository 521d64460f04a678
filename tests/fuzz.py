"""Hostile bytes given to both readers of skeletons: they accept the same ones, and read the same in them.

`python tests/fuzz.py [--inputs N] [--seed N]` makes so many blocks, and a
quarter as many skeletons and bodies, on all cores.  What the two readers do
not agree on, or what raises anything but the error that is promised, is
printed as hex with its number; the same seed and number make it again.

The engine reads a block in order to fold it, so it asks for one thing more
than the plain decoder: no two events of the log bear one id.  Where only that
is broken, the decoder must accept and the engine must refuse.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from functools import cache, partial

from branchmem import canonical, codec
from branchmem._core import BlockError, Engine, split_records
from branchmem.errors import InvalidEvent
from branchmem.events import Event, Memory, event_from_bytes, event_from_dict
from hostile import Context, Hostile

SEED = 20260101
#: How many inputs a process is given at once.
CHUNK = 2000

NIL = b"\xc0"

_EMPTY = canonical.pack(())
_NO_TEXT = canonical.pack((canonical.Tag.TEXT, ""))


class Blocks:
    """Blocks, for both decoders, after one log."""

    def __init__(self, context: Context) -> None:
        self.context = context
        self.engine = context.engine()

    def agree(self, data: bytes) -> bool:
        """Whether both read the block; AssertionError where they differ.

        A block that is refused leaves nothing behind: the same two are asked about the next.
        """
        first_seq, interner = len(self.context.events), self.context.interner
        before = len(interner.ids)
        try:
            read = codec.decode_block(first_seq, data, interner)
        except ValueError:
            assert len(interner.ids) == len(interner.numbers) == before, "the decoder leaves ids behind"
            assert not self.folds(first_seq, data), "only the engine accepts it"
            return False
        try:
            ids = [canonical.unpack(skeleton)[1] for skeleton in read]
            if len({*ids, *self.context.borne}) < len(ids) + len(self.context.borne):
                assert not self.folds(first_seq, data), "the engine takes an id twice"
                return True
            assert self.folds(first_seq, data), "only the decoder accepts it"
            engine, self.engine = self.engine, self.context.engine()
            assert engine.event_ids(first_seq, first_seq + len(ids) + 1) == ids, "the engine has other ids"
            for seq, (id, skeleton) in enumerate(zip(ids, read, strict=True), first_seq):
                assert engine.skeleton(id) == (seq, skeleton), f"event {seq} of the block is {skeleton!r}"
            after = Memory("after", "", sources=interner.ids[-8:]).skeleton()
            seq = first_seq + len(ids)
            assert engine.encode([after]) == [(seq, codec.encode_block(seq, [after], interner))], (
                "ids are numbered apart"
            )
        finally:
            interner.forget(before)
        return True

    def folds(self, first_seq: int, data: bytes) -> bool:
        try:
            self.engine.fold([(first_seq, data)])
        except BlockError:
            assert self.engine.seq == first_seq, "the engine keeps events of a block that it refuses"
            return False
        return True


def skeletons_agree(data: bytes, writer: Engine) -> bool:
    """Whether both readers take a skeleton in its string form; AssertionError where they differ."""
    event = _event(data, _EMPTY) or _event(data, _NO_TEXT)
    try:
        written = writer.encode([data])
    except BlockError:
        assert event is None, "only Python accepts it"
        return False
    assert event is not None, "only the engine accepts it"
    assert event.skeleton() == data, "what is read has another skeleton"
    assert written == [(0, codec.encode_block(0, [data], codec.Interner()))], "they write other blocks"
    assert writer.plan([data]) == ([0], [], [], None), "the engine has it already"
    return True


def body_is_whole(skeleton: bytes, seq: int, record: bytes) -> bool:
    """Whether a record holds the body of this event; AssertionError where what is read is another.

    What the readers of bodies agree on is written again, and goes through the form for JSON and back.
    """
    try:
        body = codec.decode_body(seq, record)
    except ValueError:
        return False
    assert codec.encode_body(seq, body) == record, "the record is written in other bytes"
    event = None if body is None else _event(skeleton, body)
    try:
        travels = split_records(skeleton + (NIL if body is None else body))
    except BlockError:
        travels = None
    if event is None:
        assert body in (None, NIL) or travels is None, "only the engine accepts it"
        return body is None
    assert travels == ([skeleton], [body]), "only Python accepts it"
    assert (event.skeleton(), event.body()) == (skeleton, body), "the event has other bytes"
    assert event_from_dict(event.to_dict()) == event, "its form for JSON is another's"
    return True


def _event(skeleton: bytes, body: bytes) -> Event | None:
    try:
        return event_from_bytes(skeleton, body)
    except InvalidEvent:
        return None


@cache
def _after(size: int) -> Blocks:
    """One a process and size: what an input leaves behind shows in the next."""
    return Blocks(Context.of(size))


Made = tuple[bytes, bool, Callable[[], bool]]


def _block(seed: int, number: int) -> Made:
    # Most often after a short log: one is read anew for each block that the engine accepts.
    blocks = _after(66_000 if number % 500 == 0 else (0, 0, 0, 0, 3, 3, 3, 300)[number % 8])
    data, sound = Hostile(seed, number, blocks.context).block()
    return data, sound, lambda: blocks.agree(data)


def _skeleton(seed: int, number: int) -> Made:
    empty = _after(0)
    data, sound = Hostile(seed, number, empty.context).skeleton()
    return data, sound, lambda: skeletons_agree(data, empty.engine)


def _body(seed: int, number: int) -> Made:
    chance = Hostile(seed, number, _after(0).context)
    skeleton, data, sound = chance.event(seq := number % 1000)
    return skeleton + data, sound, lambda: body_is_whole(skeleton, seq, data)


#: How to make each kind of inputs from a seed and a number, and for how many blocks one is made.
MAKE: dict[str, Callable[[int, int], Made]] = {"blocks": _block, "skeletons": _skeleton, "bodies": _body}
SHARES = {"blocks": 1, "skeletons": 4, "bodies": 4}


def check(kind: str, seed: int, first: int, last: int) -> Counter[str]:
    """How many of these inputs were made, and how many of them were accepted.

    Raises: AssertionError for the first that the readers do not agree on, with its number and bytes.
    """
    accepted = 0
    for number in range(first, last):
        data, sound, agree = MAKE[kind](seed, number)
        try:
            is_accepted = agree()
            assert is_accepted or not sound, "both refuse what is valid"
        except KeyboardInterrupt:
            raise
        except BaseException as why:  # a panic of the engine is no Exception
            raise AssertionError(f"{kind} {number} of seed {seed}: {type(why).__name__} {why}: {data.hex()}") from why
        accepted += is_accepted
    return Counter({kind: last - first, f"{kind} accepted": accepted})


def check_on_all_cores(inputs: int, seed: int) -> Counter[str]:
    """As `check`, for so many blocks, and their share of skeletons and bodies."""
    found: Counter[str] = Counter()
    with ProcessPoolExecutor() as pool:
        try:
            for kind, share in SHARES.items():
                count = inputs // share
                firsts = range(0, count, CHUNK)
                lasts = (min(first + CHUNK, count) for first in firsts)
                for part in pool.map(partial(check, kind, seed), firsts, lasts):
                    found += part
        except AssertionError:
            pool.shutdown(cancel_futures=True)
            raise
    return found


def shown(found: Counter[str]) -> str:
    """One line of figures."""
    parts = (f"{found[kind]:,} {kind}, {found[f'{kind} accepted']:,} of them accepted" for kind in MAKE)
    return f"{'; '.join(parts)}; both readers agree"


def main() -> str | None:
    parser = argparse.ArgumentParser(description="Hostile bytes for both readers of skeletons.")
    parser.add_argument(
        "--inputs", type=int, default=1_000_000, help="so many blocks, and a quarter of the others each"
    )
    parser.add_argument("--seed", type=int, default=SEED)
    asked = parser.parse_args()
    try:
        print(f"seed {asked.seed}: {shown(check_on_all_cores(asked.inputs, asked.seed))}")
    except AssertionError as why:
        return f"fuzz: {why}"
    return None


if __name__ == "__main__":
    sys.exit(main())
