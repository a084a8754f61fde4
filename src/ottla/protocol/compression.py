"""The codecs of record batches, with a limit on the decompressed size.

A few kilobytes may decompress to gigabytes: every decoder here stops at `output_bytes_max` and never allocates memory
only because the input requests it. Data that Kafka's own readers cannot read is rejected, because it would stay
unreadable in the log: an LZ4 frame must have independent blocks, and only the first frame is read.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable
from typing import Final

import cramjam

from ottla.base.errors import Error, KafkaError

NONE: Final = 0
GZIP: Final = 1
SNAPPY: Final = 2
LZ4: Final = 3
ZSTD: Final = 4
CODEC_NAMES: Final = ("none", "gzip", "snappy", "lz4", "zstd")

GZIP_MAGIC: Final = b"\x1f\x8b"
GZIP_WINDOW_BITS: Final = 31  # zlib's number for the gzip container
GZIP_MEMBERS_MAX: Final = 64  # each further member copies the rest of the input

SNAPPY_RATIO_MAX: Final = 22  # a copy of 64 bytes takes three
# Java's snappy streams: this header, then blocks with a length prefix. Other clients send one raw block.
XERIAL_MAGIC: Final = b"\x82SNAPPY\x00"
XERIAL_HEADER: Final = XERIAL_MAGIC + struct.pack(">ii", 1, 1)
XERIAL_BLOCK_BYTES: Final = 32 * 1024

LZ4_MAGIC: Final = b"\x04\x22\x4d\x18"
LZ4_INDEPENDENT: Final = 0x20
LZ4_BLOCK_CHECKSUM: Final = 0x10
LZ4_CONTENT_SIZE: Final = 0x08
LZ4_CONTENT_CHECKSUM: Final = 0x04
LZ4_LEVEL: Final = 1  # the fast compressor
LZ4_LEVEL_OF_KAFKA: Final = 9  # the default; it means the fast compressor, every other level the high-compression one
LZ4_LEVEL_MIN: Final = 3  # of the high-compression compressor
LZ4_LEVEL_MAX: Final = 12
ZSTD_LEVEL: Final = 3
# From these levels on a megabyte takes tens of milliseconds.
SLOW_LEVELS: Final = {GZIP: 7, LZ4: LZ4_LEVEL_MIN, ZSTD: 7}

FIRST_GUESS_RATIO: Final = 8  # most data compresses less than this
FIRST_GUESS_BYTES_MIN: Final = 64 * 1024
NEXT_GUESS_FACTOR: Final = 4
OUTPUT_FULL: Final = "write whole buffer"  # the error of Rust's standard library when the output buffer is full

Data = bytes | bytearray | memoryview


class CompressionError(KafkaError):
    """The bytes are not valid for their codec, or exceed the caller's limit."""

    def __init__(self, message: str) -> None:
        super().__init__(Error.INVALID_RECORD, message)


def compress(codec: int, data: Data, level: int | None = None) -> bytes:
    """Return the data as a producer would compress it with this codec (0-4); no level means the codec's default."""
    if codec == NONE:
        return bytes(data)
    if codec == GZIP:
        return zlib.compress(data, -1 if level is None else level, GZIP_WINDOW_BITS)
    if codec == SNAPPY:
        return _compress_xerial(memoryview(data))
    if codec == LZ4:
        return _compress_lz4(data, LZ4_LEVEL if level is None else level)
    if codec == ZSTD:
        return bytes(cramjam.zstd.compress(data, level=ZSTD_LEVEL if level is None else level))
    raise unknown_codec(codec)


def library_level(codec: int, kafka_level: int) -> int:
    """Return the library's level for a level of a Kafka setting."""
    if codec != LZ4:
        return kafka_level
    return LZ4_LEVEL if kafka_level == LZ4_LEVEL_OF_KAFKA else max(LZ4_LEVEL_MIN, min(kafka_level, LZ4_LEVEL_MAX))


def is_slow(codec: int, level: int) -> bool:
    """Return whether compressing takes much longer than writing the result."""
    return level >= SLOW_LEVELS.get(codec, level + 1)


def decompress(codec: int, data: Data, output_bytes_max: int) -> bytes:
    """Return the original bytes. Raises CompressionError if they are corrupt or more than `output_bytes_max`."""
    if codec == NONE:
        return bytes(data)
    if codec == GZIP:
        return _decompress_gzip(data, output_bytes_max)
    if codec == SNAPPY:
        return _decompress_snappy(memoryview(data), output_bytes_max)
    if codec == LZ4:
        frame = memoryview(data)[: _lz4_frame_end(data)]
        return _decompress_into(LZ4, cramjam.lz4.decompress_into, frame, output_bytes_max)
    if codec == ZSTD:
        return _decompress_into(ZSTD, cramjam.zstd.decompress_into, data, output_bytes_max)
    raise unknown_codec(codec)


def unknown_codec(codec: int) -> KafkaError:
    return KafkaError(Error.UNSUPPORTED_COMPRESSION_TYPE, f"Unknown compression type id: {codec}")


def _decompress_gzip(data: Data, output_bytes_max: int) -> bytes:
    """Decompress member after member; bytes after the last one are ignored, as in Java's reader."""
    parts: list[bytes] = []
    room = output_bytes_max
    rest = data
    for _ in range(GZIP_MEMBERS_MAX):
        member = zlib.decompressobj(GZIP_WINDOW_BITS)
        try:
            part = member.decompress(rest, room + 1)
        except zlib.error as problem:
            raise CompressionError(f"corrupt gzip data: {problem}") from None
        room -= len(part)
        if room < 0:
            raise _too_large(GZIP, output_bytes_max)
        if not member.eof:
            raise CompressionError("corrupt gzip data: it ends too early")
        parts.append(part)
        rest = member.unused_data
        if not rest.startswith(GZIP_MAGIC):
            return b"".join(parts)
    raise CompressionError(f"gzip data with more than {GZIP_MEMBERS_MAX} members")


def _decompress_snappy(data: memoryview, output_bytes_max: int) -> bytes:
    if bytes(data[: len(XERIAL_MAGIC)]) != XERIAL_MAGIC:
        return _decompress_snappy_block(data, output_bytes_max)
    parts: list[bytes] = []
    room = output_bytes_max
    position = len(XERIAL_HEADER)
    while position < len(data):
        block_bytes = int.from_bytes(data[position : position + 4], "big")
        position += 4
        if block_bytes > len(data) - position:
            raise CompressionError(f"corrupt snappy data: a block claims {block_bytes} bytes")
        parts.append(_decompress_snappy_block(data[position : position + block_bytes], room))
        room -= len(parts[-1])
        position += block_bytes
    return b"".join(parts)


def _decompress_snappy_block(block: memoryview, output_bytes_max: int) -> bytes:
    try:
        size = cramjam.snappy.decompress_raw_len(block)
        if size > output_bytes_max:
            raise _too_large(SNAPPY, output_bytes_max)
        if size > SNAPPY_RATIO_MAX * len(block):
            raise CompressionError(f"corrupt snappy data: {len(block)} bytes claim to be {size}")
        return bytes(cramjam.snappy.decompress_raw(block, output_len=size))
    except cramjam.DecompressionError as problem:
        raise CompressionError(f"corrupt snappy data: {problem}") from None


def _compress_xerial(data: memoryview) -> bytes:
    parts = [XERIAL_HEADER]
    for start in range(0, len(data), XERIAL_BLOCK_BYTES):
        block = bytes(cramjam.snappy.compress_raw(data[start : start + XERIAL_BLOCK_BYTES]))
        parts.append(len(block).to_bytes(4, "big"))
        parts.append(block)
    return b"".join(parts)


def _compress_lz4(data: Data, level: int) -> bytes:
    compressor = cramjam.lz4.Compressor(level=level, content_checksum=False, block_linked=False)
    compressor.compress(bytes(data))
    return bytes(compressor.finish())


def _lz4_frame_end(data: Data) -> int:
    """Return the end of the first frame, found by its block lengths."""
    if len(data) < 7 or bytes(data[:4]) != LZ4_MAGIC:
        raise CompressionError("corrupt lz4 data: no frame header")
    flags = data[4]
    if not flags & LZ4_INDEPENDENT:
        raise CompressionError("lz4 data with dependent blocks, which consumers cannot read")
    position = 15 if flags & LZ4_CONTENT_SIZE else 7
    checksum_bytes = 4 if flags & LZ4_BLOCK_CHECKSUM else 0
    while position + 4 <= len(data):
        block_bytes = int.from_bytes(data[position : position + 4], "little") & 0x7FFFFFFF
        position += 4
        if block_bytes == 0:
            return position + (4 if flags & LZ4_CONTENT_CHECKSUM else 0)
        position += block_bytes + checksum_bytes
    raise CompressionError("corrupt lz4 data: it ends too early")


def _decompress_into(codec: int, decoder: Callable[[Data, bytearray], int], data: Data, output_bytes_max: int) -> bytes:
    """Decode into a buffer of a guessed size, and retry with a larger one up to the limit."""
    size = max(FIRST_GUESS_BYTES_MIN, len(data) * FIRST_GUESS_RATIO)
    while True:
        size = min(size, output_bytes_max)
        output = bytearray(size)
        try:
            return bytes(memoryview(output)[: decoder(data, output)])
        except cramjam.DecompressionError as problem:
            if OUTPUT_FULL not in str(problem):
                raise CompressionError(f"corrupt {CODEC_NAMES[codec]} data: {problem}") from None
        if size == output_bytes_max:
            raise _too_large(codec, output_bytes_max)
        size *= NEXT_GUESS_FACTOR


def _too_large(codec: int, output_bytes_max: int) -> CompressionError:
    return CompressionError(f"{CODEC_NAMES[codec]} data yields more than {output_bytes_max} bytes")
