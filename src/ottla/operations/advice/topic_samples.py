"""Collects the facts for topic_rules.py: settings, offsets, and a bounded sample of the newest records.

Rules:
1. At most PARTITIONS_MAX partitions are read, the busiest first; of each the last OFFSETS_MAX offsets, up to
   SAMPLE_BYTES.
2. A read that fails or is forbidden is noted with its reason; the rules that need it return nothing. A topic that does
   not exist, or that this login may not describe, raises.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import closing

from ottla.base.errors import KafkaError
from ottla.base.names import TopicPartition
from ottla.client.admin import Admin
from ottla.client.client import Client
from ottla.client.configs import Resource, describe_configs
from ottla.client.errors import ClientError
from ottla.client.offsets import EARLIEST, LATEST, NO_OFFSET, list_offsets
from ottla.operations.advice.topic_rules import SampledBatch, TopicFacts, Traffic
from ottla.operations.broker_rates import TOPIC_METRICS
from ottla.operations.fetched_batches import FetchedDataError, checked_batches
from ottla.operations.messages.offset_ranges import fetch_range
from ottla.operations.metric_readings import Rates
from ottla.operations.range_fetcher import FetchError, FetchSettings, OffsetRange
from ottla.operations.topic_summary import replication_factor
from ottla.protocol.batches import read_records
from ottla.protocol.compression import CODEC_NAMES, compress

PARTITIONS_MAX = 16
OFFSETS_MAX = 5000
SAMPLE_BYTES = 512 << 10  # of a partition, as stored
DECOMPRESSED_BYTES_MAX = 64 << 20  # of all samples
MINUTE_MS = 60_000
FETCH_SETTINGS = FetchSettings(SAMPLE_BYTES, is_read_committed=False, poll_timeout_ms=5000)


def collect_topic_facts(client: Client, name: str) -> TopicFacts:
    """Raises ClientError if the topic cannot be described."""
    topic = Admin(client).topic(name)
    facts = TopicFacts(name, len(topic.partitions), replication_factor(topic))
    try:
        configs = describe_configs(client, Resource.TOPIC, [name])
        facts.settings = {config.name: config.value or "" for config in configs[name]}
    except ClientError as problem:
        facts.unknown.append(f"settings of the topic: {problem}")
    places = [TopicPartition(name, partition.number) for partition in topic.partitions if partition.leader >= 0]
    if len(places) < facts.partitions:
        facts.unknown.append(f"{facts.partitions - len(places)} partitions have no leader")
    starts, ends = (_offsets(client, places, when, facts) for when in (EARLIEST, LATEST))
    late = _offsets(client, places, client.clock.now_ms() - MINUTE_MS, facts)
    facts.stored = {place: ends[place] - starts[place] for place in ends.keys() & starts.keys()}
    facts.last_minute = {
        place: ends[place] - late[place] if late[place] != NO_OFFSET else 0 for place in ends.keys() & late.keys()
    }
    busiest = sorted(ends, key=lambda place: (-facts.last_minute.get(place, 0), -facts.stored.get(place, 0), place))
    wanted = [place for place in busiest if facts.stored.get(place)][:PARTITIONS_MAX]
    _sample(
        client,
        facts,
        [OffsetRange(name, place, max(starts[place], ends[place] - OFFSETS_MAX), ends[place]) for place in wanted],
    )
    _measure_compression(facts)
    return facts


def _offsets(client: Client, places: Sequence[TopicPartition], when: int, facts: TopicFacts) -> dict[int, int]:
    found, failures = list_offsets(client, places, when) if places else ({}, {})
    for problem in list(failures.values())[:1]:
        text = f"offsets of {len(failures)} partitions: {problem}"
        if text not in facts.unknown:
            facts.unknown.append(text)
    return {place.partition: item.offset for place, item in found.items()}


def _sample(client: Client, facts: TopicFacts, ranges: Sequence[OffsetRange]) -> None:
    batches: list[SampledBatch] = []
    sampled: list[int] = []
    room = DECOMPRESSED_BYTES_MAX
    for wanted in ranges:
        try:
            found = _read(client, wanted, facts, is_busiest=not sampled)
        except (ClientError, FetchError, FetchedDataError, KafkaError) as problem:
            facts.unknown.append(f"records of partition {wanted.partition}: {problem}")
            if not sampled:
                break  # the other partitions most likely fail too
            continue
        batches += found
        sampled.append(wanted.partition)
        room -= sum(len(batch.payload) for batch in found)
        if room <= 0:
            break
    facts.batches, facts.sampled = batches, sampled


def _read(client: Client, wanted: OffsetRange, facts: TopicFacts, *, is_busiest: bool) -> list[SampledBatch]:
    batches = []
    size = 0
    with closing(fetch_range(client, wanted, FETCH_SETTINGS, lambda lost: facts.unknown.append(str(lost)))) as answers:
        for fetched, _ in answers:
            for header, position, payload in checked_batches(fetched.records, f"{wanted.topic}-{wanted.partition}"):
                if header.is_control:
                    facts.markers += 1
                    continue
                batches.append(
                    SampledBatch(
                        wanted.partition,
                        header.producer_id,
                        header.codec,
                        header.batch_bytes,
                        header.record_count,
                        header.last_offset_delta + 1,
                        header.max_timestamp if header.is_log_append_time else header.base_timestamp,
                        bytes(payload),
                        header.is_transactional,
                    )
                )
                if is_busiest:
                    view = memoryview(fetched.records)[position : position + header.batch_bytes]
                    facts.keys.update(record.key for record in read_records(view))
            size += len(fetched.records)
            if size >= SAMPLE_BYTES:
                break
    return batches


def _measure_compression(facts: TopicFacts) -> None:
    """Measure the cost of compressing a record with the topic's codec. A broker pays that, plus the decompression."""
    codec = facts.settings.get("compression.type")
    if codec not in CODEC_NAMES or not facts.records:
        return
    began = time.thread_time()
    for batch in facts.batches:
        compress(CODEC_NAMES.index(codec), batch.payload)
    facts.recompression_us = (time.thread_time() - began) * 1e6 / facts.records


def topic_traffic(rates: Sequence[Rates], topic: str) -> Traffic | None:
    """The sum over all brokers with metrics; None if no broker reports the topic."""

    def total(kind: str) -> float | None:
        known = [
            rate for each in rates if (rate := each.total_rate(f"{TOPIC_METRICS}{kind}_total", topic=topic)) is not None
        ]
        return sum(known) if known else None

    records, reads = total("messagesin"), total("totalfetchrequests")
    if records is None and reads is None:
        return None
    return Traffic(
        records=records or 0.0,
        bytes_in=total("bytesin") or 0.0,
        appends=total("totalproducerequests") or 0.0,
        fetches=reads or 0.0,
        bytes_out=total("bytesout") or 0.0,
        are_followers_counted=any(not each.now.info() for each in rates),
    )
