"""The history of clusters and groups over a restart, and its size."""

from __future__ import annotations

import asyncio
import math
import os
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tests.virtual_time import LoopClock, run

from ottla.base.names import TopicPartition
from ottla.console.clusters.snapshot import Part, PartState, Snapshot
from ottla.console.clusters.time_series import ClusterHistory, Point
from ottla.console.history.archive import COARSE_MS, DAY_MS, FILE, FINE_MS, Archive
from ottla.console.history.group_lags import GroupLags, LagPoint, find_point, merge_rounds, pack_round
from ottla.console.history.recorder import Recorder, restore_history

PLACE = TopicPartition("orders", 0)


def snapshot(end: int, committed: int, read_ms: int, rate: float = 0.0, groups: int = 1) -> Snapshot:
    state = PartState(1, read_ms)
    return Snapshot(
        states={Part.ENDS: state, Part.COMMITS: state},
        ends={PLACE: end},
        commits={f"g{number}": {PLACE: committed} for number in range(groups)},
        consume_rates={"g0": rate},
    )


def test_lag_in_time_is_reckoned_from_when_the_log_passed_the_record() -> None:
    lags = GroupLags()
    lags.measure(snapshot(100, 100, 10_000), lambda _: 1, 10_000)
    lags.measure(snapshot(200, 100, 40_000), lambda _: 1, 40_000)
    assert lags.measure(snapshot(200, 150, 70_000, 5.0), lambda _: 1, 70_000) == {1: LagPoint(50, 45_000, 5.0)}
    assert lags.measure(snapshot(200, 200, 80_000), lambda _: 1, 80_000) == {1: LagPoint(0, 0, 0.0)}


def test_what_is_not_known_is_no_number() -> None:
    state = PartState(1, 1)
    unread = Snapshot(states={Part.ENDS: state}, commits={"g": {PLACE: 5}})
    (point,) = GroupLags().measure(unread, lambda _: 1, 1).values()
    assert math.isnan(point.lag)
    assert math.isnan(point.lag_ms)


def test_a_round_is_packed_and_one_group_is_found_in_it() -> None:
    one = {7: LagPoint(1, 2, 3), 2: LagPoint(4, 5, 0.5), 900: LagPoint(0, 0, 0)}
    assert [find_point(pack_round(one), number) for number in (2, 7, 8, 900, 901)] == [
        one[2],
        one[7],
        None,
        one[900],
        None,
    ]
    assert find_point(pack_round({}), 1) is None
    assert len(pack_round(one)) == 16 * 3


def test_a_coarse_round_has_the_worst_lag_and_the_mean_rate() -> None:
    rounds = [{1: LagPoint(5, 900, 2)}, {1: LagPoint(9, 100, 4)}, {1: LagPoint(math.nan, math.nan, 0)}]
    assert merge_rounds(rounds) == {1: LagPoint(9, 900, 2.0)}


class Scene:
    """A recorder of one cluster with a fake reader."""

    def __init__(self, folder: Path) -> None:
        self.clock = LoopClock()
        self.cluster: Any = SimpleNamespace(reader=SimpleNamespace(history=ClusterHistory()), snapshot=Snapshot())
        self.clusters = {"main": self.cluster}
        self.recorder = Recorder(folder / FILE, self.clock, self.clusters, lambda: None)

    async def goes_on(self, seconds: int, committed: int) -> None:
        """The reader reads every ten seconds; the log grows by one record each time."""
        for second in range(0, seconds, 10):
            now_ms = self.clock.now_ms()
            end = 1_000 + second
            self.cluster.reader.history.add(Point(now_ms, 1.5, 2.5, end - committed))
            self.cluster.snapshot = snapshot(end, committed, now_ms, 3.0)
            await asyncio.sleep(10)


def test_points_and_rounds_are_there_after_a_restart(tmp_path: Path) -> None:
    async def main() -> None:
        first = Scene(tmp_path)
        first.recorder.start()
        await first.goes_on(700, committed=1_000)
        await first.recorder.stop()
        before = [list(column) for column in first.cluster.reader.history.columns]
        fine = await Scene(tmp_path).recorder.group("main", "g0", 1)
        assert len(fine) >= 20

        second = Scene(tmp_path)
        second.recorder.start()
        await second.goes_on(100, committed=1_000)
        after = second.cluster.reader.history
        assert [list(column[: len(before[0])]) for column in after.columns] == before
        assert list(after.columns[0]) == sorted(after.columns[0])
        assert len(after.columns[0]) > len(before[0])
        again = await second.recorder.group("main", "g0", 1)
        assert again[: len(fine)] == fine
        assert len(again) > len(fine)
        assert len(await second.recorder.group("main", "g0", 24)) >= 3
        assert await second.recorder.group("main", "missing", 1) == []
        second.clusters.clear()  # the cluster is removed
        await asyncio.sleep(2)
        assert await second.recorder.group("main", "g0", 1) == []
        await second.recorder.stop()

    run(main())


def test_a_failing_disk_is_logged_once_and_stops_nothing(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        scene = Scene(tmp_path)
        (tmp_path / FILE).mkdir()
        scene.recorder.start()
        await scene.goes_on(200, committed=1_000)
        assert await scene.recorder.group("main", "g0", 1) == []
        assert len(scene.cluster.reader.history.columns[0]) == 20
        assert len([record for record in caplog.records if "cannot be written" in record.message]) == 1
        (tmp_path / FILE).rmdir()
        await scene.goes_on(100, committed=1_000)
        assert await scene.recorder.group("main", "g0", 1) != []
        await scene.recorder.stop()

    run(main())


@pytest.mark.parametrize("damage", [b"no database at all, but something else that is long enough to be read" * 30, b""])
def test_a_damaged_file_is_begun_anew(tmp_path: Path, damage: bytes) -> None:
    path = tmp_path / FILE
    path.write_bytes(damage)
    archive = Archive(path)
    archive.add_points("main", [{"at_ms": 5, "produced": 1.0}])
    assert archive.points("main", 0) == [{"at_ms": 5, "produced": 1.0}]
    assert os.stat(path).st_mode & 0o777 == 0o600
    archive.close()


def test_the_file_is_bounded(tmp_path: Path) -> None:
    """Two days of rounds: rounds older than the retention are deleted."""
    archive = Archive(tmp_path / FILE)
    number = archive.add_group("main", "g", 0)
    for at_ms in range(0, 2 * DAY_MS, COARSE_MS):
        archive.add_round("main", COARSE_MS, at_ms, {number: LagPoint(1, 2, 3)})
        archive.add_round("main", FINE_MS, at_ms, {number: LagPoint(1, 2, 3)})
        archive.mark_seen([number], at_ms)
        archive.prune(at_ms)
    assert len(archive.group_points("main", "g", COARSE_MS, 0)) == DAY_MS // COARSE_MS + 1
    assert len(archive.group_points("main", "g", FINE_MS, 0)) == 3_600_000 // COARSE_MS + 1
    archive.prune(4 * DAY_MS)
    assert archive.group_ids("main") == {}
    archive.close()


@pytest.mark.parametrize("part", [Part.METADATA, Part.ENDS, Part.COMMITS])
def test_old_numbers_of_a_group_were_drawn_on_while_its_cluster_could_not_be_reached(
    tmp_path: Path, part: Part
) -> None:
    async def main() -> None:
        scene = Scene(tmp_path)
        scene.recorder.start()
        await scene.goes_on(100, committed=1_000)
        known = scene.cluster.snapshot
        gone = known.state(part)._replace(problem="cannot reach a:9092: connection refused")
        scene.cluster.snapshot = replace(known, states={**known.states, part: gone})
        begin_ms = scene.clock.now_ms()
        await asyncio.sleep(200)
        end_ms = scene.clock.now_ms()
        await scene.goes_on(100, committed=1_000)
        times = [at_ms for at_ms, _ in await scene.recorder.group("main", "g0", 1)]
        assert [at_ms for at_ms in times if begin_ms < at_ms < end_ms] == []
        assert times[0] < begin_ms
        assert times[-1] > end_ms
        await scene.recorder.stop()

    run(main())


def test_what_was_not_known_is_not_known_after_a_restart_either(tmp_path: Path) -> None:
    archive = Archive(tmp_path / FILE)
    archive.add_points("main", [{"at_ms": 5, "produced": 1.0, "consumed": math.nan, "backlog": math.nan}])
    history = ClusterHistory()
    restore_history(history, archive.points("main", 0))
    columns = history.since(0, 600, 5)
    assert columns[:2] == [[5.0], [1.0]]
    assert math.isnan(columns[2][0])
    assert math.isnan(columns[3][0])
    archive.close()
