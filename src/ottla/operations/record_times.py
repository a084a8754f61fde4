"""The timestamp of the first record at or after an offset, in many partitions at once: what lag in time is made of.

ListOffsets finds offsets by time, not times by offset, so the record itself is fetched. Rules:
1. A fetch asks for many partitions of a leader. Whoever stands first in it gets at least one whole record batch
   (KIP-74); the others may get nothing because the answer was full, and are asked again.
2. Markers of transactions are no records, and compaction leaves holes: what follows is asked for, ROUNDS_MAX times.
3. None: there is no record from there on. A partition that is missing in the answer is not known.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from ottla.base.errors import Error, KafkaError
from ottla.base.names import TopicPartition
from ottla.client.client import Client
from ottla.client.errors import RefusedError, refusal
from ottla.client.offsets import Answer, Failures, ask_leaders, by_topic
from ottla.protocol.batches import (
    HEADER_BYTES,
    MAGIC,
    MAGIC_POSITION,
    crc_is_right,
    read_batch_header,
    read_records,
)
from ottla.protocol.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic, PartitionData

NAMES_VERSION = 12  # the last version of Fetch that names topics; later ones have ids
PARTITIONS_PER_FETCH = 64
PARTITION_BYTES_MAX = 64 << 10  # a larger batch comes when its partition stands first
FETCH_BYTES_MAX = 4 << 20
ROUNDS_MAX = 8
TOO_FAR = refusal(Error.UNKNOWN_SERVER_ERROR, "no record was found behind many markers of transactions")


class Step(NamedTuple):
    """What an answer says about one partition: the time of the record that was wanted, or where to look next."""

    time_ms: int | None
    next_offset: int


Told = int | RefusedError | None


def record_times(
    client: Client, offsets: Mapping[TopicPartition, int]
) -> tuple[dict[TopicPartition, int | None], Failures]:
    """The timestamp of the first record at or after each offset, and why there is none for the others."""

    def ask(leader: int, led: Sequence[TopicPartition]) -> Answer[int | None]:
        return _ask(client, leader, {place: offsets[place] for place in led})

    return ask_leaders(client, offsets, ask)


def _ask(client: Client, leader: int, left: dict[TopicPartition, int]) -> Iterator[tuple[TopicPartition, Told]]:
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
            yield place, TOO_FAR if isinstance(step, Step) else step
        left = dict(sorted(left.items(), key=lambda item: rounds[item[0]]))  # nobody stands first for ever


def _step(answer: PartitionData | None, offset: int, is_first: bool) -> Told | Step:
    """The time of the record, None if there is none, a refusal, or a Step to go on with."""
    if answer is None or answer.error_code:
        return refusal(answer.error_code if answer else Error.UNKNOWN_SERVER_ERROR)
    try:
        step = first_record(bytes(answer.records or b""), offset)  # type: ignore[arg-type]
    except KafkaError as problem:
        return refusal(problem.error, str(problem))
    if step.time_ms is not None or step.next_offset >= answer.high_watermark:
        return step.time_ms
    if is_first and step.next_offset == offset:  # it should have got a batch: whatever it is, the time is not known
        return refusal(Error.OFFSET_NOT_AVAILABLE)
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
    """Looks at the whole batches in an answer. Raises KafkaError for bytes that are no records."""
    position, next_offset = 0, offset
    while position + HEADER_BYTES <= len(records):
        if records[position + MAGIC_POSITION] < MAGIC:
            raise KafkaError(Error.UNSUPPORTED_FOR_MESSAGE_FORMAT, "records in a format older than Kafka 0.11")
        header = read_batch_header(records, position)
        if position + header.batch_bytes > len(records):
            break
        if not crc_is_right(records, position, header):
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
        raise refusal(answer.error_code)
    if answer.throttle_time_ms and not answer.responses:  # Kafka holds the data back from whoever is over a quota
        raise refusal(Error.THROTTLING_QUOTA_EXCEEDED)
