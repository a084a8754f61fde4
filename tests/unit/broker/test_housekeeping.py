"""When chores run: each by the setting that says so."""

from types import SimpleNamespace
from typing import Any

import pytest

from ottla.base.broker_settings import BrokerSettings
from ottla.base.topic_settings import NEVER_MS, TopicSettings
from ottla.broker.logs.housekeeping import Housekeeping, _is_flush_due
from unit.broker.nodes import node


class Noting(Housekeeping):
    """Starts nothing and notes when each chore would run: first, and then again and again."""

    def __init__(self, settings: BrokerSettings) -> None:
        async def nothing() -> None:
            raise AssertionError

        checkpoints: Any = SimpleNamespace(
            write_recovery_points=nothing, write_start_offsets=nothing, write_high_watermarks=nothing
        )
        unused: Any = None
        super().__init__(node(settings), unused, unused, checkpoints)
        self.times_ms: dict[str, tuple[int, int]] = {}

    def every(self, name: str, first_ms: int, interval_ms: Any, chore: Any) -> None:
        self.times_ms[name] = (first_ms, interval_ms())


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
def test_each_interval_is_its_chores(key: str, chore: str) -> None:
    before, after = times_ms(), times_ms(**{key: "777"})
    assert after[chore][1] == 777
    assert {name: times for name, times in after.items() if name != chore} == {
        name: times for name, times in before.items() if name != chore
    }


def test_nothing_of_this_begins_before_the_initial_delay() -> None:
    found = times_ms(log_initial_task_delay_ms="5")
    assert {name for name, (first_ms, _) in found.items() if first_ms == 5} == {
        "retention",
        "flush",
        "recovery points",
        "start offsets",
        "expired producers",
    }


def test_flushes_by_age_are_looked_for_at_least_once_a_second() -> None:
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
