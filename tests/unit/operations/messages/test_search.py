"""A search finds all matches in the requested order, and reports exactly what it has not read."""

from __future__ import annotations

from typing import Any

import pytest
from tests.unit.operations.messages.cluster import TOPIC, Cluster

from ottla.base.errors import Error
from ottla.client.errors import ClientError
from ottla.operations.messages.expressions.parser import parse
from ottla.operations.messages.field_masks import Masks, parse_rule
from ottla.operations.messages.message import Message
from ottla.operations.messages.offset_ranges import OffsetBound, OffsetWindow
from ottla.operations.messages.record_reader import RecordState
from ottla.operations.messages.search import Search, SearchLimits, Summary
from ottla.protocol.messages.fetch import AbortedTransaction
from ottla.protocol.records import Record


def search(
    cluster: Cluster, expression: str, window: OffsetWindow | None = None, **options: Any
) -> tuple[list[Message], Summary]:
    events = list(Search(cluster.client, window or OffsetWindow(TOPIC), parse(expression), **options).events())
    assert isinstance(events[-1], Summary)
    return [event for event in events if isinstance(event, Message)], events[-1]


def places(hits: list[Message]) -> list[tuple[int, int]]:
    return [(hit.partition, hit.offset) for hit in hits]


@pytest.fixture
def cluster() -> Cluster:
    """Two partitions, eight records each in batches of two; every fourth says needle."""
    cluster = Cluster(2)
    for log in cluster.logs:
        for index in range(4):
            log.append([b"hay %d" % index, b"needle" if index % 2 else b"straw"], codec=index)
    return cluster


def test_hits_oldest_first(cluster: Cluster) -> None:
    hits, summary = search(cluster, "needle")
    assert places(hits) == [(0, 3), (0, 7), (1, 3), (1, 7)]
    assert summary.unread == []
    assert not summary.is_stopped
    assert summary.limit is None
    assert summary.progress.done == summary.progress.total == 16
    assert summary.progress.records == 16
    assert summary.progress.hits == 4


def test_hits_newest_first(cluster: Cluster) -> None:
    hits, summary = search(cluster, "needle", is_newest_first=True)
    assert places(hits) == [(0, 7), (0, 3), (1, 7), (1, 3)]
    assert summary.unread == []


@pytest.mark.parametrize("is_newest_first", [False, True])
def test_a_limit_reports_exactly_what_was_not_read(cluster: Cluster, is_newest_first: bool) -> None:
    hits, summary = search(cluster, "needle", limits=SearchLimits(hits=1), is_newest_first=is_newest_first)
    assert places(hits) == [(0, 7 if is_newest_first else 3)]
    assert summary.limit == "the limit of 1 hits was reached"
    assert not summary.has_failures
    first = (0, 0, 7) if is_newest_first else (0, 4, 8)
    assert [item[:3] for item in summary.unread] == [first, (1, 0, 8)]


def test_a_stopped_search_reports_what_is_left(cluster: Cluster) -> None:
    running = Search(cluster.client, OffsetWindow(TOPIC), parse("needle"))
    events = []
    for event in running.events():
        events.append(event)
        if isinstance(event, Message):
            running.stop()
    summary = events[-1]
    assert isinstance(summary, Summary)
    assert summary.is_stopped
    assert places([event for event in events if isinstance(event, Message)]) == [(0, 3)]
    assert [item[:3] for item in summary.unread] == [(0, 4, 8), (1, 0, 8)]


def test_a_damaged_batch_is_reported_and_the_rest_is_read(cluster: Cluster) -> None:
    cluster.logs[0].batches[1][-1] ^= 1
    hits, summary = search(cluster, "needle")
    assert places(hits) == [(0, 7), (1, 3), (1, 7)]
    assert [item[:3] for item in summary.unread] == [(0, 2, 4)]
    assert "checksum" in summary.unread[0].reason
    assert summary.has_failures


@pytest.mark.parametrize("is_newest_first", [False, True])
def test_a_batch_that_the_broker_refuses_to_send_is_gone_past(cluster: Cluster, is_newest_first: bool) -> None:
    cluster.logs[0].refused = {2, 3}
    hits, summary = search(cluster, "needle", is_newest_first=is_newest_first)
    assert sorted(places(hits)) == [(0, 7), (1, 3), (1, 7)]
    assert [item[:3] for item in summary.unread] == [(0, 2, 4)]
    cluster.logs[0].refused = {2, 3, 6, 7}
    hits, summary = search(cluster, "hay", is_newest_first=is_newest_first)
    assert sorted(places(hits)) == [(0, 0), (0, 4), (1, 0), (1, 2), (1, 4), (1, 6)]
    assert [item[:3] for item in summary.unread] == [(0, 2, 4), (0, 6, 8)]


def test_records_that_are_malformed_inside_a_right_checksum(cluster: Cluster) -> None:
    from ottla.protocol.batches import assemble_batch, read_batch_header  # noqa: PLC0415

    header = read_batch_header(cluster.logs[0].batches[0])
    cluster.logs[0].batches[0] = assemble_batch(header, b"\x7fnonsense")
    hits, summary = search(cluster, "needle")
    assert places(hits) == [(0, 3), (0, 7), (1, 3), (1, 7)]
    assert [item[:3] for item in summary.unread] == [(0, 0, 2)]


def test_a_partition_without_leader_is_reported(cluster: Cluster) -> None:
    cluster.offline.add(0)
    hits, summary = search(cluster, "needle")
    assert places(hits) == [(1, 3), (1, 7)]
    assert [item.partition for item in summary.unread] == [0]
    assert "no leader" in summary.unread[0].reason
    assert summary.has_failures


def test_a_partition_that_cannot_be_fetched_is_reported_once(cluster: Cluster) -> None:
    cluster.logs[0].error = Error.TOPIC_AUTHORIZATION_FAILED
    hits, summary = search(cluster, "needle", is_newest_first=True)
    assert places(hits) == [(1, 7), (1, 3)]
    assert [item[:3] for item in summary.unread] == [(0, 0, 8)]


def test_deleted_offsets_are_reported(cluster: Cluster) -> None:
    running = Search(cluster.client, OffsetWindow(TOPIC, frozenset({0})), parse("hay")).events()
    next(running)  # the extents are known: now the oldest records age out
    log = cluster.logs[0]
    del log.batches[:2]
    log.start = 4
    events = list(running)
    assert places([event for event in events if isinstance(event, Message)]) == [(0, 4), (0, 6)]
    summary = events[-1]
    assert isinstance(summary, Summary)
    assert [item[:3] for item in summary.unread] == [(0, 0, 4)]
    assert "offset 0 is not in the log" in summary.unread[0].reason


def test_windows_by_offset_and_time(cluster: Cluster) -> None:
    everything = ""
    hits, _ = search(
        cluster, everything, OffsetWindow(TOPIC, frozenset({1}), OffsetBound(offset=3), OffsetBound(offset=5))
    )
    assert places(hits) == [(1, 3), (1, 4)]
    hits, _ = search(cluster, everything, OffsetWindow(TOPIC, frozenset({0}), OffsetBound(time_ms=6500)))
    assert places(hits) == [(0, 7)]
    hits, _ = search(cluster, everything, OffsetWindow(TOPIC, frozenset({0}), OffsetBound(), OffsetBound(time_ms=1000)))
    assert places(hits) == [(0, 0)]
    hits, _ = search(cluster, everything, OffsetWindow(TOPIC, frozenset({0}), OffsetBound(time_ms=10**15)))
    assert hits == []


def test_topics_and_partitions_that_are_not_there(cluster: Cluster) -> None:
    with pytest.raises(ClientError, match="does not exist"):
        search(cluster, "x", OffsetWindow("nothing"))
    with pytest.raises(ClientError, match="orders has no partition 7: it has 2, from 0 on"):
        search(cluster, "x", OffsetWindow(TOPIC, frozenset({7})))


def test_transactions() -> None:
    cluster = Cluster()
    log = cluster.logs[0]
    log.append([b"plain"])
    log.append([b"undone"], producer_id=5, producer_epoch=0, is_transactional=True)
    log.mark(5, is_commit=False)
    log.append([b"done"], producer_id=5, producer_epoch=0, is_transactional=True)
    log.mark(5, is_commit=True)
    log.stable = log.end
    log.append([b"going on"], producer_id=5, producer_epoch=0, is_transactional=True)
    log.aborted = [AbortedTransaction(producer_id=5, first_offset=1)]
    hits, summary = search(cluster, "")
    assert [(hit.offset, hit.record.state) for hit in hits] == [
        (0, RecordState.COMMITTED),
        (3, RecordState.COMMITTED),
        (5, RecordState.OPEN),
    ]
    assert summary.unread == []
    assert summary.progress.done == 6
    hits, _ = search(cluster, "undone", with_aborted=True)
    assert [(hit.offset, hit.record.state) for hit in hits] == [(1, RecordState.ABORTED)]


def test_null_empty_and_headers() -> None:
    cluster = Cluster()
    records = [
        Record(-1, 0, None, None),
        Record(-1, 0, b"", b"", (("trace", b"a1"), ("trace", None))),
        Record(-1, 0, b"k", b"v", (("Ü", b'"x"'),)),
    ]
    cluster.logs[0].append(records)
    assert places(search(cluster, "value = null")[0]) == [(0, 0)]
    assert places(search(cluster, 'value = ""')[0]) == [(0, 1)]
    assert places(search(cluster, "header.trace = a1")[0]) == [(0, 1)]
    assert places(search(cluster, "header.trace = null")[0]) == [(0, 1)]
    assert places(search(cluster, 'header.Ü = "x" and key = k')[0]) == [(0, 2)]
    assert places(search(cluster, "a1")[0]) == [(0, 1)]
    assert search(cluster, "Ü")[0][0].headers == [("Ü", b'"x"')]


def test_what_is_masked_cannot_be_found() -> None:
    cluster = Cluster()
    cluster.logs[0].append([b'{"card": {"number": "4111"}, "n": 1}', b"4111 but no document"])
    masks = Masks([parse_rule("ord*:value.card.number")], TOPIC)
    for expression in ("4111", "value.card.number = 4111", "/41+/", "value.card.number > 4000"):
        assert search(cluster, expression)[0]
        assert search(cluster, expression, masks=masks)[0] == []
    hits, _ = search(cluster, "value.n = 1", masks=masks)
    assert hits[0].value == b'{"card": {"number": "***"}, "n": 1}'
    assert hits[0].is_masked
    assert hits[0].to_json()["value"]["json"] == {"card": {"number": "***"}, "n": 1}


def test_time_and_size_are_bounded(cluster: Cluster) -> None:
    now = iter(range(100))
    hits, summary = search(cluster, "needle", limits=SearchLimits(seconds=3), monotonic=lambda: float(next(now)))
    assert summary.limit == "the limit of 3 seconds was reached"
    assert len(hits) < 4
    assert summary.unread
    _, summary = search(cluster, "needle", limits=SearchLimits(records=4))
    assert summary.limit == "the limit of 4 records was reached"
    assert sum(item.end - item.start for item in summary.unread) == 16 - summary.progress.records
