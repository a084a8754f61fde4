"""Apache Kafka: one KRaft node with the JVM options of its own start scripts, jars from Maven."""

import shutil
import subprocess
import uuid
from base64 import urlsafe_b64encode
from pathlib import Path
from xml.etree import ElementTree as ET

from bench.broker_process import SHARED_SETTINGS, BrokerProcess, free_port, properties
from bench.errors import BenchError
from bench.paths import BENCH, cache_folder

MAVEN_SECONDS_MAX = 900
FORMAT_SECONDS_MAX = 60
HEAP_OPTIONS = ["-Xmx1G", "-Xms1G"]
PERFORMANCE_OPTIONS = [
    "-server",
    "-XX:+UseG1GC",
    "-XX:MaxGCPauseMillis=20",
    "-XX:InitiatingHeapOccupancyPercent=35",
    "-XX:+ExplicitGCInvokesConcurrent",
    "-Djava.awt.headless=true",
]
LOG_OPTION = f"-Dlog4j2.configurationFile={BENCH / 'log4j2.yaml'}"


class KafkaProcess(BrokerProcess):
    """Broker and controller in one process, as in Apache Kafka's quick start."""

    system = "kafka"

    def prepare(self) -> None:
        self.jars = kafka_jars()
        self._properties().write_text(self._settings(free_port()))
        cluster_id = urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=").replace("-", "_")  # no option
        arguments = ["kafka.tools.StorageTool", "format", "-t", cluster_id, "-c", str(self._properties())]
        command = ["java", "-Xmx256M", LOG_OPTION, "-cp", f"{self.jars}/*", *arguments]
        done = subprocess.run(command, capture_output=True, text=True, timeout=FORMAT_SECONDS_MAX, check=False)
        if done.returncode != 0:
            raise BenchError(
                f"formatting the data folder of Apache Kafka failed: {(done.stdout + done.stderr)[-1000:]}"
            )

    def command(self) -> list[str]:
        options = [*HEAP_OPTIONS, *PERFORMANCE_OPTIONS, LOG_OPTION, f"-Dkafka.logs.dir={self.folder}"]
        return ["java", *options, "-cp", f"{self.jars}/*", "kafka.Kafka", str(self._properties())]

    def _properties(self) -> Path:
        return self.folder / "server.properties"

    def _settings(self, controller_port: int) -> str:
        settings = {
            "process.roles": "broker,controller",
            "node.id": "1",
            "controller.quorum.voters": f"1@{self.host}:{controller_port}",
            "listeners": f"PLAINTEXT://{self.host}:{self.port},CONTROLLER://{self.host}:{controller_port}",
            "advertised.listeners": f"PLAINTEXT://{self.host}:{self.port}",
            "controller.listener.names": "CONTROLLER",
            "inter.broker.listener.name": "PLAINTEXT",
            "log.dirs": str(self.data_folder),
            "offsets.topic.replication.factor": "1",
            "transaction.state.log.replication.factor": "1",
            "transaction.state.log.min.isr": "1",
            "share.coordinator.state.topic.replication.factor": "1",
            "share.coordinator.state.topic.min.isr": "1",
        }
        return properties(settings | SHARED_SETTINGS | self.settings)


def kafka_jars() -> Path:
    """The folder with Apache Kafka's jars; Maven fetches them once."""
    folder = cache_folder() / "lib"
    marker = folder / f"kafka-server-{kafka_version()}.jar"
    if not marker.exists():
        _fetch_jars(folder)
    if not marker.exists():
        raise BenchError(f"{marker} is missing although Maven has run; remove {folder} and try again")
    return folder


def kafka_version() -> str:
    name = "{http://maven.apache.org/POM/4.0.0}kafka.version"
    element = ET.parse(BENCH / "pom.xml").find(f".//{name}")
    assert element is not None
    assert element.text is not None
    return element.text


def java_version() -> str:
    done = subprocess.run(["java", "-version"], capture_output=True, text=True, check=False)
    return done.stderr.splitlines()[0] if done.stderr else "unknown"


def missing_tools() -> list[str]:
    """The missing programs that Apache Kafka needs."""
    needed = ["java"] if (cache_folder() / "lib" / f"kafka-server-{kafka_version()}.jar").exists() else ["java", "mvn"]
    return [tool for tool in needed if shutil.which(tool) is None]


def _fetch_jars(folder: Path) -> None:
    print(f"fetching Apache Kafka {kafka_version()} with Maven into {folder} (once)", flush=True)
    goal = ["dependency:copy-dependencies", "-DincludeScope=runtime", f"-DoutputDirectory={folder}"]
    command = ["mvn", "-q", "-B", "-f", str(BENCH / "pom.xml"), *goal]
    done = subprocess.run(command, capture_output=True, text=True, timeout=MAVEN_SECONDS_MAX, check=False)
    if done.returncode != 0:
        raise BenchError(f"Maven could not fetch Apache Kafka (--no-kafka does without): {done.stdout[-1000:]}")
