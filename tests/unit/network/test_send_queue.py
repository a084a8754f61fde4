"""Which records are copied into a reply, and which are sent from their file."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from ottla.base.file_range import FileRange
from ottla.network.send_queue import COPIED_BYTES_MAX, SMALL_BYTES, Chunk, ReplyChunks
from ottla.protocol.codec import Encoded

STORED = bytes(range(256)) * 1024


class Owner:
    def __init__(self) -> None:
        self.released = 0

    def release_range(self) -> None:
        self.released += 1


@pytest.fixture
def log(tmp_path: Path) -> Iterator[int]:
    path = tmp_path / "log"
    path.write_bytes(STORED)
    descriptor = os.open(path, os.O_RDONLY)
    yield descriptor
    os.close(descriptor)


def chunks_of(output: Encoded) -> list[Chunk]:
    return ReplyChunks(output).take(len(output.holes))


def reply(data: bytes, *holes: tuple[int, FileRange]) -> Encoded:
    output = Encoded(data)
    output.holes = list(holes)
    return output


def test_a_small_range_is_in_its_place_and_given_back(log: int) -> None:
    owner = Owner()
    chunks = chunks_of(reply(b"headtail", (4, FileRange(owner, log, 7, 10))))
    assert chunks == [b"head" + STORED[7:17] + b"tail"]
    assert owner.released == 1


def test_small_ranges_of_several_partitions_are_one_piece(log: int) -> None:
    owner = Owner()
    ranges = [FileRange(owner, log, 100 * number, 50) for number in range(3)]
    chunks = chunks_of(reply(b"abc", (0, ranges[0]), (1, ranges[1]), (3, ranges[2])))
    assert chunks == [STORED[:50] + b"a" + STORED[100:150] + b"bc" + STORED[200:250]]
    assert owner.released == 3


def test_a_large_range_is_left_in_its_file_with_small_ones_beside_it(log: int) -> None:
    owner = Owner()
    large = FileRange(owner, log, 0, SMALL_BYTES + 1)
    small = FileRange(owner, log, 5, 5)
    assert chunks_of(reply(b"abcd", (1, small), (2, large), (3, small))) == [
        b"a" + STORED[5:10] + b"b",
        large,
        b"c" + STORED[5:10] + b"d",
    ]
    assert owner.released == 2


def test_two_large_ranges_with_nothing_between_them_make_no_empty_pieces(log: int) -> None:
    large = [FileRange(Owner(), log, 0, SMALL_BYTES + 1) for _ in range(2)]
    assert chunks_of(reply(b"", (0, large[0]), (0, large[1]))) == large


def test_a_reply_has_only_so_many_copied_however_many_small_ranges_it_has(log: int) -> None:
    owner = Owner()
    count = COPIED_BYTES_MAX // SMALL_BYTES
    ranges = [FileRange(owner, log, 0, SMALL_BYTES) for _ in range(count + 2)]
    chunks = chunks_of(reply(b"", *((0, each) for each in ranges)))
    assert chunks == [STORED[:SMALL_BYTES] * count, *ranges[count:]]
    assert owner.released == count


def test_an_unreadable_range_is_left_to_the_sender(log: int) -> None:
    owner = Owner()
    closed = FileRange(owner, -1, 0, 10)
    cut = FileRange(owner, log, len(STORED) - 5, 10)
    assert chunks_of(reply(b"ab", (1, closed), (2, cut))) == [b"a", closed, b"b", cut]
    assert owner.released == 0
