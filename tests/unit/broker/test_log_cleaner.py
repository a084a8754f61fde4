"""Jobs of the log cleaner from settings and logs, and its backoff."""

from __future__ import annotations

import uuid
from pathlib import Path

import pytest
from tests.unit.storage.clean_stand import NOW_MS, PARTITION, SETTINGS, new_log, put

from ottla.base.broker_settings import BrokerSettings
from ottla.broker.log_manager.log_cleaner import (
    MAP_BYTES_MAX,
    WAIT_MS_MAX,
    CleanerBackoff,
    SelectedLog,
    cleaner_settings,
    index_sizes,
    log_facts,
    make_job,
    remove_leftovers,
)
from ottla.replication.partition import Partition
from ottla.storage.cleaning.job import CleanJob
from ottla.storage.cleaning.plan import plan_cleaning


@pytest.fixture
def partition(tmp_path: Path) -> Partition:
    log = new_log(tmp_path / "log")
    put(log, (b"a", b"1"), producer_id=5, producer_epoch=2, base_sequence=0)
    log.roll(NOW_MS)
    put(log, (b"a", b"2"), producer_id=6, producer_epoch=0, base_sequence=0)
    log.roll(NOW_MS)
    put(log, (b"a", b"3"))
    partition = Partition(PARTITION, uuid.uuid4(), log, 1)
    partition.high_watermark = log.end_offset
    return partition


def job_with(partition: Partition, **settings: str) -> CleanJob:
    chosen = SelectedLog(partition, plan_cleaning(log_facts(partition), NOW_MS))
    broker = BrokerSettings({key.replace("_", "."): value for key, value in settings.items()})
    return make_job(chosen, broker, NOW_MS, index_sizes(chosen.directory, list(chosen.segments)))


def test_a_job_contains_all_but_the_active_segment(partition: Partition) -> None:
    job = job_with(partition)

    assert [segment.base_offset for segment in job.segments] == [0, 1]
    assert [(segment.size > 0, segment.time_index_bytes) for segment in job.segments] == [(True, 12), (True, 12)]
    assert (job.first_dirty_offset, job.first_uncleanable_offset, job.end_offset) == (0, 2, 3)
    assert job.last_records == [(5, 0, 2), (6, 1, 0)]
    assert (job.is_compacted, job.policies) == (True, [])
    assert job.delete_retention_ms == SETTINGS.delete_retention_ms


def test_the_cleaner_threads_share_memory_and_rate(partition: Partition) -> None:
    job = job_with(
        partition,
        log_cleaner_threads="4",
        log_cleaner_dedupe_buffer_size="8000000",
        log_cleaner_io_buffer_size="400000",
        log_cleaner_io_buffer_load_factor="0.7",
        log_cleaner_io_max_bytes_per_second="1000",
    )

    assert (job.map_bytes, job.buffer_bytes, job.load_factor, job.bytes_per_second) == (2_000_000, 50_000, 0.7, 250.0)


def test_the_memory_of_a_cleaner_is_limited(partition: Partition) -> None:
    assert job_with(partition).map_bytes == MAP_BYTES_MAX
    assert job_with(partition, log_cleaner_dedupe_buffer_size="100000000000").map_bytes == MAP_BYTES_MAX


def test_the_high_watermark_limits_the_cleaner(partition: Partition) -> None:
    partition.high_watermark = 1

    assert plan_cleaning(log_facts(partition), NOW_MS).first_uncleanable_offset == 1


def test_a_log_with_another_policy_or_directory_is_not_current(partition: Partition) -> None:
    chosen = SelectedLog(partition, plan_cleaning(log_facts(partition), NOW_MS))
    assert chosen.is_current()
    partition.close()
    assert not chosen.is_current()


def test_only_cleaner_settings_restart_it() -> None:
    plain = cleaner_settings(BrokerSettings({}))

    assert cleaner_settings(BrokerSettings({"num.io.threads": "3"})) == plain
    for key in (
        "log.cleaner.threads",
        "log.cleaner.backoff.ms",
        "log.cleaner.dedupe.buffer.size",
        "log.cleaner.io.buffer.load.factor",
        "log.cleaner.io.buffer.size",
        "log.cleaner.io.max.bytes.per.second",
    ):
        assert cleaner_settings(BrokerSettings({key: "7"})) != plain, key


def test_only_unfinished_files_are_removed(partition: Partition, tmp_path: Path) -> None:
    before = sorted(path.name for path in (tmp_path / "log").iterdir())
    (tmp_path / "log" / f"{0:020d}.log.cleaned").write_bytes(b"half")
    remove_leftovers(str(tmp_path / "log"))
    remove_leftovers(str(tmp_path / "nowhere"))

    assert sorted(path.name for path in (tmp_path / "log").iterdir()) == before


# ---- backoff on a full disk: growing pauses, one message


def test_each_consecutive_failure_doubles_the_pause_up_to_a_minute() -> None:
    backoff = CleanerBackoff()
    now_ms = 5_000
    waits = []
    for _ in range(9):
        backoff.record_failure("/a", now_ms)
        started = now_ms
        while not backoff.is_allowed("/a", now_ms):
            now_ms += 500
        waits.append(now_ms - started)
    assert waits[:4] == [1_000, 2_000, 4_000, 8_000]
    assert waits[-1] == WAIT_MS_MAX


def test_only_the_first_failure_is_logged_until_a_success() -> None:
    backoff = CleanerBackoff()
    assert backoff.record_failure("/a", 0)
    assert not backoff.record_failure("/a", 2_000)
    backoff.record_success("/a")
    assert backoff.is_allowed("/a", 0)
    assert backoff.record_failure("/a", 3_000)


def test_another_directory_is_not_delayed() -> None:
    backoff = CleanerBackoff()
    backoff.record_failure("/a", 0)
    assert backoff.is_allowed("/b", 0)
