"""Pages of messages neither miss nor repeat a message, in any order."""

from __future__ import annotations

import random

import pytest
from tests.unit.operations.messages.cluster import TOPIC, Cluster

from ottla.operations.messages.offset_ranges import OffsetBound
from ottla.operations.messages.pages import PageRequest, read_one, read_page
from ottla.operations.messages.record_reader import OFFSET_MAX, Record, RecordState
from ottla.protocol.messages.fetch import AbortedTransaction
from ottla.protocol.records import Record as Written


def cluster_of(partitions: int, seed: int = 1) -> Cluster:
    """Partitions of different lengths, batches of different sizes, a timestamp for each record."""
    chance = random.Random(seed)
    cluster = Cluster(partitions)
    for index in range(40):
        log = cluster.logs[chance.randrange(partitions)]
        count = chance.randrange(1, 4)
        records = [Written(-1, 1000 * index + nth, b"k", b"v%d" % index) for nth in range(count)]
        log.append(records, codec=chance.choice([0, 0, 3]))
    return cluster


def all_pages(cluster: Cluster, limit: int, start: OffsetBound | None, **options: object) -> list[Record]:
    found: list[Record] = []
    positions: dict[int, int] | None = None
    for _ in range(200):
        page = read_page(cluster.client(), PageRequest(TOPIC, limit, start=start, positions=positions, **options))  # type: ignore[arg-type]
        assert len(page.records) <= limit
        assert page.unread == []
        found += page.records
        positions = page.positions
        if not page.has_more:
            return found
    raise AssertionError("the pages do not end")


@pytest.mark.parametrize("limit", [1, 7, 1000])
@pytest.mark.parametrize("start", [None, OffsetBound()])
@pytest.mark.parametrize("read_bytes", [1, 64 << 20])
def test_pages_have_every_message_once(limit: int, start: OffsetBound | None, read_bytes: int) -> None:
    cluster = cluster_of(3)
    found = all_pages(cluster, limit, start, read_bytes=read_bytes)
    wanted = [(number, offset) for number, log in enumerate(cluster.logs) for offset in range(log.end)]
    assert sorted((record.partition, record.offset) for record in found) == wanted
    if read_bytes > 1:  # with little room the order holds only within a page
        times = [record.timestamp_ms for record in found]
        assert times == sorted(times, reverse=start is None)


def test_the_newest_of_more_partitions_than_messages() -> None:
    cluster = cluster_of(9)
    found = read_page(cluster.client(), PageRequest(TOPIC, 4)).records
    every = sorted((record.timestamp_ms for record in all_pages(cluster, 1000, None)), reverse=True)
    assert [record.timestamp_ms for record in found] == every[:4]


def test_from_an_offset_and_from_a_time() -> None:
    cluster = Cluster()
    cluster.logs[0].append([b"a", b"b", b"c", b"d"])
    page = read_page(cluster.client(), PageRequest(TOPIC, 2, start=OffsetBound(offset=1)))
    assert [record.value for record in page.records] == [b"b", b"c"]
    assert page.positions == {0: 3}
    page = read_page(cluster.client(), PageRequest(TOPIC, 2, start=OffsetBound(time_ms=2500)))
    assert [record.value for record in page.records] == [b"d"]
    assert not page.has_more
    assert page.extents[0].start == 3


def test_aborted_records_and_markers_on_request() -> None:
    cluster = Cluster()
    log = cluster.logs[0]
    log.append([b"undone"], producer_id=5, producer_epoch=0, is_transactional=True)
    log.mark(5, is_commit=False)
    log.aborted = [AbortedTransaction(producer_id=5, first_offset=0)]
    page = read_page(cluster.client(), PageRequest(TOPIC))
    assert page.records == []
    assert not page.has_more
    page = read_page(cluster.client(), PageRequest(TOPIC, with_aborted=True, with_markers=True))
    assert [record.state for record in page.records] == [RecordState.ABORT_MARKER, RecordState.ABORTED]


def test_a_tail_begins_at_the_end_and_misses_nothing() -> None:
    cluster = Cluster(2)
    cluster.logs[0].append([b"old"])
    page = read_page(cluster.client(), PageRequest(TOPIC, start=OffsetBound(offset=OFFSET_MAX)))
    assert (page.records, page.positions) == ([], {0: 1, 1: 0})
    cluster.logs[1].append([b"new"])
    page = read_page(cluster.client(), PageRequest(TOPIC, start=OffsetBound(), positions=page.positions))
    assert [record.value for record in page.records] == [b"new"]
    cluster.offline.add(1)
    page = read_page(cluster.client(), PageRequest(TOPIC, start=OffsetBound(), positions=page.positions))
    assert page.positions == {0: 1, 1: 1}, "a partition that is away is gone on with where it was"
    assert page.unread


def test_one_message() -> None:
    cluster = Cluster()
    cluster.logs[0].append([b"a", None])
    found = read_one(cluster.client(), TOPIC, 0, 1)
    assert found is not None
    assert found.value is None
    assert found.key == b"k1"
    assert read_one(cluster.client(), TOPIC, 0, 2) is None


def test_unreadable_ranges_are_reported() -> None:
    cluster = cluster_of(2)
    cluster.logs[0].batches[-1][-1] ^= 1
    page = read_page(cluster.client(), PageRequest(TOPIC, 1000))
    assert len(page.unread) == 1
    assert "checksum" in page.unread[0].reason
    cluster.offline.add(1)
    page = read_page(cluster.client(), PageRequest(TOPIC, 1000))
    assert {item.partition for item in page.unread} == {0, 1}
