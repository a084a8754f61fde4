"""Flushes that fail: waiting produces get an error, and full disks are retried."""

from __future__ import annotations

import asyncio
import errno
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from uuid import UUID

import pytest
from tests.virtual_time import LoopClock, run

from ottla.base.names import TopicPartition
from ottla.base.topic_settings import TopicSettings
from ottla.broker.log_manager.flusher import RETRY_SECONDS, Flusher
from ottla.protocol.batches import build_batch
from ottla.protocol.records import Record
from ottla.replication.leader_state import PartitionState
from ottla.replication.partition import Partition
from ottla.replication.waiting_requests import WaitingProduce
from ottla.storage import files
from ottla.storage.descriptors import DescriptorPool
from ottla.storage.flush import SyncLatency
from ottla.storage.log_dir import create_log

NOW_MS = 1_700_000_000_000
NAME = TopicPartition("t", 0)


def led_partition(directory: Path, flusher: Flusher) -> Partition:
    settings = TopicSettings(flush_messages=1, index_interval_bytes=10)
    log = create_log(NAME, str(directory / "t-0"), settings, DescriptorPool(64), None, NOW_MS, 10**9)
    partition = Partition(NAME, UUID(int=1), log, 1)
    partition.flush = flusher.start
    partition.apply_state(PartitionState(1, 0, (1,), (1,)), 0)
    return partition


def append(partition: Partition) -> int:
    batch = build_batch([Record(-1, NOW_MS, None, b"v" * 100)])
    return partition.append(memoryview(batch), True, NOW_MS).last_offset


def test_records_become_visible_when_their_index_fits_on_the_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Regression: the records fitted on the disk but not their index, and the produce waited for ever."""
    monkeypatch.setattr(files, "sync", lambda descriptor: None)
    real = files.write_at

    def write_at(descriptor: int, data: bytes, position: int) -> int:
        if os.readlink(f"/proc/self/fd/{descriptor}").endswith("index"):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return real(descriptor, data, position)

    async def main() -> None:
        flusher = Flusher(ThreadPoolExecutor(1), SyncLatency(LoopClock()))
        partition = led_partition(tmp_path, flusher)
        answered: list[bool] = []
        append(partition)
        await asyncio.sleep(0.1)
        assert partition.high_watermark == 1
        with monkeypatch.context() as disk:
            disk.setattr(files, "write_at", write_at)
            last_offset = append(partition)
            last_offset = append(partition)
            partition.wait_for_replication(last_offset, WaitingProduce(1, lambda: answered.append(True)))
            await asyncio.sleep(5 * RETRY_SECONDS)
            assert partition.high_watermark == 1
            assert not answered
        await asyncio.sleep(2 * RETRY_SECONDS)
        assert partition.high_watermark == 3
        assert answered == [True]
        append(partition)
        await asyncio.sleep(0.1)
        assert partition.high_watermark == 4
        partition.log.close_files()

    run(main())


def test_a_failed_sync_is_reported_and_not_repeated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    syncs: list[int] = []

    def sync(descriptor: int) -> None:
        syncs.append(descriptor)
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(files, "sync", sync)

    async def main() -> None:
        partition = led_partition(tmp_path, Flusher(ThreadPoolExecutor(1), SyncLatency(LoopClock())))
        answered: list[bool] = []
        last_offset = append(partition)
        partition.wait_for_replication(last_offset, WaitingProduce(1, lambda: answered.append(True)))
        await asyncio.sleep(5 * RETRY_SECONDS)
        assert len(syncs) == 1
        assert answered == [True], "its response is an error: the log is closed"
        assert partition.log.offline_reason is not None
        partition.log.close_files()

    run(main())
