"""Who signs a bundle: Ed25519 keys, kept in files of their owner's alone.

A private key leaves its file for nothing but signing: it is never printed, logged, pickled or copied.
What others may know is its public key, as text, and the fingerprint of that, which people compare.
"""

from __future__ import annotations

import base64
import hashlib
import os
import re
import stat
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, NoReturn

from branchmem.errors import InvalidKey
from branchmem.extra import extra
from branchmem.log.copies import sync

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

PUBLIC_BYTES: Final = 32
SIGNATURE_BYTES: Final = 64
MODE: Final = 0o600
MAX_FILE_BYTES: Final = 64 << 10

_PREFIX: Final = "ed25519:"
_PUBLIC: Final = re.compile(r"ed25519:[A-Za-z0-9_-]{43}")
_FINGERPRINT: Final = re.compile(r"bm-[0-9a-f]{32}")


class Key:
    """A private key, to sign bundles with, and to import those that are for it alone."""

    __slots__ = ("_private", "public")

    #: The public key, as text: what others pin.
    public: str

    def __init__(self, private: Ed25519PrivateKey) -> None:
        self._private = private
        self.public = public_text(private.public_key().public_bytes_raw())

    @classmethod
    def from_pem(cls, pem: bytes, place: str = "the key") -> Key:
        """The key in these bytes: PEM, PKCS8, without a passphrase.

        Raises: InvalidKey, which names `place` and what is there instead; ExtraMissing.
        """
        return cls(_private(pem, place))

    @property
    def fingerprint(self) -> str:
        """Of the public key: short enough to be compared by people."""
        return fingerprint(self.public)

    def sign(self, data: bytes) -> bytes:
        """The signature over `data`, 64 bytes."""
        return self._private.sign(data)

    def __repr__(self) -> str:
        return f"<Key {self.fingerprint}>"

    def __reduce__(self) -> NoReturn:
        raise TypeError("a private key is not pickled: hand on the path of its file")


def make_key(path: str | os.PathLike[str]) -> Key:
    """Make a new key in a new file, which only its owner can read, and which is never overwritten.

    Raises: InvalidKey where something lies at `path`, or it cannot be written; ExtraMissing.
    """
    with extra("cryptography", wanted="bundles", name="bundles"):
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
        from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
    private = Ed25519PrivateKey.generate()
    pem = private.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    _write_new(os.fsdecode(path), pem)
    return Key(private)


def load_key(path: str | os.PathLike[str]) -> Key:
    """The key in a file that `make_key` or openssl wrote.

    Raises: InvalidKey where there is no such file, others may read it, or what it holds is no such key:
    encrypted, of another type, a public key; ExtraMissing.
    """
    place = os.fsdecode(path)
    return Key.from_pem(_read(place), place)


def public_text(public: bytes) -> str:
    """How a public key of 32 bytes is written: `ed25519:` and 43 letters of URL-safe base64.

    Raises: InvalidKey.
    """
    if len(public) != PUBLIC_BYTES:
        raise InvalidKey("the public key", f"it has {len(public)} bytes, not {PUBLIC_BYTES}")
    return _PREFIX + base64.urlsafe_b64encode(public).decode().rstrip("=")


def public_bytes(public: str) -> bytes:
    """The 32 bytes of a public key that is written as text.  Raises: InvalidKey."""
    if isinstance(public, str) and _PUBLIC.fullmatch(public):
        raw = base64.urlsafe_b64decode(public.removeprefix(_PREFIX) + "=")
        if public_text(raw) == public:
            return raw
    # what was given is not repeated: it may be a private key
    raise InvalidKey("the public key", f"a public key is {_PREFIX!r} and 43 letters, as `branchmem key show` prints it")


def fingerprint(public: str) -> str:
    """`bm-` and the first 32 hex digits of the SHA-256 of a public key.  Raises: InvalidKey."""
    return "bm-" + hashlib.sha256(public_bytes(public)).hexdigest()[:32]


def is_fingerprint(text: str) -> bool:
    """Whether it is written as one."""
    return _FINGERPRINT.fullmatch(text) is not None


def is_signed(public: str, signature: bytes, data: bytes) -> bool:
    """Whether who has this key signed these bytes.  Raises: InvalidKey; ExtraMissing."""
    with extra("cryptography", wanted="bundles", name="bundles"):
        from cryptography.exceptions import InvalidSignature
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
    try:
        Ed25519PublicKey.from_public_bytes(public_bytes(public)).verify(signature, data)
    except (InvalidSignature, ValueError):
        return False
    return True


def _private(pem: bytes, place: str) -> Ed25519PrivateKey:
    with extra("cryptography", wanted="bundles", name="bundles"):
        from cryptography.exceptions import UnsupportedAlgorithm
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
        from cryptography.hazmat.primitives.serialization import load_pem_private_key
    if b"PUBLIC KEY-----" in pem:
        raise InvalidKey(place, "it holds a public key: the private one is needed to sign")
    if b"ENCRYPTED" in pem:
        raise InvalidKey(place, "it is encrypted: write it without a passphrase, with `openssl pkey`")
    try:
        private: Any = load_pem_private_key(pem, password=None)
    except (ValueError, TypeError, UnsupportedAlgorithm):
        # the cause is not handed on: it may quote what it read
        raise InvalidKey(place, "it holds no private key in PEM: make one with `branchmem key make`") from None
    if not isinstance(private, Ed25519PrivateKey):
        raise InvalidKey(place, "it holds a key of another type than Ed25519: make one with `branchmem key make`")
    return private


def _why(error: Exception) -> object:
    """What the system says, without the path that is named already."""
    return getattr(error, "strerror", None) or error


def _read(path: str) -> bytes:
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except (OSError, ValueError) as error:
        raise InvalidKey(path, f"it cannot be read: {_why(error)}") from None
    try:
        found = os.fstat(fd)
        if not stat.S_ISREG(found.st_mode):
            raise InvalidKey(path, "it is no regular file")
        if found.st_mode & 0o077:
            raise InvalidKey(path, f"others may read or write it: chmod 600 {path}")
        if found.st_size > MAX_FILE_BYTES:
            raise InvalidKey(path, f"it has {found.st_size} bytes, more than any key")
        return os.read(fd, MAX_FILE_BYTES)
    except OSError as error:
        raise InvalidKey(path, f"it cannot be read: {_why(error)}") from None
    finally:
        os.close(fd)


def _write_new(path: str, pem: bytes) -> None:
    try:
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, MODE)
    except FileExistsError:
        raise InvalidKey(path, "there is something already, which was left alone: name a new file") from None
    except (OSError, ValueError) as error:
        raise InvalidKey(path, f"it cannot be written: {_why(error)}") from None
    try:
        try:
            os.fchmod(fd, MODE)
            os.write(fd, pem)
            os.fsync(fd)
        finally:
            os.close(fd)
        sync(os.path.realpath(os.path.dirname(path)))
    except BaseException as error:
        with suppress(OSError):
            os.unlink(path)
        if isinstance(error, OSError):
            raise InvalidKey(path, f"it cannot be written: {_why(error)}") from None
        raise
