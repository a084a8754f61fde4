"""Which node of several writes: the place where an election is plugged in, and the answer of a node that is alone.

A node that does not lead hands what would change something to `Forward`, as it came, and gives back what it gets.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import NamedTuple, Protocol

Headers = Sequence[tuple[bytes, bytes]]


class Leadership(Protocol):
    """Whether this node may write, and the address of the one that may; None: nobody knows at the moment."""

    @property
    def is_leader(self) -> bool: ...

    @property
    def leader_url(self) -> str | None: ...


class Alone:
    """One node, which leads."""

    is_leader = True
    leader_url: str | None = None

    def __repr__(self) -> str:
        return "<Alone>"


class RawRequest(NamedTuple):
    """`target` is the path as it came, with its parameters."""

    method: str
    target: str
    headers: Headers
    body: bytes


class RawAnswer(NamedTuple):
    status: int
    headers: Headers
    body: bytes


Forward = Callable[[RawRequest, str], Awaitable[RawAnswer]]
