"""Records of a reply that are so few that they are copied into it.

A range of a file takes three calls to send: what is before it, the range, and what is behind it. Sending from the page
cache spares a copy, which a few kilobytes do not notice: with them in its place the reply is one piece, and so are
replies with small ranges of many partitions.
"""

from __future__ import annotations

import os
from typing import Final

from ottla.base.file_range import FileRange
from ottla.protocol.codec import Encoded

SMALL_BYTES: Final = 8 * 1024
COPIED_BYTES_MAX: Final = 64 * 1024  # of one reply


def chunks_of(output: Encoded) -> list[bytearray | FileRange]:
    """The bytes around the holes and what belongs into them, in the order in which they leave."""
    chunks: list[bytearray | FileRange] = []
    view = memoryview(output)
    joined = bytearray()
    position = 0
    bytes_left = COPIED_BYTES_MAX
    for at, file_range in output.holes:
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
    joined += view[position:]
    if joined:
        chunks.append(joined)
    return chunks


def _copy(file_range: FileRange, target: bytearray) -> bool:
    """False if it cannot be read: whoever sends it finds out why."""
    try:
        data = os.pread(file_range.descriptor, file_range.length, file_range.position)
    except OSError:
        return False
    if len(data) < file_range.length:
        return False
    file_range.release()
    target += data
    return True
