"""The replies that one connection has to send, in order. Compiled with mypyc where possible.

The response to a fetch of thousands of partitions has as many file ranges. They are expanded, sent and released some
hundreds at a time: otherwise one such response would delay all other clients.

A file range takes three system calls: for the bytes before it, the range, and the bytes after it. Small ranges are
therefore copied into the reply, which then is a single buffer; copying a few kilobytes costs less.
"""

from __future__ import annotations

import asyncio
import os
from collections import deque
from typing import Final

from ottla.base.file_range import FileRange
from ottla.protocol.codec import Encoded

SMALL_BYTES: Final = 8 * 1024
COPIED_BYTES_MAX: Final = 64 * 1024  # per step

Chunk = bytearray | memoryview | FileRange


class ReplyChunks:
    """A reply as chunks in order: the bytes around the file ranges, and the ranges."""

    def __init__(self, output: Encoded) -> None:
        self._view = memoryview(output)
        self._holes = output.holes
        self._next = 0  # hole
        self._position = 0
        self.is_exhausted = False

    def take(self, ranges_max: int) -> list[Chunk]:
        """Return the next chunks, with at most this number of ranges; the last ones include the bytes after them."""
        chunks: list[Chunk] = []
        joined = bytearray()
        position, view = self._position, self._view
        bytes_left = COPIED_BYTES_MAX
        end = min(self._next + ranges_max, len(self._holes))
        for at, file_range in self._holes[self._next : end]:
            joined += view[position:at]
            position = at
            length = file_range.length
            if length <= SMALL_BYTES and length <= bytes_left and _copy(file_range, joined):
                bytes_left -= length
                continue
            if joined:
                chunks.append(joined)
                joined = bytearray()
            chunks.append(file_range)
        self._next, self._position = end, position
        if end == len(self._holes):
            joined += view[position:]
            self.is_exhausted = True
        if joined:
            chunks.append(joined)
        return chunks

    def ranges(self) -> list[FileRange]:
        """Return the file ranges that have not been sent."""
        return [file_range for _, file_range in self._holes[self._next :]]


def _copy(file_range: FileRange, target: bytearray) -> bool:
    """Copy a range into the reply. Returns False if it cannot be read: sending it reports the error."""
    try:
        data = os.pread(file_range.descriptor, file_range.length, file_range.position)
    except OSError:
        return False
    if len(data) < file_range.length:
        return False
    file_range.release()
    target += data
    return True


JOINED_BYTES_MAX: Final = 64 * 1024  # small replies are joined into one buffer up to this size
EXPANDED_RANGES_MAX: Final = 250
RELEASED_RANGES_MAX: Final = 1_000


class SendQueue:
    """Chunks to send, and replies that are expanded when those are sent."""

    def __init__(self) -> None:
        self.chunks: deque[Chunk] = deque()  # not empty while there are unexpanded replies
        self.pending_replies: deque[ReplyChunks] = deque()
        self.unsent_bytes = 0

    def add(self, output: Encoded, may_join: bool) -> None:
        """Add a reply. `may_join`: the last chunk is not being sent."""
        if not output.holes and not self.pending_replies:
            self.unsent_bytes += len(output)
            self._append(output, may_join)
            return
        self.unsent_bytes += output.total_bytes()
        reply = ReplyChunks(output)
        if self.pending_replies:
            self.pending_replies.append(reply)
            return
        for chunk in reply.take(EXPANDED_RANGES_MAX):
            self._append(chunk, may_join)
        if not reply.is_exhausted:
            self.pending_replies.append(reply)

    def expand_next(self) -> None:
        """Expand the next chunks; called when all chunks before them are sent."""
        reply = self.pending_replies[0]
        self.chunks += reply.take(EXPANDED_RANGES_MAX)
        if reply.is_exhausted:
            self.pending_replies.popleft()

    def clear(self) -> list[FileRange]:
        """Remove everything; returns the ranges to release."""
        ranges = [chunk for chunk in self.chunks if isinstance(chunk, FileRange)]
        for reply in self.pending_replies:
            ranges += reply.ranges()
        self.chunks.clear()
        self.pending_replies.clear()
        return ranges

    def _append(self, chunk: Chunk, may_join: bool) -> None:
        chunks = self.chunks
        if chunks and may_join and isinstance(chunk, bytearray):
            last = chunks[-1]
            if isinstance(last, bytearray) and len(last) + len(chunk) <= JOINED_BYTES_MAX:
                last += chunk
                return
        chunks.append(chunk)


def release_in_batches(ranges: list[FileRange], loop: asyncio.AbstractEventLoop) -> None:
    """Release ranges that will not be sent, some at a time."""
    for _ in range(min(RELEASED_RANGES_MAX, len(ranges))):
        ranges.pop().release()
    if ranges:
        loop.call_soon(release_in_batches, ranges, loop)


def file_ranges_of(output: Encoded) -> list[FileRange]:
    return [file_range for _, file_range in output.holes]
