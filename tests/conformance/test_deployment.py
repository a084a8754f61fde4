"""The files of a deployment, used: the example of config/, the container's entry command, the systemd unit."""

import json
import os
import re
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from tests.conformance.config_requests import BROKER, STATIC, entries
from tests.conformance.peer import Peer
from tests.conftest import READY_LINE, free_port, ottla_command

from ottla.cli.commands.pipeline import parser as pipeline_parser
from ottla.cli.main import main
from ottla.security.secure_folder import SecurityDir

pytestmark = pytest.mark.needs_ottla

ROOT = Path(__file__).parents[2]
BIN = Path(ottla_command()[0]).parent
SECONDS_MAX = 20
CLUSTER_ID = "4L6g3nShT-eMCtK--X86sw"


class Running:
    """A broker that was started by one of the deployment's own commands."""

    def __init__(self, command: list[str], log: Path, environment: dict[str, str]) -> None:
        self.log = log
        with log.open("wb") as output:
            self.process = subprocess.Popen(command, stdout=output, stderr=output, env=environment)
        deadline = time.monotonic() + SECONDS_MAX
        while not READY_LINE.search(self.text):
            assert self.process.poll() is None, self.text
            assert time.monotonic() < deadline, self.text
            time.sleep(0.01)

    @property
    def text(self) -> str:
        return self.log.read_text()

    def stop(self) -> None:
        self.process.send_signal(signal.SIGTERM)
        assert self.process.wait(SECONDS_MAX) == 0, self.text
        assert "Traceback" not in self.text


@pytest.fixture
def running(tmp_path: Path) -> Iterator[list[Running]]:
    started: list[Running] = []
    yield started
    for each in started:
        if each.process.poll() is None:
            each.process.kill()
            each.process.wait()


def bare_environment(**variables: str) -> dict[str, str]:
    return {"PATH": f"{BIN}:{os.environ['PATH']}", "PYTHONUNBUFFERED": "1", **variables}


def test_the_example_file_works_with_the_quick_starts_commands(tmp_path: Path, running: list[Running]) -> None:
    port = free_port()
    file = tmp_path / "server.properties"
    text = (ROOT / "config" / "server.properties").read_text()
    file.write_text(text.replace("9092", str(port)).replace("/tmp/kraft-combined-logs", str(tmp_path / "data")))
    format_command = [str(BIN / "kafka-storage.sh"), "format", "--standalone", "-t", CLUSTER_ID, "-c", str(file)]
    subprocess.run(format_command, check=True, capture_output=True, env=bare_environment())
    start_command = [str(BIN / "kafka-server-start.sh"), str(file), "--override", "num.partitions=3"]
    broker = Running(start_command, tmp_path / "log", bare_environment(KAFKA_NUM_PARTITIONS="7"))
    running.append(broker)
    warnings = [line for line in broker.text.splitlines() if "WARN" in line and "as plain Python" not in line]
    assert not warnings
    with Peer(f"127.0.0.1:{port}") as peer:
        found = entries(peer, BROKER, "1", ["num.partitions", "process.roles"])
        assert found["num.partitions"].value == "3", "Kafka's own script does not read variables"
        assert found["process.roles"].value == "broker,controller"
    broker.stop()
    assert f"cluster.id={CLUSTER_ID}" in (tmp_path / "data" / "meta.properties").read_text()


def test_the_containers_entry_command_runs_with_the_variables_of_the_compose_file(
    tmp_path: Path, running: list[Running]
) -> None:
    port, inner = free_port(), free_port()
    variables = compose_variables()
    for name, value in variables.items():
        variables[name] = value.replace("19092", str(inner)).replace("9092", str(port))
    file = tmp_path / "server.properties"
    template = (ROOT / "deploy" / "container.properties").read_text()
    file.write_text("num.partitions=1\n")
    restore = tmp_path / "restore.properties"
    restore.write_text(template.replace("/var/lib/ottla/data", str(tmp_path / "data")) + "num.partitions=4\n")
    variables |= {
        "CUSTOM_INIT_SCRIPT": f"cp {restore} {file}; export KAFKA_CFG_LOG_SEGMENT_BYTES=2000000",
        "CLUSTER_ID": CLUSTER_ID,
        "KAFKA_HEAP_OPTS": "-Xmx1G -Xms1G",
        "KAFKA_HOME": "/opt/kafka",
        "KAFKA_PORT": "tcp://10.1.2.3:9092",
    }
    command = entry_command()
    command[command.index("/etc/ottla/server.properties")] = str(file)
    running.append(Running(command, tmp_path / "log", bare_environment(**variables)))
    with Peer(f"127.0.0.1:{port}") as peer:
        found = entries(peer, BROKER, "1", ["num.partitions", "log.segment.bytes", "log.retention.hours", "listeners"])
        assert {name: (entry.value, entry.config_source) for name, entry in found.items()} == {
            "num.partitions": ("4", STATIC),
            "log.segment.bytes": ("2000000", STATIC),
            "log.retention.hours": ("168", STATIC),
            "listeners": (f"PLAINTEXT://:{port},INTERNAL://:{inner}", STATIC),
        }
    check = health_command()
    check[-1] = f"localhost:{port}"
    done = subprocess.run(check, check=False, capture_output=True, text=True, env=bare_environment())
    assert (done.returncode, done.stdout) == (0, ""), done.stderr
    running[0].stop()
    assert f"cluster.id={CLUSTER_ID}" in (tmp_path / "data" / "meta.properties").read_text()
    done = subprocess.run(check, check=False, capture_output=True, text=True, env=bare_environment())
    assert done.returncode != 0, "a container whose broker is gone is not healthy"


def test_a_failing_init_script_stops_the_start_with_one_line(tmp_path: Path) -> None:
    environment = bare_environment(CUSTOM_INIT_SCRIPT="exit 7", KAFKA_LOG_DIRS=str(tmp_path / "data"))
    command = [*ottla_command(), "broker", "--from-environment"]
    done = subprocess.run(command, check=False, capture_output=True, text=True, env=environment)
    assert done.returncode == 1
    assert done.stderr == "ottla broker: CUSTOM_INIT_SCRIPT ended with exit code 7: the broker was not started\n"
    assert not (tmp_path / "data").exists()


def test_systemd_is_notified_when_the_broker_serves_and_when_it_stops(tmp_path: Path, running: list[Running]) -> None:
    settings = [f"listeners=PLAINTEXT://127.0.0.1:{free_port()}", f"log.dirs={tmp_path / 'data'}"]
    command = [*ottla_command(), "broker", *(word for text in settings for word in ("--override", text))]
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as systemd:
        systemd.bind(str(tmp_path / "notify"))
        systemd.settimeout(SECONDS_MAX)
        running.append(Running(command, tmp_path / "log", bare_environment(NOTIFY_SOCKET=str(tmp_path / "notify"))))
        assert systemd.recv(100) == b"READY=1"
        running[0].stop()
        assert systemd.recv(100) == b"STOPPING=1"


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("ottla", "broker --config /etc/ottla/server.properties"),
        ("ottla-pipeline@", "pipeline run /etc/ottla/pipelines/%i.yaml --restart always"),
    ],
)
def test_the_unit_files_are_such_that_systemd_takes_them(tmp_path: Path, name: str, words: str) -> None:
    unit = (ROOT / "deploy" / f"{name}.service").read_text()
    command = re.search(r"^ExecStart=(/opt/ottla/bin/ottla) (.*)$", unit, re.MULTILINE)
    assert command is not None
    assert command[2].startswith(words)
    if shutil.which("systemd-analyze") is None:
        pytest.skip("systemd is not installed")
    file = tmp_path / f"{name}.service"
    file.write_text(unit.replace(command[1], "/bin/true"))
    asked = str(file).replace("@.", "@views.")
    done = subprocess.run(["systemd-analyze", "verify", asked], check=False, capture_output=True, text=True)
    assert (done.returncode, [line for line in done.stderr.splitlines() if name in line]) == (0, [])


@pytest.fixture(
    params=["--zookeeper 3", "--zookeeper 3 --host a.example,b.example,c.example", "--brokers 1 --zookeeper 0"]
)
def written_units(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    folder = tmp_path / "cluster"
    assert main(["deploy", "init", "--as", "systemd", *request.param.split(), str(folder)]) == 0
    return folder / "etc" / "systemd" / "system"


def test_the_written_units_are_such_that_systemd_takes_them(written_units: Path) -> None:
    if shutil.which("systemd-analyze") is None:
        pytest.skip("systemd is not installed")
    for unit in written_units.glob("*.service"):
        assert "LimitNOFILE=" in unit.read_text()
        unit.write_text(unit.read_text().replace("/opt/ottla/bin/ottla", "/bin/true"))
    asked = [str(unit).replace("@.service", "@1.service") for unit in written_units.iterdir()]
    done = subprocess.run(["systemd-analyze", "verify", *asked], check=False, capture_output=True, text=True)
    assert (done.returncode, [line for line in done.stderr.splitlines() if "ottla" in line]) == (0, [])


def test_the_words_of_the_written_units_are_options_that_there_are(written_units: Path) -> None:
    for unit in written_units.glob("*.service"):
        (line,) = re.findall(r"^ExecStart=/opt/ottla/bin/ottla (.*)$", unit.read_text(), re.MULTILINE)
        command, *words = line.replace("%i", "1").split()
        told = subprocess.run([*ottla_command(), command, "--help"], check=True, capture_output=True, text=True).stdout
        for word in words:
            assert not word.startswith("--") or word in told, (unit.name, word)


@pytest.mark.other_languages
def test_the_written_compose_files_are_such_that_compose_takes_them(tmp_path: Path) -> None:
    for number, words in enumerate(("--zookeeper 3", "--host kafka.example --brokers 5", "--brokers 1 --zookeeper 0")):
        folder = tmp_path / str(number)
        assert main(["deploy", "init", "--as", "compose", *words.split(), str(folder)]) == 0
        done = subprocess.run(
            ["docker", "compose", "config", "--quiet"], cwd=folder, check=False, capture_output=True, text=True
        )
        assert (done.returncode, done.stderr) == (0, "")


class Kubernetes(BaseHTTPRequestHandler):
    """The answer of the Kubernetes API server about a node, for requests with a token."""

    def do_GET(self) -> None:
        is_known = self.headers["Authorization"] == "Bearer secret" and self.path == "/api/v1/nodes/node-7"
        labels = {"topology.kubernetes.io/zone": "zone-b"}
        answer = json.dumps({"kind": "Node", "metadata": {"name": "node-7", "labels": labels}}).encode()
        self.send_response(200 if is_known else 403)
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, *_: object) -> None:
        pass


@pytest.mark.parametrize(
    ("label", "token", "rack"),
    [("topology.kubernetes.io/zone", "secret", "zone-b"), ("other", "secret", ""), ("other", "wrong", None)],
)
def test_a_pod_asks_kubernetes_for_the_rack_of_its_node(
    label: str, token: str, rack: str | None, tmp_path: Path
) -> None:
    keys = SecurityDir(tmp_path / "keys", ["127.0.0.1"], datetime.now(UTC), "SSL")
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(keys.broker_settings(1)["ssl.keystore.location"])
    template = ROOT / "src/ottla/cli/deploy/templates/helm/templates/broker-settings.yaml"
    lines = template.read_text().partition("  rack.py: |\n")[2].partition("  {{- end }}")[0].splitlines()
    account = tmp_path / "account"
    account.mkdir()
    (account / "token").write_text(f"{token}\n")
    shutil.copy(keys.authority_file, account / "ca.crt")
    script = "\n".join(line[4:] for line in lines).replace("/run/ottla/rack", str(tmp_path / "rack"))
    script = script.replace("/var/run/secrets/kubernetes.io/serviceaccount", str(account))
    with ThreadingHTTPServer(("127.0.0.1", 0), Kubernetes) as server:
        server.socket = context.wrap_socket(server.socket, server_side=True)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        variables = {
            "KUBERNETES_SERVICE_HOST": "127.0.0.1",
            "KUBERNETES_SERVICE_PORT": str(server.server_address[1]),
            "NODE_NAME": "node-7",
            "RACK_LABEL": label,
        }
        done = subprocess.run([sys.executable, "-c", script], check=False, capture_output=True, env=variables)
        server.shutdown()
    assert done.returncode == (1 if rack is None else 0), done.stderr
    if rack is not None:
        assert (tmp_path / "rack").read_text() == rack


def test_the_service_of_a_pipeline_gives_options_that_there_are() -> None:
    (words,) = re.findall(r'^    command: (\["/pipelines.*\])$', (ROOT / "compose.yaml").read_text(), re.MULTILINE)
    unit = (ROOT / "deploy" / "ottla-pipeline@.service").read_text()
    (line,) = re.findall(r"^ExecStart=\S+ pipeline (.*)$", unit, re.MULTILINE)
    for given in (["run", *json.loads(words)], line.split()):
        options = pipeline_parser().parse_args(given)
        assert (options.restart, len(options.files)) == ("always", 1)


def test_files_that_the_dockerfile_copies_exist_and_are_not_ignored() -> None:
    ignored = (ROOT / ".dockerignore").read_text().splitlines()
    for line in dockerfile_lines("COPY"):
        if "--from=" not in line:
            for name in line.split()[1:-1]:
                assert (ROOT / name).exists(), name
                assert f"!{name}" in ignored, name
    assert dockerfile_lines("USER") == ["USER ottla"]


def dockerfile_lines(instruction: str) -> list[str]:
    text = (ROOT / "Dockerfile").read_text().replace("\\\n", " ")
    return [line for line in text.splitlines() if line.startswith(f"{instruction} ")]


def entry_command() -> list[str]:
    (line,) = dockerfile_lines("ENTRYPOINT")
    words: list[str] = json.loads(line.removeprefix("ENTRYPOINT "))
    return words


def health_command() -> list[str]:
    (line,) = dockerfile_lines("HEALTHCHECK")
    words: list[str] = json.loads(line.partition(" CMD ")[2])
    compose = (ROOT / "compose.yaml").read_text()
    assert json.dumps(["CMD", *words]) in compose, "both files ask the same"
    return words


def compose_variables() -> dict[str, str]:
    found = re.findall(r"^      (KAFKA_\w+): (\S+)", (ROOT / "compose.yaml").read_text(), re.MULTILINE)
    assert len(found) >= 5
    return dict(found)
