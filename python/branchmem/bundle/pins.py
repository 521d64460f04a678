"""Whom a store trusts: the public keys whose bundles join its log, and which of their bundles it has seen.

Only a pin makes a bundle join the log.  Nothing in a bundle pins a key.  What was imported is kept
when a pin goes: who is pinned again cannot bring back an older bundle.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from branchmem import Store
from branchmem.bundle.keys import fingerprint, public_bytes, public_text
from branchmem.canonical import microseconds, pack, unpack
from branchmem.errors import InvalidRef, PinRefused, UnknownPin
from branchmem.refs import valid_name

if TYPE_CHECKING:
    from branchmem.log import Reader, Writer

#: The table of local state that pins live in.
TABLES: Final = ("pins",)

# key → value: b"pin" + issuer → name; b"from" + issuer + origin → what was imported; b"made" → what was exported
_PIN: Final = b"pin\0"
_FROM: Final = b"from\0"
_MADE: Final = b"made\0"


@dataclass(frozen=True, slots=True)
class Pin:
    """Bundles that this key signed join the log."""

    name: str
    public: str
    fingerprint: str

    def to_dict(self) -> dict[str, Any]:
        """The JSON-ready form."""
        return asdict(self)

    def __str__(self) -> str:
        return f"{self.name} {self.fingerprint} {self.public}"


class Numbered(NamedTuple):
    """A bundle of a log: its number and its id."""

    number: int
    id: str


class Pins(Mapping[str, str]):
    """The pinned keys of a store: name → public key, as text.  Safe under threads and processes."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def pin(self, public: str, name: str) -> Pin:
        """Trust a public key under a name of one's own; pinning it again under the same name changes nothing.

        Raises: InvalidKey; PinRefused where the name is another key's, the key has another name, or no pin can
        have this name.
        """
        raw = public_bytes(public)
        try:
            valid_name(name)
        except InvalidRef as error:
            raise PinRefused(name, error.why) from None

        def plan(writer: Writer) -> tuple[tuple[()], Pin]:
            pins = _pins(writer)
            for pin in pins:
                if (pin.name == name) != (pin.public == public):
                    why = (
                        f"it is the name of {pin.fingerprint}" if pin.name == name else f"the key is {pin.name!r} here"
                    )
                    raise PinRefused(name, f"{why}: unpin that first, or take another")
            writer.table("pins").put(_PIN + raw, pack((name,)))
            return (), Pin(name, public, fingerprint(public))

        return self._store.transact(plan, tables=TABLES)[1]

    def unpin(self, name: str) -> Pin:
        """Trust the key of this name no longer.  What its bundles brought stays.  Raises: UnknownPin."""

        def plan(writer: Writer) -> tuple[tuple[()], Pin]:
            for pin in _pins(writer):
                if pin.name == name:
                    writer.table("pins").delete(_PIN + public_bytes(pin.public))
                    return (), pin
            raise UnknownPin(name)

        return self._store.transact(plan, tables=TABLES)[1]

    def list(self) -> list[Pin]:
        """All pins, by name."""
        return sorted(self._store.snapshot(_pins, tables=TABLES), key=lambda pin: pin.name)

    def __getitem__(self, name: str) -> str:
        for pin in self.list():
            if pin.name == name:
                return pin.public
        raise UnknownPin(name)

    def __iter__(self) -> Iterator[str]:
        return iter([pin.name for pin in self.list()])

    def __len__(self) -> int:
        return len(self.list())

    def __repr__(self) -> str:
        return f"<{len(self)} pins of {self._store.path}>"


def pinned(reader: Reader, issuer: str) -> str | None:
    """The name under which a public key is pinned, inside a transaction; None where it is not."""
    value = reader.table("pins").get(_PIN + public_bytes(issuer))
    return None if value is None else str(unpack(value)[0])


def last_imported(reader: Reader, issuer: str, origin: str) -> Numbered | None:
    """The bundle with the highest number that was imported from this issuer and log, inside a transaction."""
    value = reader.table("pins").get(_FROM + public_bytes(issuer) + bytes.fromhex(origin))
    return None if value is None else Numbered(*unpack(value))


def note_imported(writer: Writer, issuer: str, origin: str, bundle: Numbered) -> None:
    """Keep which bundle was imported from this issuer and log, unless one with a higher number was."""
    before = last_imported(writer, issuer, origin)
    if before is None or before.number <= bundle.number:
        writer.table("pins").put(_FROM + public_bytes(issuer) + bytes.fromhex(origin), pack(bundle))


def next_number(reader: Reader, now: datetime) -> int:
    """The number of the next bundle of this log, inside a transaction: the microseconds since 1970, or more.

    Numbers rise whatever the clock does; and as long as it is right, also after a backup was restored that knows
    nothing of the latest bundles.
    """
    value = reader.table("pins").get(_MADE)
    least = 1 if value is None else 1 + int(unpack(value)[0])
    return max(least, microseconds(now))


def note_exported(writer: Writer, bundle: Numbered) -> None:
    """Keep the number of a bundle of this log, so that no other bears it."""
    writer.table("pins").put(_MADE, pack(bundle))


def _pins(reader: Reader) -> list[Pin]:
    found = []
    for key, value in reader.table("pins").items(_PIN):
        public = public_text(key.removeprefix(_PIN))
        found.append(Pin(unpack(value)[0], public, fingerprint(public)))
    return found
