"""Codecs: round trips, foreign readers and writers, damaged input, and bombs that must not cost memory."""

import gzip
import resource
import struct
import tracemalloc
import zlib
from collections.abc import Callable

import cramjam
import pytest
from aiokafka import codec as aiokafka_codec
from hypothesis import given, settings
from hypothesis import strategies as st
from kafka import codec as kafka_python_codec

from ottla.base.errors import Error, KafkaError
from ottla.protocol.compression import (
    GZIP,
    GZIP_MEMBERS_MAX,
    LZ4,
    NONE,
    SNAPPY,
    XERIAL_HEADER,
    ZSTD,
    CompressionError,
    compress,
    decompress,
)

CODECS = [NONE, GZIP, SNAPPY, LZ4, ZSTD]
CAP = 1 << 24
TEXT = b"".join(b"line %d of a text that repeats itself; " % number for number in range(10_000))
ZSTD_FRAME_START = b"\x28\xb5\x2f\xfd\x00\x58"  # no content size, window of 2 MiB


def rss_peak_bytes() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def gzip_bomb() -> bytes:
    """A gigabyte in a megabyte: one compressed piece of zeros, again and again."""
    packer = zlib.compressobj(9, zlib.DEFLATED, -15)
    piece = packer.compress(bytes(1 << 24)) + packer.flush(zlib.Z_FULL_FLUSH)
    return b"\x1f\x8b\x08" + bytes(7) + piece * 64


def zstd_bomb() -> bytes:
    """A gigabyte in 32 KiB: blocks that say «128 KiB of one byte»."""
    block = ((128 << 10) << 3 | 1 << 1).to_bytes(3, "little") + b"\x00"
    return ZSTD_FRAME_START + block * 8192


def lz4_bomb() -> bytes:
    return compress(LZ4, bytes(1 << 26))


def snappy_bomb() -> bytes:
    block = bytes(cramjam.snappy.compress_raw(bytes(1 << 20)))
    return XERIAL_HEADER + (struct.pack(">i", len(block)) + block) * 20


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("data", [b"", b"x", TEXT, bytes(1 << 20)], ids=["nothing", "a byte", "text", "zeros"])
def test_what_was_compressed_comes_back(codec: int, data: bytes) -> None:
    assert decompress(codec, compress(codec, data), CAP) == data


@pytest.mark.parametrize("codec", CODECS)
def test_any_kind_of_buffer_may_be_compressed_and_decompressed(codec: int) -> None:
    for kind in (bytes, bytearray, memoryview):
        packed = compress(codec, kind(TEXT))
        assert decompress(codec, kind(packed), CAP) == TEXT


@given(data=st.binary(max_size=5000), codec=st.sampled_from(CODECS))
@settings(max_examples=100)
def test_any_bytes_come_back(data: bytes, codec: int) -> None:
    assert decompress(codec, compress(codec, data), CAP) == data


@pytest.mark.parametrize(("codec", "level"), [(GZIP, 1), (GZIP, 9), (LZ4, 1), (LZ4, 9), (ZSTD, 1), (ZSTD, 19)])
def test_a_level_may_be_chosen(codec: int, level: int) -> None:
    assert decompress(codec, compress(codec, TEXT, level), CAP) == TEXT


FOREIGN: list[tuple[int, Callable[[bytes], bytes], Callable[[bytes], bytes]]] = [
    (GZIP, kafka_python_codec.gzip_encode, kafka_python_codec.gzip_decode),
    (GZIP, aiokafka_codec.gzip_encode, aiokafka_codec.gzip_decode),
    (SNAPPY, aiokafka_codec.snappy_encode, aiokafka_codec.snappy_decode),
    (LZ4, aiokafka_codec.lz4_encode, aiokafka_codec.lz4_decode),
    (ZSTD, aiokafka_codec.zstd_encode, aiokafka_codec.zstd_decode),
]


@pytest.mark.parametrize(("codec", "encode", "decode"), FOREIGN, ids=["kafka-python", "gzip", "snappy", "lz4", "zstd"])
def test_other_clients_read_what_we_write_and_the_other_way_round(
    codec: int, encode: Callable[[bytes], bytes], decode: Callable[[bytes], bytes]
) -> None:
    assert bytes(decode(compress(codec, TEXT))) == TEXT
    assert decompress(codec, bytes(encode(TEXT)), CAP) == TEXT


def test_gzip_may_have_several_members_and_garbage_after_the_last() -> None:
    members = gzip.compress(b"one") + gzip.compress(b"two")
    assert decompress(GZIP, members, CAP) == b"onetwo"
    assert decompress(GZIP, members + b"garbage", CAP) == b"onetwo"
    assert decompress(GZIP, members + bytes(30), CAP) == b"onetwo"


def test_thousands_of_gzip_members_are_refused_before_they_cost_time() -> None:
    assert decompress(GZIP, gzip.compress(b"x") * GZIP_MEMBERS_MAX, CAP) == b"x" * GZIP_MEMBERS_MAX
    with pytest.raises(CompressionError, match="members"):
        decompress(GZIP, gzip.compress(b"x") * 50_000, CAP)


def test_snappy_is_written_with_javas_header_and_read_with_or_without_it() -> None:
    assert compress(SNAPPY, TEXT).startswith(XERIAL_HEADER)
    assert decompress(SNAPPY, bytes(cramjam.snappy.compress_raw(TEXT)), CAP) == TEXT


def test_lz4_is_written_with_independent_blocks_because_java_reads_no_others() -> None:
    assert compress(LZ4, TEXT)[4] & 0x20
    with pytest.raises(CompressionError, match="dependent"):
        decompress(LZ4, bytes(cramjam.lz4.compress(TEXT)), CAP)


def test_only_the_first_lz4_frame_counts_as_in_kafka() -> None:
    frame = compress(LZ4, b"first")
    assert decompress(LZ4, frame + b"garbage", CAP) == b"first"
    assert decompress(LZ4, frame + compress(LZ4, b"second"), CAP) == b"first"


def test_zstd_frames_may_follow_each_other() -> None:
    assert decompress(ZSTD, compress(ZSTD, b"one") + compress(ZSTD, b"two"), CAP) == b"onetwo"


def test_a_zstd_frame_may_lack_its_content_size() -> None:
    packer = cramjam.zstd.Compressor(level=3)
    packer.compress(TEXT)
    assert decompress(ZSTD, bytes(packer.finish()), CAP) == TEXT


@pytest.mark.parametrize("codec", CODECS[1:])
@pytest.mark.parametrize("size", [1000, 100_000, 3_000_000])
def test_exactly_the_cap_is_allowed_and_one_byte_more_is_not(codec: int, size: int) -> None:
    packed = compress(codec, bytes(size))
    assert len(decompress(codec, packed, size)) == size
    with pytest.raises(CompressionError):
        decompress(codec, packed, size - 1)


@pytest.mark.parametrize("codec", CODECS[1:])
@pytest.mark.parametrize("data", [b"", b"garbage garbage", b"\xff" * 100, bytes(100)], ids=["no", "a", "ff", "zero"])
def test_garbage_is_an_error_that_a_client_gets(codec: int, data: bytes) -> None:
    with pytest.raises(CompressionError) as caught:
        decompress(codec, data, CAP)
    assert caught.value.error is Error.INVALID_RECORD


@pytest.mark.parametrize("codec", [GZIP, LZ4, ZSTD])
def test_data_that_was_cut_anywhere_is_refused(codec: int) -> None:
    packed = compress(codec, TEXT[:3000])
    for length in range(len(packed)):
        with pytest.raises(CompressionError):
            decompress(codec, packed[:length], CAP)


@pytest.mark.parametrize(
    "block", [b"\x7f\xff\xff\xff\x05abc", b"\xff\xff\xff\xfb\x05abc", b"\x00\x00", b"\x00\x00\x00\x05a"]
)
def test_a_snappy_block_with_a_wrong_length_is_refused(block: bytes) -> None:
    with pytest.raises(CompressionError):
        decompress(SNAPPY, XERIAL_HEADER + block, CAP)


def test_a_few_bytes_of_snappy_that_claim_megabytes_are_not_made_room_for() -> None:
    claim = bytes([0x80, 0x80, 0x80, 0x20])  # 64 MiB
    tracemalloc.start()
    with pytest.raises(CompressionError, match="5 bytes claim to be 67108864"):
        decompress(SNAPPY, claim + b"\0", 1 << 30)
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert most < 1 << 20


@pytest.mark.parametrize("codec", [-1, 5, 6, 7])
def test_an_unknown_codec_is_unsupported(codec: int) -> None:
    with pytest.raises(KafkaError) as caught:
        compress(codec, b"x")
    assert caught.value.error is Error.UNSUPPORTED_COMPRESSION_TYPE
    with pytest.raises(KafkaError) as caught:
        decompress(codec, b"x", CAP)
    assert caught.value.error is Error.UNSUPPORTED_COMPRESSION_TYPE


BOMBS = [
    (GZIP, gzip_bomb),
    (ZSTD, zstd_bomb),
    (LZ4, lz4_bomb),
    (SNAPPY, snappy_bomb),
    (SNAPPY, lambda: b"\xff\xff\xff\xff\x07abc"),
    (SNAPPY, lambda: XERIAL_HEADER + struct.pack(">i", 8) + b"\xff\xff\xff\xff\x07abc"),
    (ZSTD, lambda: b"\x28\xb5\x2f\xfd\xe0" + b"\xff" * 8 + b"\x01\x00\x00"),  # claims 2^64 - 1 bytes of content
    (ZSTD, lambda: b"\x28\xb5\x2f\xfd\x00\xff" + b"\x01\x00\x00"),  # claims a window of terabytes
]


@pytest.mark.parametrize(
    ("codec", "make"),
    BOMBS,
    ids=["gzip", "zstd", "lz4", "snappy", "snappy claim", "snappy block claim", "zstd claim", "zstd window"],
)
def test_a_bomb_is_refused_and_costs_no_more_memory_than_the_cap(codec: int, make: Callable[[], bytes]) -> None:
    bomb = make()
    before = rss_peak_bytes()
    with pytest.raises(CompressionError):
        decompress(codec, bomb, CAP)
    assert rss_peak_bytes() - before < 3 * CAP
