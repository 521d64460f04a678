"""Every answer of a language model, kept by the hash of what was asked of whom, so that a rerun is free.

`calls.jsonl.zst`, which is published with the figures, holds calls sorted by their key; `calls.jsonl` beside it is the
journal to which each new call is added at once (see `journal`), until `pack` merges it in.  Of a request only its
SHA-256 is kept: who recounts has the prompts.  Where a call was answered twice, the first answer stays.
"""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Final

from branchmem.branchbench.models.chat import Chat, Reply, Request
from branchmem.branchbench.models.journal import Journal, put
from branchmem.branchbench.packing import packed, unpacked
from branchmem.errors.branchbench import CacheRefused, CallNotKept

MAX_PACKED_BYTES: Final = 20_000_000
PACKED: Final = "calls.jsonl.zst"
JOURNAL: Final = "calls.jsonl"
_LEVEL: Final = 19


@dataclass(frozen=True, slots=True)
class Call:
    """One answer.  `key` is the SHA-256 of model and request, `request` that of the request alone."""

    key: str
    model: str
    request: str
    text: str
    prompt_tokens: int
    completion_tokens: int
    seconds: float

    @property
    def reply(self) -> Reply:
        return Reply(self.text, self.prompt_tokens, self.completion_tokens, self.seconds)

    @property
    def sound(self) -> bool:
        """Whether every value is of the kind that its field has; those of a file may be any."""
        texts, counts = (self.key, self.model, self.request, self.text), (self.prompt_tokens, self.completion_tokens)
        return (
            all(isinstance(text, str) for text in texts)
            and all(isinstance(count, int) for count in counts)
            and isinstance(self.seconds, int | float)
        )


class Cache:
    """The calls kept in a folder; it is made when the first is added.

    `hits` and `misses` count what was looked for.  Several processes may use one folder.
    Raises: CacheRefused for a file that holds something else; ExtraMissing.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.hits = 0
        self.misses = 0
        self._journal = Journal(folder / JOURNAL)
        self._one_at_a_time = threading.RLock()
        self._calls: dict[str, Call] = {}
        self._packed_as: tuple[int, int] | None = None
        self._read_to = 0
        self._read_on()

    def __len__(self) -> int:
        return len(self._calls)

    @property
    def models(self) -> dict[str, int]:
        """How many calls are kept of each model, by name."""
        counts: dict[str, int] = {}
        for call in self._calls.values():
            counts[call.model] = counts.get(call.model, 0) + 1
        return dict(sorted(counts.items()))

    def find(self, model: str, request: Request) -> Reply | None:
        """What the model answered, in this process or another one; None where it was not asked yet."""
        key = key_of(model, request)
        with self._one_at_a_time:
            if key not in self._calls:
                self._read_on()
            found = self._calls.get(key)
            if found is None:
                self.misses += 1
                return None
            self.hits += 1
            return found.reply

    def keep(self, model: str, request: Request, reply: Reply) -> Reply:
        """Add a call; it is on disk when this returns.  Gives the reply as it will be found."""
        reply = replace(reply, seconds=round(reply.seconds, 3))
        call = Call(key_of(model, request), model, sha256_of(request.to_dict()), **asdict(reply))
        with self._one_at_a_time:
            self._journal.append(_line(call))
            self._read_on()
            return self._calls[call.key].reply

    def pack(self) -> int:
        """Merge the journal into the packed file; its size in bytes.  The same calls give the same bytes.

        Raises: CacheRefused where it would be larger than 20 MB; both files are then as they were.
        """
        with self._one_at_a_time:
            path = self.folder / PACKED
            if self._journal.path.exists():
                self._journal.emptied(lambda lines: self._merge(path, lines))
                self._read_on()
            return path.stat().st_size if path.exists() else 0

    def _merge(self, path: Path, lines: bytes) -> None:
        calls = {call.key: call for call in _packed_calls(path)}
        known = len(calls)
        for call in _calls(lines, self._journal.path):
            calls.setdefault(call.key, call)
        if not calls:
            return
        if len(calls) > known:
            content = packed(b"".join(_line(calls[key]) for key in sorted(calls)), _LEVEL)
        else:  # another version of zstd would give other bytes for the same calls
            content = path.read_bytes()
        if len(content) > MAX_PACKED_BYTES:
            why = f"{len(calls)} calls would take {len(content)} bytes, {MAX_PACKED_BYTES} are allowed: keep fewer runs"
            raise CacheRefused(str(path), why)
        put(path, content)

    def _read_on(self) -> None:
        """Take in what was added since.  Whoever packs replaces the packed file before the journal is emptied."""
        lines, end = self._journal.since(self._read_to)
        packed_as = _identity(self.folder / PACKED)
        if packed_as != self._packed_as:
            self._packed_as = packed_as
            self._take(_packed_calls(self.folder / PACKED))
            lines, end = self._journal.since(0)
        self._read_to = end
        self._take(_calls(lines, self._journal.path))

    def _take(self, calls: Iterable[Call]) -> None:
        for call in calls:
            self._calls.setdefault(call.key, call)


class Cached:
    """A language model that is asked only what the cache does not hold.

    Without one (`chat` None), it is the model of this `name` as far as the cache holds it.
    """

    def __init__(self, chat: Chat | None, cache: Cache, name: str = "") -> None:
        self.name = name if chat is None else chat.name
        self.cache = cache
        self._chat = chat

    def ask(self, request: Request) -> Reply:
        """Raises: CallNotKept without a model; whatever the model raises, which is not kept."""
        found = self.cache.find(self.name, request)
        if found is not None:
            return found
        if self._chat is None:
            raise CallNotKept(self.name, sha256_of(request.to_dict()), str(self.cache.folder))
        return self.cache.keep(self.name, request, self._chat.ask(request))


def key_of(model: str, request: Request) -> str:
    """Under which an answer is kept: the SHA-256 of `[model, request]`."""
    return sha256_of([model, request.to_dict()])


def sha256_of(form: Any) -> str:
    """The SHA-256 of a value's one JSON form: sorted keys, no spaces, UTF-8."""
    return hashlib.sha256(_spelled(form)).hexdigest()


def _spelled(form: Any) -> bytes:
    text = json.dumps(form, ensure_ascii=False, separators=(",", ":"), sort_keys=True)
    return text.encode(errors="surrogatepass")  # as json.loads reads it: a model may say half a character


def _line(call: Call) -> bytes:
    return _spelled(asdict(call)) + b"\n"


def _identity(path: Path) -> tuple[int, int] | None:
    """What tells a file from the one that it replaced; None where there is none."""
    try:
        found = path.stat()
    except FileNotFoundError:
        return None
    return found.st_ino, found.st_mtime_ns


def _calls(lines: bytes, path: Path) -> Iterator[Call]:
    for number, line in enumerate(lines.splitlines(), 1):
        try:
            call = Call(**json.loads(line))
        except (ValueError, TypeError, RecursionError):
            call = None
        if call is None or not call.sound:
            raise CacheRefused(str(path), f"line {number} is no call of a model: take the line out, or the file")
        yield call


def _packed_calls(path: Path) -> Iterator[Call]:
    if not path.exists():
        return
    try:
        lines = unpacked(path.read_bytes())
    except ValueError as error:
        raise CacheRefused(str(path), f"it cannot be unpacked ({error}): take it from the repository again") from None
    yield from _calls(lines, path)
