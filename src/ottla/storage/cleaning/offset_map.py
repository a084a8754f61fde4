"""The newest offset of each key, in memory of fixed size. Compiled with mypyc.

A key is represented by two 64-bit hashes, of the key alone and of the key after a secret salt. The hash is Python's
SipHash, whose key is random in each process, so clients cannot choose colliding keys. A slot has 20 bytes: 16 for
the hashes and 4 for the offset relative to the first one. Collisions are resolved by double hashing: a table with a
load of 0.9 needs about ten probes.
"""

from __future__ import annotations

from secrets import token_bytes
from typing import Final

from librt.vecs import vec
from mypy_extensions import i32, i64

SLOT_BYTES: Final = 20
SLOTS_MIN: Final = 11
RELATIVE_OFFSET_MAX: Final = 2**31 - 2
NOT_FOUND: Final = -1
POSITIVE: Final = 2**63 - 1
SALT: Final = token_bytes(16)


class OffsetMap:
    """A map from keys to offsets. Call put() in the order of offsets, then get()."""

    def __init__(self, memory_bytes: int, load_factor: float, first_offset: int) -> None:
        slots = prime_at_most(max(memory_bytes // SLOT_BYTES, SLOTS_MIN))
        self._slots: i64 = slots
        self._hashes = vec[i64]([0] * slots)
        self._salted = vec[i64]([0] * slots)
        self._offsets = vec[i32]([0] * slots)  # 0 marks a free slot
        self._first_offset: i64 = first_offset
        self.count = 0
        self.capacity = max(1, min(int(slots * load_factor), slots - 1))

    def put(self, key: bytes, offset: i64) -> bool:
        """Set the offset of a key; false if the map is full."""
        relative_offset: i64 = offset - self._first_offset
        if self.count >= self.capacity or relative_offset > RELATIVE_OFFSET_MAX:
            return False
        key_hash: i64 = hash(key)
        salted: i64 = hash(SALT + key)
        slot = self._find(key_hash, salted)
        if self._offsets[slot] == 0:
            self._hashes[slot] = key_hash
            self._salted[slot] = salted
            self.count += 1
        self._offsets[slot] = i32(relative_offset + 1)
        return True

    def get(self, key: bytes) -> i64:
        """Return the newest offset of the key, -1 if it is unknown."""
        value: i64 = i64(self._offsets[self._find(hash(key), hash(SALT + key))])
        return NOT_FOUND if value == 0 else self._first_offset + value - 1

    def _find(self, key_hash: i64, salted: i64) -> i64:
        """Return the slot of this key, or the free slot for it."""
        slots = self._slots
        slot: i64 = (key_hash & POSITIVE) % slots
        step: i64 = 1 + (salted & POSITIVE) % (slots - 1)
        while self._offsets[slot] != 0:
            if self._hashes[slot] == key_hash and self._salted[slot] == salted:
                return slot
            slot += step
            if slot >= slots:
                slot -= slots
        return slot

    def __repr__(self) -> str:
        return f"<OffsetMap {self.count} keys of {self.capacity}>"


def memory_for(keys: int, load_factor: float, memory_bytes_max: int) -> int:
    """Return the memory for a map of this many keys, at most the limit."""
    return min(int((keys + SLOTS_MIN) / load_factor + 1) * SLOT_BYTES, memory_bytes_max)


def prime_at_most(number: int) -> int:
    """Return a prime number of slots, with which every step size visits all slots."""
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
