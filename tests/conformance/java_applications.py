"""Apache Kafka's applications (Streams, Connect, MirrorMaker 2) and an Apache Kafka, as processes of a test."""

import json
import signal
import subprocess
import time
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self

from tests.conformance.peer import Peer
from tests.conformance.waiting import eventually
from tests.conftest import free_port

JAVA = ("java", "-Xmx512M", "-XX:TieredStopAtLevel=1", "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn")
STOP_SECONDS_MAX = 60.0
START_SECONDS_MAX = 60.0
CONNECT_PACKAGE = "org.apache.kafka.connect"


class JavaApplication:
    """One JVM with its output in a file; a context manager that leaves nothing behind. `classes`: a folder of ours."""

    def __init__(self, jars: Path, folder: Path, *arguments: str, classes: Path | None = None) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._log_path = folder / f"{arguments[0].rpartition('/')[2].rpartition('.')[2]}.log"
        class_path = f"{jars}/*" if classes is None else f"{classes}:{jars}/*"
        self._command = [*JAVA, "-cp", class_path, *arguments]
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> Self:
        with self._log_path.open("ab") as log:
            self._process = subprocess.Popen(self._command, stdout=log, stderr=log)
        return self

    @property
    def log_text(self) -> str:
        return self._log_path.read_text(errors="replace")

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def stop(self) -> None:
        self._end(signal.SIGTERM)

    def kill9(self) -> None:
        self._end(signal.SIGKILL)

    def _end(self, number: signal.Signals) -> None:
        assert self._process is not None
        self._process.send_signal(number)
        self._process.wait(STOP_SECONDS_MAX)

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        if self.is_running:
            self.kill9()


def compile_java(program: Path, jars: Path, folder: Path) -> Path:
    """The folder with its classes: frameworks that send code around do not find what `java PROGRAM.java` compiles."""
    folder.mkdir(parents=True, exist_ok=True)
    command = ["javac", "-nowarn", "-cp", f"{jars}/*", "-d", str(folder), str(program)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return folder


def write_properties(path: Path, settings: Mapping[str, object]) -> str:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
    return str(path)


class ConnectRest:
    """The REST API of a Kafka Connect worker."""

    def __init__(self, port: int) -> None:
        self.address = f"http://127.0.0.1:{port}"

    def ask(self, path: str, body: object = None, method: str | None = None) -> Any:
        data = json.dumps(body, default=str).encode() if body is not None else None
        request = urllib.request.Request(self.address + path, data, {"Content-Type": "application/json"}, method=method)
        with urllib.request.urlopen(request, timeout=30) as answer:
            return json.loads(answer.read() or b"null")

    def put_connector(self, name: str, settings: Mapping[str, object]) -> None:
        """A worker that still finds its group answers 409: asked again until it takes the connector."""
        assert eventually(lambda: self._is_put(name, settings), START_SECONDS_MAX)

    def _is_put(self, name: str, settings: Mapping[str, object]) -> bool:
        try:
            self.ask(f"/connectors/{name}/config", dict(settings), "PUT")
        except OSError:
            time.sleep(0.3)
            return False
        return True

    def is_running(self, name: str) -> bool:
        try:
            return self._is_running(name)
        except OSError:
            return False

    def _is_running(self, name: str) -> bool:
        status = self.ask(f"/connectors/{name}/status")
        if "FAILED" in str(status):  # a worker could not ask the leader, which was just killed: as an operator would do
            self.ask(f"/connectors/{name}/restart?includeTasks=true&onlyFailed=true", {})
            return False
        return bool(status["tasks"]) and all(task["state"] == "RUNNING" for task in status["tasks"])


@contextmanager
def apache_kafka(jars: Path, folder: Path) -> Iterator[str]:
    """The address of a fresh Apache Kafka with one node."""
    port, controller_port = free_port(), free_port()
    settings = {
        "process.roles": "broker,controller",
        "node.id": 1,
        "controller.quorum.voters": f"1@127.0.0.1:{controller_port}",
        "listeners": f"PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller_port}",
        "advertised.listeners": f"PLAINTEXT://127.0.0.1:{port}",
        "controller.listener.names": "CONTROLLER",
        "log.dirs": folder / "data",
        "offsets.topic.replication.factor": 1,
        "offsets.topic.num.partitions": 5,
        "transaction.state.log.replication.factor": 1,
        "transaction.state.log.min.isr": 1,
        "transaction.state.log.num.partitions": 5,
        "group.initial.rebalance.delay.ms": 0,
    }
    path = write_properties(folder / "server.properties", settings)
    format_command = ["kafka.tools.StorageTool", "format", "-t", "AAAAAAAAAAAAAAAAAAAAAQ", "-c", path]
    subprocess.run([*JAVA, "-cp", f"{jars}/*", *format_command], check=True, capture_output=True)
    with JavaApplication(jars, folder, "kafka.Kafka", path) as kafka:

        def is_ready() -> bool:
            try:
                with Peer(f"127.0.0.1:{port}") as peer:
                    peer.topic_names()
            except OSError:
                return False
            return True

        assert eventually(is_ready, START_SECONDS_MAX), kafka.log_text[-3000:]
        yield f"127.0.0.1:{port}"
