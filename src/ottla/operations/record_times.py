"""Timestamps of records by offset, for many partitions at once: the basis of time lag.

ListOffsets finds offsets by time, not times by offset, so the record itself is fetched. Rules:
1. A fetch covers many partitions of a leader. The first one gets at least one whole record batch (KIP-74); the others
   may get nothing because the response was full, and are fetched again.
2. Transaction markers are not records, and compaction leaves gaps: the following offsets are fetched, at most
   ROUNDS_MAX times.
3. None means that no record follows. A partition without a response is left out.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from ottla.base.errors import Error, KafkaError
from ottla.base.names import TopicPartition
from ottla.client.client import Client
from ottla.client.errors import BrokerError, error_from_code
from ottla.client.offsets import Answer, Failures, by_topic, call_leaders
from ottla.protocol.batches import (
    HEADER_BYTES,
    MAGIC,
    MAGIC_POSITION,
    is_crc_valid,
    read_batch_header,
    read_records,
)
from ottla.protocol.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic, PartitionData

NAMES_VERSION = 12  # the last version of Fetch with topic names; later ones have topic IDs
PARTITIONS_PER_FETCH = 64
PARTITION_BYTES_MAX = 64 << 10  # a larger batch arrives when its partition is first in the request
FETCH_BYTES_MAX = 4 << 20
ROUNDS_MAX = 8
TOO_MANY_MARKERS = error_from_code(Error.UNKNOWN_SERVER_ERROR, "no record was found behind many transaction markers")


class Step(NamedTuple):
    """One response: the timestamp of the wanted record, or the offset to fetch next."""

    time_ms: int | None
    next_offset: int


RecordTime = int | BrokerError | None


def record_times(
    client: Client, offsets: Mapping[TopicPartition, int]
) -> tuple[dict[TopicPartition, int | None], Failures]:
    """The timestamp of the first record at or after each offset, and the failures."""

    def ask(leader: int, led: Sequence[TopicPartition]) -> Answer[int | None]:
        return _read_times(client, leader, {place: offsets[place] for place in led})

    return call_leaders(client, offsets, ask)


def _read_times(
    client: Client, leader: int, left: dict[TopicPartition, int]
) -> Iterator[tuple[TopicPartition, RecordTime]]:
    rounds = dict.fromkeys(left, 0)
    while left:
        asked = dict(list(left.items())[:PARTITIONS_PER_FETCH])
        answers = _fetch(client, leader, asked)
        for place, offset in asked.items():
            step = _step(answers.get(place), offset, is_first=place == next(iter(asked)))
            rounds[place] += isinstance(step, Step) and step.next_offset > offset
            if isinstance(step, Step) and rounds[place] < ROUNDS_MAX:
                left[place] = step.next_offset
                continue
            del left[place]
            yield place, TOO_MANY_MARKERS if isinstance(step, Step) else step
        # rotate, so that each partition is first at some time
        left = dict(sorted(left.items(), key=lambda item: rounds[item[0]]))


def _step(answer: PartitionData | None, offset: int, is_first: bool) -> RecordTime | Step:
    """The timestamp, None if no record follows, a refusal, or a Step to continue with."""
    if answer is None or answer.error_code:
        return error_from_code(answer.error_code if answer else Error.UNKNOWN_SERVER_ERROR)
    try:
        step = first_record(bytes(answer.records or b""), offset)  # type: ignore[arg-type]
    except KafkaError as problem:
        return error_from_code(problem.error, str(problem))
    if step.time_ms is not None or step.next_offset >= answer.high_watermark:
        return step.time_ms
    if is_first and step.next_offset == offset:  # the first partition must get a batch, so the time is unknown
        return error_from_code(Error.OFFSET_NOT_AVAILABLE)
    return step


def _fetch(client: Client, leader: int, asked: Mapping[TopicPartition, int]) -> dict[TopicPartition, PartitionData]:
    topics = [
        FetchTopic(
            topic=topic,
            partitions=[
                FetchPartition(
                    partition=number,
                    fetch_offset=asked[TopicPartition(topic, number)],
                    partition_max_bytes=PARTITION_BYTES_MAX,
                )
                for number in numbers
            ],
        )
        for topic, numbers in by_topic(asked).items()
    ]
    request = FetchRequest(max_wait_ms=0, min_bytes=0, max_bytes=FETCH_BYTES_MAX, topics=topics)
    answer = client.call_broker(leader, request, FetchResponse, _check, NAMES_VERSION)
    return {
        TopicPartition(topic.topic, item.partition_index): item
        for topic in answer.responses
        for item in topic.partitions
    }


def first_record(records: bytes, offset: int) -> Step:
    """The first record in the complete batches of a response. Raises KafkaError for damaged bytes."""
    position, next_offset = 0, offset
    while position + HEADER_BYTES <= len(records):
        if records[position + MAGIC_POSITION] < MAGIC:
            raise KafkaError(Error.UNSUPPORTED_FOR_MESSAGE_FORMAT, "records in a format older than Kafka 0.11")
        header = read_batch_header(records, position)
        if position + header.batch_bytes > len(records):
            break
        if not is_crc_valid(records, position, header):
            raise KafkaError(Error.CORRUPT_MESSAGE, f"the batch at offset {header.base_offset} is damaged")
        if not header.is_control and header.last_offset >= offset:
            for record in read_records(memoryview(records)[position : position + header.batch_bytes]):
                if record.offset >= offset:
                    return Step(record.timestamp, record.offset)
        position += header.batch_bytes
        next_offset = max(next_offset, header.next_offset)
    return Step(None, next_offset)


def _check(answer: FetchResponse) -> None:
    if answer.error_code:
        raise error_from_code(answer.error_code)
    if answer.throttle_time_ms and not answer.responses:  # Kafka omits the data if a quota is exceeded
        raise error_from_code(Error.THROTTLING_QUOTA_EXCEEDED)
