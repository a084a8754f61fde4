"""The order in which a Java HashMap lists its keys.

Kafka's tools print topics and settings in this order. It means nothing, but it is stable, and with it our output is
the same as Kafka's, line by line.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

DEFAULT_CAPACITY = 16


def hash_map_order(keys: Collection[str], capacity: int = DEFAULT_CAPACITY) -> list[str]:
    """The keys, put in the given order into a map made with `capacity`, as the map would list them."""
    size = _table_size(max(capacity, 1))
    while len(keys) > size * 3 // 4:
        size *= 2
    return sorted(keys, key=lambda key: _spread(key) & (size - 1))  # stable: one bucket lists in order of insertion


def java_hash(text: Iterable[str]) -> int:
    """String.hashCode() as an unsigned number."""
    value = 0
    units = "".join(text).encode("utf-16-be")
    for high, low in zip(units[::2], units[1::2], strict=True):
        value = (31 * value + (high << 8 | low)) & 0xFFFFFFFF
    return value


def _spread(key: str) -> int:
    value = java_hash(key)
    return value ^ value >> 16


def _table_size(capacity: int) -> int:
    return 1 << (capacity - 1).bit_length()
