"""What the LangGraph adapter refuses, so that no memory is read from, or written to, a branch that nobody named."""

from __future__ import annotations

from branchmem.errors.base import Error, short


class NoCheckpoint(Error, LookupError):
    """Nobody can say at which checkpoint a call on a store stands; `namespace` is what it asked for, `why` says why."""

    def __init__(self, namespace: tuple[str, ...], why: str) -> None:
        super().__init__(namespace, why)
        self.namespace = namespace
        self.why = why

    def explanation(self) -> str:
        return (
            f"items of {short(self.namespace)} belong to a checkpoint, and {self.why}; outside of a graph name one, "
            "with store.at(graph.get_state(config).config): …, or make the namespace cross threads, shared=[…]"
        )


class UnknownCheckpoint(Error, LookupError):
    """The store does not know this checkpoint; `thread` and `checkpoint` are what was asked for."""

    def __init__(self, thread: str, checkpoint: str) -> None:
        super().__init__(thread, checkpoint)
        self.thread = thread
        self.checkpoint = checkpoint

    def explanation(self) -> str:
        return (
            f"the store knows no checkpoint {short(self.checkpoint)} of thread {short(self.thread)}: it learns those "
            "that are saved, or loaded, through branching(saver, store)"
        )


class UnfitItem(Error, TypeError):
    """JSON cannot hold the value of an item; `namespace` and `key` say which, `why` what is in the way."""

    def __init__(self, namespace: tuple[str, ...], key: str, why: str) -> None:
        super().__init__(namespace, key, why)
        self.namespace = namespace
        self.key = key
        self.why = why

    def explanation(self) -> str:
        return (
            f"the value of item {short(self.key)} of {short(self.namespace)} is not JSON, {self.why}: "
            "put a dictionary of strings, numbers, lists and dictionaries"
        )


class InvalidTTL(Error, ValueError):
    """A time to live that is no number; `ttl` is what was given for the item `key` of `namespace`."""

    def __init__(self, namespace: tuple[str, ...], key: str, ttl: object) -> None:
        super().__init__(namespace, key, ttl)
        self.namespace = namespace
        self.key = key
        self.ttl = ttl

    def explanation(self) -> str:
        return (
            f"item {short(self.key)} of {short(self.namespace)} cannot live {short(self.ttl)} minutes: "
            "give a number, or None for ever"
        )
