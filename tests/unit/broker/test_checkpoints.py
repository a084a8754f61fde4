"""Writes of checkpoint files, and their omission when nothing has changed."""

from __future__ import annotations

import errno
import os
import uuid
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from tests import virtual_time
from tests.virtual_time import LoopClock

from ottla.base.errors import KafkaError
from ottla.base.names import TopicPartition
from ottla.base.topic_settings import TopicSettings
from ottla.broker.log_manager.checkpoints import CheckpointWriter
from ottla.protocol.batches import build_batch
from ottla.protocol.records import Record
from ottla.replication.leader_state import PartitionState
from ottla.replication.replica_set import ReplicaSet
from ottla.storage import files
from ottla.storage.log_dirs import LogDirs

NAME = TopicPartition("topic", 0)


@pytest.fixture
def replicas(tmp_path: Path) -> ReplicaSet:
    dirs = LogDirs.open((str(tmp_path),), node_id=1, cluster_id="cluster", clock=LoopClock())
    replicas = ReplicaSet(1, dirs, lambda partition: None, lambda partition: None)
    partition = replicas.add_partition(dirs.create(NAME, uuid.UUID(int=1), TopicSettings()), uuid.UUID(int=1))
    partition.apply_state(PartitionState(1, 0, (1,), (1,)), 0)
    for _ in range(5):
        partition.append(memoryview(build_batch([Record(-1, 1, None, b"value")])), True, 1)
    return replicas


def write(replicas: ReplicaSet, *chores: str) -> CheckpointWriter:
    async def run() -> CheckpointWriter:
        with ThreadPoolExecutor(1) as workers:
            writer = CheckpointWriter(replicas, workers)
            for chore in chores:
                if chore == "keep_start_offsets":
                    await writer.sync_start_offsets(replicas.log_dirs.dirs[0])
                else:
                    await getattr(writer, chore)()
            return writer

    return virtual_time.run(run())


def test_each_file_is_written_by_its_own_task(replicas: ReplicaSet, tmp_path: Path) -> None:
    write(replicas, "write_high_watermarks")
    assert (tmp_path / "replication-offset-checkpoint").read_text() == "0\n1\ntopic 0 5\n"
    assert not (tmp_path / "recovery-point-offset-checkpoint").exists()
    write(replicas, "write_recovery_points", "write_start_offsets")
    assert (tmp_path / "recovery-point-offset-checkpoint").read_text() == "0\n1\ntopic 0 0\n"
    assert (tmp_path / "log-start-offset-checkpoint").read_text() == "0\n0\n"


def test_the_log_start_offset_is_stored_before_the_deletion_is_answered(replicas: ReplicaSet, tmp_path: Path) -> None:
    replicas.partitions[NAME].delete_records(3, 1)
    write(replicas, "keep_start_offsets")
    assert (tmp_path / "log-start-offset-checkpoint").read_text() == "0\n1\ntopic 0 3\n"


def test_unchanged_content_is_not_written(replicas: ReplicaSet, monkeypatch: pytest.MonkeyPatch) -> None:
    renamed: list[str] = []
    real = files.rename
    monkeypatch.setattr(files, "rename", lambda source, target: (renamed.append(target), real(source, target)))
    write(replicas, "write_high_watermarks", "write_high_watermarks", "keep_start_offsets", "write_start_offsets")
    assert [os.path.basename(path) for path in renamed] == [
        "replication-offset-checkpoint",
        "log-start-offset-checkpoint",
    ]


def test_a_full_disk_is_logged_and_a_dead_one_takes_the_directory_offline(
    replicas: ReplicaSet, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(code: int) -> None:
        def fail(*_: object) -> None:
            raise OSError(code, os.strerror(code))

        monkeypatch.setattr(files, "write_at", fail)

    refuse(errno.ENOSPC)
    replicas.partitions[NAME].delete_records(3, 1)
    with pytest.raises(KafkaError):
        write(replicas, "keep_start_offsets")
    assert replicas.log_dirs.are_all_online
    refuse(errno.EIO)
    with pytest.raises(KafkaError):
        write(replicas, "keep_start_offsets")
    assert not replicas.log_dirs.are_all_online
