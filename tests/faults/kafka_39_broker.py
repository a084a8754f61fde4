"""One Apache Kafka 3.9 broker of ZooKeeper mode on folders and a ZooKeeper that belong to another test object."""

import subprocess
import time
from pathlib import Path

from tests.faults.zookeeper_kafka import LOGGING, SERVER_READY

START_SECONDS_MAX = 90.0
STOP_SECONDS_MAX = 90.0


class Kafka39Broker:
    """Started on the address of the broker that used the folder before."""

    def __init__(
        self, folder: Path, jars: Path, broker_id: int, address: str, data: Path, connect: str, java_option: str = ""
    ) -> None:
        self.folder = folder
        self.jars = jars
        self.log = folder / "kafka.log"
        self.settings = {
            "broker.id": broker_id,
            "listeners": f"PLAINTEXT://{address}",
            "log.dirs": data,
            "zookeeper.connect": connect,
            "zookeeper.session.timeout.ms": 6000,
            "offsets.topic.num.partitions": 4,
            "transaction.state.log.num.partitions": 4,
            "transaction.state.log.min.isr": 1,
            "group.initial.rebalance.delay.ms": 0,
            "log.cleaner.enable": "false",
        }
        self._java_options = java_option.split()
        self._process: subprocess.Popen[bytes] | None = None

    def launch(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        (self.folder / "log4j.properties").write_text(LOGGING)
        (self.folder / "server.properties").write_text("".join(f"{k}={v}\n" for k, v in self.settings.items()))
        logging = f"-Dlog4j.configuration=file:{self.folder / 'log4j.properties'}"
        command = ["java", "-Xmx256M", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", logging, *self._java_options]
        command += ["-cp", f"{self.jars}/*"]
        with self.log.open("ab") as output:
            self._process = subprocess.Popen(
                [*command, "kafka.Kafka", str(self.folder / "server.properties")], stdout=output, stderr=output
            )

    def wait_until_ready(self) -> None:
        assert self._process is not None
        deadline = time.monotonic() + START_SECONDS_MAX
        while SERVER_READY not in self.text:
            assert self._process.poll() is None, self.text[-4000:]
            assert time.monotonic() < deadline, self.text[-4000:]
            time.sleep(0.1)

    @property
    def text(self) -> str:
        return self.log.read_text(errors="replace") if self.log.exists() else ""

    def stop(self) -> None:
        assert self._process is not None
        self._process.terminate()
        self._process.wait(STOP_SECONDS_MAX)

    def kill(self) -> None:
        if self._process is not None and self._process.poll() is None:
            self._process.kill()
            self._process.wait(STOP_SECONDS_MAX)
