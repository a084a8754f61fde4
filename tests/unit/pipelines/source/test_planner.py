"""Planning on the driver: start and end of queries, limits, new and lost partitions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pytest

from ottla.base.names import TopicPartition
from ottla.operations.range_fetcher import OffsetRange
from ottla.pipelines.source.cluster import filter_subscribed
from ottla.pipelines.source.data_loss import DataLossError, SourceError, take_reported_losses
from ottla.pipelines.source.options import (
    Offsets,
    OptionError,
    Subscription,
    offsets_from_document,
    offsets_json,
    read_options,
)
from ottla.pipelines.source.planner import Planner

A, B, C = TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("t", 2)


class FakeCluster:
    """Logs as pairs of first and next offset; a record's time is its offset times 10."""

    def __init__(self, logs: dict[TopicPartition, tuple[int, int]]) -> None:
        self.logs = logs
        self.stale: list[Offsets] = []  # end offsets of a new leader that lags behind
        self.ids = {"t": "first"}

    def partitions(self, subscription: Subscription) -> list[TopicPartition]:
        return sorted(filter_subscribed(subscription, self.logs))

    def topic_ids(self) -> dict[str, str]:
        return self.ids

    def beginning_offsets(self, partitions: Iterable[TopicPartition]) -> Offsets:
        return {each: self.logs[each][0] for each in partitions}

    def end_offsets(self, partitions: Iterable[TopicPartition]) -> Offsets:
        found = {each: self.logs[each][1] for each in partitions}
        return found | self.stale.pop() if self.stale else found

    def offsets_for_times(self, times_ms: Mapping[TopicPartition, int]) -> dict[TopicPartition, int | None]:
        return {each: self._at(each, -(-time // 10)) for each, time in times_ms.items()}

    def _at(self, partition: TopicPartition, offset: int) -> int | None:
        first, after = self.logs[partition]
        return max(first, offset) if offset < after else None

    def close(self) -> None: ...


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def planner(cluster: FakeCluster, is_stream: bool = True, **more: Any) -> Planner:
    given = {"kafka.bootstrap.servers": "h:1", "subscribe": "t", **more}
    if "assign" in given or "subscribePattern" in given:
        del given["subscribe"]
    return Planner(read_options(given, is_stream), cluster, Clock(), lambda _: None)


@pytest.fixture
def cluster() -> FakeCluster:
    return FakeCluster({A: (0, 100), B: (50, 60)})


def test_a_batch_reads_all_existing_records(cluster: FakeCluster) -> None:
    assert planner(cluster, False).batch_ranges() == [OffsetRange("t", 0, 0, 100), OffsetRange("t", 1, 50, 60)]


def test_a_batch_between_offsets(cluster: FakeCluster) -> None:
    starts, ends = '{"t":{"0":10,"1":-2}}', '{"t":{"0":20,"1":-1}}'
    found = planner(cluster, False, startingOffsets=starts, endingOffsets=ends).batch_ranges()
    assert found == [OffsetRange("t", 0, 10, 20), OffsetRange("t", 1, 50, 60)]


def test_a_start_beyond_the_end_is_refused_as_by_sparks_own_source(cluster: FakeCluster) -> None:
    """Otherwise nothing would be read, silently."""
    beyond = '{"t":{"0":101,"1":60}}'
    words = "t-0 should be read from offset 101 on, but its log ends at 100: choose an earlier start"
    with pytest.raises(SourceError, match=words):
        planner(cluster, False, startingOffsets=beyond).batch_ranges()
    with pytest.raises(SourceError, match=words):
        planner(cluster, startingOffsets=beyond).initial()
    with pytest.raises(SourceError, match="t-0 should be read from offset 30 on, but the requested range ends at 20"):
        planner(
            cluster, False, startingOffsets='{"t":{"0":30,"1":-2}}', endingOffsets='{"t":{"0":20,"1":-1}}'
        ).batch_ranges()
    at_the_end = '{"t":{"0":100,"1":60}}'
    assert planner(cluster, False, startingOffsets=at_the_end).batch_ranges() == []


def test_a_start_beyond_the_end_is_a_warning_without_fail_on_data_loss(cluster: FakeCluster, tmp_path: Path) -> None:
    """For a topic that was recreated since the offsets were stored, the existing records are read."""
    more = {"startingOffsets": '{"t":{"0":101,"1":55}}', "failOnDataLoss": "false", "lossFolder": str(tmp_path)}
    assert planner(cluster, False, **more).batch_ranges() == [OffsetRange("t", 1, 55, 60)]
    assert "t-0 should be read from offset 101 on" in take_reported_losses(str(tmp_path))[0]


def test_an_end_beyond_the_log_fails_at_once(cluster: FakeCluster, tmp_path: Path) -> None:
    ends = '{"t":{"0":101,"1":-1}}'
    with pytest.raises(
        SourceError, match="t-0 should be read up to offset 101, but its log ends at 100: choose an earlier end"
    ):
        planner(cluster, False, endingOffsets=ends).batch_ranges()
    forgiving = planner(cluster, False, endingOffsets=ends, failOnDataLoss="false", lossFolder=str(tmp_path))
    assert forgiving.batch_ranges() == [OffsetRange("t", 0, 0, 100), OffsetRange("t", 1, 50, 60)]
    assert "t-0 should be read up to offset 101" in take_reported_losses(str(tmp_path))[0]


def test_a_batch_between_times(cluster: FakeCluster) -> None:
    found = planner(cluster, False, startingTimestamp="500", endingTimestamp="700").batch_ranges()
    assert found == [OffsetRange("t", 0, 50, 70), OffsetRange("t", 1, 50, 60)]


def test_a_start_that_no_record_reaches_is_an_error_or_latest(cluster: FakeCluster) -> None:
    with pytest.raises(SourceError, match="t-1 has no record at or after 700 ms"):
        planner(cluster, startingTimestamp="700").initial()
    found = planner(cluster, startingTimestamp="700", startingOffsetsByTimestampStrategy="latest").initial()
    assert found == {A: 70, B: 60}


def test_offsets_must_name_every_partition_and_no_other(cluster: FakeCluster) -> None:
    with pytest.raises(OptionError, match="t-1 is missing"):
        planner(cluster, startingOffsets='{"t":{"0":1}}').initial()
    with pytest.raises(OptionError, match="names x-0"):
        planner(cluster, startingOffsets='{"t":{"0":1,"1":1},"x":{"0":1}}').initial()


def test_a_missing_topic_is_an_error_at_the_start(cluster: FakeCluster) -> None:
    with pytest.raises(SourceError, match="topic nowhere does not exist"):
        planner(cluster, subscribe="t,nowhere").initial()
    with pytest.raises(SourceError, match="partition t-9 does not exist"):
        planner(cluster, assign='{"t":[0,9]}').initial()
    assert planner(cluster, subscribePattern="x.*").initial() == {}


def test_a_stream_takes_all_or_its_share(cluster: FakeCluster) -> None:
    made = planner(cluster)
    assert made.next_end({A: 0, B: 50}, None, None) == {A: 100, B: 60}
    assert made.next_end({A: 0, B: 50}, 11, None) == {A: 10, B: 51}
    assert made.latest_offsets == {A: 100, B: 60}


def test_too_little_data_waits_but_not_for_ever(cluster: FakeCluster) -> None:
    made = planner(cluster, minOffsetsPerTrigger="1000", maxTriggerDelay="10s")
    start = {A: 90, B: 60}
    assert made.next_end(start, None, 1000) == {A: 100, B: 60}  # the first batch does not wait
    assert made.next_end(start, None, 1000) == start
    made.seconds.now += 11  # type: ignore[attr-defined]
    assert made.next_end(start, None, 1000) == {A: 100, B: 60}


def test_a_fixed_end_stays_where_it_is(cluster: FakeCluster) -> None:
    made = planner(cluster)
    made.fix_end()
    cluster.logs = {A: (0, 500), B: (50, 60), C: (0, 9)}
    assert made.next_end({A: 0, B: 50}, None, 1000) == {A: 100, B: 60}
    assert made.next_end({A: 100, B: 60}, 10, None) == {A: 100, B: 60}
    assert made.next_end({A: 150, B: 60}, None, None) == {A: 150, B: 60}  # read before the end was fixed


def test_new_partitions_are_read_from_their_beginning(cluster: FakeCluster) -> None:
    made = planner(cluster)
    cluster.logs[C] = (0, 7)
    end = made.next_end({A: 100, B: 60}, None, None)
    assert made.ranges({A: 100, B: 60}, end) == [OffsetRange("t", 2, 0, 7)]


def test_a_first_batch_that_is_done_again_leaves_new_partitions_to_the_next(cluster: FakeCluster) -> None:
    """Spark has stored the end of the interrupted batch, and asks a new process for the start of the query."""
    cluster.logs[C] = (0, 7)
    again = planner(cluster, startingOffsets="earliest")
    start, end = again.initial(), {A: 10, B: 55}
    assert again.ranges(start, end) == [OffsetRange("t", 0, 0, 10), OffsetRange("t", 1, 50, 55)]
    assert again.next_end(end, None, None)[C] == 7


@pytest.mark.parametrize("starting", ["latest", '{"t": {"0": -1, "1": -2}}'])
def test_a_first_batch_that_began_at_the_latest_is_not_done_again_without_its_records(
    cluster: FakeCluster, starting: str
) -> None:
    again = planner(cluster, startingOffsets=starting)
    start = again.initial()
    with pytest.raises(SourceError, match="interrupted in its first batch"):
        again.ranges(start, {A: 100, B: 60})
    first = planner(cluster, startingOffsets=starting)
    begun = first.initial()
    assert first.ranges(begun, first.next_end(begun, None, None))[:1] in ([], [OffsetRange("t", 1, 50, 60)])


def test_where_a_query_began_is_the_same_when_spark_asks_again(cluster: FakeCluster) -> None:
    """Spark asks before it plans the end of the first batch, and again before it runs it."""
    made = planner(cluster, startingOffsets="latest")
    start = made.initial()
    end = made.next_end(start, None, None)
    cluster.logs[A] = (0, 105)
    assert made.initial() == start
    assert made.ranges(made.initial(), end) == []
    assert made.ranges(end, made.next_end(end, None, None)) == [OffsetRange("t", 0, 100, 105)]


def test_a_new_partition_without_its_beginning_is_a_loss(cluster: FakeCluster) -> None:
    with pytest.raises(DataLossError, match="the new partition t-1 begins at offset 50"):
        planner(cluster).ranges({A: 100}, {A: 100, B: 60})
    found = planner(cluster, failOnDataLoss="false").ranges({A: 100}, {A: 100, B: 60})
    assert found == [OffsetRange("t", 1, 50, 60)]


def test_partitions_that_are_gone_are_a_loss(cluster: FakeCluster) -> None:
    with pytest.raises(DataLossError, match="partitions are gone: t-2 from offset 5 on"):
        planner(cluster).ranges({A: 100, C: 5}, {A: 100})
    assert planner(cluster, failOnDataLoss="false").ranges({A: 90, C: 5}, {A: 100}) == [OffsetRange("t", 0, 90, 100)]


def test_a_recreated_topic_is_a_loss_and_is_read_from_its_beginning(cluster: FakeCluster) -> None:
    cluster.logs[A] = (0, 5)
    with pytest.raises(DataLossError, match="t-0 was read up to offset 100, but now it ends at 5"):
        planner(cluster).ranges({A: 100, B: 60}, {A: 5, B: 60})
    found = planner(cluster, failOnDataLoss="false").ranges({A: 100, B: 60}, {A: 5, B: 60})
    assert found == [OffsetRange("t", 0, 0, 5)]


ANEW = "t-0 was read up to offset 100, but its topic was deleted and recreated"


def test_a_recreated_topic_is_a_loss_though_it_is_longer_than_the_old_one(cluster: FakeCluster) -> None:
    reader = planner(cluster)
    start = reader.next_end(reader.initial(), None, None)
    cluster.ids, cluster.logs = {"t": "second"}, {A: (0, 120), B: (0, 60)}
    with pytest.raises(DataLossError, match=ANEW):
        reader.next_end(start, None, None)
    with pytest.raises(DataLossError, match=ANEW):  # a batch that was planned before
        reader.ranges(start, {A: 120, B: 60})


def test_a_recreated_topic_is_a_loss_though_it_ends_at_the_same_offset(cluster: FakeCluster) -> None:
    """Otherwise nothing would be planned, and its records would never be read."""
    reader = planner(cluster)
    start = reader.next_end(reader.initial(), None, None)
    cluster.ids = {"t": "second"}
    with pytest.raises(DataLossError, match=ANEW):
        reader.next_end(start, None, None)


def test_a_repeated_read_never_reads_a_recreated_topic(cluster: FakeCluster, tmp_path: Path) -> None:
    """Dead letters read the offsets of a batch again, which may hold other records by then."""
    stream = planner(cluster, lossFolder=str(tmp_path))
    stream.initial()
    again = {"startingOffsets": '{"t":{"0":10,"1":50}}', "lossFolder": str(tmp_path)}
    assert len(planner(cluster, False, **again).batch_ranges()) == 2
    cluster.ids = {"t": "second"}
    with pytest.raises(DataLossError, match="t-0 cannot be read again: its topic was deleted and recreated"):
        planner(cluster, False, **again).batch_ranges()
    assert planner(cluster, False, failOnDataLoss="false", **again).batch_ranges() == []
    assert len(planner(cluster, False, lossFolder=str(tmp_path)).batch_ranges()) == 2, "from the beginning it is read"


@pytest.mark.parametrize("length", [90, 100, 120])
def test_a_recreated_topic_is_read_from_its_beginning_once(cluster: FakeCluster, tmp_path: Path, length: int) -> None:
    """Even if it ends at the same offset: offsets alone would show nothing new."""
    given = {"failOnDataLoss": "false", "lossFolder": str(tmp_path)}
    reader = planner(cluster, **given)
    start = reader.next_end(reader.initial(), None, None)
    cluster.ids, cluster.logs = {"t": "second"}, {A: (0, length), B: (0, 60)}
    between = reader.next_end(start, None, None)
    assert reader.ranges(start, between) == []
    assert planner(cluster, **given).ranges(start, between) == [], "a run that does the batch again"
    assert any(ANEW in loss for loss in take_reported_losses(str(tmp_path)))
    whole = [OffsetRange("t", 0, 0, length), OffsetRange("t", 1, 0, 60)]
    for each in (planner(cluster, **given), reader):  # a run that was started after that batch; the same run
        end = each.next_end(between, None, None)
        assert each.ranges(between, end) == whole
        assert each.ranges(between, end) == whole, "the batch was not done yet"
        assert each.next_end(end, None, None) == end
    assert take_reported_losses(str(tmp_path)) == []
    cluster.logs[A] = (0, 130)
    assert reader.ranges(end, reader.next_end(end, None, None)) == [OffsetRange("t", 0, length, 130)]


def test_a_batch_over_a_topic_and_its_recreated_one_was_planned_before(cluster: FakeCluster) -> None:
    reader = planner(cluster, failOnDataLoss="false")
    start = reader.next_end(reader.initial(), None, None)
    cluster.ids, cluster.logs = {"t": "second"}, {A: (0, 120), B: (0, 60)}
    reader.next_end(start, None, None)
    assert reader.ranges(start, {A: 120, B: 60}) == [OffsetRange("t", 0, 0, 120), OffsetRange("t", 1, 0, 60)]


def test_a_topic_recreated_between_two_runs_is_a_loss(cluster: FakeCluster, tmp_path: Path) -> None:
    reader = planner(cluster, lossFolder=str(tmp_path))
    start = reader.next_end(reader.initial(), None, None)
    cluster.ids = {"t": "second"}
    with pytest.raises(DataLossError, match=ANEW):
        planner(cluster, lossFolder=str(tmp_path)).ranges(start, start)
    anew = planner(cluster, lossFolder=str(tmp_path))
    anew.fix_end()
    begun = anew.initial()  # a new checkpoint
    assert anew.ranges(begun, anew.next_end(begun, None, None)) == []


def test_a_leader_that_knows_too_little_for_a_moment_is_no_loss(cluster: FakeCluster) -> None:
    cluster.stale = [{A: 40}, {A: 40}]
    assert planner(cluster).next_end({A: 100, B: 60}, None, None) == {A: 100, B: 60}


def test_a_new_partition_without_records_is_not_waited_for(cluster: FakeCluster) -> None:
    pauses: list[float] = []
    plan = planner(cluster)
    plan.sleep = pauses.append
    cluster.logs[C] = (0, 0)
    assert plan.next_end({A: 100, B: 60}, None, None)[C] == 0
    assert pauses == []


def test_offsets_are_written_in_one_order_and_read_again() -> None:
    offsets = {TopicPartition("b", 0): 1, TopicPartition("a", 10): 2, TopicPartition("a", 9): 3}
    assert list(offsets_json(offsets)["a"]) == ["9", "10"]
    assert list(offsets_json(offsets)) == ["a", "b"]
    assert offsets_from_document(offsets_json(offsets)) == offsets
