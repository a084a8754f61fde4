"""What `ottla deploy init` writes, started: commands of its units, variables of its compose file.

Only folders and ports are others: those of the test.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import re
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import pytest
import yaml
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, NewTopic
from tests.conftest import free_port, ottla_command

from ottla.cli.deploy.systemd import read_unit
from ottla.cli.main import main
from ottla.testing.child import set_parent_death_signal

ROOT = Path(__file__).parents[2]
SECONDS_MAX = 90.0
BIN = Path(ottla_command()[0]).parent
PORT = re.compile(r"(?<=[:=])(2181|2182|2183|288[89]|2890|388[89]|3890|909[234]|940[456])\b")


class Server:
    """One process of the deployment, and what it says."""

    def __init__(self, name: str, command: Sequence[str], folder: Path, environment: Mapping[str, str]) -> None:
        self.log = folder / f"{name}.log"
        with self.log.open("wb") as output:
            self.process = subprocess.Popen(
                command,
                stdout=output,
                stderr=output,
                env=dict(environment),
                preexec_fn=set_parent_death_signal,  # noqa: PLW1509 (no threads here)
            )

    def wait_until_ready(self) -> None:
        deadline = time.monotonic() + SECONDS_MAX
        while " ready on " not in self.log.read_text():
            assert self.process.poll() is None, self.log.read_text()
            assert time.monotonic() < deadline, self.log.read_text()
            time.sleep(0.02)

    def stop(self) -> int:
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(SECONDS_MAX)


@pytest.fixture
def servers() -> Iterator[dict[str, Server]]:
    started: dict[str, Server] = {}
    yield started
    for server in started.values():
        if server.process.poll() is None:
            server.process.kill()
            server.process.wait()


def environment(**more: str) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("KAFKA_", "OTTLA_"))}
    return {**kept, "PATH": f"{BIN}:{os.environ['PATH']}", "KAFKA_HEAP_OPTS": "-Xmx128m", **more}


def run(*words: str, code: int = 0) -> str:
    """A command of ours, in this process: others would take a second each to begin."""
    told = io.StringIO()
    with contextlib.redirect_stdout(told):
        assert main(words) == code, told.getvalue()
    return told.getvalue()


def produce_and_consume(bootstrap: str, replicas: int) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic("orders", 3)])["orders"].result(SECONDS_MAX)
    producer = Producer({"bootstrap.servers": bootstrap, "acks": "all"})
    for value in (b"first", b"second"):
        producer.produce("orders", value)
    assert producer.flush(SECONDS_MAX) == 0
    partitions = admin.list_topics("orders", SECONDS_MAX).topics["orders"].partitions.values()
    assert [len(each.replicas) for each in partitions] == [replicas] * 3
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "g", "auto.offset.reset": "earliest"})
    consumer.subscribe(["orders"])
    read = [message.value() for message in consumer.consume(2, SECONDS_MAX)]
    consumer.close()
    assert sorted(read) == [b"first", b"second"]


def test_units_and_settings_for_systemd_are_a_cluster_that_serves(tmp_path: Path, servers: dict[str, Server]) -> None:
    folder = tmp_path / "cluster"
    run("deploy", "init", "--as", "systemd", "--brokers", "3", "--zookeeper", "3", str(folder))
    ports: dict[str, str] = {}
    for file in sorted((folder / "etc" / "ottla").iterdir()):
        text = PORT.sub(lambda match: ports.setdefault(match[1], str(free_port())), file.read_text())
        file.write_text(text.replace("/var/lib/", f"{tmp_path}/var/"))
    # The units forbid writes elsewhere; without systemd nothing enforces that here.
    for file in (folder / "etc" / "systemd" / "system").glob("*.service"):
        file.write_text(file.read_text().replace("ProtectSystem=strict", "ProtectSystem=no"))
    (tmp_path / "var").mkdir()
    for unit in ("ottla-zookeeper@", "ottla@"):
        for number in (1, 2, 3):
            name = f"{unit}{number}"
            servers[name] = Server(name, unit_command(folder, unit, number), tmp_path, environment())
        for number in (1, 2, 3):
            servers[f"{unit}{number}"].wait_until_ready()
    bootstrap = ",".join(f"localhost:{ports[port]}" for port in ("9092", "9093", "9094"))
    produce_and_consume(bootstrap, 3)
    look_while_it_runs(folder)
    look_from_a_compose_file(tmp_path / "compose", ports["9092"])
    wait_as_a_pod_does(tmp_path, ports["9092"], servers["ottla@3"])
    assert all(servers[f"ottla@{number}"].stop() == 0 for number in (2, 1))
    assert all(servers[f"ottla-zookeeper@{number}"].stop() in (0, 143) for number in (1, 2, 3))


def unit_command(folder: Path, unit: str, number: int) -> list[str]:
    line = read_unit(folder / "etc" / "systemd" / "system" / f"{unit}.service").one("ExecStart")
    assert line is not None
    program, *words = line.replace("%i", str(number)).replace("/etc/ottla", str(folder / "etc" / "ottla")).split()
    assert program == "/opt/ottla/bin/ottla"
    return [*ottla_command(), *words]


def look_while_it_runs(folder: Path) -> None:
    """The check asks brokers that run for their clocks and versions, and does not mistake them for other processes."""
    told = json.loads(run("deploy", "check", str(folder), "--json"))
    assert [each for each in told["findings"] if each["severity"] == "problem"] == []
    assert any("brokers of this cluster are running" in each for each in told["not_checked"])
    assert not any("clocks" in each for each in told["not_checked"])
    file = folder / "etc" / "ottla" / "broker-2.properties"
    before = file.read_text()
    file.write_text(before.replace("node.id=2", "node.id=9"))
    told = json.loads(run("deploy", "check", str(folder), "--json", code=1))
    assert any("broker 2 runs at its address, not broker 9" in each["cause"] for each in told["findings"])
    file.write_text(before)


def look_from_a_compose_file(folder: Path, port: str) -> None:
    """Containers do not publish their metrics: the owner of a port is identified with Kafka's protocol."""
    run("deploy", "init", "--as", "compose", "--brokers", "1", "--zookeeper", "0", "--port", port, str(folder))
    told = json.loads(run("deploy", "check", str(folder), "--json"))
    assert any("brokers of this cluster are running" in each for each in told["not_checked"])
    file = folder / "compose.yaml"
    file.write_text(file.read_text().replace("KAFKA_NODE_ID: 1", "KAFKA_NODE_ID: 7"))
    told = json.loads(run("deploy", "check", str(folder), "--json", code=1))
    assert any("broker 1 runs at its address, not broker 7" in each["cause"] for each in told["findings"])


def wait_as_a_pod_does(folder: Path, port: str, broker: Server) -> None:
    """A pod waits for replicas before it stops: at once when all are in sync, until it gives up when some are not."""
    text = (ROOT / "src/ottla/cli/deploy/templates/helm/templates/broker-settings.yaml").read_text()
    lines = text.partition("wait-for-replicas.sh: |\n")[2].splitlines()
    script = folder / "wait-for-replicas.sh"
    body = lines[: next(index for index, line in enumerate(lines) if line and not line.startswith("    "))]
    script.write_text("\n".join(line[4:] for line in body).replace("9092", port) + "\n")
    assert seconds_of(script, 60) < 50
    assert broker.stop() == 0
    assert seconds_of(script, 3) > 1, "it counts in whole seconds"


def seconds_of(script: Path, seconds: int) -> float:
    begin = time.monotonic()
    subprocess.run(["sh", str(script), str(seconds)], check=True, env=environment())
    return time.monotonic() - begin


def test_variables_of_the_compose_file_are_a_cluster_that_serves(tmp_path: Path, servers: dict[str, Server]) -> None:
    folder = tmp_path / "cluster"
    run("deploy", "init", "--as", "compose", "--brokers", "2", "--zookeeper", "1", str(folder))
    services = yaml.safe_load((folder / "compose.yaml").read_text())["services"]
    zookeeper, inner = str(free_port()), {number: str(free_port()) for number in (1, 2)}
    settings = tmp_path / "zoo.cfg"
    text = (folder / "zookeeper" / "zoo.cfg").read_text()
    settings.write_text(
        text.replace("/data", str(tmp_path / "zookeeper")).replace("clientPort=2181", f"clientPort={zookeeper}")
    )
    words = ["zookeeper", "--config", str(settings)]
    servers["zookeeper"] = Server("zookeeper", [*ottla_command(), *words], tmp_path, environment())
    servers["zookeeper"].wait_until_ready()
    health = services["zookeeper-1"]["healthcheck"]["test"][1:]
    for port, expected in ((zookeeper, 0), (str(free_port()), 1)):
        asked = [word.replace("2181", port) for word in health]
        assert subprocess.run(asked, check=False, stderr=subprocess.DEVNULL).returncode == expected
    outer = {}
    for number in (1, 2):
        outer[number], metrics = str(free_port()), str(free_port())
        variables = {}
        for name, value in services[f"broker-{number}"]["environment"].items():
            mapped = str(value).replace(f"broker-{number}:19092", f"127.0.0.1:{inner[number]}")
            mapped = mapped.replace(":19092", f":{inner[number]}").replace("zookeeper-1:2181", f"127.0.0.1:{zookeeper}")
            variables[name] = mapped.replace(str(9091 + number), outer[number]).replace("9404", metrics)
        image = (ROOT / "deploy" / "container.properties").read_text()
        file = tmp_path / f"server-{number}.properties"
        file.write_text(image.replace("/var/lib/ottla", str(tmp_path / f"broker-{number}")))
        words = ["broker", "--from-environment", "--config", str(file)]
        servers[f"broker-{number}"] = Server(
            f"broker-{number}", [*ottla_command(), *words], tmp_path, environment(**variables)
        )
    for number in (1, 2):
        servers[f"broker-{number}"].wait_until_ready()
        assert "no key is called" not in servers[f"broker-{number}"].log.read_text()
    produce_and_consume(f"localhost:{outer[1]}", 2)
    health = [word.replace("9404", metrics) for word in services["broker-2"]["healthcheck"]["test"][1:]]
    subprocess.run(health, check=True, env=environment())
    assert [servers[f"broker-{number}"].stop() for number in (2, 1)] == [0, 0]
