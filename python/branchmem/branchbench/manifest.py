"""Whether the data is the one that every published figure was made from: a manifest of hashes, checked before reading.

`manifest.json` names each file of the data with its SHA-256, size and contents.  The one rule: no line of a file is
parsed before all files, and nothing but them, are what the manifest names.  The test split is frozen: a manifest that
has other hashes for it is written only where the caller says that it thaws.

What this leaves out: whether the scenarios are fit (`validator`).
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from hashlib import sha256
from pathlib import Path
from typing import Final

from branchmem.branchbench.scenario import Part, Scenario, Split, read
from branchmem.errors.branchbench import DataMissing, FrozenDataChanged, SplitFrozen

NAME: Final = "manifest.json"
PLACE: Final = Path("bench", "branchbench", "data")
PARTS: Final[tuple[Part, ...]] = ("classic", "long")
SPLITS: Final[tuple[Split, ...]] = ("dev", "test")
NO_FILE: Final = "no such file"


@dataclass(frozen=True, slots=True)
class Entry:
    """One file: SHA-256 (hex) and size of its bytes, and how many scenarios, probes and leak probes it has."""

    sha256: str
    bytes: int
    scenarios: int
    probes: int
    leak_probes: int


@dataclass(frozen=True, slots=True)
class Manifest:
    """The files of a folder of data, by name."""

    files: dict[str, Entry]

    def text(self) -> str:
        """The same text for the same files."""
        files = {name: asdict(entry) for name, entry in sorted(self.files.items())}
        return json.dumps({"files": files}, indent=2) + "\n"

    def hashes(self, *, part: Part | None = None, split: Split | None = None) -> dict[str, str]:
        """The SHA-256 of each file of a part and a split, or of all."""
        return {name: self.files[name].sha256 for name in _names(part, split) if name in self.files}


def name_of(part: Part, split: Split) -> str:
    return f"{part}.{split}.jsonl"


def data_folder(start: Path | None = None) -> Path:
    """The data in the clone that holds `start`: the working folder or, where that is in none, this module.

    Raises: DataMissing.
    """
    starts = [Path.cwd(), Path(__file__)] if start is None else [start]
    for place in starts:
        for folder in (place.resolve(), *place.resolve().parents):
            if (folder / PLACE).is_dir():
                return folder / PLACE
    raise DataMissing(str(starts[0]), f"{PLACE.as_posix()} in it or above")


def manifest_of(folder: Path) -> Manifest:
    """The manifest of a folder, as it stands there; nothing is checked.

    Raises: DataMissing where there is none; FrozenDataChanged where it cannot be read.
    """
    try:
        text = (folder / NAME).read_bytes()
    except FileNotFoundError:
        raise DataMissing(str(folder), NAME) from None
    try:
        return Manifest({name: Entry(**entry) for name, entry in json.loads(text)["files"].items()})
    except (ValueError, KeyError, TypeError, AttributeError):
        raise FrozenDataChanged(NAME, "the entries of its files", f"{text[:40]!r}") from None


def measured(folder: Path) -> Manifest:
    """The manifest that fits the files as they are now: reads all of them.

    Raises: FrozenDataChanged for a file that no part and split has; whatever a line that is no scenario raises.
    """
    names = set(_names(None, None))
    files = {}
    for path in _files(folder):
        if path.name not in names:
            raise FrozenDataChanged(path.name, f"{NO_FILE} in any part and split", "one")
        content = path.read_bytes()
        scenarios = list(read(content))
        probes = [probe for scenario in scenarios for probe in scenario.probes]
        leak_probes = sum(bool(probe.forbidden) for probe in probes)
        files[path.name] = Entry(_sha256(content), len(content), len(scenarios), len(probes), leak_probes)
    return Manifest(files)


def write(folder: Path, *, thaw: bool = False) -> Manifest:
    """Write the manifest that fits the files as they are now; nothing is written where an error is raised.

    Raises: SplitFrozen where the test split is not what the old manifest names, unless `thaw`: every figure published
    over it, and every answer cached for it, is void then; and whatever `measured` raises.
    """
    new = measured(folder)
    if not thaw and (folder / NAME).exists():
        frozen = manifest_of(folder).hashes(split="test")
        now = new.hashes(split="test")
        changed = sorted(name for name in frozen if frozen[name] != now.get(name))
        if changed:
            raise SplitFrozen(str(folder), changed)
    partial = folder / f".{NAME}.partial"
    partial.write_text(new.text(), encoding="utf-8")
    partial.replace(folder / NAME)
    return new


def verify(folder: Path, *, part: Part | None = None, split: Split | None = None) -> Manifest:
    """The manifest, once the files of a part and a split, or all, have the bytes that it names.

    Which files there are is checked in any case: none missing, none besides.  No line is parsed.
    Raises: DataMissing; FrozenDataChanged, with file, expected and found SHA-256.
    """
    manifest = manifest_of(folder)
    _verified(folder, manifest, part, split)
    return manifest


def load(folder: Path, *, part: Part | None = None, split: Split | None = None) -> list[Scenario]:
    """The scenarios of a part and a split, or all, in the order of the files: from the very bytes that were verified.

    Raises: as `verify`.
    """
    contents = _verified(folder, manifest_of(folder), part, split)
    return [scenario for content in contents for scenario in read(content)]


def _verified(folder: Path, manifest: Manifest, part: Part | None, split: Split | None) -> list[bytes]:
    there = {path.name for path in _files(folder)}
    for name in sorted(there - manifest.files.keys()):
        raise FrozenDataChanged(name, NO_FILE, "one")
    for name, entry in sorted(manifest.files.items()):
        if name not in there:
            raise FrozenDataChanged(name, f"SHA-256 {entry.sha256}", NO_FILE)
    contents = []
    for name in _names(part, split):
        if name not in manifest.files:
            raise FrozenDataChanged(name, NO_FILE, "that it was asked for")
        contents.append((folder / name).read_bytes())
        found = _sha256(contents[-1])
        if found != manifest.files[name].sha256:
            raise FrozenDataChanged(name, f"SHA-256 {manifest.files[name].sha256}", f"SHA-256 {found}")
    return contents


def _names(part: Part | None, split: Split | None) -> Iterator[str]:
    for one in PARTS if part is None else (part,):
        for other in SPLITS if split is None else (split,):
            yield name_of(one, other)


def _files(folder: Path) -> list[Path]:
    """The files of data; names that begin with a dot are the system's."""
    return sorted(path for path in folder.iterdir() if path.name != NAME and not path.name.startswith("."))


def _sha256(content: bytes) -> str:
    return sha256(content).hexdigest()
