"""`python -m branchmem.branchbench.long --out DIR`: the files of the Long part, written anew."""

from __future__ import annotations

import argparse
from pathlib import Path

from branchmem.branchbench import long
from branchmem.errors import Error


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m branchmem.branchbench.long", description=__doc__)
    parser.add_argument("--out", type=Path, required=True, metavar="DIR", help="folder to write into")
    parser.add_argument("--seed", default=long.SEED, help="text that all draws come from (default: %(default)r)")
    given = parser.parse_args()
    try:
        written = long.write(given.out, given.seed)
    except (Error, OSError) as error:
        parser.exit(1, f"{parser.prog}: {error}\n")
    for path in written:
        print(path)


if __name__ == "__main__":
    main()
