"""What travels, in lines: what a bundle is, what was made of it, whose keys there are; never a private one."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import datetime
from typing import TYPE_CHECKING

from rich.text import Text

from branchmem.terminal.lines import TIME, count_lines, counted, hanging, plain, rows, short, some

if TYPE_CHECKING:
    from branchmem.bundle import HeldBundle, Imported, Manifest


def imported_lines(receipt: Imported, *, width: int) -> Iterator[Text]:
    """What became of a bundle, in four lines: whose it is, its events, its refs, what was in conflict."""
    bundle = f"bundle {short(receipt.bundle)}, made {receipt.created:{TIME}},"
    whose = f"of {plain(receipt.pinned)}" if receipt.pinned else f"of {receipt.fingerprint}: not pinned"
    would = "would be " if receipt.dry_run else ""
    refused = (
        f": {some(f'{count:,} {plain(why)}' for why, count in receipt.refused.items())}" if receipt.refused else ""
    )
    adopted = f"; {len(receipt.adopted):,} adopted" if receipt.adopted else ""
    moves = some(f"{plain(ref.name)} {ref.how} at {short(ref.after)}" for ref in receipt.refs)
    for said in (
        f"{bundle} {whose}",
        f"{receipt.imported:,} {would}imported, {receipt.duplicates:,} here already, {receipt.held:,} {would}held, "
        f"{sum(receipt.refused.values()):,} refused{refused}",
        f"refs: {moves or 'none'}{adopted}",
        f"{counted(len(receipt.conflicts), 'conflict', 'conflicts')}, {len(receipt.resolved):,} resolved",
    ):
        yield from hanging(said, width)


def manifest_lines(manifest: Manifest, title: str, *, now: datetime, width: int) -> Iterator[Text]:
    """A title, what a bundle states of itself, and how many events of each kind it holds."""
    yield from hanging(Text(plain(title), "bold"), width)
    yield from rows(_manifest_rows(manifest, now), width)
    yield from count_lines("events", manifest.counts._asdict())


def _manifest_rows(manifest: Manifest, now: datetime) -> Iterator[tuple[str, str]]:
    yield "bundle", manifest.id
    yield "signed by", manifest.fingerprint
    yield "public key", manifest.issuer
    yield "from", f"log {manifest.origin}, up to seq {manifest.seq:,}"
    if manifest.base is not None:
        yield "goes on from", f"bundle {manifest.base.id}"
    yield "made", f"{manifest.created:{TIME}}"
    if manifest.expires is not None:
        yield "expires", f"{manifest.expires:{TIME}}" + (", so it is refused" if manifest.expires <= now else "")
    yield "for", manifest.recipient or "everybody"
    if manifest.refs:
        yield "refs", some(f"{plain(name)} at {short(head)}" for name, head in manifest.refs.items())


def held_rows(bundles: Iterable[HeldBundle], *, width: int) -> Iterator[Text]:
    """Each bundle that is held: its id, who signed it, of which log it is, and how much of it is kept."""
    for bundle in bundles:
        held = f"{counted(bundle.messages, 'message', 'messages')}, {counted(bundle.memories, 'memory', 'memories')}"
        yield Text(plain(bundle.id), "bold")
        yield from rows(
            (
                ("signed by", f"{bundle.fingerprint}, which is not pinned"),
                ("from", f"log {bundle.origin}"),
                ("made", f"{bundle.created:{TIME}}"),
                ("holds", held),
            ),
            width,
        )


def key_lines(name: str, public: str, fingerprint: str, *, width: int) -> Iterator[Text]:
    """Whose key it is, the key, and the fingerprint that people compare."""
    yield from hanging(Text(plain(name), "bold"), width)
    yield from rows((("public key", public), ("fingerprint", fingerprint)), width)
