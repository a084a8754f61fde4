"""Apache Flink and Apache Beam on ottla, with kill -9 in the middle (`pytest -m other_languages`)."""

import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka import Producer, TopicPartition
from tests.conformance.java_applications import JavaApplication, compile_java
from tests.conformance.test_applications import PATIENCE_SECONDS, group_consumer, read_committed
from tests.conformance.waiting import eventually

pytestmark = pytest.mark.other_languages

JAVA = Path(__file__).parent / "java"
PARTITIONS = 2  # as the helpers of MirrorMaker's tests read
PORTION = 2000
KILLS = 3
NewTopic = Callable[..., str]


class Copying:
    """A program that copies one topic into another; what was sent is known."""

    def __init__(self, bootstrap: str, new_topic: NewTopic) -> None:
        self.bootstrap = bootstrap
        self.source, self.target = new_topic(PARTITIONS), new_topic(PARTITIONS)
        self.sent = 0
        self._producer = Producer({"bootstrap.servers": bootstrap, "log_level": 0})

    def send(self, count: int) -> None:
        for number in range(self.sent, self.sent + count):
            self._producer.produce(self.source, str(number), partition=number % PARTITIONS)
        assert self._producer.flush(30) == 0
        self.sent += count

    def copied(self) -> Counter[int]:
        """Every record that a reader of committed records sees."""
        values = (value.decode() for _, value in read_committed(self.bootstrap, self.target, PARTITIONS))
        return Counter(int(value.removesuffix(" copied")) for value in values)

    def wait_for_all(self, application: JavaApplication) -> Counter[int]:
        def is_done() -> bool:
            time.sleep(0.3)
            return len(self.copied()) >= self.sent

        assert eventually(is_done, PATIENCE_SECONDS), f"{len(self.copied())}\n{application.log_text[-6000:]}"
        return self.copied()

    def kill_in_the_middle(self, application: JavaApplication) -> None:
        """Some of what was sent is copied, and more is on its way."""
        seen = self.copied().total()
        assert eventually(lambda: self.copied().total() > seen, PATIENCE_SECONDS), application.log_text[-6000:]
        self.send(PORTION)
        application.kill9()
        application.start()

    def is_committed(self, group: str, behind_max: int = 0) -> bool:
        """Whether the group's offsets are the ends of the topic, or so many behind."""
        time.sleep(0.3)
        end = self.sent // PARTITIONS
        return all(end - behind_max <= at <= end for at in committed_offsets(self.bootstrap, group, self.source))


def committed_offsets(bootstrap: str, group: str, topic: str) -> list[int]:
    consumer = group_consumer(bootstrap, group)
    places = consumer.committed([TopicPartition(topic, number) for number in range(PARTITIONS)], timeout=10)
    consumer.close()
    return [place.offset for place in places]


@pytest.mark.parametrize("guarantee", ["EXACTLY_ONCE", "AT_LEAST_ONCE"])
def test_flink_continues_from_its_checkpoint_after_kill9(
    bootstrap: str, new_topic: NewTopic, flink_jars: Path, tmp_path: Path, guarantee: str
) -> None:
    copying = Copying(bootstrap, new_topic)
    classes = compile_java(JAVA / "FlinkCopy.java", flink_jars, tmp_path / "classes")
    arguments = (bootstrap, copying.source, copying.target, str(tmp_path / "checkpoints"), guarantee)
    copying.send(PORTION)
    with JavaApplication(flink_jars, tmp_path, "FlinkCopy", *arguments, classes=classes) as application:
        for _ in range(KILLS):
            copying.kill_in_the_middle(application)
        copied = copying.wait_for_all(application)
        assert application.log_text.count("goes on from chk-") == KILLS
        assert eventually(lambda: copying.is_committed(f"flink-{copying.source}"), PATIENCE_SECONDS)
    assert set(copied) == set(range(copying.sent))
    if guarantee == "EXACTLY_ONCE":
        assert copied == Counter(range(copying.sent))


def test_beam_continues_at_its_committed_offsets_after_kill9(
    bootstrap: str, new_topic: NewTopic, beam_jars: Path, tmp_path: Path
) -> None:
    """The direct runner keeps its state in memory: what a killed one had not committed comes again."""
    copying = Copying(bootstrap, new_topic)
    classes = compile_java(JAVA / "BeamCopy.java", beam_jars, tmp_path / "classes")
    copying.send(PORTION)
    arguments = (bootstrap, copying.source, copying.target, "committed")
    with JavaApplication(beam_jars, tmp_path, "BeamCopy", *arguments, classes=classes) as application:
        for _ in range(KILLS):
            copying.kill_in_the_middle(application)
        copied = copying.wait_for_all(application)
        # Its last bundles, of ten records each, are finished when the next ones come.
        assert eventually(lambda: copying.is_committed(f"beam-{copying.source}", 20), PATIENCE_SECONDS)
    assert set(copied) == set(range(copying.sent))


def test_beam_writes_in_transactions_exactly_once(
    bootstrap: str, new_topic: NewTopic, beam_jars: Path, tmp_path: Path
) -> None:
    copying = Copying(bootstrap, new_topic)
    classes = compile_java(JAVA / "BeamCopy.java", beam_jars, tmp_path / "classes")
    copying.send(PORTION)
    arguments = (bootstrap, copying.source, copying.target, "exactly-once", str(PORTION))
    with JavaApplication(beam_jars, tmp_path, "BeamCopy", *arguments, classes=classes) as application:
        copied = copying.wait_for_all(application)
        assert eventually(lambda: not application.is_running, PATIENCE_SECONDS), application.log_text[-6000:]
        assert copied == Counter(range(PORTION)), application.log_text[-3000:]
        application.start()  # it has forgotten what it wrote; what it left with the group's offsets tells
        assert eventually(lambda: not application.is_running, PATIENCE_SECONDS), application.log_text[-6000:]
        assert "Try another group id" in application.log_text
    assert copying.copied() == copied
