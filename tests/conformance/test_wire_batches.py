"""Record batches that lie: refused with Apache Kafka's code, and nothing of them is stored.

Where Apache Kafka 4.3.1 answers -1 (an unforeseen exception) a broker that names the fault is allowed, too.
"""

import contextlib
import zlib

import cramjam
import pytest
from tests.conformance.conftest import NewTopic
from tests.conformance.peer import Peer, produce_request
from tests.conformance.raw import ConnectionClosedError, assert_others_are_served, i32, uvarint, varint
from tests.conformance.raw_batches import (
    CONTROL,
    GZIP,
    LZ4,
    SNAPPY,
    TRANSACTIONAL,
    ZSTD,
    batch,
    compress,
    record,
)

pytestmark = pytest.mark.usefixtures("broker_stays_healthy")

CORRUPT_MESSAGE, MESSAGE_TOO_LARGE, INVALID_RECORD, UNSUPPORTED_COMPRESSION = 2, 10, 87, 76
INVALID_REQUIRED_ACKS, INVALID_TIMESTAMP = 21, 32
REFUSED_SOMEHOW = {-1, CORRUPT_MESSAGE, INVALID_RECORD}  # where Apache Kafka answers -1
INT32_MAX = 2**31 - 1
VALUE = b"v" * 3000
END_MARKER = record(b"\0\0\0\0\0\0", key=b"\0\0\0\1")

LIES = {
    "wrong CRC": (batch(crc=1), CORRUPT_MESSAGE),
    "no bytes": (b"", INVALID_RECORD),
    "header cut at 10": (batch()[:10], INVALID_RECORD),
    "header cut at 60": (batch()[:60], INVALID_RECORD),
    "last byte missing": (batch()[:-1], INVALID_RECORD),
    "length too long": (batch(length=1000), INVALID_RECORD),
    "length too short": (batch(length=55), CORRUPT_MESSAGE),
    "length of a header without records": (batch(length=49), CORRUPT_MESSAGE),
    "length 48, below a header": (batch(length=48), CORRUPT_MESSAGE),
    "length 0": (batch(length=0), CORRUPT_MESSAGE),
    "length -1": (batch(length=-1), CORRUPT_MESSAGE),
    "length 2147483647": (batch(length=INT32_MAX), REFUSED_SOMEHOW),
    "count and delta too high": (batch(record_count=2, last_offset_delta=1), INVALID_RECORD),
    "count too high": (batch(record_count=2), INVALID_RECORD),
    "count 0": (batch(record_count=0), INVALID_RECORD),
    "count -1": (batch(record_count=-1), INVALID_RECORD),
    "count 2147483647": (batch(record_count=INT32_MAX), INVALID_RECORD),
    "count and delta huge": (batch(record_count=INT32_MAX, last_offset_delta=INT32_MAX - 1), INVALID_RECORD),
    "count too low": (batch([b"a", b"b"], record_count=1, last_offset_delta=0), INVALID_RECORD),
    "last offset delta too high": (batch(last_offset_delta=5), INVALID_RECORD),
    "last offset delta -1": (batch(last_offset_delta=-1), INVALID_RECORD),
    "magic 0": (batch(magic=0), INVALID_RECORD),
    "magic 1": (batch(magic=1), INVALID_RECORD),
    "magic 3": (batch(magic=3), CORRUPT_MESSAGE),
    "magic -1": (batch(magic=-1), CORRUPT_MESSAGE),
    "no records": (batch(records=[], last_offset_delta=0), INVALID_RECORD),
    "no records, delta -1": (batch(records=[]), INVALID_RECORD),
    "record longer than the batch": (batch(records=[record(b"abc", length=200)]), INVALID_RECORD),
    "record shorter than its fields": (batch(records=[record(b"abc", length=3)]), INVALID_RECORD),
    "record length -1": (batch(records=[record(b"abc", length=-1)]), INVALID_RECORD),
    "record length 2147483647": (batch(records=[record(b"abc", length=INT32_MAX)]), INVALID_RECORD),
    "record length in 6 bytes": (batch(records=[b"\xff\xff\xff\xff\xff\x01" + b"\0" * 20]), REFUSED_SOMEHOW),
    "key past the end": (batch(records=[record(b"abc", key=b"k", key_length=1000)]), INVALID_RECORD),
    "key length -2": (batch(records=[record(b"abc", key=b"k", key_length=-2)]), INVALID_RECORD),
    "header count 2^30": (batch(records=[record(b"abc", header_count=2**30)]), INVALID_RECORD),
    "header count one too high": (batch(records=[record(b"abc", header_count=1)]), INVALID_RECORD),
    "header count -1": (batch(records=[record(b"abc", header_count=-1)]), INVALID_RECORD),
    "null header name": (batch(records=[record(b"abc", header_count=1) + varint(-1) + varint(-1)]), INVALID_RECORD),
    "bytes behind the last record": (
        batch(records=[record(b"a"), b"xxxx"], record_count=1, last_offset_delta=0),
        INVALID_RECORD,
    ),
    "base offset 1000": (batch(base_offset=1000), INVALID_RECORD),
    "two batches": (batch() + batch(), INVALID_RECORD),
    "producer id without a sequence": (batch(producer_id=5, producer_epoch=0), INVALID_RECORD),
    "timestamp far in the future": (batch(timestamp=2**62), INVALID_TIMESTAMP),
    "larger than max.message.bytes": (batch([b"x" * 1048600]), MESSAGE_TOO_LARGE),
    "control batch": (batch(attributes=CONTROL, records=[END_MARKER]), INVALID_RECORD),
    "codec 5": (batch(attributes=5), REFUSED_SOMEHOW | {UNSUPPORTED_COMPRESSION}),
    "codec 6": (batch(attributes=6), REFUSED_SOMEHOW | {UNSUPPORTED_COMPRESSION}),
    "codec 7": (batch(attributes=7), REFUSED_SOMEHOW | {UNSUPPORTED_COMPRESSION}),
    "offset deltas repeated inside gzip": (
        batch(records=[record(b"a"), record(b"b")], codec=GZIP),
        REFUSED_SOMEHOW,
    ),
    "snappy chunk of 2147483647": (batch(codec=SNAPPY, compressed=uvarint(INT32_MAX) + b"\0" * 20), REFUSED_SOMEHOW),
    "snappy framed chunk of 2147483647": (
        batch(codec=SNAPPY, compressed=b"\x82SNAPPY\0" + i32(1) + i32(1) + i32(INT32_MAX) + b"\0" * 20),
        REFUSED_SOMEHOW,
    ),
}

CODECS = {"gzip": GZIP, "snappy": SNAPPY, "lz4": LZ4, "zstd": ZSTD}
NEVER_A_TRANSACTION = {15, 16, 19, 48, 49, 53, INVALID_RECORD}


def assert_refused(bootstrap: str, topic: str, records: bytes, allowed: int | set[int]) -> None:
    codes = {allowed} if isinstance(allowed, int) else allowed
    with Peer(bootstrap) as peer:
        answer = peer.produce(topic, records)
        assert answer.error_code in codes, answer
        assert answer.base_offset == -1
        assert_others_are_served(bootstrap)
        assert peer.end_offset(topic) == 0, "nothing is stored"


@pytest.mark.parametrize("name", LIES)
def test_a_batch_that_lies_is_refused_and_not_stored(bootstrap: str, lies_topic: str, name: str) -> None:
    assert_refused(bootstrap, lies_topic, *LIES[name])


@pytest.fixture(scope="module")
def lies_topic(bootstrap: str, topic_names: object) -> str:
    """One topic for all refusals: it stays empty to the end."""
    assert callable(topic_names)
    name = str(topic_names())
    with Peer(bootstrap) as peer:
        peer.create_topic(name)
    return name


@pytest.mark.parametrize("codec", CODECS.values(), ids=CODECS)
def test_compressed_garbage_is_refused(bootstrap: str, lies_topic: str, codec: int) -> None:
    packed = compress(codec, record(VALUE))
    for compressed in (b"garbage here" * 3, b"", packed[:-8], packed[: len(packed) // 2]):
        assert_refused(bootstrap, lies_topic, batch(codec=codec, compressed=compressed), REFUSED_SOMEHOW)


@pytest.mark.parametrize("codec", CODECS.values(), ids=CODECS)
def test_a_wrong_record_count_is_found_inside_compressed_data(bootstrap: str, lies_topic: str, codec: int) -> None:
    assert_refused(bootstrap, lies_topic, batch(codec=codec, record_count=3, last_offset_delta=2), INVALID_RECORD)


def test_a_snappy_stream_in_the_framing_of_java_is_accepted(peer: Peer, topic: str) -> None:
    chunk = compress(SNAPPY, record(b"value"))
    framed = b"\x82SNAPPY\0" + i32(1) + i32(1) + i32(len(chunk)) + chunk
    assert peer.produce(topic, batch(codec=SNAPPY, compressed=framed)).error_code == 0
    assert peer.end_offset(topic) == 1


def bomb(compressor: object, size: int) -> bytes:
    """One record of zeros, compressed piece by piece."""
    assert hasattr(compressor, "compress")
    head = b"\0" + varint(0) + varint(0) + varint(-1) + varint(size)
    pieces = (varint(len(head) + size + 1) + head, *[bytes(1 << 20)] * (size >> 20), varint(0))
    output = [compressor.compress(piece) for piece in pieces]
    return b"".join(piece for piece in output if isinstance(piece, bytes))


def gzip_bomb() -> bytes:
    compressor = zlib.compressobj(6, zlib.DEFLATED, 31)
    return bomb(compressor, 512 << 20) + compressor.flush()


def zstd_bomb() -> bytes:
    compressor = cramjam.zstd.Compressor()
    bomb(compressor, 1 << 30)
    return bytes(compressor.finish())


@pytest.mark.parametrize("codec", [GZIP, ZSTD], ids=["gzip 512 MiB", "zstd 1 GiB"])
def test_a_decompression_bomb_does_not_grow_the_broker(bootstrap: str, broker: object, topic: str, codec: int) -> None:
    """Apache Kafka accepts such a record, however large it is unpacked; ottla caps what it unpacks."""
    compressed = gzip_bomb() if codec == GZIP else zstd_bomb()
    assert len(compressed) < 1 << 20
    allowed = {CORRUPT_MESSAGE, MESSAGE_TOO_LARGE, INVALID_RECORD, UNSUPPORTED_COMPRESSION}
    with Peer(bootstrap) as peer:
        peer.send(request := produce_request(topic, batch(codec=codec, compressed=compressed)), 12)
        assert_others_are_served(bootstrap)
        answer = peer.receive(request).responses[0].partition_responses[0]
        assert answer.error_code in (allowed if broker else allowed | {0})


@pytest.mark.parametrize("acks", [2, -2, 100])
def test_acks_other_than_0_1_and_all_are_refused(bootstrap: str, topic: str, acks: int) -> None:
    with Peer(bootstrap) as peer:
        assert peer.produce(topic, batch(), acks=acks).error_code == INVALID_REQUIRED_ACKS
        assert peer.end_offset(topic) == 0


@pytest.mark.parametrize("is_control", [False, True], ids=["records", "marker"])
@pytest.mark.parametrize("transactional_id", [None, "foreign"])
def test_a_transactional_batch_without_its_transaction_is_refused(
    bootstrap: str, topic: str, transactional_id: str | None, is_control: bool
) -> None:
    attributes = TRANSACTIONAL | (CONTROL if is_control else 0)
    records = [END_MARKER] if is_control else [record(b"value")]
    data = batch(records=records, attributes=attributes, producer_id=99999, producer_epoch=0, base_sequence=0)
    with Peer(bootstrap) as peer:
        answer = peer.ask(produce_request(topic, data, transactional_id=transactional_id), 12)
        assert answer.responses[0].partition_responses[0].error_code in NEVER_A_TRANSACTION
        assert peer.end_offset(topic) == 0


@pytest.mark.needs_ottla
def test_a_partition_without_records_is_refused(bootstrap: str, topic: str) -> None:
    """Apache Kafka never answers this one; ottla may close or refuse."""
    with Peer(bootstrap) as peer, contextlib.suppress(ConnectionClosedError):
        assert peer.produce(topic, None).error_code in {CORRUPT_MESSAGE, INVALID_RECORD, 42}
    with Peer(bootstrap) as peer:
        assert peer.end_offset(topic) == 0


@pytest.mark.parametrize("codec", [0, *CODECS.values()], ids=["none", *CODECS])
def test_a_compacted_topic_refuses_records_without_a_key(peer: Peer, new_topic: NewTopic, codec: int) -> None:
    topic = new_topic(cleanup_policy="compact")
    answer = peer.produce(topic, batch(records=[record(b"a", 0, key=b"k"), record(b"b", 1)], codec=codec))
    cause = f"Compacted topic cannot accept message without key in topic partition {topic}-0"
    assert answer.error_code == INVALID_RECORD
    assert [(row.batch_index, row.batch_index_error_message) for row in answer.record_errors] == [(1, cause)]
    assert answer.error_message == (
        "One or more records have been rejected due to 1 record errors in total, and only showing the first "
        f"three errors at most: [RecordError(batchIndex=1, message='{cause}')]"
    )
    assert peer.produce(topic, batch(key=b"k", codec=codec)).error_code == 0
    assert peer.end_offset(topic) == 1
