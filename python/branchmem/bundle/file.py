"""A bundle as a file that is read: only where every byte is as it was signed.

```
b"branchmem bundle" | frames | manifest | signature, 64 bytes | length of the manifest, u64 | b"bmbundl1"
```

Reading starts at the end: the manifest and its signature first, then the hash of each frame before
anything is made of it, each time that it is read.  What is not a regular file is not read at all, and
nothing takes more memory than its limit, whatever a length says.  Whether an issuer is trusted, and what
becomes of the events, is decided elsewhere.
"""

from __future__ import annotations

import os
import stat
import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime
from typing import TYPE_CHECKING, Final, NamedTuple

from branchmem import _core
from branchmem.bundle.frames import unpacked
from branchmem.bundle.keys import SIGNATURE_BYTES, Key, is_signed
from branchmem.bundle.manifest import MAX_MANIFEST_BYTES, SIGNED, Counts, Frame, Manifest
from branchmem.errors import BundleRefused

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

HEAD: Final = b"branchmem bundle"
MAGIC: Final = b"bmbundl1"
#: Length of the manifest, magic.
FOOT: Final = struct.Struct("<Q8s")

#: So many ids are not yet compared.
_FEW: Final = 1 << 18
_LEAST_BYTES: Final = len(HEAD) + SIGNATURE_BYTES + FOOT.size


class Proven(NamedTuple):
    """What was found in a bundle that holds what its manifest says."""

    counts: Counts
    #: The canonical skeletons of erasures, and of events without content, in order.
    apart: list[bytes]


class BundleFile:
    """A bundle that was opened: one descriptor, the same bytes each time or a refusal.  A context manager.

    For one thread at a time.
    """

    def __init__(self, path: str, fd: int, manifest: Manifest) -> None:
        #: Where it was opened.
        self.path = path
        #: What its issuer signed.
        self.manifest = manifest
        self._fd = fd

    @classmethod
    def open(cls, path: str | os.PathLike[str]) -> BundleFile:
        """Open the bundle at `path`: its ends, manifest, signature and sizes are right, or it is refused.

        Nothing of its frames was looked at: see `verify`.  The file may be moved or removed meanwhile.
        Raises: BundleRefused, whatever is wrong; ExtraMissing.
        Cost: reads the manifest.
        """
        place = os.fsdecode(path)
        with _refusing(place):
            # without O_NONBLOCK a pipe would be waited for
            fd = os.open(place, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
            try:
                return cls(place, fd, _manifest(fd))
            except BaseException:
                os.close(fd)
                raise

    def admit(self, now: datetime, key: Key | None = None) -> None:
        """Refuse what has expired, or is for another key than `key`.  Raises: BundleRefused."""
        manifest = self.manifest
        if manifest.expires is not None and now >= manifest.expires:
            raise BundleRefused(self.path, f"it has expired at {manifest.expires.isoformat()}: ask for a new one")
        if manifest.recipient is None or (key is not None and key.fingerprint == manifest.recipient):
            return
        given = "name that key" if key is None else f"not for {key.fingerprint}"
        raise BundleRefused(self.path, f"it is for the key {manifest.recipient}: {given}")

    def frames(self) -> Iterator[bytes]:
        """Yield the records of each frame; its hash is checked each time that it is read.

        Raises: BundleRefused, also where the file was changed since it was opened.
        """
        at = len(HEAD)
        for number, frame in enumerate(self.manifest.frames):
            yield self._frame(number, frame, at)
            at += frame.size

    def verify(
        self,
        visit: Callable[[bytes], object] | None = None,
        *,
        progress: Callable[[int, int | None], object] | None = None,
    ) -> Proven:
        """Read all of it, and refuse it unless it holds what the manifest says: frames of canonical events, as many of
        each type, and no id twice.

        `visit` is given the records of each frame when that frame was checked, before the whole is proven.
        `progress` is told how many events were read, of how many.
        Raises: BundleRefused.
        Cost: one pass; a frame at a time, 16 bytes an event, and what is told apart.
        """
        manifest, seed = self.manifest, int.from_bytes(os.urandom(8), "big")
        total = manifest.counts.events
        proven, ids = Counts(), _Ids()
        apart: list[bytes] = []
        for number, payload in enumerate(self.frames()):
            with _refusing(self.path, number):
                found, bare, hashes, some = _core.check_records(payload, seed)
                if sum(found) != manifest.frames[number].events:
                    raise ValueError(f"it holds {sum(found)} events, not {manifest.frames[number].events}")
                ids.add(hashes)
            proven = Counts(*map(sum, zip(proven, (*found, bare), strict=True)))
            apart += some
            if visit is not None:
                visit(payload)
            if progress is not None:
                progress(proven.events, total)
        if proven != manifest.counts:
            raise BundleRefused(self.path, f"it holds {tuple(proven)} events by type, not {tuple(manifest.counts)}")
        with _refusing(self.path):
            ids.compare()
        return Proven(proven, apart)

    def close(self) -> None:
        """Let go of the file; twice is once."""
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)

    def __enter__(self) -> BundleFile:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<BundleFile {self.path}: {self.manifest.counts.events} events from {self.manifest.fingerprint}>"

    def _frame(self, number: int, frame: Frame, at: int) -> bytes:
        with _refusing(self.path, number):
            return unpacked(frame, _read(self._fd, at, frame.size))


class _Ids:
    """The ids of a bundle, as hashes of 8 bytes, compared each time that there are twice as many.

    So what repeats itself, and is packed into next to nothing, is not piled up until the end.
    """

    def __init__(self) -> None:
        import numpy as np

        self._different: NDArray[np.uint64] = np.empty(0, np.uint64)
        self._new: list[NDArray[np.uint64]] = []
        self._count = 0

    def add(self, hashes: bytes) -> None:
        """Take in some more.  Raises: ValueError where one is there twice."""
        import numpy as np

        self._new.append(np.frombuffer(hashes, "<u8"))
        self._count += len(self._new[-1])
        if self._count > max(2 * len(self._different), _FEW):
            self.compare()

    def compare(self) -> None:
        """Raises: ValueError where one is there twice."""
        import numpy as np

        every = np.concatenate([self._different, *self._new])
        self._new.clear()
        every.sort()
        if (every[1:] == every[:-1]).any():
            raise ValueError("it holds an id twice")
        self._different = every


@contextmanager
def _refusing(path: str, frame: int | None = None) -> Iterator[None]:
    """Refuse the bundle for what is wrong with it, or with a frame of it.  Raises: BundleRefused."""
    where = "" if frame is None else f"frame {frame}: "
    try:
        yield
    except OSError as error:
        raise BundleRefused(path, f"{where}it cannot be read: {error.strerror or error}") from None
    except _core.BlockError as error:
        raise BundleRefused(path, f"{where}{error.args[0]}") from None
    except ValueError as error:
        raise BundleRefused(path, f"{where}{error}") from None


def _manifest(fd: int) -> Manifest:
    """The manifest of the bundle in an open file, once its ends, sizes and signature are right.

    Raises: ValueError; OSError; ExtraMissing.
    """
    found = os.fstat(fd)
    if not stat.S_ISREG(found.st_mode):
        raise ValueError("it is no regular file")
    if found.st_size < _LEAST_BYTES or _read(fd, 0, len(HEAD)) != HEAD:
        raise ValueError("it is no bundle")
    size, magic = FOOT.unpack(_read(fd, found.st_size - FOOT.size, FOOT.size))
    if magic != MAGIC:
        raise ValueError("its end is missing, or was written by a later branchmem: copy it again, or upgrade")
    if size > MAX_MANIFEST_BYTES or size > found.st_size - _LEAST_BYTES:
        raise ValueError(f"a manifest of {size} bytes in a file of {found.st_size}")
    at = found.st_size - FOOT.size - SIGNATURE_BYTES - size
    data = _read(fd, at, size)
    manifest = Manifest.from_bytes(data)
    if at != len(HEAD) + sum(frame.size for frame in manifest.frames):
        raise ValueError("its size is not that of its frames")
    if not is_signed(manifest.issuer, _read(fd, at + size, SIGNATURE_BYTES), SIGNED + data):
        raise ValueError(f"it is not signed by the key of its issuer, {manifest.fingerprint}")
    return manifest


def _read(fd: int, at: int, size: int) -> bytes:
    """So many bytes of a file, fewer only where it ends."""
    parts = []
    while size and (part := os.pread(fd, size, at)):
        parts.append(part)
        at += len(part)
        size -= len(part)
    return b"".join(parts)
