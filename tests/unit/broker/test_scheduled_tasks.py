"""Intervals of the scheduled tasks."""

from types import SimpleNamespace
from typing import Any

import pytest
from tests import virtual_time
from tests.unit.broker.nodes import node
from tests.virtual_time import LoopClock

from ottla.base.broker_settings import BrokerSettings
from ottla.base.topic_settings import NEVER_MS, TopicSettings
from ottla.broker.log_manager.scheduled_tasks import TaskScheduler, _is_flush_due


class Noting(TaskScheduler):
    """Starts nothing and records when each task would run: the first delay, and the interval."""

    def __init__(self, settings: BrokerSettings) -> None:
        async def nothing() -> None:
            raise AssertionError

        checkpoints: Any = SimpleNamespace(
            write_recovery_points=nothing, write_start_offsets=nothing, write_high_watermarks=nothing
        )
        unused: Any = None
        super().__init__(node(settings), unused, unused, checkpoints)
        self.times_ms: dict[str, tuple[int, int]] = {}

    def schedule(self, name: str, first_ms: int, interval_ms: Any, chore: Any) -> None:
        self.times_ms[name] = (first_ms, interval_ms())


def test_files_are_removed_after_the_same_delay_when_the_system_clock_is_set() -> None:
    calls: list[tuple[str, int]] = []
    log_dirs = SimpleNamespace(
        on_clock_step=lambda step_ms: calls.append(("step", step_ms)),
        take_deleted=lambda now_ms: calls.append(("take", now_ms)),
    )
    clock = LoopClock()
    me = node(clock=clock)
    unused: Any = None
    scheduler = TaskScheduler(me, SimpleNamespace(log_dirs=log_dirs), unused, unused)  # type: ignore[arg-type]
    clock.epoch_ms -= 3_600_000
    virtual_time.run(scheduler.remove_deleted())
    assert [name for name, _ in calls] == ["step", "take"]
    assert calls[0][1] == -3_600_000


def times_ms(**texts: str) -> dict[str, tuple[int, int]]:
    housekeeping = Noting(BrokerSettings({key.replace("_", "."): text for key, text in texts.items()}))
    housekeeping.start()
    return housekeeping.times_ms


@pytest.mark.parametrize(
    ("key", "chore"),
    [
        ("log_retention_check_interval_ms", "retention"),
        ("log_flush_scheduler_interval_ms", "flush"),
        ("log_flush_offset_checkpoint_interval_ms", "recovery points"),
        ("log_flush_start_offset_checkpoint_interval_ms", "start offsets"),
        ("producer_id_expiration_check_interval_ms", "expired producers"),
        ("replica_high_watermark_checkpoint_interval_ms", "high watermarks"),
    ],
)
def test_each_interval_belongs_to_its_task(key: str, chore: str) -> None:
    before, after = times_ms(), times_ms(**{key: "777"})
    assert after[chore][1] == 777
    assert {name: times for name, times in after.items() if name != chore} == {
        name: times for name, times in before.items() if name != chore
    }


def test_log_tasks_start_after_the_initial_delay() -> None:
    found = times_ms(log_initial_task_delay_ms="5")
    assert {name for name, (first_ms, _) in found.items() if first_ms == 5} == {
        "retention",
        "flush",
        "recovery points",
        "start offsets",
    }


def test_expired_producers_are_removed_after_their_own_interval() -> None:
    found = times_ms(producer_id_expiration_check_interval_ms="1000", log_initial_task_delay_ms="30000")
    assert found["expired producers"] == (1000, 1000)


def test_each_task_starts_when_kafkas_does() -> None:
    """As in Apache Kafka 4.3.1; deleted files are removed sooner here (docs/decisions/settings.md)."""
    found = times_ms(
        log_initial_task_delay_ms="5",
        producer_id_expiration_check_interval_ms="6",
        replica_high_watermark_checkpoint_interval_ms="7000",
    )
    assert {name: first_ms for name, (first_ms, _) in found.items()} == {
        "retention": 5,
        "flush": 5,
        "recovery points": 5,
        "start offsets": 5,
        "expired producers": 6,
        "high watermarks": 0,
        "removal": 0,
    }


def test_flushes_by_age_run_at_least_once_a_second() -> None:
    assert times_ms()["flush"][1] == 1000


@pytest.mark.parametrize(
    ("flush_ms", "now_ms", "unflushed", "is_due"),
    [
        (100, 1099, 1, False),
        (100, 1100, 1, True),
        (100, 1100, 0, False),
        (NEVER_MS, 10**15, 1, False),
        (0, 1000, 1, True),
    ],
)
def test_a_log_is_flushed_when_its_records_are_as_old_as_flush_ms(
    flush_ms: int, now_ms: int, unflushed: int, is_due: bool
) -> None:
    log = SimpleNamespace(settings=TopicSettings(flush_ms=flush_ms), unflushed_messages=unflushed)
    partition: Any = SimpleNamespace(log=log, flushed_ms=1000)
    assert _is_flush_due(partition, now_ms) is is_due
