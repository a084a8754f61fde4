"""W2: the disk is full. Producers get an error, readers go on, nothing acknowledged is lost, free space ends it."""

import os
import random
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from kafka.protocol.admin import CreateTopicsRequest
from tests.conformance.peer import Peer
from tests.conformance.raw import assert_others_are_served
from tests.conformance.raw_batches import batch, read_batches
from tests.conformance.waiting import eventually
from tests.faults.disk_faults import broker_with_faults
from tests.faults.history import History, violations
from tests.faults.loads import LIBRDKAFKA, read_everything

KAFKA_STORAGE_ERROR = 56
UNKNOWN_SERVER_ERROR = -1
DISK_BYTES = 16 << 20
FILLER_BYTES = 8 << 20
SMALL_SEGMENTS = {"internal_segment_bytes": 40_000, "index_interval_bytes": 100}
CHORES = {
    "log_initial_task_delay_ms": 0,
    "log_flush_offset_checkpoint_interval_ms": 50,
    "log_retention_check_interval_ms": 50,
}
PLACES = [("full", partition) for partition in range(3)]
BrokerFactory = Callable[..., Any]


@pytest.fixture
def small_disk(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Path]:
    """A file system of a few megabytes, or with space for a few files; needs the right to mount."""
    folder = tmp_path / "small-disk"
    folder.mkdir()
    size = getattr(request, "param", f"size={DISK_BYTES}")
    command = ["mount", "-t", "tmpfs", "-o", size, "tmpfs", str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"this test mounts a small tmpfs and needs root for it: {done.stderr}"
    try:
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


class Filler:
    """The file that fills the disk, or frees its space."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "filler"
        self.grow()

    def grow(self) -> None:
        self.path.write_bytes(bytes(FILLER_BYTES))

    def fill_up(self) -> None:
        """Leave not a byte."""
        with self.path.open("ab", buffering=0) as file:
            for size in (1 << 20, 4096, 1):
                try:
                    while file.write(bytes(size)) == size:
                        pass
                except OSError:
                    continue

    def remove(self) -> None:
        self.path.unlink()


class Writer:
    """Asks for one batch after the other and remembers what was acknowledged."""

    def __init__(self, seed: int) -> None:
        self.history = History()
        self.history.add_producer("writer", is_idempotent=False)
        self._random = random.Random(seed)
        self._number = 0

    def write(self, peer: Peer, count: int) -> list[int]:
        """The error codes of this many batches."""
        errors = []
        for _ in range(count):
            topic, partition = self._random.choice(PLACES)
            value = b"writer:%d:" % self._number + b"x" * self._random.choice((1, 500, 5_000, 30_000))
            self._number += 1
            answer = peer.produce(topic, batch([value]), partition)
            errors.append(answer.error_code)
            if answer.error_code == 0:
                self.history.acknowledge((topic, partition), value, answer.base_offset)
        return errors

    def write_until_full(self, peer: Peer) -> None:
        for _ in range(1000):
            if any(errors := self.write(peer, 10)):
                assert set(errors) <= {0, KAFKA_STORAGE_ERROR}
                break
        else:
            raise AssertionError("the disk does not become full")
        errors = [error for _ in range(10) for error in self.write(peer, 10)]  # small ones may still fit in
        assert set(errors) <= {0, KAFKA_STORAGE_ERROR}

    def check(self, bootstrap: str) -> None:
        found = violations(self.history, read_everything(bootstrap, PLACES))
        assert not found, found


def create_topic_error(peer: Peer, name: str) -> int:
    row = CreateTopicsRequest.CreatableTopic(
        name=name, num_partitions=1, replication_factor=1, assignments=[], configs=[]
    )
    answer = peer.ask(CreateTopicsRequest(topics=[row], timeout_ms=5000, validate_only=False), 7)
    return int(answer.topics[0].error_code)


def assert_calm(broker: Any, seconds: float = 1.0) -> None:
    """A broker in trouble does not spin and does not fill the log with its complaints."""
    ticks, log_bytes = cpu_ticks(broker.pid), len(broker.log_text)
    time.sleep(seconds)
    assert (cpu_ticks(broker.pid) - ticks) / os.sysconf("SC_CLK_TCK") < 0.5 * seconds
    assert len(broker.log_text) - log_bytes < 20_000 * seconds, broker.log_text[-3000:]


def cpu_ticks(pid: int) -> int:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return int(fields[11]) + int(fields[12])


@pytest.mark.faults
@pytest.mark.parametrize("seed", range(3))
def test_a_full_disk_is_survived(small_disk: Path, broker_factory: BrokerFactory, seed: int) -> None:
    filler = Filler(small_disk)
    broker = broker_factory(log_dirs=small_disk / "data", **CHORES)
    writer = Writer(seed)
    with Peer(broker.bootstrap) as peer:
        peer.create_topic("full", len(PLACES), **SMALL_SEGMENTS)
        writer.write_until_full(peer)
        assert_others_are_served(broker.bootstrap)
        writer.check(broker.bootstrap)
        assert_calm(broker)
        filler.remove()
        assert eventually(lambda: not any(writer.write(peer, 20))), "writes must go on as soon as there is space"
        writer.check(broker.bootstrap)
        assert create_topic_error(peer, "new") == 0
        assert peer.produce("new", batch()).error_code == 0
    broker.restart()
    writer.check(broker.bootstrap)
    broker.assert_no_traceback()


@pytest.mark.faults
@pytest.mark.parametrize("small_disk", ["nr_inodes=70"], indirect=True)
@pytest.mark.parametrize("way", ["kill9", "stop"])
@pytest.mark.parametrize("seed", range(3))
def test_a_restart_after_running_out_of_inodes_loses_nothing(
    small_disk: Path, broker_factory: BrokerFactory, seed: int, way: str
) -> None:
    """Rolling fails half-way, small batches still fit into the old segment: a restart must not mix that up."""
    spares = [small_disk / f"spare-{number}" for number in range(20 + seed)]
    for spare in spares:
        spare.touch()
    broker = broker_factory(log_dirs=small_disk / "data")
    writer = Writer(seed)
    with Peer(broker.bootstrap) as peer:
        peer.create_topic("full", len(PLACES), **SMALL_SEGMENTS)
        writer.write_until_full(peer)
        for spare in spares[::2]:
            spare.unlink()
            writer.write(peer, 20)
    getattr(broker, way)()
    for spare in spares[1::2]:
        spare.unlink()
    broker.start()
    writer.check(broker.bootstrap)
    with Peer(broker.bootstrap) as peer:
        writer.write(peer, 20)
    writer.check(broker.bootstrap)
    broker.assert_no_traceback()


@pytest.mark.faults
@pytest.mark.parametrize("seed", range(3))
def test_metadata_survives_a_full_disk(small_disk: Path, broker_factory: BrokerFactory, seed: int) -> None:
    filler = Filler(small_disk)
    broker = broker_factory(log_dirs=small_disk / "data", **CHORES)
    writer = Writer(seed)
    with Peer(broker.bootstrap) as peer:
        peer.create_topic("full", len(PLACES), retention_ms=123_456_789, **SMALL_SEGMENTS)
        filler.fill_up()
        writer.write_until_full(peer)
        errors = {f"made-{number}": create_topic_error(peer, f"made-{number}") for number in range(200)}
        assert UNKNOWN_SERVER_ERROR in errors.values(), "an error that clients do not try again after"
        assert set(errors.values()) <= {0, KAFKA_STORAGE_ERROR, UNKNOWN_SERVER_ERROR}
        made = {name for name, error in errors.items() if error == 0}
        assert peer.topic_names() == {"full", *made}
        filler.remove()
        assert eventually(lambda: create_topic_error(peer, "after") in (0, 36)), "topics can be made again"
        assert eventually(lambda: all(peer.produce(name, batch()).error_code == 0 for name in made))
    broker.kill9()
    broker.start()
    with Peer(broker.bootstrap) as peer:
        assert peer.topic_names() == {"full", "after", *made}
    writer.check(broker.bootstrap)
    broker.assert_no_traceback()


@pytest.mark.faults
@pytest.mark.parametrize("seed", range(4))
def test_a_broker_that_dies_on_a_full_disk_comes_back(
    small_disk: Path, broker_factory: BrokerFactory, seed: int
) -> None:
    """Also a start on a full disk ends in a served broker or in one line; never in damage."""
    filler = Filler(small_disk)
    broker = broker_factory(log_dirs=small_disk / "data", **CHORES)
    writer = Writer(seed)
    with Peer(broker.bootstrap) as peer:
        peer.create_topic("full", len(PLACES), **SMALL_SEGMENTS)
        writer.write_until_full(peer)
    filler.fill_up()
    if seed % 2:
        broker.kill9()
    else:
        broker.stop()
    log_position = len(broker.log_text)
    broker.launch()
    if eventually(lambda: "ready on" in broker.log_text[log_position:] or not broker.is_running, 20) and (
        broker.is_running
    ):
        with Peer(broker.bootstrap) as peer:
            assert set(writer.write(peer, 20)) <= {0, KAFKA_STORAGE_ERROR}
        writer.check(broker.bootstrap)
        broker.kill9()
    else:
        assert broker.wait() == 1
        assert "Traceback" not in broker.log_text, broker.log_text[-3000:]
    filler.remove()
    broker.start()
    writer.check(broker.bootstrap)
    with Peer(broker.bootstrap) as peer:
        assert not any(writer.write(peer, 20))
    writer.check(broker.bootstrap)
    broker.assert_no_traceback()


@pytest.mark.faults
@pytest.mark.parametrize("way", ["kill9", "stop"])
@pytest.mark.parametrize("seed", range(3))
def test_a_start_on_a_full_disk_heals_by_itself(
    small_disk: Path, broker_factory: BrokerFactory, tmp_path: Path, seed: int, way: str
) -> None:
    """Partitions that could not be opened on a full disk are opened as soon as there is space, without a restart."""
    filler = Filler(small_disk)
    metadata = tmp_path / "metadata"  # a metadata store on a full disk is tested elsewhere
    log_dirs = f"{metadata},{small_disk / 'data'}"
    broker = broker_factory(log_dirs=log_dirs, cordoned_log_dirs=metadata, **CHORES)
    writer = Writer(seed)
    with Peer(broker.bootstrap) as peer:
        peer.create_topic("full", len(PLACES), **SMALL_SEGMENTS)
        writer.write_until_full(peer)
    getattr(broker, way)()
    for index in small_disk.glob("data/full-*/*index"):  # they have to be rebuilt, and there is no space for them
        index.unlink()
    filler.fill_up()
    broker.start()
    with Peer(broker.bootstrap) as peer:
        assert set(writer.write(peer, 20)) <= {0, KAFKA_STORAGE_ERROR}
        filler.remove()
        assert eventually(lambda: not any(writer.write(peer, 20)), 5), "writes must go on as soon as there is space"
    writer.check(broker.bootstrap)
    broker.assert_no_traceback()


@pytest.mark.faults
@pytest.mark.parametrize("way", ["goes on", "kill9", "stop"])
def test_a_topic_can_be_deleted_when_not_a_byte_is_left(
    small_disk: Path, broker_factory: BrokerFactory, way: str
) -> None:
    """Deletion frees space; the metadata store reserves the little space that this and a start need."""
    filler = Filler(small_disk)
    broker = broker_factory(log_dirs=small_disk / "data", **CHORES)
    writer = Writer(0)
    filler.remove()
    with Peer(broker.bootstrap) as peer:
        peer.create_topic("full", len(PLACES), file_delete_delay_ms=0, **SMALL_SEGMENTS)
        writer.write_until_full(peer)
    filler.fill_up()
    if way != "goes on":
        getattr(broker, way)()
        filler.fill_up()
        broker.start()
    filler.fill_up()
    with Peer(broker.bootstrap) as peer:
        errors = {create_topic_error(peer, f"more-{number}") for number in range(50)}
        assert UNKNOWN_SERVER_ERROR in errors
        started = time.monotonic()
        assert peer.delete_topics(["full"]) == {"full": 0}
        assert time.monotonic() - started < 5
        assert eventually(lambda: create_topic_error(peer, "after") in (0, 36)), "and then there is space"
    assert broker.log_text.count("are refused until the disk has free space") == 1
    broker.assert_no_traceback()


@pytest.mark.faults
def test_a_partition_without_a_folder_comes_back(
    broker_factory: BrokerFactory, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """There was space for the metadata of a topic, but not for its folder: a partial folder must not block a retry."""
    broker, faults = broker_with_faults(broker_factory, monkeypatch, tmp_path)
    with Peer(broker.bootstrap) as peer:
        with faults.during("open_file", "ENOSPC", "/half-0/"):
            assert create_topic_error(peer, "half") in (0, KAFKA_STORAGE_ERROR)
            assert peer.produce("half", batch()).error_code == KAFKA_STORAGE_ERROR
        peer.delete_topics(["half"])
        assert create_topic_error(peer, "half") == 0
        assert eventually(lambda: peer.produce("half", batch()).error_code == 0), "the same name works again"
    broker.assert_no_traceback()


@pytest.mark.faults
def test_an_idempotent_producer_waits_for_room(small_disk: Path, broker_factory: BrokerFactory) -> None:
    """librdkafka tries again by itself: everything arrives once."""
    filler = Filler(small_disk)
    broker = broker_factory(log_dirs=small_disk / "data")
    history = History()
    history.add_producer("waiting", is_idempotent=True)
    with Peer(broker.bootstrap) as peer:
        peer.create_topic("full", len(PLACES), **SMALL_SEGMENTS)
    producer = Producer(
        {"bootstrap.servers": broker.bootstrap, "enable.idempotence": True, "batch.size": 30_000, **LIBRDKAFKA}
    )

    def delivered(error: Any, message: Any) -> None:
        if error:
            history.give_up(message.value(), error)
        else:
            history.acknowledge((message.topic(), message.partition()), message.value(), message.offset())

    for number in range(8_000):
        topic, partition = PLACES[number % len(PLACES)]
        producer.produce(topic, b"waiting:%d:" % number + b"x" * 1000, partition=partition, on_delivery=delivered)
    producer.poll(3)
    assert producer.flush(2) > 0, "the disk should be full by now"
    filler.remove()
    assert producer.flush(30) == 0
    assert not history.producers["waiting"].failures
    assert not (found := violations(history, read_everything(broker.bootstrap, PLACES))), found
    broker.assert_no_traceback()


def test_writes_continue_by_themselves_when_there_is_space_again(
    broker_factory: BrokerFactory, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The short form, without a real small disk: every write of storage fails for a while."""
    broker, faults = broker_with_faults(broker_factory, monkeypatch, tmp_path, **CHORES)
    writer = Writer(0)
    with Peer(broker.bootstrap) as peer:
        peer.create_topic("full", len(PLACES), **SMALL_SEGMENTS)
        assert not any(writer.write(peer, 50))
        with faults.during("write_at", "ENOSPC"):
            assert set(writer.write(peer, 20)) == {KAFKA_STORAGE_ERROR}
            writer.check(broker.bootstrap)
            assert_calm(broker, 0.5)
        assert not any(writer.write(peer, 50))
        stored = bytes(peer.fetch("full", 0, 0).records)
        assert len(read_batches(stored)) > 1
    writer.check(broker.bootstrap)
    broker.assert_no_traceback()
