"""When a cluster is read, how rates come out of offsets, and how long answers are kept apart."""

import asyncio
from typing import ClassVar

import virtual_time
from ottla.base import tasks
from ottla.base.names import TopicPartition
from ottla.client.admin import Partition, Topic
from ottla.console.clusters.gathering import PARTITIONS_PER_REQUEST, groups_per_request, led_pieces, pieces
from ottla.console.clusters.rates import READINGS, History, Point, Rates
from ottla.console.clusters.reader import Reader
from ottla.console.clusters.schedule import BURST, FAILED_MS, PER_SECOND, PERIODS_MS, Bucket, Schedule
from ottla.console.clusters.snapshot import Part, lag


def test_metadata_come_first_and_then_whatever_is_due() -> None:
    schedule = Schedule()
    assert schedule.next() == (Part.METADATA, 0)
    schedule.read(Part.METADATA, 100)
    assert schedule.next()[0] is Part.ENDS
    for part in PERIODS_MS:
        schedule.read(part, 100)
    assert schedule.next() == (Part.METADATA, 100 + PERIODS_MS[Part.METADATA])


def test_a_part_that_failed_is_tried_soon_and_has_the_metadata_looked_at() -> None:
    schedule = Schedule()
    for part in PERIODS_MS:
        schedule.read(part, 0)
    schedule.read(Part.ENDS, 50, failed=True)
    assert schedule.next() == (Part.METADATA, 50)
    assert schedule.due_ms[Part.ENDS] == 50 + FAILED_MS


def test_who_hurries_a_part_while_it_is_read_has_it_read_once_more() -> None:
    schedule = Schedule()
    schedule.begin(Part.METADATA)
    schedule.hurry([Part.METADATA])
    schedule.read(Part.METADATA, 500)
    assert schedule.next() == (Part.METADATA, 0), "the reading began before the change"
    schedule.begin(Part.METADATA)
    schedule.read(Part.METADATA, 600)
    assert schedule.due_ms[Part.METADATA] == 600 + PERIODS_MS[Part.METADATA]


def test_what_changes_slowly_and_costs_much_is_read_seldom() -> None:
    schedule = Schedule()
    schedule.read(Part.SIZES, 0, 3)
    assert schedule.due_ms[Part.SIZES] == PERIODS_MS[Part.SIZES]
    schedule.read(Part.SIZES, 0, 10)
    assert schedule.due_ms[Part.SIZES] == 60_000
    schedule.read(Part.ENDS, 0, 10)
    assert schedule.due_ms[Part.ENDS] == PERIODS_MS[Part.ENDS]


def test_groups_with_many_commits_are_asked_for_in_smaller_numbers() -> None:
    assert groups_per_request({}) == 200
    assert groups_per_request({"a": {TopicPartition("t", number): 0 for number in range(100)}, "b": {}}) == 40
    assert groups_per_request({"a": {TopicPartition("t", number): 0 for number in range(9_000)}}) == 1


def test_a_small_cluster_is_read_at_once_and_a_large_one_slowly() -> None:
    bucket = Bucket(0)
    assert [bucket.wait_ms(0) for _ in range(BURST)] == [0] * BURST
    waits = [bucket.wait_ms(0) for _ in range(3)]
    assert waits == [round(each / PER_SECOND * 1000) for each in (1, 2, 3)]
    bucket.spend(5)
    assert bucket.wait_ms(0) == round(9 / PER_SECOND * 1000), "one question took six requests"
    assert Bucket(0).wait_ms(1_000_000) == 0


def test_rates_are_those_of_a_few_readings() -> None:
    rates: Rates[str] = Rates()
    assert rates.add(0, {"a": 100, "b": 5}) == {}
    assert rates.add(1_000, {"a": 110, "b": 5}) == {"a": 10.0}
    assert rates.add(2_000, {"a": 150, "b": 5, "new": 7}) == {"a": 25.0}
    for second in range(3, 3 + READINGS):
        found = rates.add(second * 1_000, {"a": 150})
    assert found == {}


def test_offsets_that_go_back_are_no_rate() -> None:
    rates: Rates[str] = Rates()
    rates.add(0, {"a": 100})
    assert rates.add(1_000, {"a": 3}) == {}


def test_a_day_of_history_is_kept_and_thinned_out_for_whoever_looks() -> None:
    history = History()
    for number in range(History.POINTS_MAX + 500):
        history.add(Point(number * History.INTERVAL_MS, 1.0, 2.0, number))
    assert len(history.columns[0]) <= History.POINTS_MAX
    times, produced, consumed, backlog = history.since(0, 600)
    assert 300 <= len(times) <= 600
    assert len(times) == len(produced) == len(consumed) == len(backlog)
    assert history.since(10**15, 600) == [[], [], [], []]


def test_points_that_come_too_soon_are_left_out() -> None:
    history = History()
    for at_ms in (0, 100, History.INTERVAL_MS):
        history.add(Point(at_ms, 0.0, 0.0, 0))
    assert list(history.columns[0]) == [0, History.INTERVAL_MS]


def test_leaders_are_asked_in_pieces_and_the_dead_not_at_all() -> None:
    partitions = [Partition(number, number % 2 + 1, [1, 2], [1, 2]) for number in range(2_500)]
    topics = {"t": Topic("t", __import__("uuid").UUID(int=1), False, [*partitions, Partition(2_500, -1, [3], [])])}
    found = led_pieces(topics, [1])
    assert [(leader, len(piece)) for leader, piece in found] == [(1, PARTITIONS_PER_REQUEST), (1, 250)]
    assert list(pieces(range(5), 2)) == [[0, 1], [2, 3], [4]]


def test_lag_is_what_kafkas_tools_say_but_never_below_zero() -> None:
    assert lag(10, 4) == 6
    assert lag(10, 12) == 0, "the end was read a moment before the commit"
    assert lag(None, 4) is None
    assert lag(10, None) is None
    assert TopicPartition("a", 1) == ("a", 1)


class CountedClient:
    """Counts what it is asked for; a question may take several requests."""

    bootstrap: ClassVar[list[str]] = []
    requests = 0

    def ask(self, count: int) -> None:
        self.requests += count


def test_questions_wait_for_the_bucket_and_for_nothing_if_somebody_wants_to_see_a_change() -> None:
    async def main() -> None:
        client = CountedClient()
        reader = Reader(client, virtual_time.LoopClock(), lambda: None)  # type: ignore[arg-type]
        for _ in range(BURST // 5):
            await reader._ask(CountedClient.ask, 5)
        began_ms = virtual_time.LoopClock().monotonic_ms()
        await reader._ask(CountedClient.ask, 1)
        waited_ms = virtual_time.LoopClock().monotonic_ms() - began_ms
        assert waited_ms >= 1_000 / PER_SECOND - 100
        waiting = tasks.ask(reader._ask(CountedClient.ask, 1), "a question")
        await asyncio.sleep(0)
        reader.hurry(Part.COMMITS)
        began_ms = virtual_time.LoopClock().monotonic_ms()
        await waiting
        await reader._ask(CountedClient.ask, 1)
        assert virtual_time.LoopClock().monotonic_ms() - began_ms < 100
        assert reader.bucket.tokens >= -10

    virtual_time.run(main())
