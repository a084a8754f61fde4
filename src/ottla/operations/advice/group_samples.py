"""Collects the facts for group_rules.py: members, lag, and the last minute's commits from `__consumer_offsets`.

The end of that log, which is not compacted yet, has every commit with its timestamp, so rates are known without
measuring twice. At most COMMITS_MAX records are read; the period is then shorter.
"""

from __future__ import annotations

import struct
from collections import defaultdict
from collections.abc import Iterator
from contextlib import closing
from typing import NamedTuple

from ottla.base.errors import Error, KafkaError
from ottla.base.names import TopicPartition
from ottla.base.partitioning import partition_for
from ottla.client.admin import Admin
from ottla.client.client import Client
from ottla.client.errors import BrokerError, ClientError, error_from_code
from ottla.client.groups import DEAD, Group, describe_groups
from ottla.client.offsets import LATEST, NO_OFFSET, list_offsets
from ottla.operations.advice.group_rules import GroupFacts, MemberFacts, PartitionProgress
from ottla.operations.fetched_batches import FetchedDataError
from ottla.operations.group_lag import group_partitions
from ottla.operations.messages.offset_ranges import fetch_range
from ottla.operations.messages.record_reader import RecordChunk, walk
from ottla.operations.range_fetcher import FetchError, FetchSettings, OffsetRange
from ottla.operations.records.coordinator_records import UnknownRecordError, read_record
from ottla.protocol.codec import ProtocolError
from ottla.protocol.messages.coordinator_records import GROUP_RECORDS

OFFSETS_TOPIC = "__consumer_offsets"
COMMITS_MAX = 100_000
WINDOW_MS = 60_000
FETCH_SETTINGS = FetchSettings(4 << 20, is_read_committed=False, poll_timeout_ms=5000)
COMMIT_KINDS = (b"\x00\x00", b"\x00\x01")


class Commit(NamedTuple):
    """A committed offset with its timestamp."""

    place: TopicPartition
    offset: int
    time_ms: int


def collect_group_facts(client: Client, group_id: str) -> GroupFacts:
    """Raises ClientError if the group cannot be described."""
    group = describe_groups(client, [group_id])[group_id]
    if isinstance(group, BrokerError):
        raise group
    if group.state == DEAD and not group.members:
        raise error_from_code(Error.GROUP_ID_NOT_FOUND)
    facts = GroupFacts(group_id, group.state, _members(group))
    rows = group_partitions(client, group)
    topics = {row.partition.topic for row in rows}
    facts.partition_counts = (
        {topic.name: len(topic.partitions) for topic in Admin(client).topics(sorted(topics))} if topics else {}
    )
    now_ms = client.clock.now_ms()
    try:
        commits = list(recent_commits(client, group_id, now_ms - WINDOW_MS))
    except (ClientError, FetchError, FetchedDataError, KafkaError) as problem:
        facts.unknown.append(f"commits in {OFFSETS_TOPIC}, and with them all rates: {problem}")
        commits = []
    else:
        began_ms = min((commit.time_ms for commit in commits), default=now_ms)
        if now_ms - began_ms >= 1000:
            facts.commits_per_s = len(commits) * 1000 / (now_ms - began_ms)
        elif not commits:
            facts.unknown.append("rates: the group has committed nothing in the last minute")
    read = consumption_rates(commits)
    came = _incoming_rates(client, commits, now_ms)
    facts.progress = {
        row.partition: PartitionProgress(row.lag.records, came.get(row.partition), read.get(row.partition))
        for row in rows
    }
    return facts


def recent_commits(client: Client, group_id: str, since_ms: int) -> Iterator[Commit]:
    count = len(Admin(client).topic(OFFSETS_TOPIC).partitions)
    place = TopicPartition(OFFSETS_TOPIC, partition_for(group_id, count))
    bounds = []
    for when in (since_ms, LATEST):
        found, failures = list_offsets(client, [place], when)
        for problem in failures.values():
            raise problem
        bounds.append(found[place].offset)
    start, end = bounds
    if start == NO_OFFSET:
        return
    wanted = OffsetRange(*place, max(start, end - COMMITS_MAX), end)
    name = group_id.encode()
    mark = struct.pack(">h", len(name)) + name
    with closing(fetch_range(client, wanted, FETCH_SETTINGS, lambda _: None)) as answers:
        for fetched, _ in answers:
            for piece in walk(fetched, place.partition, end):
                if isinstance(piece, RecordChunk):
                    yield from _commits(piece, mark)


def _commits(piece: RecordChunk, mark: bytes) -> Iterator[Commit]:
    """The commits of one group; its name is in the key, after two bytes."""
    for row in range(piece.rows):
        key = piece.key(row)
        value = piece.value(row)
        if key is None or value is None or key[:2] not in COMMIT_KINDS or key[2 : 2 + len(mark)] != mark:
            continue
        try:
            found = read_record(GROUP_RECORDS, key, value)
        except (UnknownRecordError, ProtocolError):
            continue
        assert found.value is not None
        yield Commit(TopicPartition(found.key.topic, found.key.partition), found.value.offset, piece.timestamp_ms(row))


def consumption_rates(commits: list[Commit]) -> dict[TopicPartition, float]:
    """Consumed records per second between the first and the last commit of each partition."""
    by_place: defaultdict[TopicPartition, list[Commit]] = defaultdict(list)
    for commit in commits:
        by_place[commit.place].append(commit)
    found = {}
    for place, rows in by_place.items():
        span_ms = rows[-1].time_ms - rows[0].time_ms
        if span_ms >= 1000:
            found[place] = max(0, rows[-1].offset - rows[0].offset) * 1000 / span_ms
    return found


def _incoming_rates(client: Client, commits: list[Commit], now_ms: int) -> dict[TopicPartition, float]:
    """Records per second written since the first of these commits."""
    if not commits:
        return {}
    began_ms = min(commit.time_ms for commit in commits)
    places = sorted({commit.place for commit in commits})
    if now_ms - began_ms < 1000:
        return {}
    then, _ = list_offsets(client, places, began_ms)
    ends, _ = list_offsets(client, places, LATEST)
    return {
        place: (ends[place].offset - then[place].offset) * 1000 / (now_ms - began_ms)
        if then[place].offset != NO_OFFSET
        else 0.0
        for place in then.keys() & ends.keys()
    }


def _members(group: Group) -> list[MemberFacts]:
    return [
        MemberFacts(f"{member.client_id} at {member.host.lstrip('/')}", tuple(member.assigned))
        for member in group.members
    ]
