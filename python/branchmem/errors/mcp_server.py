"""What the MCP server refuses: calls that stand nowhere, and to be reached by more than it was started for."""

from __future__ import annotations

from branchmem.errors.base import Error, short


class NoAnchor(Error, LookupError):
    """A call came without an anchor, and the server has no ref to fall back on: nothing was read or written."""

    def __init__(self, wanted: str) -> None:
        super().__init__(wanted)
        self.wanted = wanted

    def explanation(self) -> str:
        return (
            f"{self.wanted} needs an anchor, and there is none: pass anchor=<ref or message id>, or "
            '_meta {"branchmem/anchor": …}, or start the server with --ref; list_branches names the refs, and '
            "start_conversation makes one"
        )


class InvalidAnchor(Error, ValueError):
    """What a call gave as its anchor in `_meta` is none; `value` is at fault."""

    def __init__(self, value: object) -> None:
        super().__init__(value)
        self.value = value

    def explanation(self) -> str:
        return (
            f'_meta {{"branchmem/anchor": {short(self.value)}}}: an anchor is the name of a ref or the id of a message'
        )


class SourceAstray(Error, ValueError):
    """A memory was to be kept at an anchor that does not see one of its sources; `source` is at fault."""

    def __init__(self, source: str, anchor: str) -> None:
        super().__init__(source, anchor)
        self.source = source
        self.anchor = anchor

    def explanation(self) -> str:
        return (
            f"source {self.source} is not on the path of anchor {self.anchor}, where the memory would never be "
            "visible; nothing was written: pass the anchor of the branch where it was said, or leave source_ids out"
        )


class InvalidToken(Error, ValueError):
    """A bearer token that would not keep anybody out, or that no header can hold; it is not part of the error."""

    def __init__(self, why: str) -> None:
        super().__init__(why)
        self.why = why

    def explanation(self) -> str:
        return f"the token {self.why}: give none, and a good one is made"


class AddressRefused(Error, ValueError):
    """The server does not listen at `address`: `why`."""

    def __init__(self, address: str, why: str) -> None:
        super().__init__(address, why)
        self.address = address
        self.why = why

    def explanation(self) -> str:
        return f"{short(self.address)}: {self.why}"
