"""Just enough of Kafka's wire protocol to measure brokers: frames built in advance, answers read with few steps.

It shares no code with ottla, so that a mistake there cannot hide itself here. Versions are fixed to some that
Apache Kafka 4 and every older broker since 2.4 answer: Produce 9, Fetch 12, ListOffsets 2, Metadata 4, CreateTopics 4,
DeleteTopics 3.
"""

import struct
from typing import NamedTuple

PRODUCE, FETCH, LIST_OFFSETS, METADATA, API_VERSIONS, CREATE_TOPICS, DELETE_TOPICS = 0, 1, 2, 3, 18, 19, 20
CLIENT_ID = b"bench"
REQUEST_TIMEOUT_MS = 60_000
FETCH_SESSION_FULL = (0, -1)  # session id 0, epoch -1: no fetch session

PRODUCE_ANSWER_ERROR = struct.Struct(">h")
FETCH_ANSWER_PARTITION = struct.Struct(">hqqq")  # error, high watermark, last stable offset, log start offset
FETCH_RECORDS_BYTES_MAX = 1 << 28  # the length of the records then takes at most four bytes


class Partition(NamedTuple):
    """One partition in a Metadata answer."""

    topic: str
    number: int
    leader: int


class FetchAnswer(NamedTuple):
    """Head of a Fetch answer: what a reader must know to go on."""

    error: int
    high_watermark: int
    records_bytes: int
    records_position: int


def produce_request(topic: str, partition: int, batch: bytes, acks: int = -1) -> bytes:
    head = b"\0" + struct.pack(">hi", acks, REQUEST_TIMEOUT_MS) + b"\2" + compact_string(topic)
    return frame(PRODUCE, 9, head + b"\2" + struct.pack(">i", partition) + compact_bytes(batch) + b"\0\0\0", True)


def produce_error_position(topic: str) -> int:
    """Where the error code stands in a Produce answer to one partition, counted from its correlation id."""
    return 4 + 1 + 1 + 1 + len(topic) + 1 + 4


def fetch_request(topic: str, partition: int, offset: int, bytes_max: int, wait_ms: int = 500) -> bytes:
    head = struct.pack(">iiiibii", -1, wait_ms, 1, bytes_max, 0, *FETCH_SESSION_FULL) + b"\2" + compact_string(topic)
    body = struct.pack(">iiqiqi", partition, -1, offset, -1, -1, bytes_max)
    return frame(FETCH, 12, head + b"\2" + body + b"\0\0\1\1\0", True)


def fetch_head_bytes(topic: str) -> int:
    """So many bytes after its size a Fetch answer to one partition has at least, and its head at most."""
    return _fetch_error_position(topic) + FETCH_ANSWER_PARTITION.size + 1 + 4 + 4


def read_fetch_head(answer: bytearray | memoryview, topic: str) -> FetchAnswer:
    """Reads the head of a Fetch answer that was asked for one partition; `answer` starts at the correlation id."""
    position = _fetch_error_position(topic)
    error, high_watermark, _, _ = FETCH_ANSWER_PARTITION.unpack_from(answer, position)
    position += FETCH_ANSWER_PARTITION.size
    if answer[position] > 1:  # more than null (0) and empty (1)
        raise ValueError("aborted transactions in a topic without any")
    position += 1 + 4  # aborted transactions, preferred read replica
    length, position = _read_unsigned_varint(answer, position)
    return FetchAnswer(error, high_watermark, max(0, length - 1), position)


def metadata_request(topics: list[str] | None) -> bytes:
    names = struct.pack(">i", -1) if topics is None else struct.pack(">i", len(topics)) + b"".join(map(string, topics))
    return frame(METADATA, 4, names + b"\0", False)  # creates no topics


def all_metadata_request(version: int) -> bytes:
    """Metadata of all topics, in a version before (4) or after (12) the flexible ones."""
    if version < 9:
        return metadata_request(None)
    return frame(METADATA, version, b"\0" + b"\0\0\0", True)  # null topics; create none, no operations; no tags


def read_metadata(answer: bytearray) -> tuple[int, list[Partition]]:
    """Number of brokers, and the partitions of all topics without an error."""
    reader = Reader(answer, 4 + 4)  # correlation id, throttle time
    brokers = reader.int32()
    for _ in range(brokers):
        reader.skip(4)
        reader.string()
        reader.skip(4)
        reader.string()
    reader.string()  # cluster id
    reader.skip(4)  # controller id
    partitions: list[Partition] = []
    for _ in range(reader.int32()):
        partitions += _read_metadata_topic(reader)
    return brokers, partitions


def list_offsets_request(partitions: dict[str, list[int]]) -> bytes:
    """Asks for the end offset of each of these partitions."""
    body = struct.pack(">ibi", -1, 0, len(partitions))
    for topic, numbers in partitions.items():
        body += string(topic) + struct.pack(">i", len(numbers))
        body += b"".join(struct.pack(">iq", number, -1) for number in numbers)
    return frame(LIST_OFFSETS, 2, body, False)


def read_list_offsets(answer: bytearray) -> dict[tuple[str, int], int]:
    """Error code per partition."""
    reader = Reader(answer, 4 + 4)
    errors = {}
    for _ in range(reader.int32()):
        topic = reader.string()
        for _ in range(reader.int32()):
            number = reader.int32()
            errors[topic, number] = reader.int16()
            reader.skip(8 + 8)  # timestamp, offset
    return errors


def api_versions_request() -> bytes:
    return frame(API_VERSIONS, 0, b"", False)


def create_topics_request(topics: dict[str, int], configs: dict[str, str]) -> bytes:
    """Topics by name with their number of partitions, one replica each."""
    settings = struct.pack(">i", len(configs)) + b"".join(
        string(name) + string(value) for name, value in configs.items()
    )
    entries = b"".join(string(name) + struct.pack(">ihi", count, 1, 0) + settings for name, count in topics.items())
    return frame(
        CREATE_TOPICS, 4, struct.pack(">i", len(topics)) + entries + struct.pack(">ib", REQUEST_TIMEOUT_MS, 0), False
    )


def read_create_topics(answer: bytearray) -> dict[str, int]:
    """Error code per topic."""
    reader = Reader(answer, 4 + 4)
    errors = {}
    for _ in range(reader.int32()):
        name = reader.string()
        errors[name] = reader.int16()
        reader.string()
    return errors


def delete_topics_request(topics: list[str]) -> bytes:
    body = struct.pack(">i", len(topics)) + b"".join(map(string, topics)) + struct.pack(">i", REQUEST_TIMEOUT_MS)
    return frame(DELETE_TOPICS, 3, body, False)


def unsigned_varint(value: int) -> bytes:
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)
    return bytes(out)


class Reader:
    """Walks over an answer of an older, not flexible version."""

    def __init__(self, buffer: bytearray, position: int) -> None:
        self.buffer = buffer
        self.position = position

    def __repr__(self) -> str:
        return f"<Reader at {self.position} of {len(self.buffer)}>"

    def skip(self, count: int) -> None:
        self.position += count

    def int16(self) -> int:
        self.position += 2
        return int(struct.unpack_from(">h", self.buffer, self.position - 2)[0])

    def int32(self) -> int:
        self.position += 4
        return int(struct.unpack_from(">i", self.buffer, self.position - 4)[0])

    def string(self) -> str:
        length = max(0, self.int16())
        self.position += length
        return self.buffer[self.position - length : self.position].decode()


def _read_metadata_topic(reader: Reader) -> list[Partition]:
    topic_error = reader.int16()
    name = reader.string()
    reader.skip(1)  # is internal
    partitions = []
    for _ in range(reader.int32()):
        reader.skip(2)
        index, leader = reader.int32(), reader.int32()
        reader.skip(4 * reader.int32())  # replicas
        reader.skip(4 * reader.int32())  # in-sync replicas
        partitions.append(Partition(name, index, leader))
    return partitions if topic_error == 0 else []


def frame(api_key: int, version: int, body: bytes, flexible: bool) -> bytes:
    header = struct.pack(">hhih", api_key, version, 1, len(CLIENT_ID)) + CLIENT_ID + (b"\0" if flexible else b"")
    return struct.pack(">i", len(header) + len(body)) + header + body


def _fetch_error_position(topic: str) -> int:
    # correlation id, tags, throttle time, error, session id, array, topic, array, partition index
    return 4 + 1 + 4 + 2 + 4 + 1 + 1 + len(topic) + 1 + 4


def string(text: str) -> bytes:
    return struct.pack(">h", len(text)) + text.encode()


def compact_string(text: str) -> bytes:
    return compact_bytes(text.encode())


def compact_bytes(data: bytes) -> bytes:
    return unsigned_varint(len(data) + 1) + data


def _read_unsigned_varint(buffer: bytearray | memoryview, position: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = buffer[position]
        position += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value, position
        shift += 7
