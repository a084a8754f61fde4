"""Tutorials, line by line, through the installed scripts: Apache Kafka 4's quick start, and the commands of older ones
that still talk of ZooKeeper and broker lists. Only ports and folders differ from what the pages say."""

import os
import re
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

SECONDS_MAX = 30
KAFKA_4_PROPERTIES = """\
process.roles=broker,controller
node.id=1
controller.quorum.bootstrap.servers=localhost:{controller_port}
listeners=PLAINTEXT://:{port},CONTROLLER://:{controller_port}
inter.broker.listener.name=PLAINTEXT
advertised.listeners=PLAINTEXT://localhost:{port},CONTROLLER://localhost:{controller_port}
controller.listener.names=CONTROLLER
listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT
num.network.threads=3
num.io.threads=8
socket.send.buffer.bytes=102400
socket.receive.buffer.bytes=102400
socket.request.max.bytes=104857600
log.dirs={folder}/kraft-combined-logs
num.partitions=1
num.recovery.threads.per.data.dir=1
offsets.topic.replication.factor=1
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
log.retention.hours=168
log.segment.bytes=1073741824
log.retention.check.interval.ms=300000
"""
# Without zookeeper.connect: one broker has a metadata store of its own.
OLD_PROPERTIES = """\
broker.id={node_id}
port={port}
host.name=localhost
num.network.threads=2
num.io.threads=8
log.dirs={folder}/kafka-logs
num.partitions=1
log.flush.interval.messages=10000
log.flush.interval.ms=1000
log.retention.hours=168
"""

pytestmark = pytest.mark.needs_ottla


class Tutorial:
    """A folder as the pages assume it (bin/, config/), and a shell in it."""

    def __init__(self, folder: Path, properties: str) -> None:
        self.folder = folder
        self.port, controller_port = free_ports()
        scripts = Path(sys.executable).parent
        assert (scripts / "kafka-topics.sh").exists(), "the scripts are not installed: make install"
        (folder / "bin").symlink_to(scripts)
        (folder / "config").mkdir()
        config = properties.format(port=self.port, controller_port=controller_port, folder=folder, node_id=os.getpid())
        (folder / "config" / "server.properties").write_text(config)
        bootstrap = f"bootstrap.servers=localhost:{self.port}\ncompression.type=none\n"
        (folder / "config" / "producer.properties").write_text(bootstrap)
        self.server: subprocess.Popen[str] | None = None

    def start(self, line: str) -> subprocess.Popen[str]:
        """Begin a command that goes on until it is stopped."""
        environment = os.environ | {"OTTLA_BOOTSTRAP_SERVER": f"localhost:{self.port}", "PYTHONUNBUFFERED": "1"}
        line = line.replace(":9092", f":{self.port}")
        return subprocess.Popen(
            ["bash", "-c", f"exec {line}"],
            cwd=self.folder,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def run(self, line: str, stdin: str = "") -> str:
        """One line of a page; returns what it printed. `VARIABLE=... command` works as in a shell."""
        tool = self.start(f"bash -c '{line}'" if "$(" in line else line)
        out, err = tool.communicate(stdin, timeout=SECONDS_MAX)
        assert tool.returncode == 0, (line, out, err)
        assert "Traceback" not in err
        return out

    def start_server(self) -> None:
        self.server = self.start("bin/kafka-server-start.sh config/server.properties")
        assert self.server.stdout is not None
        while "ready on" not in (line := self.server.stdout.readline()):
            assert line, self.server.communicate()

    def stop(self, tool: subprocess.Popen[str]) -> str:
        """Ctrl-C; returns what was printed since."""
        tool.send_signal(signal.SIGINT)
        out, err = tool.communicate(timeout=SECONDS_MAX)
        assert "Traceback" not in err
        return out

    def until(self, tool: subprocess.Popen[str], count: int) -> list[str]:
        """So many lines of a command that goes on."""
        assert tool.stdout is not None
        return [tool.stdout.readline().rstrip("\n") for _ in range(count)]


def free_ports() -> tuple[int, int]:
    with socket.create_server(("127.0.0.1", 0)) as first, socket.create_server(("127.0.0.1", 0)) as second:
        return first.getsockname()[1], second.getsockname()[1]


@pytest.fixture
def kafka_4(tmp_path: Path) -> Iterator[Tutorial]:
    yield from tutorial(tmp_path, KAFKA_4_PROPERTIES)


@pytest.fixture
def of_old(tmp_path: Path) -> Iterator[Tutorial]:
    yield from tutorial(tmp_path, OLD_PROPERTIES)


def tutorial(folder: Path, properties: str) -> Iterator[Tutorial]:
    page = Tutorial(folder, properties)
    try:
        yield page
    finally:
        if page.server is not None and page.server.poll() is None:
            page.server.terminate()
            page.server.communicate(timeout=SECONDS_MAX)


def test_kafka_4s_quick_start_works_line_by_line(kafka_4: Tutorial) -> None:
    cluster_id = kafka_4.run("bin/kafka-storage.sh random-uuid").strip()
    assert re.fullmatch(r"[\w-]{22}", cluster_id)
    formatted = kafka_4.run(f"bin/kafka-storage.sh format --standalone -t {cluster_id} -c config/server.properties")
    assert f"{kafka_4.folder}/kraft-combined-logs" in formatted
    kafka_4.start_server()
    created = kafka_4.run("bin/kafka-topics.sh --create --topic quickstart-events --bootstrap-server localhost:9092")
    assert created == "Created topic quickstart-events.\n"
    described = kafka_4.run(
        "bin/kafka-topics.sh --describe --topic quickstart-events --bootstrap-server localhost:9092"
    ).splitlines()
    assert re.fullmatch(
        r"Topic: quickstart-events\tTopicId: [\w-]{22}\tPartitionCount: 1\tReplicationFactor: 1\tConfigs: .*",
        described[0],
    )
    assert described[1].startswith("\tTopic: quickstart-events\tPartition: 0\tLeader: 1\tReplicas: 1\tIsr: 1")
    kafka_4.run(
        "bin/kafka-console-producer.sh --topic quickstart-events --bootstrap-server localhost:9092",
        "This is my first event\nThis is my second event\n",
    )
    consume = (
        "bin/kafka-console-consumer.sh --topic quickstart-events --from-beginning --bootstrap-server localhost:9092"
    )
    consumer = kafka_4.start(consume)
    assert kafka_4.until(consumer, 2) == ["This is my first event", "This is my second event"]
    assert (kafka_4.stop(consumer), consumer.returncode) == ("", 130)
    assert kafka_4.server is not None
    kafka_4.stop(kafka_4.server)
    assert kafka_4.server.returncode in (0, 130)


def test_the_first_steps_of_an_old_tutorial_work(of_old: Tutorial) -> None:
    of_old.start_server()
    create = "--create --zookeeper localhost:2181 --replication-factor 1 --partitions 1 --topic test"
    assert of_old.run(f"bin/kafka-topics.sh {create}") == 'Created topic "test".\n'
    of_old.run(
        "bin/kafka-console-producer.sh --broker-list localhost:9092 --topic test",
        "This is a message\nThis is another message\n",
    )
    consumer = of_old.start("bin/kafka-console-consumer.sh --zookeeper localhost:2181 --topic test --from-beginning")
    assert of_old.until(consumer, 2) == ["This is a message", "This is another message"]
    of_old.stop(consumer)
    described = of_old.run("bin/kafka-topics.sh --describe --zookeeper localhost:2181 --topic test").splitlines()
    assert described[0].startswith("Topic:")
    assert "PartitionCount:" in described[0]


def test_the_commands_of_a_handbook_work(of_old: Tutorial) -> None:
    of_old.start_server()
    topics = "bin/kafka-topics.sh --zookeeper localhost:2181"
    assert of_old.run(f"{topics} --list").strip() == ""
    of_old.run(f"{topics} --create --topic topic_1 --partitions 1 --replication-factor 1")
    assert "topic_1" in of_old.run(f"{topics} --describe --topic topic_1")
    of_old.run("bin/kafka-console-producer.sh --broker-list localhost:9092 --topic topic_1", "hello\n")
    consumer = of_old.start("bin/kafka-console-consumer.sh --bootstrap-server localhost:9092 --topic topic_1")
    shown: list[str] = []
    reading = threading.Thread(target=lambda: shown.extend(of_old.until(consumer, 1)), daemon=True)
    reading.start()
    for _ in range(SECONDS_MAX):  # without --from-beginning only what comes from now on is shown
        of_old.run("bin/kafka-console-producer.sh --broker-list localhost:9092 --topic topic_1", "news\n")
        reading.join(1.0)
        if shown:
            break
    assert shown == ["news"]
    of_old.stop(consumer)
    load = "--topic topic_1 --num-records 10000 --record-size 1024 --throughput 10000"
    measured = of_old.run(f"bin/kafka-producer-perf-test.sh {load} --producer.config config/producer.properties")
    assert re.match(r"10000 records sent, [\d.]+ records/sec", measured.splitlines()[-1])
    of_old.run(f"{topics} --delete --topic topic_1")
    assert "topic_1" not in of_old.run(f"{topics} --list")
    assert of_old.server is not None
    of_old.run(f"bin/kafka-server-stop.sh --node-id={os.getpid()}")  # other brokers of this machine stay
    assert of_old.server.wait(SECONDS_MAX) == 0
