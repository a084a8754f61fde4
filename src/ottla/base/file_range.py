"""A piece of a file on its way to a socket, or anywhere else that reads it later."""

from __future__ import annotations

from typing import Protocol


class RangeOwner(Protocol):
    """What a range borrows its file descriptor from; it may not close the file while ranges are out."""

    def release_range(self) -> None: ...


class FileRange:
    """`length` bytes of `descriptor` from `position` on.

    Holds one counted reference to its owner, so that closing and deleting the file wait for it.
    Whoever takes the range must call release() exactly once.
    """

    __slots__ = ("cut_bytes", "descriptor", "length", "owner", "position")

    def __init__(self, owner: RangeOwner, descriptor: int, position: int, length: int) -> None:
        self.owner = owner
        self.descriptor = descriptor
        self.position = position
        self.length = length
        self.cut_bytes = 0  # that are there and were wanted, too, but are only a piece of something

    def __len__(self) -> int:
        return self.length

    def release(self) -> None:
        self.owner.release_range()

    def __repr__(self) -> str:
        return f"<FileRange fd={self.descriptor} {self.position}+{self.length}>"
