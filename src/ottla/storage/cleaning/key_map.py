"""The newest offset of each key, in a piece of memory whose size is fixed beforehand. Compiled with mypyc.

A key is known by 128 bits of its BLAKE2b digest: two keys that share them do not occur, not even on purpose. Each slot
takes 20 bytes, 16 for the digest and 4 for the offset, counted from the first offset that the map is for. A slot that
is taken by another key sends the search on in steps that depend on the digest, so that a table that is nine tenths
full still answers within ten steps or so.
"""

from __future__ import annotations

import struct
from array import array
from hashlib import blake2b
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from mypy_extensions import i64

DIGEST_BYTES: Final = 16
SLOT_BYTES: Final = 20
SLOTS_MIN: Final = 11
RELATIVE_OFFSET_MAX: Final = 2**32 - 2
NOT_FOUND: Final = -1
HEAD: Final = struct.Struct(">II")


class KeyMap:
    """put() in the order of offsets, then get()."""

    def __init__(self, memory_bytes: int, load_factor: float, first_offset: int) -> None:
        slots = prime_at_most(max(memory_bytes // SLOT_BYTES, SLOTS_MIN))
        self._slots: i64 = slots
        self._digests = bytearray(slots * DIGEST_BYTES)
        self._offsets: array[int] = array("I", bytes(4)) * slots  # 0 is a free slot
        self._first_offset: i64 = first_offset
        self.count = 0
        self.capacity = max(1, min(int(slots * load_factor), slots - 1))

    def put(self, key: bytes, offset: i64) -> bool:
        """Note where a key stands; False if the map has no room for more."""
        relative_offset: i64 = offset - self._first_offset
        if self.count >= self.capacity or relative_offset > RELATIVE_OFFSET_MAX:
            return False
        digest = blake2b(key, digest_size=DIGEST_BYTES).digest()
        slot = self._find(digest)
        if self._offsets[slot] == 0:
            self._digests[slot * DIGEST_BYTES : (slot + 1) * DIGEST_BYTES] = digest
            self.count += 1
        self._offsets[slot] = relative_offset + 1
        return True

    def get(self, key: bytes) -> i64:
        """The newest offset of the key, -1 if the map has none."""
        slot = self._find(blake2b(key, digest_size=DIGEST_BYTES).digest())
        value: i64 = self._offsets[slot]
        return NOT_FOUND if value == 0 else self._first_offset + value - 1

    def _find(self, digest: bytes) -> i64:
        """The slot of this digest, or the free one that it would take."""
        head, tail = HEAD.unpack_from(digest)
        slots = self._slots
        start: i64 = head
        slot = start % slots
        second: i64 = tail
        step = 1 + second % (slots - 1)
        while self._offsets[slot] != 0:
            place = slot * DIGEST_BYTES
            if self._digests[place : place + DIGEST_BYTES] == digest:
                return slot
            slot += step
            if slot >= slots:
                slot -= slots
        return slot

    def __repr__(self) -> str:
        return f"<KeyMap {self.count} keys of {self.capacity}>"


def memory_for(keys: int, load_factor: float, memory_bytes_max: int) -> int:
    """What a map for this many keys takes, as far as there is so much."""
    return min(int((keys + SLOTS_MIN) / load_factor + 1) * SLOT_BYTES, memory_bytes_max)


def prime_at_most(number: int) -> int:
    """With a prime number of slots every step leads past all of them."""
    candidate = number - 1 if number % 2 == 0 else number
    while not is_prime(candidate):
        candidate -= 2
    return candidate


def is_prime(number: int) -> bool:
    divisor = 3
    while divisor * divisor <= number:
        if number % divisor == 0:
            return False
        divisor += 2
    return True
