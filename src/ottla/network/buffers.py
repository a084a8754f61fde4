"""Receive buffers: one that all connections share for small frames, and a pool of larger ones.

An idle connection has no buffer. A connection allocates one only while a frame is partly received. The buffer grows
with the received bytes, never with the announced length of the frame. Compiled with mypyc where possible.
"""

from __future__ import annotations

from typing import Final

SHARED_BYTES: Final = 256 * 1024
SMALLEST_BYTES: Final = 4 * 1024
KEPT_BYTES_MAX: Final = 16 * 1024 * 1024


class BufferPool:
    """All receive buffers of one event loop."""

    def __init__(self) -> None:
        self.shared_buffer = memoryview(bytearray(SHARED_BYTES))
        self._free: dict[int, list[memoryview]] = {}
        self._kept_bytes = 0

    def allocate(self, size_bytes: int) -> memoryview:
        """Return a buffer of at least this size; the caller returns it with deallocate()."""
        capacity = _capacity(size_bytes)
        free = self._free.get(capacity)
        if free:
            self._kept_bytes -= capacity
            return free.pop()
        return memoryview(bytearray(capacity))

    def deallocate(self, buffer: memoryview) -> None:
        """Return a buffer; it is kept for reuse up to a limit."""
        capacity = len(buffer)
        if self._kept_bytes + capacity > KEPT_BYTES_MAX:
            return
        self._kept_bytes += capacity
        self._free.setdefault(capacity, []).append(buffer)

    def release_unused(self) -> None:
        """Free unused buffers; called when the broker was idle for a while."""
        self._free.clear()
        self._kept_bytes = 0

    def __repr__(self) -> str:
        return f"<BufferPool {self._kept_bytes} bytes kept>"


def _capacity(size_bytes: int) -> int:
    """Return the next power of two: few sizes, so that buffers are reused."""
    return max(SMALLEST_BYTES, 1 << (size_bytes - 1).bit_length())
