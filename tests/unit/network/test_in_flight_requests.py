"""Frames out of a stream of bytes, however it is cut."""

import random

import pytest

from ottla.network.in_flight_requests import FRAME_BYTES_MAX, SCRATCH_BYTES, ResponseFrames
from ottla.protocol.codec import ProtocolError


def feed(frames: ResponseFrames, data: bytes, piece: int) -> list[memoryview]:
    """Hand data over in pieces, as a socket would: never more than there is room for."""
    found = []
    position = 0
    while position < len(data):
        room = frames.receive_buffer()
        assert len(room) > 0, "there is always room"
        count = min(piece, len(room), len(data) - position)
        room[:count] = data[position : position + count]
        found += frames.add_received(count)
        position += count
    return found


def framed(*bodies: bytes) -> bytes:
    return b"".join(len(body).to_bytes(4, "big") + body for body in bodies)


@pytest.mark.parametrize("piece", [1, 3, 7, 4096, SCRATCH_BYTES, 10_000_000])
def test_frames_come_out_as_they_went_in(piece: int) -> None:
    sizes = [4, 5, 100, 0x7FFF, SCRATCH_BYTES - 4, SCRATCH_BYTES - 3, SCRATCH_BYTES, 300_000, 6, 200_001, 9]
    if piece < 1000:
        sizes = [4, 5, 100, 9, SCRATCH_BYTES - 3, 7]
    bodies = [random.Random(size).randbytes(size) for size in sizes]
    frames = ResponseFrames()
    found = feed(frames, framed(*bodies), piece)
    assert [bytes(frame) for frame in found] == bodies
    assert repr(frames).startswith("<ResponseFrames 0 bytes")


def test_a_frame_that_is_held_is_never_written_to_again() -> None:
    frames = ResponseFrames()
    first = feed(frames, framed(b"a" * 200_000), 50_000)[0]
    part = first[1000:2000]
    del first
    for letter in b"bcde":
        feed(frames, framed(bytes([letter]) * 200_000), 50_000)
    assert bytes(part) == b"a" * 1000


def test_unreferenced_memory_is_reused() -> None:
    frames = ResponseFrames()
    for letter in b"abcdef":
        (frame,) = feed(frames, framed(bytes([letter]) * 200_000), 1_000_000)
        assert frame[-1] == letter
        del frame
    assert len(frames._kept_maps) == 1
    frames.release_memory()
    assert len(frames._kept_maps) == 0


def test_kept_memory_is_bounded() -> None:
    frames = ResponseFrames()
    held = [feed(frames, framed(b"x" * 200_000), 1_000_000) for _ in range(10)]
    assert len(held) == 10
    assert len(frames._kept_maps) <= 3
    feed(frames, framed(b"y" * 40_000_000), 8_000_000)
    assert all(len(kept) < 20_000_000 for kept in frames._kept_maps)


@pytest.mark.parametrize("size", [-1, 0, 3, FRAME_BYTES_MAX + 1, -(2**31), int.from_bytes(b"HTTP", "big")])
def test_a_size_that_cannot_be_is_refused(size: int) -> None:
    with pytest.raises(ProtocolError, match="a frame of"):
        feed(ResponseFrames(), size.to_bytes(4, "big", signed=True) + b"1.1 400", 100)


def test_a_large_size_alone_takes_no_memory() -> None:
    """A map of a gigabyte without allocated pages."""
    frames = ResponseFrames()
    before = resident_bytes()
    feed(frames, (900 << 20).to_bytes(4, "big") + b"abcd", 100)
    assert resident_bytes() - before < 20 << 20


def resident_bytes() -> int:
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * 4096
