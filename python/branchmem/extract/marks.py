"""How far each branch was read: a mark at a message says that the path down to it was.

A mark belongs to a message, so a branch has those that lie on its path: what is read on one branch is not held for read
on a sibling, whose memories it may not be among, and what was read above a fork is read for both.  Marks are local
state, as refs are: a store without them reads again, and adds nothing that it has.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from branchmem.canonical import pack
from branchmem.errors.extract import InvalidExtraction

if TYPE_CHECKING:
    from branchmem import Store
    from branchmem.log import Reader, Writer

#: What a transaction that reads or writes marks must be given: name, NUL, id of the message → nothing.
TABLES: Final = ("extracted",)
#: Whose marks they are, where nobody says: several extractors may each read all of a branch.
DEFAULT: Final = "memories"

_MAX_NAME_CHARS: Final = 64
_END: Final = b"\0"
_THERE: Final = pack(())


def mark_read(store: Store, message: str, *, name: str = DEFAULT) -> None:
    """Let the path down to a message count as read: nothing above is shown to the extractor of this name again.

    Raises: UnknownEvent where it is no message of the log; InvalidExtraction for the name.  Cost: one commit.
    """
    store.tree.parent(message)
    valid_name(name)

    def plan(writer: Writer) -> tuple[tuple[()], None]:
        mark(writer, name, message)
        return (), None

    store.transact(plan, tables=TABLES)


def mark(writer: Writer, name: str, message: str) -> None:
    """The same inside a transaction; what is said is not checked."""
    table = writer.table(TABLES[0])
    key = _key(name, message)
    if table.get(key) is None:
        table.put(key, _THERE)


def read_to(reader: Reader, name: str, path: Sequence[str]) -> int:
    """How many messages of a path were read, from its root on.  Cost: a look-up for each that was not."""
    table = reader.table(TABLES[0])
    return next((at for at in range(len(path), 0, -1) if table.get(_key(name, path[at - 1])) is not None), 0)


def valid_name(name: object) -> str:
    """`name`, where marks may bear it.  Raises: InvalidExtraction."""
    if not (isinstance(name, str) and name.isascii() and name.isprintable() and 0 < len(name) <= _MAX_NAME_CHARS):
        raise InvalidExtraction("name", name, f"marks have a name of 1 to {_MAX_NAME_CHARS} printable ASCII characters")
    return name


def _key(name: str, message: str) -> bytes:
    return name.encode() + _END + message.encode()
