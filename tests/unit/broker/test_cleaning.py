"""What the broker makes of its settings and of a log when it asks the cleaner for work."""

from __future__ import annotations

import uuid
from pathlib import Path

import pytest

from ottla.base.broker_settings import BrokerSettings
from ottla.broker.logs.cleaning import (
    MAP_BYTES_MAX,
    Chosen,
    cleaner_settings,
    facts_of,
    index_sizes,
    make_job,
    remove_leftovers,
)
from ottla.replication.partition import Partition
from ottla.storage.cleaning.job import CleanJob
from ottla.storage.cleaning.plan import decide_cleanable
from unit.storage.clean_stand import NOW_MS, PARTITION, SETTINGS, new_log, put


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
    chosen = Chosen(partition, decide_cleanable(facts_of(partition), NOW_MS))
    broker = BrokerSettings({key.replace("_", "."): value for key, value in settings.items()})
    return make_job(chosen, broker, NOW_MS, index_sizes(chosen.directory, list(chosen.segments)))


def test_a_job_holds_all_but_the_active_segment(partition: Partition) -> None:
    job = job_with(partition)

    assert [segment.base_offset for segment in job.segments] == [0, 1]
    assert [(segment.size > 0, segment.time_index_bytes) for segment in job.segments] == [(True, 12), (True, 12)]
    assert (job.first_dirty_offset, job.first_uncleanable_offset, job.end_offset) == (0, 2, 3)
    assert job.last_records == [(5, 0, 2), (6, 1, 0)]
    assert (job.is_compacted, job.policies) == (True, [])
    assert job.delete_retention_ms == SETTINGS.delete_retention_ms


def test_the_cleaners_share_memory_and_speed(partition: Partition) -> None:
    job = job_with(
        partition,
        log_cleaner_threads="4",
        log_cleaner_dedupe_buffer_size="8000000",
        log_cleaner_io_buffer_size="400000",
        log_cleaner_io_buffer_load_factor="0.7",
        log_cleaner_io_max_bytes_per_second="1000",
    )

    assert (job.map_bytes, job.buffer_bytes, job.load_factor, job.bytes_per_second) == (2_000_000, 50_000, 0.7, 250.0)


def test_no_cleaner_gets_more_memory_than_keeps_it_small(partition: Partition) -> None:
    assert job_with(partition).map_bytes == MAP_BYTES_MAX
    assert job_with(partition, log_cleaner_dedupe_buffer_size="100000000000").map_bytes == MAP_BYTES_MAX


def test_the_high_watermark_holds_the_cleaner_back(partition: Partition) -> None:
    partition.high_watermark = 1

    assert decide_cleanable(facts_of(partition), NOW_MS).first_uncleanable_offset == 1


def test_a_log_that_changed_its_policy_or_its_place_is_not_wanted_any_more(partition: Partition) -> None:
    chosen = Chosen(partition, decide_cleanable(facts_of(partition), NOW_MS))
    assert chosen.is_current()
    partition.retire()
    assert not chosen.is_current()


def test_only_settings_of_the_cleaner_start_it_anew() -> None:
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
