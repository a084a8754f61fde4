"""The schedule of readings, rates from offsets, and downsampling."""

import asyncio
import math
from collections.abc import Awaitable, Callable
from typing import Any, ClassVar
from uuid import UUID

import pytest
from tests import virtual_time

from ottla.base import tasks
from ottla.base.names import TopicPartition
from ottla.client.admin import Partition, Topic
from ottla.client.errors import ClientError
from ottla.client.groups import GroupListing, list_groups
from ottla.console.clusters import reader
from ottla.console.clusters.reader import (
    BURST,
    PARTITIONS_PER_REQUEST,
    PER_SECOND,
    PERIODS_MS,
    RETRY_MS,
    Reader,
    Schedule,
    TokenBucket,
    chunked,
    groups_per_request,
    partitions_by_leader,
)
from ottla.console.clusters.snapshot import Broker, Part, lag
from ottla.console.clusters.time_series import WINDOW_READINGS, ClusterHistory, Point, Rates


def test_metadata_come_first_and_then_whatever_is_due() -> None:
    schedule = Schedule()
    assert schedule.next() == (Part.METADATA, 0)
    schedule.finish(Part.METADATA, 100)
    assert schedule.next()[0] is Part.ENDS
    for part in PERIODS_MS:
        schedule.finish(part, 100)
    assert schedule.next() == (Part.METADATA, 100 + PERIODS_MS[Part.METADATA])


def test_a_failed_part_is_retried_soon_together_with_the_metadata() -> None:
    schedule = Schedule()
    for part in PERIODS_MS:
        schedule.finish(part, 0)
    schedule.finish(Part.ENDS, 50, failed=True)
    assert schedule.next() == (Part.METADATA, 50)
    assert schedule.due_ms[Part.ENDS] == 50 + RETRY_MS


def test_a_part_requested_during_its_reading_is_read_again() -> None:
    schedule = Schedule()
    schedule.begin(Part.METADATA)
    schedule.request([Part.METADATA])
    schedule.finish(Part.METADATA, 500)
    assert schedule.next() == (Part.METADATA, 0), "the reading began before the change"
    schedule.begin(Part.METADATA)
    schedule.finish(Part.METADATA, 600)
    assert schedule.due_ms[Part.METADATA] == 600 + PERIODS_MS[Part.METADATA]


def test_what_changes_slowly_and_costs_much_is_read_seldom() -> None:
    schedule = Schedule()
    schedule.finish(Part.SIZES, 0, 3)
    assert schedule.due_ms[Part.SIZES] == PERIODS_MS[Part.SIZES]
    schedule.finish(Part.SIZES, 0, 10)
    assert schedule.due_ms[Part.SIZES] == 60_000
    schedule.finish(Part.ENDS, 0, 10)
    assert schedule.due_ms[Part.ENDS] == PERIODS_MS[Part.ENDS]


def test_groups_with_many_commits_are_read_in_smaller_requests() -> None:
    assert groups_per_request({}) == 200
    assert groups_per_request({"a": {TopicPartition("t", number): 0 for number in range(100)}, "b": {}}) == 40
    assert groups_per_request({"a": {TopicPartition("t", number): 0 for number in range(9_000)}}) == 1


def test_a_small_cluster_is_read_at_once_and_a_large_one_slowly() -> None:
    bucket = TokenBucket(0)
    assert [bucket.take(0) for _ in range(BURST)] == [0] * BURST
    waits = [bucket.take(0) for _ in range(3)]
    assert waits == [round(each / PER_SECOND * 1000) for each in (1, 2, 3)]
    bucket.take_extra(5)
    assert bucket.take(0) == round(9 / PER_SECOND * 1000), "one question took six requests"
    assert TokenBucket(0).take(1_000_000) == 0


def test_rates_are_those_of_a_few_readings() -> None:
    rates: Rates[str] = Rates()
    assert rates.add(0, {"a": 100, "b": 5}) == {}
    assert rates.add(1_000, {"a": 110, "b": 5}) == {"a": 10.0}
    assert rates.add(2_000, {"a": 150, "b": 5, "new": 7}) == {"a": 25.0}
    for second in range(3, 3 + WINDOW_READINGS):
        found = rates.add(second * 1_000, {"a": 150})
    assert found == {}


def test_offsets_that_go_back_are_no_rate() -> None:
    rates: Rates[str] = Rates()
    rates.add(0, {"a": 100})
    assert rates.add(1_000, {"a": 3}) == {}


def test_a_day_of_history_is_kept_and_downsampled() -> None:
    history = ClusterHistory()
    for number in range(ClusterHistory.POINTS_MAX + 500):
        history.add(Point(number * ClusterHistory.INTERVAL_MS, 1.0, 2.0, number))
    assert len(history.columns[0]) <= ClusterHistory.POINTS_MAX
    times, produced, consumed, backlog = history.since(0, 600, 0)
    assert 300 <= len(times) <= 600
    assert len(times) == len(produced) == len(consumed) == len(backlog)
    assert history.since(10**15, 600, 10**15) == [[], [], [], []]


def test_points_that_come_too_soon_are_left_out() -> None:
    history = ClusterHistory()
    for at_ms in (0, 100, ClusterHistory.INTERVAL_MS):
        history.add(Point(at_ms, 0.0, 0.0, 0))
    assert list(history.columns[0]) == [0, ClusterHistory.INTERVAL_MS]


def test_partitions_are_chunked_by_live_leader() -> None:
    partitions = [Partition(number, number % 2 + 1, [1, 2], [1, 2]) for number in range(2_500)]
    topics = {"t": Topic("t", __import__("uuid").UUID(int=1), False, [*partitions, Partition(2_500, -1, [3], [])])}
    found = partitions_by_leader(topics, [1])
    assert [(leader, len(piece)) for leader, piece in found] == [(1, PARTITIONS_PER_REQUEST), (1, 250)]
    assert list(chunked(range(5), 2)) == [[0, 1], [2, 3], [4]]


def test_lag_is_what_kafkas_tools_say_but_never_below_zero() -> None:
    assert lag(10, 4) == 6
    assert lag(10, 12) == 0, "the end was read a moment before the commit"
    assert lag(None, 4) is None
    assert lag(10, None) is None
    assert TopicPartition("a", 1) == ("a", 1)


class CountedClient:
    """Counts requests; one call may take several."""

    bootstrap: ClassVar[list[str]] = []
    requests = 0

    def ask(self, count: int) -> None:
        self.requests += count


def test_requests_wait_for_the_token_bucket_except_after_a_change() -> None:
    async def main() -> None:
        client = CountedClient()
        reader = Reader(client, virtual_time.LoopClock(), lambda: None)  # type: ignore[arg-type]
        for _ in range(BURST // 5):
            await reader._run_in_thread(CountedClient.ask, 5)
        began_ms = virtual_time.LoopClock().monotonic_ms()
        await reader._run_in_thread(CountedClient.ask, 1)
        waited_ms = virtual_time.LoopClock().monotonic_ms() - began_ms
        assert waited_ms >= 1_000 / PER_SECOND - 100
        waiting = tasks.spawn_awaited(reader._run_in_thread(CountedClient.ask, 1), "a question")
        await asyncio.sleep(0)
        reader.refresh(Part.COMMITS)
        began_ms = virtual_time.LoopClock().monotonic_ms()
        await waiting
        await reader._run_in_thread(CountedClient.ask, 1)
        assert virtual_time.LoopClock().monotonic_ms() - began_ms < 100
        assert reader.bucket.tokens >= -10

    virtual_time.run(main())


class PlayedClient:
    """A cluster with an internal and a user topic, which grow by ten records at each reading while it is reachable."""

    bootstrap: ClassVar[list[str]] = []
    requests = 0
    topics: ClassVar[dict[str, Topic]] = {
        name: Topic(name, UUID(int=number), name.startswith("__"), [Partition(0, 1, [1], [1])])
        for number, name in enumerate(("orders", "__consumer_offsets"), 1)
    }

    def __init__(self, groups: dict[str, int] | None = None) -> None:
        self.is_there = True
        self.is_loading = False
        self.looks = 0
        self.groups = groups or {}

    def answer(self, answer: object) -> Any:
        if not self.is_there:
            raise ClientError("cannot reach a:9092: connection refused")
        return answer

    def metadata(self, *_: object) -> reader.Metadata:
        return self.answer(reader.Metadata("id", 1, {1: Broker(1, "a", 9092, None)}, self.topics))

    def ends(self, _leader: int, led: list[TopicPartition], _time: int) -> dict[TopicPartition, int]:
        self.looks += 1
        return self.answer({} if self.is_loading else dict.fromkeys(led, self.looks * 10))

    def listed(self) -> list[GroupListing]:
        return self.answer([GroupListing(name, "consumer", "Empty", "Classic") for name in self.groups])

    def commits(self, names: list[str], _per_request: int) -> dict[str, dict[TopicPartition, int]]:
        found = {} if self.is_loading else {name: {TopicPartition("orders", 0): self.groups[name]} for name in names}
        return self.answer(found)

    def sizes(self, *_: object) -> reader.LogDirSizes:
        return self.answer(reader.LogDirSizes([], []))


def play_reader(
    monkeypatch: pytest.MonkeyPatch, client: PlayedClient, scene: Callable[[Reader], Awaitable[None]]
) -> Reader:
    played: list[tuple[Callable[..., Any], Callable[..., Any]]] = [
        (reader.fetch_metadata, PlayedClient.metadata),
        (reader.fetch_log_offsets, PlayedClient.ends),
        (list_groups, PlayedClient.listed),
        (reader.fetch_committed_offsets, PlayedClient.commits),
        (reader.fetch_log_dirs, PlayedClient.sizes),
    ]
    for function, method in played:
        monkeypatch.setattr(reader, function.__name__, method)
    made: list[Reader] = []

    async def main() -> None:
        made.append(Reader(client, virtual_time.LoopClock(), lambda: None))  # type: ignore[arg-type]
        task = tasks.spawn_restarting(made[0].run, "reader")
        await scene(made[0])
        task.cancel()

    virtual_time.run(main())
    return made[0]


@pytest.mark.parametrize("groups", [{}, {"billing": 3}])
@pytest.mark.parametrize("is_loading", [False, True])
def test_zeros_were_plotted_while_a_cluster_could_not_be_reached(
    monkeypatch: pytest.MonkeyPatch, groups: dict[str, int], is_loading: bool
) -> None:
    """Also while its brokers are up but lead no partition yet."""
    client = PlayedClient(groups)
    outage: list[int] = []

    async def scene(_: Reader) -> None:
        clock = virtual_time.LoopClock()
        await asyncio.sleep(120)
        client.is_there, client.is_loading = is_loading, is_loading
        outage.append(clock.now_ms())
        await asyncio.sleep(120)
        client.is_there, client.is_loading = True, False
        outage.append(clock.now_ms())
        await asyncio.sleep(120)

    history = play_reader(monkeypatch, client, scene).history
    begin_ms, end_ms = outage
    times, produced, _, backlog = history.since(0, 600, end_ms + 120_000)
    during = [
        at
        for at, number in zip(times, produced, strict=True)
        if begin_ms + 5_000 < at < end_ms and not math.isnan(number)
    ]
    assert during == []
    assert any(map(math.isnan, produced)), "and no line is drawn through it"
    known = [number for number in produced if not math.isnan(number)]
    assert len(known) >= 16
    assert all(1 < number < 10 for number in known[2:8]), known
    assert [place for place, number in enumerate(produced) if math.isnan(number)] == [
        place for place, number in enumerate(backlog) if math.isnan(number)
    ]


def test_written_records_held_those_of_internal_topics(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scene(_: Reader) -> None:
        await asyncio.sleep(120)

    reader = play_reader(monkeypatch, PlayedClient({"billing": 3}), scene)
    each = reader.snapshot.rates[TopicPartition("orders", 0)]
    assert reader.snapshot.rates[TopicPartition("__consumer_offsets", 0)] == each
    assert reader.history.columns[1][-1] == pytest.approx(each, rel=0.2)


def test_a_gap_is_drawn_also_where_points_are_thinned_out_and_to_the_present() -> None:
    history = ClusterHistory()
    times = [*range(0, 3_000_000, 10_000), *range(6_000_000, 9_000_000, 10_000)]
    for at_ms in times:
        history.add(Point(at_ms, 1.0, 2.0, 3))
    for points_max in (7, 100, 10_000):
        at_ms, produced, *_ = history.since(0, points_max, 9_100_000)
        gaps = [at for at, number in zip(at_ms, produced, strict=True) if math.isnan(number)]
        assert len(gaps) == 2
        assert 2_990_000 < gaps[0] < 6_000_000
        assert gaps[1] == 9_100_000, "what is not known now is not drawn"
        assert at_ms == sorted(at_ms)
    assert not any(map(math.isnan, history.since(6_000_000, 600, 9_000_000)[1]))
