"""Where the checkpoints of LangGraph lie: a file of SQLite, or a server of Postgres.  Neither is ever written.

A file of SQLite is copied before it is opened, with the log of changes and the
journal that lie beside it: so what is committed is seen, what is not is not, no
lock is taken, and SQLite has nothing to write beside the original.  Postgres is
asked in one transaction that may only read.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import sqlite3
import tempfile
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol

from branchmem.errors import ImportFailed
from branchmem.extra import extra
from branchmem.importers.langgraph_values import CHANNEL, State, Unreadable, entries, state, time, unpacked

if TYPE_CHECKING:
    import psycopg

EXPECTED: Final = "a database of LangGraph checkpoints, with a table `checkpoints`"
MAGIC: Final = b"SQLite format 3\0"
SCHEMES: Final = ("postgresql://", "postgres://")
# A URL, of whatever, and also one whose slashes a path has taken away.
_SCHEME: Final = re.compile(r".*?[a-z][a-z0-9+.-]+:/+", re.IGNORECASE | re.DOTALL)
# What follows the scheme where nothing of a password can be taken for anything else.
_HOST: Final = r"(?:\[[^\]@/?#]*\]|[^\[\]:,@/?#]*)(?::\d+)?"
_PLAIN: Final = re.compile(
    rf"(?:(?P<user>[^:@/?#]*)(?::[^@/?#]*)?@)?(?P<place>{_HOST}(?:,{_HOST})*(?:/[^@?#]*)?)(?:[?#][^@]*)?", re.DOTALL
)
_SPELLED: Final = "a URL whose names, password and parameters spell @ : / ? # % as %40 %3A %2F %3F %23 %25"
#: What may lie beside a file of SQLite and be part of what it says.
_BESIDE: Final = ("", "-wal", "-journal")
_TRIES: Final = 5
#: What SQLite raises for a damaged file, whose names and errors may be no Unicode.
_DAMAGED: Final = (sqlite3.Error, OverflowError, UnicodeError)


class Row(NamedTuple):
    """A checkpoint without what it says; `at` is where its database finds it again."""

    thread: str
    namespace: str
    id: str
    parent: str | None
    metadata: Any
    at: Any


class Database(Protocol):
    """A database of checkpoints that is open."""

    def rows(self) -> Iterator[Row | None]:
        """All checkpoints in any order, None for one that has no readable id.  Raises: ImportFailed."""
        ...

    def state(self, row: Row) -> State:
        """What a checkpoint says.  Raises: Unreadable."""
        ...


def shown(path: str) -> str:
    """A path as it is; a URL without its password and parameters, of one that can be read in two ways the scheme."""
    scheme = _SCHEME.match(path)
    if scheme is None:
        return path
    plain = _PLAIN.fullmatch(path, scheme.end())
    if plain is None:
        return f"{scheme[0]}…"
    return f"{scheme[0]}{plain['user'] or ''}{'@' if plain['user'] else ''}{plain['place']}"


@contextmanager
def opened(path: str) -> Iterator[Database]:
    """The database at a path or URL.  Raises: ImportFailed; ExtraMissing for Postgres without psycopg."""
    with _server(path) if path.startswith(SCHEMES) else _file(path) as database:
        yield database


@contextmanager
def _file(path: str) -> Iterator[Database]:
    with tempfile.TemporaryDirectory(prefix="branchmem-") as folder:
        copy = os.path.join(folder, "checkpoints.sqlite")
        _copy(path, copy)
        with closing(sqlite3.connect(copy, isolation_level=None, check_same_thread=False)) as connection:
            connection.text_factory = lambda text: text.decode("utf-8", "replace")
            try:
                for setting in ("query_only = on", "trusted_schema = off", "cell_size_check = on"):
                    connection.execute(f"pragma {setting}")
                found = connection.execute("select 1 from sqlite_master where type = 'table' and name = 'checkpoints'")
                known = found.fetchone() is not None
            except _DAMAGED as error:
                raise ImportFailed(path, "its opening", f"{EXPECTED} that is not damaged ({error})") from error
            if not known:
                raise ImportFailed(path, "its tables", EXPECTED)
            yield Sqlite(path, connection)


def _copy(path: str, copy: str) -> None:
    """Copy a file of SQLite and what belongs to it, as they were at one moment."""
    if not os.path.isfile(path):
        raise ImportFailed(path, "its opening", "a file of SQLite, no pipe: save it as a file first")
    for _ in range(_TRIES):
        try:
            before = _stamps(path)
            for suffix in _BESIDE:
                if os.path.exists(copy + suffix):
                    os.remove(copy + suffix)
                if before[suffix] is not None:
                    shutil.copyfile(path + suffix, copy + suffix)
            if _stamps(path) == before:
                return
        except FileNotFoundError:
            continue  # a log of changes that was taken in meanwhile
        except OSError as error:
            raise ImportFailed(path, "its opening", f"a file that can be read ({error.strerror})") from error
    raise ImportFailed(path, "its opening", "a database that nobody is writing to: import a backup of it")


def _stamps(path: str) -> dict[str, tuple[int, int] | None]:
    """Size and time of a file of SQLite and of what lies beside it; None for what does not."""
    found: dict[str, tuple[int, int] | None] = {}
    for suffix in _BESIDE:
        if suffix and not os.path.exists(path + suffix):
            found[suffix] = None
            continue
        status = os.stat(path + suffix)
        found[suffix] = status.st_size, status.st_mtime_ns
    return found


class Sqlite:
    """Checkpoints as SqliteSaver keeps them."""

    def __init__(self, path: str, connection: sqlite3.Connection) -> None:
        self._path = path
        self._connection = connection

    def rows(self) -> Iterator[Row | None]:
        # all columns are read, so that a damaged file is found before anything is made of it
        named = "thread_id, checkpoint_ns, checkpoint_id, parent_checkpoint_id, metadata, rowid"
        try:
            for thread, namespace, id, parent, metadata, at, *_ in self._connection.execute(
                f"select {named}, * from checkpoints"
            ):
                yield _row(thread, namespace, id, parent, metadata, at)
        except _DAMAGED as error:
            raise ImportFailed(self._path, "its checkpoints", f"{EXPECTED} that is not damaged ({error})") from error

    def state(self, row: Row) -> State:
        try:
            found = self._connection.execute("select type, checkpoint from checkpoints where rowid = ?", (row.at,))
            kept = found.fetchone()
        except _DAMAGED as error:
            raise Unreadable(f"a row that is not damaged ({error})") from None
        if kept is None:
            raise Unreadable("the row that stood there")
        return state(unpacked(*kept))


@contextmanager
def _server(url: str) -> Iterator[Database]:
    with extra("psycopg", wanted="LangGraph checkpoints in Postgres", name="postgres", package="psycopg[binary]"):
        import psycopg
    if shown(url).endswith("…"):
        raise ImportFailed(shown(url), "its opening", _SPELLED)
    try:
        opening = psycopg.connect(url)
    except psycopg.ProgrammingError:  # says what could not be read, be it a password
        raise ImportFailed(shown(url), "its opening", _SPELLED) from None
    except psycopg.Error as error:
        raise ImportFailed(shown(url), "its opening", f"{EXPECTED} ({_first_line(error)})") from None
    try:
        with closing(opening) as connection:
            connection.read_only = True
            connection.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
            yield Postgres(shown(url), connection)
    except psycopg.Error as error:
        raise ImportFailed(shown(url), "its opening", f"{EXPECTED} ({_first_line(error)})") from None


class Postgres:
    """Checkpoints as PostgresSaver keeps them: each list of messages once, under the version that checkpoints name."""

    def __init__(self, path: str, connection: psycopg.Connection[Any]) -> None:
        self._path = path
        self._connection = connection

    def rows(self) -> Iterator[Row | None]:
        query = """select thread_id, checkpoint_ns, checkpoint_id, parent_checkpoint_id, metadata::text
            from checkpoints"""
        with self._connection.cursor(name="branchmem") as cursor:
            cursor.execute(query)
            for thread, namespace, id, parent, metadata in cursor:
                yield _row(thread, namespace, id, parent, metadata, None)

    def state(self, row: Row) -> State:
        query = """select c.checkpoint->>'ts', c.checkpoint->'channel_versions'->>%(channel)s, b.type, b.blob,
                (c.checkpoint->'channel_values'->%(channel)s)::text
            from checkpoints c left join checkpoint_blobs b
                on b.thread_id = c.thread_id and b.checkpoint_ns = c.checkpoint_ns and b.channel = %(channel)s
                and b.version = c.checkpoint->'channel_versions'->>%(channel)s
            where c.thread_id = %(thread)s and c.checkpoint_ns = %(namespace)s and c.checkpoint_id = %(id)s"""
        asked = {"channel": CHANNEL, "thread": row.thread, "namespace": row.namespace, "id": row.id}
        kept = self._connection.execute(query, asked).fetchone()
        if kept is None:
            raise Unreadable("the row that stood there")
        taken, version, type, blob, within = kept
        if type is not None and type != "empty":
            return State(time(taken), entries(unpacked(type, None if blob is None else bytes(blob))))
        if within is not None:
            return State(time(taken), entries(unpacked("json", within.encode())))
        if version is not None:
            raise Unreadable(f"the whole list of {CHANNEL}")
        return State(time(taken), None)


def _row(thread: object, namespace: object, id: object, parent: object, metadata: object, at: object) -> Row | None:
    if not isinstance(thread, str) or not isinstance(namespace, str) or not isinstance(id, str):
        return None
    try:
        told = json.loads(metadata) if isinstance(metadata, (str, bytes)) else None
    except (ValueError, RecursionError):
        told = None
    return Row(thread, namespace, id, parent if isinstance(parent, str) and parent else None, told, at)


def _first_line(error: Exception) -> str:
    return str(error).partition("\n")[0]
