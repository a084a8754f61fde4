"""Compaction as clients see it. The first half is proven on Apache Kafka: start one with log.cleaner.backoff.ms=100.

Segments roll by the times of the records, which the tests choose: no test has to wait for a clock.
"""

import os
import random
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, TopicPartition
from tests.conformance.config_requests import BROKER, OK, SET, TOPIC, change
from tests.conformance.peer import Peer
from tests.conformance.raw_batches import LENGTH_COVERS_FROM, BatchHeader, batch, read_batches, record
from tests.conformance.test_segments import complaints, dump
from tests.conformance.waiting import eventually

from ottla.protocol.batches import read_records

SEGMENT_MS = 10_000
DELETE_HORIZON = 0x40
COMPACTED = {"cleanup_policy": "compact", "segment_ms": SEGMENT_MS, "min_cleanable_dirty_ratio": "0.01"}
CLEANED_SECONDS_MAX = 20.0
STARTED_MS = int(time.time() * 1000) - 3_000_000

BrokerFactory = Callable[..., Any]
NewTopic = Callable[..., str]
Pair = tuple[bytes | None, bytes | None]


@pytest.fixture(scope="module")
def cleaning(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a broker that cleans often."""
    from tests.conftest import FOREIGN_BOOTSTRAP, Broker  # noqa: PLC0415 (pytest's own module)

    if FOREIGN_BOOTSTRAP:
        yield FOREIGN_BOOTSTRAP
        return
    broker = Broker(tmp_path_factory.mktemp("cleaning"), {"log.cleaner.backoff.ms": "100"})
    try:
        yield broker.start().bootstrap
        broker.stop()
    finally:
        broker.discard()


class Writer:
    """Writes batches of keys and values into one partition, and remembers them by offset."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self.peer = Peer(bootstrap)
        self.topic = topic
        self.now_ms = STARTED_MS
        self.written: dict[int, Pair] = {}
        self.active_offset = 0

    def put(self, *pairs: Pair, codec: int = 0, **producer: int) -> None:
        rows = [record(value, place, key=key) for place, (key, value) in enumerate(pairs)]
        answer = self.peer.produce(self.topic, batch(records=rows, codec=codec, timestamp=self.now_ms, **producer))
        assert answer.error_code == 0, answer
        self.written.update({answer.base_offset + place: pair for place, pair in enumerate(pairs)})

    def roll(self) -> None:
        """The next batch begins a new segment."""
        self.now_ms += 2 * SEGMENT_MS
        self.active_offset = len(self.written)

    def survivors(self) -> list[tuple[int, bytes | None, bytes | None]]:
        """What compaction has to leave: the newest record of each key, and the active segment."""
        newest = {pair[0]: offset for offset, pair in self.written.items() if offset < self.active_offset}
        return [
            (offset, *pair)
            for offset, pair in self.written.items()
            if offset >= self.active_offset or newest[pair[0]] == offset
        ]

    def headers(self) -> list[BatchHeader]:
        found: list[BatchHeader] = []
        offset = self.peer.list_offset(self.topic, -2).offset
        while batches := read_batches(bytes(self.peer.fetch(self.topic, offset, max_wait_ms=0).records or b"")):
            found += batches
            offset = batches[-1].next_offset
        return found


def read_all(bootstrap: str, topic: str) -> list[tuple[int, bytes | None, bytes | None]]:
    """From the beginning to the end."""
    found = []
    with Peer(bootstrap) as peer:
        offset = peer.list_offset(topic, -2).offset
        while data := bytes(peer.fetch(topic, offset, max_wait_ms=0).records or b""):
            position = 0
            for header in read_batches(data):
                found += [(row.offset, row.key, row.value) for row in read_records(data[position:])]
                position += LENGTH_COVERS_FROM + header.length
                offset = header.next_offset
    return found


def read_with_a_client(bootstrap: str, topic: str) -> list[tuple[int, bytes | None, bytes | None]]:
    """The same through a real consumer, which has to step over the gaps."""
    settings = {"bootstrap.servers": bootstrap, "group.id": "unused", "enable.auto.commit": False}
    consumer = Consumer(
        {**settings, "enable.partition.eof": True, "fetch.wait.max.ms": 10, "auto.offset.reset": "error"}
    )
    consumer.assign([TopicPartition(topic, 0, 0)])
    found = []
    while (message := consumer.poll(10)) is not None and not message.error():
        found.append((message.offset(), message.key(), message.value()))
    assert message is not None, "the end of the partition was not reached"
    return found


def assert_becomes(bootstrap: str, topic: str, expected: list[tuple[int, bytes | None, bytes | None]]) -> None:
    eventually(lambda: read_all(bootstrap, topic) == expected, CLEANED_SECONDS_MAX)
    assert read_all(bootstrap, topic) == expected


@pytest.fixture
def new_writer(cleaning: str, topic_names: Callable[[], str]) -> Iterator[Callable[..., Writer]]:
    made: list[Writer] = []

    def make(**configs: object) -> Writer:
        name = topic_names()
        with Peer(cleaning) as peer:
            peer.create_topic(name, **{**COMPACTED, **configs})
        made.append(Writer(cleaning, name))
        return made[-1]

    yield make
    with Peer(cleaning) as peer:
        peer.delete_topics([writer.topic for writer in made])
    for writer in made:
        writer.peer.connection.close()


# ---- the same on Apache Kafka


def test_the_newest_record_of_each_key_is_left_with_its_offset(
    cleaning: str, new_writer: Callable[..., Writer]
) -> None:
    chosen = random.Random(1)
    writer = new_writer()
    for _ in range(6):
        for codec in range(5):
            pairs = [(b"key-%d" % chosen.randrange(40), chosen.randbytes(20).hex().encode()) for _ in range(10)]
            writer.put(*pairs, codec=codec)
        writer.roll()
    writer.put((b"key-1", b"active"), (b"key-1", b"active too"))

    assert_becomes(cleaning, writer.topic, writer.survivors())
    assert read_with_a_client(cleaning, writer.topic) == writer.survivors()
    assert writer.peer.list_offset(writer.topic, -2).offset == 0
    assert writer.peer.end_offset(writer.topic) == len(writer.written)


def test_a_tombstone_hides_older_values_and_gets_its_horizon(cleaning: str, new_writer: Callable[..., Writer]) -> None:
    writer = new_writer()
    writer.put((b"gone", b"1"), (b"kept", b"1"))
    writer.put((b"gone", None), (b"other", b"1"))
    writer.roll()
    writer.put((b"active", b"1"))

    assert_becomes(
        cleaning,
        writer.topic,
        [(1, b"kept", b"1"), (2, b"gone", None), (3, b"other", b"1"), (4, b"active", b"1")],
    )
    horizons = [header.base_timestamp for header in writer.headers() if header.attributes & DELETE_HORIZON]
    assert len(horizons) == 1
    assert abs(horizons[0] - (time.time() * 1000 + 86_400_000)) < 60_000
    assert [header.max_timestamp for header in writer.headers()] == [STARTED_MS] * 2 + [writer.now_ms]


def test_a_tombstone_goes_when_its_time_is_over(cleaning: str, new_writer: Callable[..., Writer]) -> None:
    writer = new_writer(delete_retention_ms=0)
    writer.put((b"gone", b"1"), (b"gone", None), (b"kept", b"1"))
    for number in range(2):
        writer.roll()
        writer.put((b"more", b"%d" % number))
        eventually(lambda: len(read_all(cleaning, writer.topic)) < 5, 1.0)
    writer.roll()
    writer.put((b"active", b"1"))

    assert_becomes(cleaning, writer.topic, [(2, b"kept", b"1"), (4, b"more", b"1"), (5, b"active", b"1")])


def test_the_last_batch_of_a_producer_stays_as_an_empty_one(cleaning: str, new_writer: Callable[..., Writer]) -> None:
    writer = new_writer()
    producer_id = writer.peer.new_producer_id()
    writer.put((b"a", b"1"), producer_id=producer_id, producer_epoch=0, base_sequence=0)
    writer.put((b"a", b"2"), (b"b", b"2"), producer_id=producer_id, producer_epoch=0, base_sequence=1)
    writer.put((b"a", b"3"), (b"b", b"3"))
    writer.roll()
    writer.put((b"active", b"1"))

    assert_becomes(cleaning, writer.topic, writer.survivors())
    shape = [(header.base_offset, header.last_offset_delta, header.record_count) for header in writer.headers()]
    assert shape == [(1, 1, 0), (3, 1, 2), (5, 0, 1)]
    assert writer.headers()[0].base_sequence == 1


def test_young_records_wait_for_the_minimum_lag_and_old_ones_not_longer_than_the_maximum(
    cleaning: str, new_writer: Callable[..., Writer]
) -> None:
    waits = new_writer(min_compaction_lag_ms=86_400_000)
    hurries = new_writer(min_cleanable_dirty_ratio="1.0", max_compaction_lag_ms=1000)
    lazy = new_writer(min_cleanable_dirty_ratio="1.0")
    for writer in (waits, hurries, lazy):
        writer.put((b"a", b"1"), (b"a", b"2"))
        writer.roll()
        writer.put((b"active", b"1"))

    assert_becomes(cleaning, hurries.topic, hurries.survivors())
    assert len(read_all(cleaning, waits.topic)) == 3
    assert len(read_all(cleaning, lazy.topic)) == 3


def test_the_policy_of_a_topic_can_be_changed_while_it_is_used(
    cleaning: str, new_writer: Callable[..., Writer]
) -> None:
    writer = new_writer(cleanup_policy="delete")
    writer.put((None, b"without a key"), (b"a", b"1"), (b"a", b"2"))
    writer.roll()
    writer.put((b"active", b"1"))
    assert len(read_all(cleaning, writer.topic)) == 4

    assert change(writer.peer, (TOPIC, writer.topic, [("cleanup.policy", SET, "compact,delete")])) == [OK]
    assert_becomes(cleaning, writer.topic, [(2, b"a", b"2"), (3, b"active", b"1")])

    assert change(writer.peer, (TOPIC, writer.topic, [("cleanup.policy", SET, "delete")])) == [OK]
    writer.put((b"a", b"3"))
    writer.roll()
    writer.put((b"active", b"2"))
    assert len(read_all(cleaning, writer.topic)) == 4


# ---- our own files and process


def filled(broker: Any, topic: str = "compacted", **configs: object) -> Writer:
    with Peer(broker.bootstrap) as peer:
        peer.create_topic(topic, **{**COMPACTED, "index_interval_bytes": 64, **configs})
    writer = Writer(broker.bootstrap, topic)
    chosen = random.Random(3)
    for _ in range(4):
        for codec in range(5):
            writer.put(
                *[(b"%d" % chosen.randrange(30), None if chosen.random() < 0.1 else b"%d" % codec) for _ in range(20)],
                codec=codec,
            )
        writer.roll()
    writer.put((b"active", b"1"))
    return writer


def partition_folder(broker: Any, topic: str = "compacted") -> Path:
    return Path(broker.data_directory) / f"{topic}-0"


@pytest.mark.needs_ottla
def test_apache_kafka_reads_the_cleaned_segments(broker_factory: BrokerFactory, kafka_jars: Path) -> None:
    broker = broker_factory(log_cleaner_backoff_ms=100)
    writer = filled(broker)
    assert_becomes(broker.bootstrap, writer.topic, writer.survivors())
    broker.stop()
    folder = partition_folder(broker)
    text = dump(kafka_jars, sorted(folder.glob("*.log")), "--deep-iteration", "--print-data-log")
    indexes = [*folder.glob("*.index"), *folder.glob("*.timeindex")]
    text += dump(kafka_jars, indexes, "--index-sanity-check")

    # Gaps between offsets are what compaction is about.
    assert [line for line in complaints(text) if " is followed by " not in line] == []
    assert text.count("| offset: ") == len(writer.survivors())
    assert "deleteHorizonMs: OptionalLong[" in text
    checkpoint = Path(broker.data_directory) / "cleaner-offset-checkpoint"
    eventually(checkpoint.exists)  # it is written when the files are in their place
    assert checkpoint.read_text() == f"0\n1\ncompacted 0 {writer.active_offset}\n"


@pytest.mark.needs_ottla
def test_a_cleaned_log_is_the_same_after_a_restart_and_after_a_kill(broker_factory: BrokerFactory) -> None:
    broker = broker_factory(log_cleaner_backoff_ms=100)
    writer = filled(broker)
    assert_becomes(broker.bootstrap, writer.topic, writer.survivors())
    broker.restart()
    assert read_all(broker.bootstrap, writer.topic) == writer.survivors()
    broker.kill9()
    broker.start()
    assert read_all(broker.bootstrap, writer.topic) == writer.survivors()


def cleaner_pids(broker: Any) -> list[int]:
    """Children of the broker that clean."""
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            parent = int(path.read_text().rpartition(")")[2].split()[1])
            command = (path.parent / "cmdline").read_bytes()
        except (OSError, IndexError):
            continue
        if parent == broker.pid and b"storage.cleaning.process" in command:
            found.append(int(path.parent.name))
    return found


@pytest.mark.needs_ottla
def test_a_cleaner_that_is_killed_is_started_again_and_dies_with_its_broker(broker_factory: BrokerFactory) -> None:
    broker = broker_factory(log_cleaner_backoff_ms=100, log_cleaner_io_max_bytes_per_second=500.0)
    writer = filled(broker)
    assert eventually(lambda: len(cleaner_pids(broker)) == 1)
    first = cleaner_pids(broker)
    os.kill(first[0], signal.SIGKILL)
    assert eventually(lambda: cleaner_pids(broker) not in ([], first))
    assert not list(partition_folder(broker).glob("*.swap"))
    second = cleaner_pids(broker)[0]
    with Peer(broker.bootstrap) as peer:
        rate = ("log.cleaner.io.max.bytes.per.second", SET, "1000000000")
        assert change(peer, (BROKER, "1", [rate])) == [OK]
    assert_becomes(broker.bootstrap, writer.topic, writer.survivors())
    assert eventually(lambda: cleaner_pids(broker) not in ([], [second])), "another rate starts the cleaner anew"
    last = cleaner_pids(broker)[0]
    broker.kill9()
    assert eventually(lambda: not Path(f"/proc/{last}").exists())


@pytest.mark.needs_ottla
def test_a_damaged_log_is_set_aside_and_named_while_others_are_cleaned(broker_factory: BrokerFactory) -> None:
    broker = broker_factory(log_cleaner_backoff_ms=600_000)
    damaged, sound = filled(broker, "damaged"), filled(broker, "sound")
    path = sorted(partition_folder(broker, "damaged").glob("*.log"))[0]
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 0xFF
    path.write_bytes(data)
    with Peer(broker.bootstrap) as peer:
        assert change(peer, (BROKER, "1", [("log.cleaner.backoff.ms", SET, "100")])) == [OK]

    assert_becomes(broker.bootstrap, sound.topic, sound.survivors())
    assert eventually(lambda: "damaged-0 is not cleaned until" in broker.log_text)
    assert str(path) in broker.log_text
    assert bytes(data) == path.read_bytes()
    assert broker.log_text.count("is not cleaned until") == 1
    assert damaged.peer.end_offset("damaged") == len(damaged.written)


@pytest.mark.needs_ottla
def test_as_many_cleaners_work_as_there_are_threads_and_none_if_cleaning_is_off(broker_factory: BrokerFactory) -> None:
    busy = broker_factory(log_cleaner_threads=2, log_cleaner_backoff_ms=100, log_cleaner_io_max_bytes_per_second=1000.0)
    idle = broker_factory(log_cleaner_enable="false", log_cleaner_backoff_ms=100)
    for number in range(3):
        filled(busy, f"busy-{number}")
    writer = filled(idle, "idle")

    assert eventually(lambda: len(cleaner_pids(busy)) == 2)
    assert cleaner_pids(idle) == []
    assert len(read_all(idle.bootstrap, "idle")) == len(writer.written)


POLICY = """
def newest_five(record, log):
    return record.offset >= log.end_offset - 5
"""


@pytest.mark.needs_ottla
def test_a_custom_policy_of_an_installed_package_cleans(
    broker_factory: BrokerFactory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    metadata = tmp_path / "site" / "policies-1.0.dist-info"
    metadata.mkdir(parents=True)
    (tmp_path / "site" / "policies.py").write_text(POLICY)
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: policies\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text("[ottla.cleanup_policies]\nnewest-five = policies:newest_five\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "site"))
    broker = broker_factory(log_cleaner_backoff_ms=100)
    with Peer(broker.bootstrap) as peer:
        peer.create_topic("own", **{**COMPACTED, "cleanup_policy": "newest-five"})
        unknown = change(peer, (TOPIC, "own", [("cleanup.policy", SET, "newest-six")]))
    writer = Writer(broker.bootstrap, "own")
    writer.put(*[(None, b"%d" % number) for number in range(10)])
    writer.roll()
    writer.put((None, b"active"))

    assert_becomes(broker.bootstrap, "own", [(n, None, b"%d" % n) for n in range(6, 10)] + [(10, None, b"active")])
    problem = "Invalid value newest-six for configuration cleanup.policy: String must be one of: "
    assert unknown == [(40, problem + "compact, delete, newest-five")]
