"""Receive buffers: one that everybody shares for small frames, and a few large ones that are lent out.

A thousand idle connections hold no buffer at all. A connection owns one only while a frame is half received, and that
buffer grows with the bytes that really came, never with the length that a client announced.
"""

from __future__ import annotations

from typing import Final

SHARED_BYTES: Final = 256 * 1024
SMALLEST_BYTES: Final = 64 * 1024
KEPT_BYTES_MAX: Final = 16 * 1024 * 1024


class Buffers:
    """All receive buffers of one event loop."""

    def __init__(self) -> None:
        self.shared = memoryview(bytearray(SHARED_BYTES))
        self._free: dict[int, list[memoryview]] = {}
        self._kept_bytes = 0

    def take(self, size_bytes: int) -> memoryview:
        """A buffer of at least this size; the caller gives it back."""
        capacity = _capacity(size_bytes)
        free = self._free.get(capacity)
        if free:
            self._kept_bytes -= capacity
            return free.pop()
        return memoryview(bytearray(capacity))

    def give(self, buffer: memoryview) -> None:
        """Take a buffer back; it is kept for the next borrower while there is room."""
        capacity = len(buffer)
        if self._kept_bytes + capacity > KEPT_BYTES_MAX:
            return
        self._kept_bytes += capacity
        self._free.setdefault(capacity, []).append(buffer)

    def forget(self) -> None:
        """Hand the memory of unused buffers back: called when the broker has been quiet for a while."""
        self._free.clear()
        self._kept_bytes = 0

    def __repr__(self) -> str:
        return f"<Buffers {self._kept_bytes} bytes kept>"


def _capacity(size_bytes: int) -> int:
    """The next power of two: few sizes, so that a buffer finds its next user."""
    return max(SMALLEST_BYTES, 1 << (size_bytes - 1).bit_length())
