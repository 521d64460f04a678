"""`python -m branchmem.cli`: the command `branchmem`."""

from __future__ import annotations

import sys

from branchmem.cli import main

sys.exit(main())
