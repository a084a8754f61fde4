"""`ottla deploy check`: findings in edited files and on this machine."""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Callable, Iterator
from contextlib import suppress
from copy import deepcopy
from functools import reduce
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import yaml

from ottla.cli.deploy import compose, helm, host_checks
from ottla.cli.deploy.compose import read_compose
from ottla.cli.deploy.deployment import Deployment, Folder, Published
from ottla.cli.deploy.deployment_plan import COMPOSE, HELM, SYSTEMD
from ottla.cli.deploy.file_checks import check_deployment
from ottla.cli.deploy.host_checks import clock_offset_seconds
from ottla.cli.deploy.systemd import seconds_of
from ottla.cli.main import main
from ottla.cli.terminal import UsageError

Change = Callable[[str], str]


def swap(old: str, new: str, times: int = -1) -> Change:
    def change(text: str) -> str:
        assert old in text
        return text.replace(old, new, times)

    return change


def made(kind: str, folder: Path, *words: str) -> Path:
    assert main(["deploy", "init", "--as", kind, *words, str(folder)]) == 0
    return folder


def findings(folder: Path, capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, list[str]]:
    capsys.readouterr()
    code = main(["deploy", "check", str(folder), "--json", *(words or ("--files-only",))])
    rows = json.loads(capsys.readouterr().out)["findings"]
    assert all(row["cause"] and row["cure"] and row["place"] for row in rows)
    return code, [f"{row['severity']} {row['place']}: {row['cause']}" for row in rows]


BROKER = "etc/ottla/broker-2.properties"
FILE, VALUES = "compose.yaml", "values.yaml"
UNIT = "etc/systemd/system/ottla@.service"
ONE_EACH = "broker-%i.properties"
PROBLEMS: list[tuple[str, str, Change, str]] = [
    (SYSTEMD, UNIT, swap(ONE_EACH, f"{ONE_EACH} --processes 2"), "the same node.id 3"),
    (SYSTEMD, UNIT, swap(ONE_EACH, f"{ONE_EACH} --processes=many"), "'many' is not a number of processes: 1 to 128"),
    (COMPOSE, FILE, swap("KAFKA_NODE_ID: 2", "KAFKA_NODE_ID: 1"), "the same node.id 1"),
    (
        COMPOSE,
        FILE,
        swap("OFFSETS_TOPIC_REPLICATION_FACTOR: 3", "OFFSETS_TOPIC_REPLICATION_FACTOR: 5"),
        "is 5, and there are 3 brokers",
    ),
    (
        COMPOSE,
        FILE,
        swap("KAFKA_MIN_INSYNC_REPLICAS: 2", "KAFKA_MIN_INSYNC_REPLICAS: 4"),
        "no producer could write with acks=all",
    ),
    (
        COMPOSE,
        FILE,
        swap("TRANSACTION_STATE_LOG_MIN_ISR: 2", "TRANSACTION_STATE_LOG_MIN_ISR: 9"),
        "no producer could write with acks=all",
    ),
    (COMPOSE, FILE, swap("INTERNAL://broker-2:19092", "INTERNAL://localhost:19092"), "which is each of them itself"),
    (
        COMPOSE,
        FILE,
        swap("INTERNAL://broker-2:19092", "INTERNAL://broker-1:19092"),
        "they advertise the same address, broker-1:19092",
    ),
    (COMPOSE, FILE, swap("EXTERNAL://localhost:9093,", "EXTERNAL://0.0.0.0:9093,"), "0.0.0.0"),
    (COMPOSE, FILE, swap('"127.0.0.1:9093:9093"', '"127.0.0.1:9092:9093"'), "all of them use port 9092"),
    (COMPOSE, FILE, swap('"127.0.0.1:9093:9093"', '"127.0.0.1:9193:9093"'), "no published port leads from 9093"),
    (COMPOSE, FILE, swap('"127.0.0.1:8081:8081"', '"127.0.0.1:8080:8081"'), "all of them use port 8080"),
    (COMPOSE, FILE, swap("- broker-2:/var/lib/ottla", "- broker-1:/var/lib/ottla"), "they share volume broker-1"),
    (COMPOSE, FILE, swap("- broker-2:/var/lib/ottla", "- broker-2:/data"), "its records go with the container"),
    (COMPOSE, FILE, swap("KAFKA_BROKER_RACK: rack-2", ""), "no broker.rack, and others have one"),
    (COMPOSE, FILE, swap("KAFKA_NODE_ID: 2", "KAFKA_NODE_ID: two"), "node.id"),
    (COMPOSE, FILE, swap("stop_grace_period: 180s", "stop_grace_period: soon"), "is not a duration"),
    (
        COMPOSE,
        FILE,
        swap("      KAFKA_NODE_ID: 2", "      KAFKA_NODE_ID: 2\n      KAFKA_ZOOKEEPER_CONNECT: other:2181"),
        "they name different ZooKeepers",
    ),
    (COMPOSE, FILE, swap("  KAFKA_ZOOKEEPER_CONNECT", "  UNUSED"), "each would be its own cluster"),
    (COMPOSE, FILE, swap("ZOO_MY_ID: 2", "ZOO_MY_ID: 1"), "the same number, 1"),
    (COMPOSE, FILE, swap("ZOO_MY_ID: 2", "ZOO_MY_ID: 7"), "its list lacks server.7"),
    (COMPOSE, FILE, swap("./zookeeper/zoo.cfg", "./zookeeper/other.cfg"), "this file does not exist"),
    (SYSTEMD, BROKER, swap("node.id=2", "node.id=3"), "the same node.id 3"),
    (SYSTEMD, BROKER, swap("9093", "9092"), "all of them use port 9092"),
    (SYSTEMD, BROKER, swap("/var/lib/ottla-2/data", "/data/ottla"), "ProtectSystem=strict makes it read-only"),
    (SYSTEMD, BROKER, swap("/var/lib/ottla-2/data", "/var/lib/ottla-1/data"), "they share /var/lib/ottla-1/data"),
    (
        SYSTEMD,
        BROKER,
        swap("default.replication.factor=3", "default.replication.factor=4"),
        "is 4, and there are 3 brokers",
    ),
    (SYSTEMD, BROKER, swap("log.retention.hours=168", "log.retention.hours=week"), "log.retention.hours"),
    (SYSTEMD, BROKER, swap("node.id=2", "node.id=\\u00zz"), "broker-2.properties"),
    (SYSTEMD, BROKER, swap("9405", "9404"), "all of them use port 9404"),
    (SYSTEMD, UNIT, swap("broker-%i.properties", "server-%i.properties"), "no instance has a file"),
    (SYSTEMD, UNIT, swap("broker-%i.properties", "nothing.properties"), "is not there"),
    (
        SYSTEMD,
        "etc/ottla/zookeeper-2.properties",
        swap("server.3=127.0.0.1:2890:3890", ""),
        "its list of servers differs",
    ),
    (HELM, VALUES, swap("replicas: 3", "replicas: 2", 1), "is 3, and there are 2 brokers"),
    (HELM, VALUES, swap("hosts: []", "hosts: [a.example, b.example]"), "2 names for 3 brokers"),
    (HELM, VALUES, swap("type: NodePort", "type: LoadBalancer"), "needs a name for each"),
    (HELM, VALUES, swap("type: NodePort", "type: Ingress"), "external.type is Ingress"),
    (HELM, VALUES, swap("hosts: []", "hosts: [localhost]"), "on every other machine is that machine"),
    (HELM, VALUES, swap("Seconds: 420", "Seconds: 100"), "brokers wait 180 s for replicas and are killed after 100 s"),
    (HELM, VALUES, swap('log.retention.hours: "168"', "log.retention.hours: week"), "log.retention.hours"),
]
WARNINGS: list[tuple[str, str, Change, str]] = [
    (
        COMPOSE,
        FILE,
        swap("KAFKA_MIN_INSYNC_REPLICAS: 2", "KAFKA_MIN_INSYNC_REPLICAS: 3"),
        "while one broker is offline no producer can write",
    ),
    (
        COMPOSE,
        FILE,
        swap("OFFSETS_TOPIC_REPLICATION_FACTOR: 3", "OFFSETS_TOPIC_REPLICATION_FACTOR: 1"),
        "is 1: records are lost with their only broker",
    ),
    (COMPOSE, FILE, swap("stop_grace_period: 180s", ""), "killed 10 s after"),
    (COMPOSE, FILE, swap("nofile: 100000", "nofile: 1024"), "1024 files open"),
    (COMPOSE, FILE, swap("restart: unless-stopped", "", 2), "stays away after a crash"),
    (
        COMPOSE,
        FILE,
        swap("KAFKA_LOG_RETENTION_HOURS", "KAFKA_LOG_RETENTION_HUORS"),
        "no key is called log.retention.huors",
    ),
    (COMPOSE, FILE, swap('"127.0.0.1:9093:9093"', '"9093:9093"'), "every client that reaches port 9093"),
    (COMPOSE, FILE, swap("image: ottla:latest", "image: ottla:old", 1), "their versions differ"),
    (COMPOSE, "zookeeper/zoo.cfg", swap("server.3=", "#"), "the list has 2 servers, and 3 are deployed here"),
    (SYSTEMD, UNIT, swap("TimeoutStopSec=180s", "TimeoutStopSec=5"), "killed 5 s after"),
    (SYSTEMD, UNIT, swap("LimitNOFILE=100000", "LimitNOFILE=1024:4096"), "1024 files open"),
    (SYSTEMD, UNIT, swap("LimitNOFILE=100000", ""), "sets no limit of open files"),
    (SYSTEMD, BROKER, swap("/var/lib/ottla-2/data", "/tmp/data\n"), "is emptied when the machine starts again"),
    (SYSTEMD, BROKER, swap("127.0.0.1:2183", "127.0.0.1:2184"), "it names the ZooKeeper 127.0.0.1:2184"),
    (
        SYSTEMD,
        BROKER,
        swap("min.insync.replicas=2", "min.insync.replicas=1"),
        "brokers differ in min.insync.replicas (1, 2)",
    ),
    (HELM, VALUES, swap("Seconds: 420", "Seconds: 190"), "killed 10 s after"),
    (
        HELM,
        "values.yaml",
        lambda text: text.replace("replicas: 3", "replicas: 4").replace("replicas: 4", "replicas: 3", 1),
        "4 ZooKeepers tolerate as many failures as 3",
    ),
]


@pytest.mark.parametrize(("kind", "file", "change", "words"), PROBLEMS, ids=[row[3] for row in PROBLEMS])
def test_certain_failures_are_problems(
    kind: str, file: str, change: Change, words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = made(kind, tmp_path / "cluster")
    (folder / file).write_text(change((folder / file).read_text()))
    code, found = findings(folder, capsys)
    assert code == 1
    assert any(line.startswith("problem") and words in line for line in found), found


def test_all_bad_settings_of_a_broker_are_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = made(SYSTEMD, tmp_path / "cluster")
    file = folder / BROKER
    file.write_text(file.read_text() + "num.partitions=x\nlog.retention.hours=y\n")
    _, found = findings(folder, capsys)
    assert [
        sum(f"for configuration {key}" in line for line in found) for key in ("num.partitions", "log.retention.hours")
    ] == [1, 1]


@pytest.mark.parametrize(("kind", "file", "change", "words"), WARNINGS, ids=[row[3] for row in WARNINGS])
def test_possible_failures_are_warnings(
    kind: str, file: str, change: Change, words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = made(kind, tmp_path / "cluster")
    (folder / file).write_text(change((folder / file).read_text()))
    _, found = findings(folder, capsys)
    assert any(line.startswith("warning") and words in line for line in found), found


BOMB = "a: &a [x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"{chr(98 + level)}: &{chr(98 + level)} [{', '.join([f'*{chr(97 + level)}'] * 9)}]\n" for level in range(9)
)


@pytest.mark.parametrize(
    ("kind", "file", "text", "words"),
    [
        (COMPOSE, "compose.yaml", "services: [", "no YAML"),
        (COMPOSE, "compose.yaml", "services:\n\tbroker: {}", "no YAML"),
        (COMPOSE, "compose.yaml", "", "not a mapping"),
        (COMPOSE, "compose.yaml", "- a\n- b\n", "not a mapping"),
        (COMPOSE, "compose.yaml", "services: 7\n", "no services"),
        (COMPOSE, "compose.yaml", "services: {broker: 7}\n", "service broker is not a mapping"),
        (COMPOSE, "compose.yaml", "services: {web: {image: nginx}}\n", "no service is a broker"),
        (COMPOSE, "compose.yaml", BOMB, "too many values"),
        (COMPOSE, "compose.yaml", "a: &a\n  b: *a\n", "it makes no sense"),
        (COMPOSE, "compose.yaml", "[" * 500, "no YAML"),
        (COMPOSE, "compose.yaml", "# " + "x" * 1_100_000, "is larger than"),
        (COMPOSE, "zookeeper/zoo.cfg", "server.1=\\u00zz\n", "zoo.cfg:1:"),
        (SYSTEMD, UNIT, "[Service]\nExecStart\n", "neither KEY=VALUE nor [Section]"),
        (SYSTEMD, UNIT, '[Service]\nExecStart=/opt/ottla/bin/ottla "broker\n', "ExecStart cannot be read"),
        (SYSTEMD, UNIT, "[Service]\nExecStart=/bin/true\n", "no unit runs `ottla broker"),
        (SYSTEMD, "etc/ottla/zookeeper-1.properties", "a=\\u00zz\n", "zookeeper-1.properties:1:"),
        (HELM, "values.yaml", "brokers: {}\n", "brokers.replicas is missing"),
        (HELM, "values.yaml", "brokers: {replicas: many}\n", "'many', not a whole number"),
        (HELM, "values.yaml", "brokers: {replicas: 1000000}\n", "not a whole number from 1 to 100"),
        (HELM, "Chart.yaml", "{", "no YAML"),
    ],
)
def test_a_file_that_makes_no_sense_is_named_in_a_sentence(
    kind: str, file: str, text: str, words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = made(kind, tmp_path / "cluster")
    (folder / file).write_text(text)
    capsys.readouterr()
    assert main(["deploy", "check", str(folder), "--files-only"]) == 2
    errors = capsys.readouterr().err
    assert words in errors
    assert len(errors.strip().splitlines()) == 1


def test_a_folder_that_is_none_of_ours_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["deploy", "check", str(tmp_path)]) == 2
    assert "nothing to check" in capsys.readouterr().err
    assert main(["deploy", "check", str(tmp_path / "nowhere")]) == 2
    assert "is not a folder" in capsys.readouterr().err


def test_binary_files_are_reported(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = made(COMPOSE, tmp_path / "cluster")
    (folder / "compose.yaml").write_bytes(b"\xff\xfe\x00services")
    assert main(["deploy", "check", str(folder), "--files-only"]) == 2
    assert "is not text" in capsys.readouterr().err


ODD = [None, 7, "", "x", [], [7], {"a": None}, True, "99999999999"]


@pytest.mark.parametrize(
    ("kind", "reader", "root"),
    [
        (COMPOSE, compose, ("services", "broker-1")),
        (COMPOSE, compose, ("services", "zookeeper-1")),
        (HELM, helm, ("brokers",)),
        (HELM, helm, ("external",)),
    ],
)
def test_any_value_leads_to_one_line_and_never_to_a_traceback(
    kind: str, reader: ModuleType, root: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Replace every value below the root by unsuitable values."""
    folder = made(kind, tmp_path / "cluster")
    read = {COMPOSE: read_compose, HELM: helm.read_helm}[kind]
    document = yaml.safe_load((folder / (FILE if kind == COMPOSE else VALUES)).read_text())
    tried = 0
    for path in paths(document, root):
        for odd in ODD:
            changed = deepcopy(document)
            place = reduce(lambda node, key: node[key], path[:-1], changed)
            place[path[-1]] = odd
            monkeypatch.setattr(reader, "read_yaml", lambda _, changed=changed: changed)
            with suppress(UsageError):
                assert all(str(finding) for finding in check_deployment(read(folder)))
            tried += 1
    assert tried >= 60


def paths(node: Any, path: tuple[Any, ...]) -> Iterator[tuple[Any, ...]]:
    """The path of a value and of all values below it."""
    yield path
    found = reduce(lambda value, key: value[key], path, node)
    for key in found if isinstance(found, dict) else range(len(found)) if isinstance(found, list) else ():
        yield from paths(node, (*path, key))


def test_other_ways_to_write_a_compose_file_are_understood(tmp_path: Path) -> None:
    (tmp_path / ".env").write_text("# a comment\nOUTER=29092\n")
    (tmp_path / "docker-compose.yml").write_text(
        """
services:
  kafka:
    image: ottla:latest
    restart: always
    stop_grace_period: 1m30s
    environment:
      - KAFKA_NODE_ID=1
      - KAFKA_LISTENERS=PLAINTEXT://:9092
      - KAFKA_ADVERTISED_LISTENERS=PLAINTEXT://${HOST_OF_TEST:-kafka.example}:${OUTER}
    ports:
      - {target: 9092, published: "29092", host_ip: 127.0.0.1}
      - "8000-8010:8000-8010"
    ulimits: {nofile: {soft: 50000, hard: 50000}}
    volumes:
      - {type: bind, source: ./data, target: /var/lib/ottla}
  app:
    image: example/app
    environment: {KAFKA_TOPIC: orders}
"""
    )
    deployment = read_compose(tmp_path)
    (broker,) = deployment.brokers
    assert str(broker.settings.advertised_listeners[0]) == "PLAINTEXT://kafka.example:29092"
    assert deployment.published == [Published("127.0.0.1", 29092, 9092, "kafka", "")]
    assert (broker.stop_seconds, broker.open_files) == (90.0, 50_000)
    assert deployment.folders == [Folder(str(tmp_path / "data"), "kafka", "", is_created_on_start=False, user=10_001)]
    assert any("8000-8010" in line for line in deployment.unchecked)
    assert not [finding for finding in deployment.findings if finding.place == "kafka"]


def machine(**facts: Any) -> Deployment:
    deployment = Deployment("systemd", Path())
    for name, value in facts.items():
        setattr(deployment, name, value)
    return deployment


def test_a_port_in_use_is_found() -> None:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        port = listener.getsockname()[1]
        taken = machine(published=[Published("127.0.0.1", port, port, "ottla@1", "localhost")])
        (finding,) = host_checks.check_local_ports(taken, {})
        assert f"port {port} is in use" in finding.cause
        assert list(host_checks.check_local_ports(taken, {"ottla@1": host_checks.RunningBroker("1", "0", 0.0)})) == []
    assert list(host_checks.check_local_ports(taken, {})) == []


def test_other_machines_are_not_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host_checks, "is_local_host", lambda host: host == "here.example")
    remote = machine(
        published=[Published("", 1, 1, "ottla@1", "there.example")],
        folders=[Folder("/nowhere", "ottla@1", "there.example", is_created_on_start=False)],
    )
    assert [*host_checks.check_local_ports(remote, {}), *host_checks.check_local_folders(remote)] == []
    assert remote.unchecked == ["ports, folders and limits of there.example: also run ottla deploy check there"]


def test_folders_that_are_missing_or_not_for_us_are_found(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    (tmp_path / "foreign").mkdir(mode=0o700)
    (tmp_path / "open").mkdir()
    (tmp_path / "open").chmod(0o777)
    user = os.getuid() + 10_001
    names = ("missing", "file", "foreign", "open")
    folders = [Folder(str(tmp_path / name), name, "", is_created_on_start=False, user=user) for name in names]
    folders.append(Folder(str(tmp_path / "later"), "made", "", is_created_on_start=True))
    found = {finding.place: finding.cause for finding in host_checks.check_local_folders(machine(folders=folders))}
    found = {place: cause for place, cause in found.items() if "full" not in cause}
    assert set(found) == {"missing", "file", "foreign"}
    assert "is not there" in found["missing"]
    assert "is not a folder" in found["file"]
    assert f"user {user} may not write" in found["foreign"]


@pytest.mark.parametrize(("free", "severity"), [(50, None), (10, "warning"), (2, "problem")])
def test_a_disk_that_is_full_is_found(
    free: int, severity: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shutil.disk_usage", lambda _: SimpleNamespace(total=100, used=100 - free, free=free))
    folders = [Folder(str(tmp_path), "ottla@1", "", is_created_on_start=True)]
    found = [finding.severity.value for finding in host_checks.check_local_folders(machine(folders=folders))]
    assert found == ([severity] if severity else [])


def test_an_unresolvable_name_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(host_checks, "resolve", lambda host: None if host == "typo.example" else ("192.0.2.1",))
    monkeypatch.setattr(host_checks, "check_with_tools", lambda _: [])
    monkeypatch.setattr(host_checks, "check_local_ports", lambda *_: [])
    folder = made(COMPOSE, tmp_path / "cluster", "--host", "typo.example")
    code, found = findings(folder, capsys, "--json")
    assert code == 1
    assert [line for line in found if "does not resolve" in line] == [
        "problem broker-1, broker-2, broker-3: the name typo.example does not resolve, at least not on this machine"
    ]


def test_errors_of_external_validators_are_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tool = tmp_path / "bin" / "helm"
    tool.parent.mkdir()
    tool.write_text("#!/bin/sh\necho 'Error: line 7 is wrong.' >&2\nexit 1\n")
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tool.parent}:/usr/bin:/bin")
    (finding,) = host_checks.check_with_tools(Deployment("helm", tmp_path))
    assert str(finding) == "PROBLEM helm template: Error: line 7 is wrong. Correct that"
    tool.unlink()
    without = Deployment("helm", tmp_path)
    assert list(host_checks.check_with_tools(without)) == []
    assert without.unchecked == ["the files by helm template: it is not installed"]


@pytest.mark.parametrize(("told", "off"), [(100, 0.0), (99, 0.0), (101, 0.0), (110, 9.0), (90, -9.0), (1e9, 1e9 - 101)])
def test_the_clock_offset_is_the_certain_minimum(told: float, off: float) -> None:
    """Requested at 100.0, answered at 101.0."""
    assert clock_offset_seconds(told, 100.0, 101.0) == off


@pytest.mark.parametrize(
    ("text", "seconds"), [("180", 180.0), ("180s", 180.0), ("3min", 180.0), ("1h 5m", 3900.0), ("infinity", None)]
)
def test_times_of_systemd(text: str, seconds: float | None) -> None:
    assert seconds_of(text) == seconds
