"""Which partition of an internal topic a group or a transactional id belongs to: by Java's String.hashCode."""

from __future__ import annotations

from typing import Final

INT_MAX: Final = 0x7FFFFFFF
REMEMBERED_MAX: Final = 10_000
KEY_LENGTH_MAX: Final = 255  # a longer one is worked out each time: what is remembered stays small

_remembered: dict[str, int] = {}


def partition_for(key: str, partition_count: int) -> int:
    """Every request of a member asks, so the hashes of short keys are remembered."""
    value = _remembered.get(key)
    if value is None:
        value = abs(java_hash(key)) & INT_MAX  # of the smallest number Kafka makes 0
        if len(key) <= KEY_LENGTH_MAX:
            if len(_remembered) >= REMEMBERED_MAX:
                _remembered.clear()
            _remembered[key] = value
    return value % partition_count


def java_hash(text: str) -> int:
    """A signed 32-bit number, made of UTF-16 units."""
    value = 0
    units = text.encode("utf-16-be", "surrogatepass")
    for position in range(0, len(units), 2):
        value = (31 * value + (units[position] << 8 | units[position + 1])) & 0xFFFFFFFF
    return value - (1 << 32) if value >= 1 << 31 else value
