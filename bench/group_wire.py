"""Requests of groups and transactions, like those of wire.py: built in advance, with cheap parsing of answers.

The versions are the last without tagged fields, which Apache Kafka 4 still answers: FindCoordinator 2, JoinGroup 5,
SyncGroup 3, Heartbeat 3, OffsetCommit 7, OffsetFetch 5, InitProducerId 1. Transactions speak version 2 of their
protocol, as the clients of Apache Kafka 4 do: Produce 12 and EndTxn 5.
"""

import struct
from typing import NamedTuple

from crc32c import crc32c

from bench import wire
from bench.batches import BATCH_BODY, BATCH_HEAD, record_of

GROUP, TRANSACTION = 0, 1
FIND_COORDINATOR, JOIN_GROUP, HEARTBEAT, SYNC_GROUP, OFFSET_COMMIT, OFFSET_FETCH = 10, 11, 12, 14, 8, 9
INIT_PRODUCER_ID, END_TXN, CONSUMER_GROUP_HEARTBEAT = 22, 26, 68
PROTOCOL_TYPE, PROTOCOL, METADATA = "consumer", "range", b"\0\0\0\0\0\1\0\1t\xff\xff\xff\xff"
NO_STRING = b"\xff\xff"
TRANSACTIONAL = 16
ERROR = struct.Struct(">h")
ERROR_POSITION = 4 + 4  # after correlation id and throttle time


class Joined(NamedTuple):
    """A JoinGroup answer; only the leader gets `members`."""

    error: int
    generation: int
    leader: str
    member_id: str
    members: list[str]


class Identity(NamedTuple):
    """The identity of a transactional producer."""

    producer_id: int
    epoch: int


def find_coordinator_request(key: str, kind: int) -> bytes:
    return wire.frame(FIND_COORDINATOR, 2, wire.string(key) + struct.pack(">b", kind), False)


def join_request(group: str, member_id: str, session_ms: int) -> bytes:
    body = wire.string(group) + struct.pack(">ii", session_ms, session_ms) + wire.string(member_id) + NO_STRING
    body += wire.string(PROTOCOL_TYPE) + struct.pack(">i", 1) + wire.string(PROTOCOL) + _bytes(METADATA)
    return wire.frame(JOIN_GROUP, 5, body, False)


def pattern_heartbeat_request(group: str, member_id: str, pattern: str) -> bytes:
    """The first heartbeat of a member of the new protocol, version 1."""
    body = wire.compact_string(group) + wire.compact_string(member_id) + struct.pack(">i", 0)
    body += b"\0\0" + struct.pack(">i", 300_000)  # no instance, no rack
    body += b"\0" + wire.compact_string(pattern) + b"\0" + b"\1\0"  # no names, no assignor, nothing owned
    return wire.frame(CONSUMER_GROUP_HEARTBEAT, 1, body, True)


def read_heartbeat_error(answer: bytearray) -> int:
    return int(ERROR.unpack_from(answer, 4 + 1 + 4)[0])  # after correlation id, tags and throttle time


def read_join(answer: bytearray) -> Joined:
    reader = wire.Reader(answer, ERROR_POSITION)
    error, generation = reader.int16(), reader.int32()
    reader.string()  # the protocol that was chosen
    leader, member_id = reader.string(), reader.string()
    members = []
    for _ in range(reader.int32()):
        members.append(reader.string())
        reader.string()  # group.instance.id
        reader.skip(reader.int32())
    return Joined(error, generation, leader, member_id, members)


def sync_request(group: str, generation: int, member_id: str, members: list[str]) -> bytes:
    body = wire.string(group) + struct.pack(">i", generation) + wire.string(member_id) + NO_STRING
    body += struct.pack(">i", len(members)) + b"".join(wire.string(each) + _bytes(METADATA) for each in members)
    return wire.frame(SYNC_GROUP, 3, body, False)


def heartbeat_request(group: str, generation: int, member_id: str) -> bytes:
    body = wire.string(group) + struct.pack(">i", generation) + wire.string(member_id) + NO_STRING
    return wire.frame(HEARTBEAT, 3, body, False)


def commit_request(group: str, generation: int, member_id: str, topic: str, partitions: range, offset: int) -> bytes:
    body = wire.string(group) + struct.pack(">i", generation) + wire.string(member_id) + NO_STRING
    body += struct.pack(">i", 1) + wire.string(topic) + struct.pack(">i", len(partitions))
    body += b"".join(struct.pack(">iqih", number, offset, -1, 0) for number in partitions)
    return wire.frame(OFFSET_COMMIT, 7, body, False)


def commit_error_position(topic: str) -> int:
    """Of the first partition in the answer to a commit of one topic."""
    return ERROR_POSITION + 4 + 2 + len(topic) + 4 + 4


def fetch_nothing_request(group: str) -> bytes:
    """OffsetFetch of no topic: shows whether the group's coordinator is ready (the last two bytes of the answer)."""
    return wire.frame(OFFSET_FETCH, 5, wire.string(group) + struct.pack(">i", 0), False)


def init_producer_request(transactional_id: str, timeout_ms: int) -> bytes:
    body = wire.string(transactional_id) + struct.pack(">i", timeout_ms)
    return wire.frame(INIT_PRODUCER_ID, 1, body, False)


def read_init_producer(answer: bytearray) -> tuple[int, Identity]:
    error, producer_id, epoch = struct.unpack_from(">hqh", answer, ERROR_POSITION)
    return error, Identity(producer_id, epoch)


def transactional_batch(value: bytes, who: Identity) -> bytes:
    """The first batch of a transaction: sequence numbers begin anew with every epoch."""
    body = BATCH_BODY.pack(TRANSACTIONAL, 0, 0, 0, who.producer_id, who.epoch, 0, 1) + record_of(0, value)
    return BATCH_HEAD.pack(0, 9 + len(body), 0, 2, crc32c(body)) + body


def transactional_produce_request(topic: str, transactional_id: str, batch: bytes) -> bytes:
    head = wire.compact_string(transactional_id) + struct.pack(">hi", -1, wire.REQUEST_TIMEOUT_MS)
    body = b"\2" + wire.compact_string(topic) + b"\2" + struct.pack(">i", 0) + wire.compact_bytes(batch) + b"\0\0\0"
    return wire.frame(wire.PRODUCE, 12, head + body, True)


def end_request(transactional_id: str, who: Identity, is_commit: bool) -> bytes:
    body = wire.compact_string(transactional_id) + struct.pack(">qhb", *who, is_commit) + b"\0"
    return wire.frame(END_TXN, 5, body, True)


def read_end(answer: bytearray) -> tuple[int, Identity]:
    error, producer_id, epoch = struct.unpack_from(">hqh", answer, ERROR_POSITION + 1)
    return error, Identity(producer_id, epoch)


def _bytes(data: bytes) -> bytes:
    return struct.pack(">i", len(data)) + data
