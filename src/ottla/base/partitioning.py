"""The partition of an internal topic for a group or a transactional id, by Java's String.hashCode."""

from __future__ import annotations

from typing import Final

INT_MAX: Final = 0x7FFFFFFF
CACHE_SIZE_MAX: Final = 10_000
KEY_LENGTH_MAX: Final = 255  # longer keys are not cached, to bound the memory

_cache: dict[str, int] = {}


def partition_for(key: str, partition_count: int) -> int:
    """Called for every request of a member, so the hashes of short keys are cached."""
    value = _cache.get(key)
    if value is None:
        value = abs(java_hash(key)) & INT_MAX  # Kafka maps the smallest number to 0
        if len(key) <= KEY_LENGTH_MAX:
            if len(_cache) >= CACHE_SIZE_MAX:
                _cache.clear()
            _cache[key] = value
    return value % partition_count


def java_hash(text: str) -> int:
    """A signed 32-bit hash over UTF-16 units."""
    value = 0
    units = text.encode("utf-16-be", "surrogatepass")
    for position in range(0, len(units), 2):
        value = (31 * value + (units[position] << 8 | units[position + 1])) & 0xFFFFFFFF
    return value - (1 << 32) if value >= 1 << 31 else value
