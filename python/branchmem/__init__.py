"""Memory for branching conversations: a derived memory is visible only where all its sources are."""

from typing import TYPE_CHECKING

from branchmem._core import View
from branchmem.canonical import new_id
from branchmem.changes import Change, Elsewhere, Erased
from branchmem.errors import (
    AmbiguousAnchor,
    AmbiguousName,
    BadAnchor,
    BadEmbedding,
    BadMove,
    BundleRefused,
    DimensionMismatch,
    EmbedderMismatch,
    EndpointFailed,
    Error,
    EventConflict,
    FormatTooNew,
    ImportFailed,
    InvalidDecay,
    InvalidEmbedder,
    InvalidEvent,
    InvalidFilter,
    InvalidOwner,
    InvalidRef,
    InvalidResolution,
    InvalidSearch,
    InvalidTime,
    MemoryHidden,
    MergeConflict,
    NoStep,
    PoolBusy,
    RefExists,
    RefMoved,
    StepEnded,
    StepOpen,
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
    TooManyEmbedders,
    Undecided,
    UnknownEvent,
    UnknownRef,
)
from branchmem.events import LEGACY, Memory, Message, event_from_dict
from branchmem.store import Engine, Store, delete, open, open_temporary
from branchmem.verdict import COMPAT, STRICT, Appended, Placed, Policy, Reason, Verdict

if TYPE_CHECKING:
    from branchmem.agent import wrap
    from branchmem.pool import Pool
    from branchmem.recall.decay import Decay
    from branchmem.session import Session, Step, StepView, current_step

__version__ = "0.1.0"

__all__ = [
    "COMPAT",
    "LEGACY",
    "STRICT",
    "AmbiguousAnchor",
    "AmbiguousName",
    "Appended",
    "BadAnchor",
    "BadEmbedding",
    "BadMove",
    "BundleRefused",
    "Change",
    "Decay",
    "DimensionMismatch",
    "Elsewhere",
    "EmbedderMismatch",
    "EndpointFailed",
    "Engine",
    "Erased",
    "Error",
    "EventConflict",
    "FormatTooNew",
    "ImportFailed",
    "InvalidDecay",
    "InvalidEmbedder",
    "InvalidEvent",
    "InvalidFilter",
    "InvalidOwner",
    "InvalidRef",
    "InvalidResolution",
    "InvalidSearch",
    "InvalidTime",
    "Memory",
    "MemoryHidden",
    "MergeConflict",
    "Message",
    "NoStep",
    "Placed",
    "Policy",
    "Pool",
    "PoolBusy",
    "Reason",
    "RefExists",
    "RefMoved",
    "Session",
    "Step",
    "StepEnded",
    "StepOpen",
    "StepView",
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
    "TooManyEmbedders",
    "Undecided",
    "UnknownEvent",
    "UnknownRef",
    "Verdict",
    "View",
    "current_step",
    "delete",
    "event_from_dict",
    "new_id",
    "open",
    "open_temporary",
    "wrap",
]

if not TYPE_CHECKING:  # where types are checked, it would stand for any name
    #: What belongs to a room that is loaded when it is asked for, so that importing the package stays quick.
    _ROOMS = {
        "Decay": "recall.decay",
        "Pool": "pool",
        **dict.fromkeys(("Session", "Step", "StepView", "current_step"), "session"),
        "wrap": "agent",
    }

    def __getattr__(name: str) -> object:
        if name not in _ROOMS:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        from importlib import import_module

        found = globals()[name] = getattr(import_module(f"{__name__}.{_ROOMS[name]}"), name)
        return found
