"""Migration with a real Apache Kafka 3.9 in ZooKeeper mode, both ways, record by record."""

import shutil
import subprocess
import time
from pathlib import Path

import pytest
from tests.conformance.conftest import find_jars
from tests.conformance.peer import Peer
from tests.conftest import Broker, ottla_command
from tests.faults.mixed_records import TOPICS, producer, read_all, write_all
from tests.faults.zookeeper_kafka import KAFKA_VERSION, ZooKeeperKafka

pytestmark = [pytest.mark.faults, pytest.mark.needs_ottla]

SIZE = 6000
TOPIC_COMMAND = "org.apache.kafka.tools.TopicCommand"


@pytest.fixture(scope="module")
def jars() -> Path:
    return find_jars(KAFKA_VERSION)


def migrate(*arguments: str | Path) -> str:
    done = subprocess.run(
        [*ottla_command(), "migrate", *map(str, arguments)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_there_and_back(tmp_path: Path, jars: Path) -> None:
    with ZooKeeperKafka(tmp_path / "kafka", jars) as kafka:
        kafka.start()
        write_all(kafka.bootstrap, SIZE)
        kafka.stop()
        shutil.copytree(kafka.data, tmp_path / "stopped")
        kafka.start()
        settings = tmp_path / "topics.txt"
        settings.write_text(kafka.tool(TOPIC_COMMAND, "--bootstrap-server", kafka.bootstrap, "--describe"))
        stopped = read_all(kafka.bootstrap)
        write_more(kafka.bootstrap)
        killed = read_all(kafka.bootstrap)
        kafka.kill9()
        subprocess.run(["cp", "-a", "--sparse=always", kafka.data, tmp_path / "killed"], check=True)

    for name, expected in (("stopped", stopped), ("killed", killed)):
        migrate("from-kafka", tmp_path / name, "--settings", settings, "--all", "--data", tmp_path / name / "ottla")
        broker = Broker(tmp_path / f"ottla-{name}", {"log.cleaner.enable": "false"})
        (tmp_path / name / "ottla").rename(broker.data_directory)
        broker.start()
        assert read_all(broker.bootstrap) == expected
        assert_duplicate_is_known(broker, expected["read_committed", "plain", 0].high)
        write_more(broker.bootstrap)
        own = read_all(broker.bootstrap)
        broker.stop()

    with ZooKeeperKafka(tmp_path / "back", jars, broker.data_directory) as kafka:
        made = kafka.run_zookeeper_commands(migrate("to-zookeeper", broker.data_directory))
        assert made.count("Created /brokers/topics/") > len(TOPICS)
        kafka.start()
        time.sleep(1)  # the controller leads its partitions a moment after the broker says that it has started
        without_compaction = [topic for topic in TOPICS if topic != "compacted"]
        assert read_all(kafka.bootstrap, without_compaction) == {
            key: partition for key, partition in own.items() if key[1] != "compacted"
        }
        write_more(kafka.bootstrap)
        kafka.stop()


def assert_duplicate_is_known(broker: Broker, end_offset: int) -> None:
    """The idempotent producer's last batch, sent once more as a client does that got no answer."""
    with Peer(broker.bootstrap) as peer:
        batch = bytes(peer.fetch("plain", end_offset - 1).records)
        first_offset = int.from_bytes(batch[:8], "big")
        answer = peer.produce("plain", bytes(8) + batch[8:], 0)
        assert (answer.error_code, answer.base_offset) == (0, first_offset)
        assert peer.end_offset("plain", 0) == end_offset


def write_more(bootstrap: str) -> None:
    writer = producer(bootstrap, **{"enable.idempotence": True})
    for number in range(300):
        writer.produce("plain", b"more %d" % number, None, number % 3)
        writer.produce("codecs", b"more %d" % number, b"more", 0)
    assert writer.flush(20) == 0
