"""Apache Kafka's own applications on ottla: Streams, Connect, MirrorMaker 2 (`pytest -m other_languages`)."""

import random
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from tests.conformance.java_applications import (
    START_SECONDS_MAX,
    ConnectRest,
    JavaApplication,
    apache_kafka,
    write_properties,
)
from tests.conformance.peer import Peer
from tests.conformance.waiting import eventually
from tests.conftest import free_port

pytestmark = pytest.mark.other_languages

WORD_COUNT = Path(__file__).parent / "java" / "WordCount.java"
WORDS = [f"word{number}" for number in range(20)]
PARTITIONS = 3
PATIENCE_SECONDS = 90.0
NewTopic = Callable[..., str]


# ---- Kafka Streams


class Counting:
    """Kafka Streams counts the words of one topic into another; what was sent is known."""

    def __init__(self, bootstrap: str, new_topic: NewTopic) -> None:
        self.bootstrap = bootstrap
        self.lines, self.counts = new_topic(PARTITIONS), new_topic(PARTITIONS)
        self.sent: Counter[str] = Counter()
        self._random = random.Random(5)
        self._producer = Producer({"bootstrap.servers": bootstrap, "log_level": 0})

    def send(self, lines: int) -> None:
        for _ in range(lines):
            words = self._random.choices(WORDS, k=5)
            self.sent.update(words)
            self._producer.produce(self.lines, " ".join(words))
        assert self._producer.flush(30) == 0

    def application(self, jars: Path, folder: Path, guarantee: str) -> JavaApplication:
        arguments = (self.bootstrap, self.lines, self.counts, guarantee, str(folder / "state"))
        return JavaApplication(jars, folder, str(WORD_COUNT), *arguments)

    def counted(self) -> dict[str, list[int]]:
        """Every count that a reader of committed records sees, by word and in order."""
        found: dict[str, list[int]] = {}
        for word, count in read_committed(self.bootstrap, self.counts, PARTITIONS):
            found.setdefault(word.decode(), []).append(int(count))
        return found

    def wait_for_end(self, application: JavaApplication) -> dict[str, list[int]]:
        def is_done() -> bool:
            time.sleep(0.3)
            newest = {word: max(counts) for word, counts in self.counted().items()}
            return newest == dict(self.sent)

        assert eventually(is_done, PATIENCE_SECONDS), application.log_text[-4000:]
        return self.counted()


def test_streams_count_every_word_exactly_once_although_they_are_killed(
    bootstrap: str, new_topic: NewTopic, application_jars: Path, tmp_path: Path
) -> None:
    counting = Counting(bootstrap, new_topic)
    with counting.application(application_jars, tmp_path, "exactly_once_v2") as application:
        for _ in range(3):
            counting.send(1000)
            seen = sum(map(len, counting.counted().values()))
            assert eventually(lambda: sum(map(len, counting.counted().values())) > seen, PATIENCE_SECONDS)  # noqa: B023
            application.kill9()
            application.start()
        counting.send(500)
        counted = counting.wait_for_end(application)
        assert "failed" not in application.log_text
        application.stop()
    assert counted == {word: list(range(1, count + 1)) for word, count in counting.sent.items()}


def test_streams_count_every_word_at_least_once(
    bootstrap: str, new_topic: NewTopic, application_jars: Path, tmp_path: Path
) -> None:
    counting = Counting(bootstrap, new_topic)
    with counting.application(application_jars, tmp_path, "at_least_once") as application:
        counting.send(1000)
        counted = counting.wait_for_end(application)
        application.stop()
        assert "failed" not in application.log_text
    assert counted == {word: list(range(1, count + 1)) for word, count in counting.sent.items()}


# ---- Kafka Connect

CONVERTERS = {
    "key.converter": "org.apache.kafka.connect.storage.StringConverter",
    "value.converter": "org.apache.kafka.connect.storage.StringConverter",
}


def file_connector(kind: str, name: str, **settings: object) -> dict[str, object]:
    return {
        "name": name,
        "connector.class": f"org.apache.kafka.connect.file.FileStream{kind}Connector",
        "tasks.max": 1,
        **{key.replace("_", "."): value for key, value in settings.items()},
    }


def test_connect_standalone_carries_lines_from_file_to_file(
    bootstrap: str, topic: str, application_jars: Path, tmp_path: Path
) -> None:
    lines = [f"line {number}" for number in range(500)]
    source, sink = tmp_path / "in.txt", tmp_path / "out.txt"
    source.write_text("".join(f"{line}\n" for line in lines))
    port = free_port()
    worker = {
        "bootstrap.servers": bootstrap,
        "listeners": f"http://127.0.0.1:{port}",
        "offset.storage.file.filename": tmp_path / "offsets",
        "offset.flush.interval.ms": 500,
        **CONVERTERS,
    }
    files = [
        write_properties(tmp_path / "worker.properties", worker),
        write_properties(
            tmp_path / "source.properties", file_connector("Source", f"{topic}-source", topic=topic, file=source)
        ),
        write_properties(
            tmp_path / "sink.properties", file_connector("Sink", f"{topic}-sink", topics=topic, file=sink)
        ),
    ]
    standalone = "org.apache.kafka.connect.cli.ConnectStandalone"
    with JavaApplication(application_jars, tmp_path, standalone, *files) as connect:
        assert eventually(lambda: lines_of(sink) == lines, PATIENCE_SECONDS), connect.log_text[-4000:]
        with source.open("a") as more:
            more.write("one more\n")
        assert eventually(lambda: lines_of(sink) == [*lines, "one more"], PATIENCE_SECONDS), connect.log_text[-4000:]
        connect.stop()
        connect.start()
        with source.open("a") as more:
            more.write("after a restart\n")
        assert eventually(lambda: lines_of(sink)[-1:] == ["after a restart"], PATIENCE_SECONDS)
        assert lines_of(sink) == [*lines, "one more", "after a restart"], "an orderly stop repeats nothing"
        connect.stop()


def test_connect_distributed_reads_a_file_exactly_once_although_a_worker_is_killed(
    bootstrap: str, topic: str, application_jars: Path, tmp_path: Path
) -> None:
    """Two workers, a source with transactions, and kill -9 of the worker that runs it."""
    source, sink = tmp_path / "in.txt", tmp_path / "out.txt"
    source.write_text("")
    workers, clients = [], []
    for number in range(2):
        port = free_port()
        path = write_properties(tmp_path / f"worker-{number}.properties", distributed_worker(bootstrap, topic, port))
        main = "org.apache.kafka.connect.cli.ConnectDistributed"
        workers.append(JavaApplication(application_jars, tmp_path / f"worker-{number}", main, path))
        clients.append(ConnectRest(port))
    written = 0
    with workers[0], workers[1]:
        clients[0].put_connector("reader", file_connector("Source", "reader", topic=topic, file=source))
        clients[0].put_connector("writer", file_connector("Sink", "writer", topics=topic, file=sink))
        for round_number in range(3):
            for client in clients:
                assert eventually(lambda: client.is_running("reader"), PATIENCE_SECONDS)  # noqa: B023
            with source.open("a") as more:
                more.writelines(f"line {number}\n" for number in range(written, written + 1000))
            written += 1000
            assert eventually(lambda: bool(read_committed(bootstrap, topic, 1)), PATIENCE_SECONDS)
            victim = workers[round_number % 2]
            victim.kill9()
            victim.start()
        expected = [f"line {number}" for number in range(written)]

        def is_done() -> bool:
            time.sleep(0.3)
            return len(read_committed(bootstrap, topic, 1)) >= written and len(set(lines_of(sink))) >= written

        assert eventually(is_done, PATIENCE_SECONDS), workers[0].log_text[-3000:]
        assert [value.decode() for _, value in read_committed(bootstrap, topic, 1)] == expected
        assert set(lines_of(sink)) == set(expected), "the sink is at least once"
        workers[0].stop()
        workers[1].stop()


def distributed_worker(bootstrap: str, prefix: str, port: int) -> dict[str, object]:
    return {
        "bootstrap.servers": bootstrap,
        "group.id": f"{prefix}-connect",
        "listeners": f"http://127.0.0.1:{port}",
        "config.storage.topic": f"{prefix}-configs",
        "offset.storage.topic": f"{prefix}-offsets",
        "status.storage.topic": f"{prefix}-status",
        "config.storage.replication.factor": 1,
        "offset.storage.replication.factor": 1,
        "status.storage.replication.factor": 1,
        "exactly.once.source.support": "enabled",
        "session.timeout.ms": 6000,
        "heartbeat.interval.ms": 1000,
        "consumer.session.timeout.ms": 6000,  # how long the sink's group waits for a member that was killed
        "consumer.heartbeat.interval.ms": 1000,
        "scheduled.rebalance.max.delay.ms": 1000,
        "offset.flush.interval.ms": 300,
        **CONVERTERS,
    }


# ---- MirrorMaker 2


@pytest.fixture
def kafka_and_ottla(bootstrap: str, kafka_jars: Path, tmp_path: Path) -> Iterator[dict[str, str]]:
    with apache_kafka(kafka_jars, tmp_path / "kafka") as kafka:
        yield {"kafka": kafka, "ottla": bootstrap}


def test_mirror_maker_copies_both_ways(
    kafka_and_ottla: dict[str, str], topic_name: str, application_jars: Path, tmp_path: Path
) -> None:
    """Records with headers, exactly once; groups find their place on the other side."""
    names = {cluster: f"{topic_name}-{cluster}" for cluster in kafka_and_ottla}
    for cluster, address in kafka_and_ottla.items():
        with Peer(address) as peer:
            peer.create_topic(names[cluster], 2, retention_ms=7_777_777)
        send_numbers(address, names[cluster], range(300))
        commit_half(address, names[cluster])
    settings = mirror_settings(kafka_and_ottla, topic_name)
    path = write_properties(tmp_path / "mirror.properties", settings)
    main = "org.apache.kafka.connect.mirror.MirrorMaker"
    with JavaApplication(application_jars, tmp_path, main, path) as mirror:
        for source, target in (("kafka", "ottla"), ("ottla", "kafka")):
            check_mirror(kafka_and_ottla[target], f"{source}.{names[source]}", 300, mirror)
        for cluster, address in kafka_and_ottla.items():
            send_numbers(address, names[cluster], range(300, 400))
        mirror.kill9()
        mirror.start()
        for source, target in (("kafka", "ottla"), ("ottla", "kafka")):
            copy = f"{source}.{names[source]}"
            check_mirror(kafka_and_ottla[target], copy, 400, mirror)
            group = f"{names[source]}-group"
            assert eventually(
                lambda: committed(kafka_and_ottla[target], group, copy) > 0,  # noqa: B023
                PATIENCE_SECONDS,
            ), f"the offsets of {group} do not come to {target}:\n{mirror.log_text[-3000:]}"
            assert committed(kafka_and_ottla[target], group, copy) <= 150, "never past what the group has read"


def mirror_settings(clusters: dict[str, str], topic_prefix: str) -> dict[str, object]:
    settings: dict[str, object] = {
        "clusters": ",".join(clusters),
        "kafka->ottla.enabled": "true",
        "ottla->kafka.enabled": "true",
        "topics": f"{topic_prefix}-.*",
        "groups": f"{topic_prefix}-.*",
        "replication.factor": 1,
        "refresh.topics.interval.seconds": 2,
        "refresh.groups.interval.seconds": 2,
        "emit.checkpoints.interval.seconds": 1,
        "emit.heartbeats.interval.seconds": 1,
        "sync.group.offsets.enabled": "true",
        "sync.group.offsets.interval.seconds": 1,
        "sync.topic.acls.enabled": "false",
        "offset.lag.max": 10,
        "tasks.max": 2,
        "offset.flush.interval.ms": 500,
        "session.timeout.ms": 6000,
        "heartbeat.interval.ms": 1000,
        "scheduled.rebalance.max.delay.ms": 1000,
        "dedicated.mode.enable.internal.rest": "true",
        "listeners": f"http://127.0.0.1:{free_port()}",
    }
    topics = ("checkpoints", "heartbeats", "offset-syncs")
    settings |= {f"{topic}.topic.replication.factor": 1 for topic in topics}
    settings |= {f"{storage}.storage.replication.factor": 1 for storage in ("offset", "status", "config")}
    for name, address in clusters.items():
        settings[f"{name}.bootstrap.servers"] = address
        settings[f"{name}.exactly.once.source.support"] = "enabled"
    return settings


def check_mirror(address: str, copy: str, count: int, mirror: JavaApplication) -> None:
    def is_there() -> bool:
        time.sleep(0.3)
        with Peer(address) as peer:
            if copy not in peer.topic_names():
                return False
        return len(read_committed(address, copy, 2)) >= count

    assert eventually(is_there, PATIENCE_SECONDS), f"{copy} is not complete:\n{mirror.log_text[-5000:]}"
    values = [int(value) for _, value in read_committed(address, copy, 2)]
    assert sorted(values) == list(range(count)), f"{copy}: each record once"
    assert [value for value in values if value % 2] == sorted(value for value in values if value % 2)


def send_numbers(address: str, topic: str, numbers: range) -> None:
    producer = Producer({"bootstrap.servers": address, "log_level": 0})
    for number in numbers:
        producer.produce(topic, str(number), partition=number % 2, headers={"number": str(number)})
    assert producer.flush(30) == 0


def commit_half(address: str, topic: str) -> None:
    consumer = group_consumer(address, f"{topic}-group")
    consumer.commit(offsets=[TopicPartition(topic, partition, 75) for partition in range(2)], asynchronous=False)
    consumer.close()


def committed(address: str, group: str, topic: str) -> int:
    consumer = group_consumer(address, group)
    places = consumer.committed([TopicPartition(topic, partition) for partition in range(2)], timeout=10)
    consumer.close()
    return sum(max(place.offset, 0) for place in places)


# ---- helpers of all


def group_consumer(address: str, group: str, **settings: object) -> Consumer:
    return Consumer(
        {"bootstrap.servers": address, "group.id": group, "enable.auto.commit": False, "log_level": 0, **settings}
    )


def read_committed(address: str, topic: str, partitions: int) -> list[tuple[bytes, bytes]]:
    """All keys and values that are committed now, partition by partition."""
    options: dict[str, Any] = {
        "enable.partition.eof": True,
        "fetch.wait.max.ms": 10,
        "isolation.level": "read_committed",
    }
    consumer = group_consumer(address, "nobody", **options)
    consumer.assign([TopicPartition(topic, partition, 0) for partition in range(partitions)])
    found: dict[int, list[tuple[bytes, bytes]]] = {partition: [] for partition in range(partitions)}
    unread = set(found)
    deadline = time.monotonic() + START_SECONDS_MAX
    while unread:
        assert time.monotonic() < deadline, f"no end of {topic} {unread}"
        for message in consumer.consume(1000, 0.02):
            error = message.error()
            if error is None:
                found[message.partition() or 0].append((message.key() or b"", message.value() or b""))
            else:
                assert error.code() == KafkaError._PARTITION_EOF, error
                unread.discard(message.partition() or 0)
    consumer.close()
    return [record for partition in sorted(found) for record in found[partition]]


def lines_of(path: Path) -> list[str]:
    return path.read_text().splitlines() if path.exists() else []
