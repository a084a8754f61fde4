"""AlterReplicaLogDirs while records come and go, and while the broker is killed: nothing acknowledged is lost."""

import random
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from kafka.protocol.admin.topics import DeleteRecordsRequest
from tests.conformance.peer import Peer
from tests.conformance.raw import ConnectionClosedError
from tests.conformance.raw_batches import batch
from tests.conformance.waiting import eventually
from tests.faults.folders import Folders, create_in, move, rows_of, where

NOT_THERE = (OSError, ConnectionClosedError)
BrokerFactory = Callable[..., Any]


class Load(threading.Thread):
    """Writes numbered records into one partition and remembers which of them were acknowledged, and where."""

    def __init__(self, bootstrap: str, topic: str, record_bytes: int = 2_000) -> None:
        super().__init__(daemon=True)
        self.bootstrap = bootstrap
        self.topic = topic
        self.filler = b"x" * record_bytes
        self.acknowledged: dict[int, bytes] = {}  # by offset
        self.number = 0
        self.is_stopping = False
        self.slowest_seconds = 0.0

    def run(self) -> None:
        while not self.is_stopping:
            try:
                with Peer(self.bootstrap) as peer:
                    self.write(peer)
            except NOT_THERE:
                time.sleep(0.02)

    def write(self, peer: Peer) -> None:
        while not self.is_stopping:
            self.number += 1
            value = b"%d " % self.number + self.filler
            began = time.monotonic()
            answer = peer.produce(self.topic, batch([value]))
            self.slowest_seconds = max(self.slowest_seconds, time.monotonic() - began)
            if answer.error_code == 0:
                self.acknowledged[answer.base_offset] = value

    def finish(self) -> None:
        self.is_stopping = True
        self.join(20)


def assert_all_there(bootstrap: str, load: Load) -> None:
    found: dict[int, bytes] = {}
    with Peer(bootstrap) as peer:
        end = peer.end_offset(load.topic)
        offset = 0
        while offset < end:
            data = bytes(peer.fetch(load.topic, offset, partition_max_bytes=4 << 20).records)
            for base_offset, raw in split_batches(data):
                found[base_offset] = raw
                offset = base_offset + 1
    assert sorted(found) == list(range(end)), "the offsets have no holes"
    for offset, value in load.acknowledged.items():
        assert value in found[offset], offset


def split_batches(data: bytes) -> list[tuple[int, bytes]]:
    """(base offset, bytes) of the whole batches."""
    batches, position = [], 0
    while position + 12 <= len(data):
        length = 12 + int.from_bytes(data[position + 8 : position + 12], "big")
        if position + length > len(data):
            break
        batches.append((int.from_bytes(data[position : position + 8], "big"), data[position : position + length]))
        position += length
    return batches


def test_a_partition_moves_to_and_fro_under_load(broker_factory: BrokerFactory, tmp_path: Path) -> None:
    folders = Folders(tmp_path)
    broker = broker_factory(log_dirs=folders.setting, log_segment_delete_delay_ms=100)
    with Peer(broker.bootstrap) as peer:
        create_in(peer, folders.first, "moved", internal_segment_bytes=300_000, index_interval_bytes=200)
        load = Load(broker.bootstrap, "moved")
        load.start()
        for target in (folders.second, folders.first, folders.second):
            time.sleep(0.3)
            assert move(peer, target, "moved") == 0
            assert eventually(lambda target=target: where(peer, "moved") == [(str(target), False)], 20)
        load.finish()
        assert eventually(lambda: not list(folders.first.glob("moved-0*"))), "the old copies go"
    assert_all_there(broker.bootstrap, load)
    assert load.slowest_seconds < 1.0
    broker.restart()
    assert_all_there(broker.bootstrap, load)


def test_a_move_is_throttled_reported_and_cancelled(broker_factory: BrokerFactory, tmp_path: Path) -> None:
    """At 200 kB a second 1.5 MB take a while: DescribeLogDirs shows the copy; the way back ends the move."""
    folders = Folders(tmp_path)
    broker = broker_factory(
        log_dirs=folders.setting, replica_alter_log_dirs_io_max_bytes_per_second=200_000, log_segment_bytes=1 << 20
    )
    with Peer(broker.bootstrap) as peer:
        create_in(peer, folders.first, "slow")
        for _ in range(15):
            assert peer.produce("slow", batch([b"x" * 100_000])).error_code == 0
        assert move(peer, folders.second, "slow") == 0
        assert eventually(lambda: copied_bytes(peer) > 0)
        (_, now), (folder, future) = rows_of(peer, "slow")
        assert (now.is_future_key, now.offset_lag, folder) == (False, 0, str(folders.second))
        assert future.is_future_key
        assert 0 < future.partition_size < now.partition_size
        assert 0 < future.offset_lag <= 15
        assert len(list(folders.second.glob("slow-0.*-future"))) == 1
        assert move(peer, folders.first, "slow") == 0
        assert where(peer, "slow") == [(str(folders.first), False)]
        assert eventually(lambda: not list(folders.second.glob("slow-0*")))
        assert peer.produce("slow", batch()).base_offset == 15


def copied_bytes(peer: Peer, topic: str = "slow") -> int:
    return sum(row.partition_size for _, row in rows_of(peer, topic) if row.is_future_key)


@pytest.mark.faults
@pytest.mark.parametrize("at_once", [1, 2])
def test_so_many_partitions_move_at_once(broker_factory: BrokerFactory, tmp_path: Path, at_once: int) -> None:
    folders = Folders(tmp_path)
    broker = broker_factory(
        log_dirs=folders.setting,
        replica_alter_log_dirs_io_max_bytes_per_second=300_000,
        num_replica_alter_log_dirs_threads=at_once,
    )
    with Peer(broker.bootstrap) as peer:
        for topic in ("one", "two"):
            create_in(peer, folders.first, topic)
            for _ in range(15):
                peer.produce(topic, batch([b"x" * 100_000]))
        for topic in ("one", "two"):
            assert move(peer, folders.second, topic) == 0
        assert eventually(lambda: copied_bytes(peer, "one") >= 200_000)
        assert (copied_bytes(peer, "two") > 0) is (at_once == 2)


@pytest.mark.faults
def test_a_topic_that_is_deleted_on_its_way_leaves_nothing(broker_factory: BrokerFactory, tmp_path: Path) -> None:
    folders = Folders(tmp_path)
    broker = broker_factory(
        log_dirs=folders.setting,
        replica_alter_log_dirs_io_max_bytes_per_second=200_000,
        log_segment_delete_delay_ms=0,
    )
    with Peer(broker.bootstrap) as peer:
        create_in(peer, folders.first, "gone")
        for _ in range(15):
            peer.produce("gone", batch([b"x" * 100_000]))
        assert move(peer, folders.second, "gone") == 0
        time.sleep(0.3)
        assert peer.delete_topics(["gone"]) == {"gone": 0}
        assert eventually(lambda: not [*folders.first.glob("gone-*"), *folders.second.glob("gone-*")])
        peer.create_topic("gone")
        assert peer.produce("gone", batch()).base_offset == 0


@pytest.mark.faults
def test_a_move_interrupted_by_a_stop_continues_after_the_start(broker_factory: BrokerFactory, tmp_path: Path) -> None:
    folders = Folders(tmp_path)
    broker = broker_factory(log_dirs=folders.setting, replica_alter_log_dirs_io_max_bytes_per_second=200_000)
    with Peer(broker.bootstrap) as peer:
        create_in(peer, folders.first, "kept")
        for _ in range(15):
            peer.produce("kept", batch([b"x" * 100_000]))
        assert move(peer, folders.second, "kept") == 0
        time.sleep(0.3)
    broker.stop()
    broker.settings.pop("replica.alter.log.dirs.io.max.bytes.per.second")
    broker.start()
    with Peer(broker.bootstrap) as peer:
        assert eventually(lambda: where(peer, "kept") == [(str(folders.second), False)])
        assert [header.base_offset for header in peer.stored_batches("kept")][:3] == [0, 1, 2]
        assert peer.produce("kept", batch()).base_offset == 15


def test_deleted_records_do_not_come_back_with_a_move(broker_factory: BrokerFactory, tmp_path: Path) -> None:
    folders = Folders(tmp_path)
    broker = broker_factory(log_dirs=folders.setting)
    with Peer(broker.bootstrap) as peer:
        create_in(peer, folders.first, "short")
        for _ in range(10):
            peer.produce("short", batch())
        delete_below(peer, "short", 7)
        assert move(peer, folders.second, "short") == 0
        assert eventually(lambda: where(peer, "short") == [(str(folders.second), False)])
    broker.kill9()
    broker.start()
    with Peer(broker.bootstrap) as peer:
        assert peer.list_offset("short", -2).offset == 7
        assert peer.end_offset("short") == 10


def delete_below(peer: Peer, topic: str, offset: int) -> None:
    shape = DeleteRecordsRequest.DeleteRecordsTopic
    rows = [shape(name=topic, partitions=[shape.DeleteRecordsPartition(partition_index=0, offset=offset)])]
    assert peer.ask(DeleteRecordsRequest(topics=rows, timeout_ms=5000), 2).topics[0].partitions[0].error_code == 0


@pytest.mark.faults
def test_compaction_and_moves_do_not_disturb_each_other(broker_factory: BrokerFactory, tmp_path: Path) -> None:
    folders = Folders(tmp_path)
    broker = broker_factory(log_dirs=folders.setting, log_cleaner_backoff_ms=50, log_segment_delete_delay_ms=0)
    newest: dict[bytes, bytes] = {}
    with Peer(broker.bootstrap) as peer:
        configs = {"cleanup_policy": "compact", "min_cleanable_dirty_ratio": 0.01, "internal_segment_bytes": 50_000}
        create_in(peer, folders.first, "keys", **configs)
        for number in range(12):
            for key in range(60):
                name, value = b"key-%d" % key, b"%d of key-%d." % (number, key) + b"x" * 1000
                assert peer.produce("keys", batch([value], key=name)).error_code == 0
                newest[name] = value
            assert move(peer, (folders.second, folders.first)[number % 2], "keys") == 0
            time.sleep(0.1)
        assert eventually(lambda: "cleaned keys-0" in broker.log_text)
    broker.kill9()
    broker.start()
    with Peer(broker.bootstrap) as peer:
        data, offset, end = b"", 0, peer.end_offset("keys")
        while offset < end:
            batches = split_batches(bytes(peer.fetch("keys", offset, partition_max_bytes=4 << 20).records))
            assert batches, f"nothing at offset {offset}"
            data += b"".join(raw for _, raw in batches)
            offset = batches[-1][0] + 1
    assert all(value in data for value in newest.values())
    broker.assert_no_traceback()


@pytest.mark.faults
@pytest.mark.parametrize("seed", range(12))
def test_kill9_at_any_moment_of_a_move_loses_nothing(broker_factory: BrokerFactory, tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    folders = Folders(tmp_path)
    broker = broker_factory(
        log_dirs=folders.setting,
        log_segment_delete_delay_ms=chance.choice((0, 1000)),
        replica_alter_log_dirs_io_max_bytes_per_second=chance.choice((2_000_000, 10**12)),
    )
    with Peer(broker.bootstrap) as peer:
        create_in(peer, folders.first, "moved", internal_segment_bytes=200_000, index_interval_bytes=200)
    load = Load(broker.bootstrap, "moved", 5_000)
    load.start()
    for number in range(6):
        time.sleep(chance.uniform(0.1, 0.4))
        with Peer(broker.bootstrap) as peer:
            move(peer, (folders.second, folders.first)[number % 2], "moved")
            time.sleep(chance.choice((0.0, 0.002, 0.01, 0.05, 0.2)))
            broker.kill9()
        broker.start()
    load.finish()
    assert_all_there(broker.bootstrap, load)
    with Peer(broker.bootstrap) as peer:
        assert eventually(lambda: len(where(peer, "moved")) == 1, 20), "the last move ends"
    assert_all_there(broker.bootstrap, load)
    broker.assert_no_traceback()
