"""An Apache Kafka 3.9 in ZooKeeper mode: the last one of its kind, which people migrate from."""

import subprocess
import time
from pathlib import Path
from typing import Self

from tests.conftest import free_port

KAFKA_VERSION = "3.9.1"
START_SECONDS_MAX = 60.0
STOP_SECONDS_MAX = 60.0
SERVER_READY = "started (kafka.server.KafkaServer)"
SESSION_MS = 2000
ZOOKEEPER_MAIN = "org.apache.zookeeper.server.quorum.QuorumPeerMain"
LOGGING = """\
log4j.rootLogger=INFO, out
log4j.appender.out=org.apache.log4j.ConsoleAppender
log4j.appender.out.target=System.err
log4j.appender.out.layout=org.apache.log4j.PatternLayout
log4j.appender.out.layout.ConversionPattern=[%d] %p %m (%c)%n
"""


class ZooKeeperKafka:
    """One broker with a ZooKeeper of its own; both keep their data in `folder`. A context manager."""

    def __init__(self, folder: Path, jars: Path, data: Path | None = None) -> None:
        self.folder = folder
        self.jars = jars
        self.data = data or folder / "data"
        self.zookeeper_port, self.port = free_port(), free_port()
        self.bootstrap = f"127.0.0.1:{self.port}"
        self._zookeeper: subprocess.Popen[bytes] | None = None
        self._broker: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        self.folder.mkdir(parents=True, exist_ok=True)
        self._write_settings()
        self._zookeeper = self._java(
            "zookeeper.log",
            "org.apache.zookeeper.server.quorum.QuorumPeerMain",
            str(self.folder / "zookeeper.properties"),
        )
        return self

    def __exit__(self, *_: object) -> None:
        for process in (self._broker, self._zookeeper):
            if process is not None and process.poll() is None:
                process.kill()
                process.wait()

    def start(self) -> None:
        log = self.folder / "kafka.log"
        log.unlink(missing_ok=True)
        deadline = time.monotonic() + START_SECONDS_MAX
        self._broker = self._java("kafka.log", "kafka.Kafka", str(self.folder / "server.properties"))
        while SERVER_READY not in log.read_text(errors="replace"):
            assert time.monotonic() < deadline, log.read_text(errors="replace")[-3000:]
            if self._broker.poll() is not None:  # the session of the process before is not over yet
                time.sleep(0.5)
                self._broker = self._java("kafka.log", "kafka.Kafka", str(self.folder / "server.properties"))
            time.sleep(0.1)

    def stop(self) -> None:
        assert self._broker is not None
        self._broker.terminate()
        self._broker.wait(STOP_SECONDS_MAX)

    def kill9(self) -> None:
        assert self._broker is not None
        self._broker.kill()
        self._broker.wait(STOP_SECONDS_MAX)

    def tool(self, main_class: str, *arguments: str) -> str:
        """What one of Kafka's own tools prints."""
        command = [*self._command(), main_class, *arguments]
        done = subprocess.run(command, capture_output=True, text=True, timeout=START_SECONDS_MAX, check=True)
        return done.stdout

    def run_zookeeper_commands(self, commands: str) -> str:
        command = [
            *self._command(),
            "org.apache.zookeeper.ZooKeeperMain",
            "-waitforconnection",
            "-server",
            f"127.0.0.1:{self.zookeeper_port}",
        ]
        done = subprocess.run(
            command, input=commands, capture_output=True, text=True, timeout=START_SECONDS_MAX, check=True
        )
        return done.stdout + done.stderr

    def _command(self) -> list[str]:
        logging = f"-Dlog4j.configuration=file:{self.folder / 'log4j.properties'}"
        return ["java", "-Xmx512M", "-XX:TieredStopAtLevel=1", logging, "-cp", f"{self.jars}/*"]

    def _java(self, log: str, *arguments: str) -> "subprocess.Popen[bytes]":
        with (self.folder / log).open("ab") as output:
            return subprocess.Popen([*self._command(), *arguments], stdout=output, stderr=output)

    def _write_settings(self) -> None:
        zookeeper = {
            "dataDir": self.folder / "zookeeper",
            "clientPort": self.zookeeper_port,
            "clientPortAddress": "127.0.0.1",
            "admin.enableServer": "false",
            "tickTime": SESSION_MS // 2,
        }
        broker = {
            "broker.id": 1,
            "listeners": f"PLAINTEXT://{self.bootstrap}",
            "log.dirs": self.data,
            "zookeeper.connect": f"127.0.0.1:{self.zookeeper_port}",
            "zookeeper.session.timeout.ms": SESSION_MS,
            "offsets.topic.replication.factor": 1,
            "offsets.topic.num.partitions": 2,
            "transaction.state.log.replication.factor": 1,
            "transaction.state.log.min.isr": 1,
            "transaction.state.log.num.partitions": 2,
            "group.initial.rebalance.delay.ms": 0,
            "log.cleaner.backoff.ms": 300,
            "log.initial.task.delay.ms": 300,
        }
        (self.folder / "log4j.properties").write_text(LOGGING)
        for name, settings in (("zookeeper", zookeeper), ("server", broker)):
            text = "".join(f"{key}={value}\n" for key, value in settings.items())
            (self.folder / f"{name}.properties").write_text(text)
