"""Memory for branching conversations: a derived memory is visible only where all its sources are."""

from branchmem._core import View
from branchmem.canonical import new_id
from branchmem.changes import Change, Elsewhere, Erased
from branchmem.errors import (
    AmbiguousAnchor,
    BadAnchor,
    Error,
    EventConflict,
    FormatTooNew,
    ImportFailed,
    InvalidEvent,
    InvalidOwner,
    MemoryHidden,
    PoolBusy,
    StoreBehind,
    StoreClosed,
    StoreDamaged,
    StoreExists,
    StoreForked,
    StoreFull,
    StoreLocked,
    StoreMissing,
    StoreOnNetwork,
    StoreReadOnly,
    UnknownEvent,
)
from branchmem.events import LEGACY, Memory, Message, event_from_dict
from branchmem.pool import Pool
from branchmem.store import Engine, Store, delete, open, open_temporary
from branchmem.verdict import COMPAT, STRICT, Appended, Placed, Policy, Reason, Verdict

__version__ = "0.1.0"

__all__ = [
    "COMPAT",
    "LEGACY",
    "STRICT",
    "AmbiguousAnchor",
    "Appended",
    "BadAnchor",
    "Change",
    "Elsewhere",
    "Engine",
    "Erased",
    "Error",
    "EventConflict",
    "FormatTooNew",
    "ImportFailed",
    "InvalidEvent",
    "InvalidOwner",
    "Memory",
    "MemoryHidden",
    "Message",
    "Placed",
    "Policy",
    "Pool",
    "PoolBusy",
    "Reason",
    "Store",
    "StoreBehind",
    "StoreClosed",
    "StoreDamaged",
    "StoreExists",
    "StoreForked",
    "StoreFull",
    "StoreLocked",
    "StoreMissing",
    "StoreOnNetwork",
    "StoreReadOnly",
    "UnknownEvent",
    "Verdict",
    "View",
    "delete",
    "event_from_dict",
    "new_id",
    "open",
    "open_temporary",
]
