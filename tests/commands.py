"""Commands as the tests run them, and what each may say."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, NamedTuple


class Ran(NamedTuple):
    status: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


Run = Callable[..., Ran]


KEYS = {
    "trees": {"trees", "detached"},
    "tree chat": {"root", "latest_leaf", "messages"},
    "view u1": {"policy", "anchors", "seq", "problems", "visible", "hidden", "memories"},
    "explain home --at u1": {
        *("id", "visible", "reasons", "culprits", "parted", "text", "seq"),
        *("retractions", "superseded_upstream"),
    },
    "search Chengdu --at u1": {"anchors", "seq", "query", "rankers", "faded", "note", "hits"},
    "recall Chengdu --at u1": {
        *("anchors", "seq", "used", "message", "text", "tokens", "budget", "note", "faded"),
        *("memories", "skills", "left_out", "skills_left_out", "problems"),
    },
    "why Chengdu --at u1": {"text", "anchors", "memories", "messages", "answers"},
    "decay": {
        *("anchors", "scanned", "fading", "below_floor", "fading_ids", "below_floor_ids"),
        *("now", "decay", "fading_below"),
    },
    "derive": {"every", "notes", "added", "seq"},
    "stats": {"store", "events", "messages", "memories", "trees", "leaves", "bytes", "digest"},
    "export": {"events"},
    "check": {
        *("events", "messages", "memories", "damage", "first_bad_seq"),
        *("orphans", "circles", "dangling", "prompts", "unshowable"),
        *("retractions", "restorations", "erasures", "erased", "unplaced", "supersession_circles"),
    },
    "refs": {"refs"},
    "refs unreachable": {"messages", "memories"},
    "log": {"moves"},
    "diff u1 u1-edit": {"a", "b", "ancestor", "messages_a", "messages_b", "only_a", "only_b", "both"},
    "bundle held": {"held"},
    "key": {"pins"},
    "selftest --trees 1": {"trees", "decisions", "mismatches", "seed", "reasons", "lacking", "cases"},
    "demo": {"root", "here", "there", "verdict", "again", "seq_before", "seq_after"},
}
