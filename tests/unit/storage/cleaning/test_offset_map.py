"""The key map is right for every key, and never exceeds its memory limit."""

from __future__ import annotations

import random

import pytest

from ottla.storage.cleaning.offset_map import OffsetMap, is_prime, memory_for, prime_at_most


@pytest.mark.parametrize("load_factor", [0.3, 0.9, 1.0])
def test_every_key_gets_its_newest_offset(load_factor: float) -> None:
    chosen = random.Random(5)
    offset_map = OffsetMap(20 * 5000, load_factor, first_offset=1000)
    newest: dict[bytes, int] = {}
    offset = 1000
    while True:
        key = b"%d" % chosen.randrange(4000)
        if not offset_map.put(key, offset):
            break
        newest[key] = offset
        offset += chosen.randrange(1, 50)
        if len(newest) == 4000:
            break

    assert len(newest) == offset_map.count == min(4000, offset_map.capacity)
    assert all(offset_map.get(key) == value for key, value in newest.items())
    assert all(offset_map.get(b"x%d" % number) == -1 for number in range(1000))


def test_a_full_map_takes_nothing_more_not_even_known_keys() -> None:
    offset_map = OffsetMap(0, 0.5, first_offset=0)
    offset = 0
    while offset_map.put(b"%d" % offset, offset):
        offset += 1

    assert offset == offset_map.capacity == 5
    assert not offset_map.put(b"0", 99)
    assert offset_map.get(b"0") == 0


def test_an_offset_too_far_from_the_first_one_does_not_fit() -> None:
    offset_map = OffsetMap(1000, 0.9, first_offset=10)

    assert offset_map.put(b"a", 10 + 2**31 - 2)
    assert offset_map.get(b"a") == 10 + 2**31 - 2
    assert not offset_map.put(b"b", 10 + 2**31 - 1)


def test_the_empty_key_is_a_key() -> None:
    offset_map = OffsetMap(1000, 0.9, first_offset=0)
    offset_map.put(b"", 3)

    assert offset_map.get(b"") == 3


def test_a_map_for_few_keys_is_small_and_a_large_one_keeps_to_its_limit() -> None:
    assert memory_for(100, 0.9, 64 << 20) < 3000
    assert memory_for(10**9, 0.9, 64 << 20) == 64 << 20
    assert OffsetMap(memory_for(100, 0.9, 64 << 20), 0.9, 0).capacity >= 100


def test_the_number_of_slots_is_prime() -> None:
    assert prime_at_most(100) == 97
    assert prime_at_most(97) == 97
    assert [n for n in range(11, 60, 2) if is_prime(n)] == [11, 13, 17, 19, 23, 29, 31, 37, 41, 43, 47, 53, 59]
