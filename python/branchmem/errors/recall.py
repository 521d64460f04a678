"""What a search, or what goes on beside one, cannot be asked."""

from __future__ import annotations

from collections.abc import Iterable

from branchmem.errors.base import Error, short


class _InvalidArgument(Error, ValueError):
    """`value` is at fault, in the argument `name`."""

    def __init__(self, name: str, value: object, why: str) -> None:
        super().__init__(name, value, why)
        self.name = name
        self.value = value
        self.why = why

    def explanation(self) -> str:
        return f"{self.name}={short(self.value)}: {self.why}"


class InvalidSearch(_InvalidArgument):
    """A search that says nothing sensible; `value` is at fault, in the argument `name`."""


class InvalidFilter(Error, ValueError):
    """A condition that no memory could be compared with; `value` is at fault, in the condition on `field`."""

    def __init__(self, field: str, value: object, why: str) -> None:
        super().__init__(field, value, why)
        self.field = field
        self.value = value
        self.why = why

    def explanation(self) -> str:
        return f"the condition on {self.field}, {short(self.value)}: {self.why}"


class InvalidEmbedder(Error, ValueError):
    """What cannot serve as an embedder, or not as it is; `embedder` names it."""

    def __init__(self, embedder: str, why: str) -> None:
        super().__init__(embedder, why)
        self.embedder = embedder
        self.why = why

    def explanation(self) -> str:
        return f"embedder {short(self.embedder)}: {self.why}"


class BadEmbedding(Error, ValueError):
    """An embedder gave what is no float32 (texts, dimensions) of finite numbers; nothing of that batch was kept."""

    def __init__(self, embedder: str, why: str) -> None:
        super().__init__(embedder, why)
        self.embedder = embedder
        self.why = why

    def explanation(self) -> str:
        return f"embedder {short(self.embedder)}: {self.why}; it must give one row of finite numbers a text"


class DimensionMismatch(Error, ValueError):
    """A vector has `given` dimensions where those of the embedder of this name have `known`."""

    def __init__(self, embedder: str, known: int, given: int) -> None:
        super().__init__(embedder, known, given)
        self.embedder = embedder
        self.known = known
        self.given = given

    def explanation(self) -> str:
        return (
            f"the vectors of embedder {short(self.embedder)} have {self.known} dimensions, this one has {self.given}: "
            "give another model another name, branchmem.embedders.named(name, embedder)"
        )


class EmbedderMismatch(Error, ValueError):
    """Two models under one name: the same sentence has another vector than the one that the store keeps of it.

    `similarity` is the cosine of the two.
    """

    def __init__(self, embedder: str, similarity: float) -> None:
        super().__init__(embedder, similarity)
        self.embedder = embedder
        self.similarity = similarity

    def explanation(self) -> str:
        return (
            f"embedder {short(self.embedder)} is not the model whose vectors the store keeps under this name (one "
            f"sentence, two vectors, cosine {self.similarity:.2f}): give this model a name of its own, "
            "branchmem.embedders.named(name, embedder)"
        )


class TooManyEmbedders(Error):
    """The store keeps the vectors of as many embedders as a file has room for; `names` are theirs."""

    def __init__(self, path: str, embedder: str, names: Iterable[str]) -> None:
        names = tuple(names)
        super().__init__(path, embedder, names)
        self.path = path
        self.embedder = embedder
        self.names = names

    def explanation(self) -> str:
        return (
            f"{self.path}: no room for the vectors of embedder {short(self.embedder)} beside those of "
            f"{', '.join(self.names)}: use one of these, or import the events into a new store, which has none"
        )


class EndpointFailed(Error):
    """An endpoint did not answer, or not with what it was asked for; `status` is that of HTTP, where there was one.

    Neither the key nor a text that was sent is part of it.
    """

    def __init__(self, url: str, why: str, status: int | None = None) -> None:
        super().__init__(url, why, status)
        self.url = url
        self.why = why
        self.status = status

    def explanation(self) -> str:
        return f"{self.url}: {self.why}"


class InvalidDecay(_InvalidArgument):
    """A setting with which nothing could fade; `value` is at fault, in the setting `name`."""


class InvalidTime(_InvalidArgument):
    """A time that is none, or has no offset; `value` is at fault, in the argument `name`."""


class InvalidResolution(Error, ValueError):
    """What was to become of conflicts cannot be done; `value` is at fault."""

    def __init__(self, value: object, why: str) -> None:
        super().__init__(value, why)
        self.value = value
        self.why = why

    def explanation(self) -> str:
        return f"resolve={short(self.value)}: {self.why}; nothing was remembered"


class Undecided(Error):
    """Whenever it was decided what becomes of the memories about `key`, others had changed them meanwhile."""

    def __init__(self, key: str, attempts: int) -> None:
        super().__init__(key, attempts)
        self.key = key
        self.attempts = attempts

    def explanation(self) -> str:
        return (
            f"the memories about {short(self.key)} changed {self.attempts} times while it was decided what becomes of "
            "them: nothing was remembered; try again, or decide faster (resolve=)"
        )
