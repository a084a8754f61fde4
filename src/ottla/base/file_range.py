"""A range of a file that is sent to a socket, or read later by other code."""

from __future__ import annotations

from typing import Protocol


class RangeOwner(Protocol):
    """The owner of a range's file descriptor; it must not close the file while ranges are in use."""

    def release_range(self) -> None: ...


class FileRange:
    """`length` bytes of `descriptor` from `position` on.

    A range holds one counted reference to its owner, so that closing and deleting the file wait for it. The consumer of
    the range must call release() exactly once.
    """

    __slots__ = ("cut_bytes", "descriptor", "length", "owner", "position")

    def __init__(self, owner: RangeOwner, descriptor: int, position: int, length: int) -> None:
        self.owner = owner
        self.descriptor = descriptor
        self.position = position
        self.length = length
        self.cut_bytes = 0  # bytes that were requested and exist, but would cut a batch: they are left out

    def __len__(self) -> int:
        return self.length

    def release(self) -> None:
        self.owner.release_range()

    def __repr__(self) -> str:
        return f"<FileRange fd={self.descriptor} {self.position}+{self.length}>"
