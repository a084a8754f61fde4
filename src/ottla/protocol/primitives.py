"""Functions that generated codecs call outside of the fast path: long varints, tagged fields, errors."""

from __future__ import annotations

import struct
from types import TracebackType
from typing import Final
from uuid import UUID, SafeUUID

# A few bytes of a frame per item could create tens of millions of objects of 60 bytes or more each. So this is the
# limit of array items and tagged fields in one message. A request for 100,000 partitions has that many.
ITEMS_MAX: Final = 1_000_000
# Responses may be larger: 1,000,000 partitions with three replicas each are 7,000,000 items.
ANSWER_ITEMS_MAX: Final = 20_000_000
TAGS_MAX: Final = 1_000  # in one struct
STRING_BYTES_MAX: Final = 32_767  # even if the length is a varint, as in Kafka
CACHED_UUIDS_MAX: Final = 10_000

ENCODE_ERRORS: Final = (struct.error, TypeError, AttributeError, ValueError, OverflowError)
DECODE_ERRORS: Final = (struct.error, IndexError, ValueError)

_uuids: dict[bytes, UUID] = {}
# The UUID constructor takes 800 ns. Set its two slots directly, as the constructor does after validation.
_set_uuid_int = UUID.int.__set__  # type: ignore[attr-defined,misc]
_set_uuid_is_safe = UUID.is_safe.__set__  # type: ignore[attr-defined,misc]


class ProtocolError(ValueError):
    """Bytes that are not a valid message, or a message that cannot be encoded."""


def long_uvarint(buffer: memoryview, position: int, first: int) -> tuple[int, int]:
    """Return the rest of an unsigned varint whose first byte had its continuation bit set; (value, position after)."""
    second = buffer[position]
    if second < 0x80:  # most lengths of record batches end here or at the next byte
        return first & 0x7F | second << 7, position + 1
    third = buffer[position + 1]
    value = first & 0x7F | (second & 0x7F) << 7 | (third & 0x7F) << 14
    if third < 0x80:
        return value, position + 2
    fourth = buffer[position + 2]
    value |= (fourth & 0x7F) << 21
    if fourth < 0x80:
        return value, position + 3
    fifth = buffer[position + 3]
    if fifth > 0x0F:
        raise ProtocolError("varint longer than 5 bytes" if fifth > 0x7F else "varint above 32 bits")
    return value | fifth << 28, position + 4


def read_uvarint(buffer: memoryview, position: int) -> tuple[int, int]:
    first = buffer[position]
    return (first, position + 1) if first < 0x80 else long_uvarint(buffer, position + 1, first)


def uvarint(value: int) -> bytes:
    """Return an unsigned varint as bytes."""
    if value < 0x80:
        return bytes((value,))
    if value < 0x4000:
        return bytes((value & 0x7F | 0x80, value >> 7))
    if value < 0x20_0000:
        return bytes((value & 0x7F | 0x80, value >> 7 & 0x7F | 0x80, value >> 14))
    return bytes((value & 0x7F | 0x80, value >> 7 & 0x7F | 0x80, value >> 14 & 0x7F | 0x80)) + uvarint(value >> 21)


def read_tag_count(buffer: memoryview, position: int, first: int, room: int) -> tuple[int, int, int]:
    """Return the number of tagged fields; (count, position after, how many more items are allowed)."""
    count = first
    if first > 0x7F:
        count, position = long_uvarint(buffer, position, first)
    if count > TAGS_MAX:
        raise ProtocolError(f"{count} tagged fields, at most {TAGS_MAX} are read")
    if count > room:
        raise too_many_items()
    return count, position, room - count


def read_tag(buffer: memoryview, position: int, end: int, seen: set[int]) -> tuple[int, int, int]:
    """Return the head of one tagged field; (tag, size of its value, position of its value)."""
    tag, position = read_uvarint(buffer, position)
    size, position = read_uvarint(buffer, position)
    if tag in seen:
        raise ProtocolError(f"tag {tag} comes twice")
    if size > end - position:
        raise too_short(size, end - position)
    seen.add(tag)
    return tag, size, position


def skip_tags(buffer: memoryview, position: int, end: int, first: int, room: int) -> tuple[int, int]:
    """Skip the tagged fields of a struct that has none; (position after, how many more items are allowed)."""
    count, position, room = read_tag_count(buffer, position, first, room)
    seen: set[int] = set()
    for _ in range(count):
        _, size, position = read_tag(buffer, position, end, seen)
        position += size
    return position, room


def write_tags(out: bytearray, tags: list[tuple[int, bytearray]]) -> None:
    out += uvarint(len(tags))
    for tag, value in tags:
        out += uvarint(tag) + uvarint(len(value))
        out += value


def cache_uuid(raw: bytes) -> UUID:
    """Return a UUID that is not cached yet; topic ids repeat with every request."""
    made = UUID.__new__(UUID)
    _set_uuid_int(made, int.from_bytes(raw, "big"))
    _set_uuid_is_safe(made, SafeUUID.unknown)
    if len(_uuids) >= CACHED_UUIDS_MAX:
        _uuids.clear()
    _uuids[raw] = made
    return made


cached_uuid = _uuids.get


def too_short(announced: int, left: int) -> ProtocolError:
    return ProtocolError(f"{announced} bytes announced, {max(left, 0)} left")


def too_many(count: int, least_bytes: int, left: int) -> ProtocolError:
    return ProtocolError(f"{count} items of {least_bytes} or more bytes announced, {max(left, 0)} bytes left")


def too_many_items() -> ProtocolError:
    return ProtocolError("more items than one message may have")


def too_long(announced: int) -> ProtocolError:
    return ProtocolError(f"string of {announced} bytes, at most {STRING_BYTES_MAX} are allowed")


def truncate_string(text: bytes) -> bytes:
    """Truncate a text that is too long for a string, at a character boundary."""
    return text[:STRING_BYTES_MAX].decode(errors="ignore").encode()


def invalid_length(length: int) -> ProtocolError:
    return ProtocolError("null in a field that cannot be null" if length == -1 else f"negative length {length}")


def wrong_tag_size() -> ProtocolError:
    return ProtocolError("tagged field is not as long as it says")


def reason_of(error: BaseException) -> str:
    """Return the reason of a codec's failure, in few words."""
    if isinstance(error, ProtocolError):
        return str(error)
    if isinstance(error, UnicodeDecodeError):
        return "not UTF-8"
    if isinstance(error, IndexError) or str(error).startswith("unpack_from"):
        return "the bytes end too early"
    return f"cannot be written: {error}"


def line_of(traceback: TracebackType | None) -> int:
    return traceback.tb_lineno if traceback is not None else 0
