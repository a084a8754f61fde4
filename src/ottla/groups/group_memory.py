"""Memory of group members: the bytes of their protocol metadata, assignments and subscriptions.

Clients choose these sizes and the number of members, so all groups of a broker share one limit. When it is reached,
new members are rejected; existing members continue and may rejoin.

Every change of a member updates the count, because summing it up on every join would be slow.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final, Protocol

OBJECT_BYTES: Final = 64  # the overhead of a string or bytes object


class MeasuredMember(Protocol):
    """A group member whose memory is counted."""

    counted_bytes: int

    def metadata_bytes(self) -> int:
        """Return its current size."""


class GroupMemory:
    """The count of one partition of `__consumer_offsets`; it is discarded with the coordinator of the partition."""

    def __init__(self) -> None:
        self.used = 0
        self.total_bytes: Callable[[], int] | None = None  # returns the count of all partitions on this broker
        self.on_limit_reached: Callable[[str], None] = lambda _: (
            None
        )  # called with the group whose new member is rejected

    def update(self, member: MeasuredMember) -> None:
        """Count a new member, or one that has changed."""
        size = member.metadata_bytes()
        self.used += size - member.counted_bytes
        member.counted_bytes = size

    def remove(self, member: MeasuredMember) -> None:
        self.used -= member.counted_bytes
        member.counted_bytes = 0

    def remove_all(self, members: Iterable[MeasuredMember]) -> None:
        for member in members:
            self.remove(member)

    def has_capacity(self, group_id: str, size: int, limit: int) -> bool:
        """Return whether a new member of this size may join."""
        used = self.used if self.total_bytes is None else self.total_bytes()
        if used + size <= limit:
            return True
        self.on_limit_reached(group_id)
        return False

    def __repr__(self) -> str:
        return f"<GroupMemory {self.used}>"


def protocols_bytes(protocols: Iterable[ProtocolMetadata]) -> int:
    return sum(len(each.name) + len(each.metadata) + 2 * OBJECT_BYTES for each in protocols)


def names_bytes(names: Iterable[str]) -> int:
    return sum(len(name) + OBJECT_BYTES for name in names)


class ProtocolMetadata(Protocol):
    """A protocol that a classic member supports."""

    name: str
    metadata: bytes
