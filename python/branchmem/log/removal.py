"""How a log goes: the file first, then what lies beside it, all while nobody has it open."""

from __future__ import annotations

import fcntl
import os
from contextlib import suppress
from typing import Final

from branchmem.errors import StoreMissing
from branchmem.log.copies import discard_draft, sync
from branchmem.log.place import found, guarded, placed, unguarded
from branchmem.log.refusals import typed_errors

#: In the order in which they go: without the first there is no log, and the last keeps others out meanwhile.
_ENDS: Final = ("", "-lock", "-guard")


def remove(path: str | os.PathLike[str]) -> bool:
    """Delete the log at `path`; False where there is none.  Cut short, it may be called again.

    Raises: StoreLocked where anybody has it open, in this process or in another.
    """
    name = os.path.abspath(os.fsdecode(path))
    with typed_errors(name, False):
        try:
            name = placed(name)
        except StoreMissing:
            return False
        if found(name) is None and not any(os.path.lexists(name + end) for end in _ENDS):
            return False
        guard = guarded(name, fcntl.LOCK_EX)
        try:
            was_there = found(name) is not None
            discard_draft(name)
            for end in _ENDS:
                with suppress(FileNotFoundError):
                    os.unlink(name + end)
            sync(os.path.dirname(name))
            return was_there
        finally:
            unguarded(guard)
