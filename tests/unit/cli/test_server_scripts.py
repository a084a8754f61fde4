"""kafka-server-start.sh and kafka-server-stop.sh."""

from __future__ import annotations

from pathlib import Path

import pytest

from ottla.cli.commands import broker
from ottla.cli.kafka.server_scripts import parse_overrides, start_broker
from ottla.cli.processes.broker_processes import find_brokers, is_broker, supervisor_of
from ottla.cli.terminal import ToolError


@pytest.mark.parametrize(
    "words",
    [
        ["/usr/bin/python3", "/opt/bin/ottla", "broker", "--config", "server.properties"],
        ["python", "-m", "ottla.cli.main", "broker"],
        ["python3", "-X", "dev", "-u", "-m", "ottla.cli.main", "broker"],
        ["python3", "-W", "error", "/opt/bin/ottla", "broker"],
        ["python3", "/opt/bin/kafka-run-class.sh", "-name", "kafkaServer", "kafka.Kafka", "server.properties"],
        ["python3.11", "/opt/bin/kafka-server-start.sh", "server.properties"],
        ["python3", "-m", "ottla.cli.kafka_scripts", "kafka-server-start.sh", "server.properties"],
    ],
)
def test_brokers_are_known_by_their_command_line(words: list[str]) -> None:
    assert is_broker(words)


@pytest.mark.parametrize(
    "words",
    [
        [],
        ["/usr/bin/python3", "/opt/bin/ottla", "up"],
        ["bash", "/opt/kafka/bin/kafka-server-start.sh", "server.properties"],
        ["vim", "ottla", "broker"],
        ["python3", "/opt/bin/kafka-server-start.sh", "-daemon", "server.properties"],
        ["python3", "script.py", "ottla", "broker"],
        ["python3", "/opt/bin/kafka-run-class.sh", "kafka.tools.GetOffsetShell"],
        ["python3", "-m"],
    ],
)
def test_other_processes_are_not_stopped(words: list[str]) -> None:
    assert not is_broker(words)


def test_brokers_are_found_by_their_id(tmp_path: Path) -> None:
    def process(pid: int, *words: str) -> None:
        folder = tmp_path / str(pid)
        folder.mkdir()
        (folder / "cmdline").write_bytes("\0".join(words).encode() + b"\0")
        (folder / "cwd").mkdir()
        (folder / "cwd" / "server.properties").write_text("broker.id=3\n")

    process(10, "python", "ottla", "broker", "--override", "node.id=1")
    process(11, "python", "ottla", "broker", "--config", "server.properties")
    process(12, "python", "other")
    (tmp_path / "version").touch()
    assert find_brokers(tmp_path) == [10, 11]
    assert find_brokers(tmp_path, "1") == [10]
    assert find_brokers(tmp_path, "3") == [11]
    assert find_brokers(tmp_path, "9") == []


def test_brokers_are_known_by_their_folders(tmp_path: Path) -> None:
    proc, mine, other = tmp_path / "proc", tmp_path / "mine", tmp_path / "mine-too"
    (tmp_path / "server.properties").write_text(f"broker.id=2\nlog.dirs={mine}/broker-2,{mine}/more\n")
    for pid, words in {
        "10": ["--override", f"log.dirs={mine}/broker-1", "--override", "broker.id=1"],
        "11": ["--config", str(tmp_path / "server.properties")],
        "12": ["--override", f"log.dirs={other}/broker-2", "--override", "broker.id=2"],
        "13": ["--override", f"log.dirs={mine}/a,{other}/b", "--override", "broker.id=2"],
        "14": ["--override", "broker.id=2"],
    }.items():
        (proc / pid).mkdir(parents=True)
        line = ["python3", "-m", "ottla.cli.main", "broker", *words]
        (proc / pid / "cmdline").write_bytes(b"".join(word.encode() + b"\0" for word in line))
    assert find_brokers(proc, data=mine) == [10, 11]
    assert find_brokers(proc, "2", mine) == [11]
    assert find_brokers(proc, "2") == [11, 12, 13, 14]


def test_of_brokers_under_one_supervisor_it_is_found_unless_one_of_them_is_named(tmp_path: Path) -> None:
    def process(pid: int, parent: int, *words: str) -> None:
        folder = tmp_path / str(pid)
        folder.mkdir()
        line = ["python3", "ottla", "broker", *words]
        (folder / "cmdline").write_bytes(b"".join(word.encode() + b"\0" for word in line))
        (folder / "stat").write_text(f"{pid} (ottla) x)) S {parent} 1 1")

    process(10, 1, "--override", "broker.id=101", "--override", "log.dirs=/data", "--processes", "2")
    process(11, 10, "--override", "broker.id=101", "--override", "log.dirs=/data/broker.101")
    process(12, 10, "--override", "broker.id=102", "--override", "log.dirs=/data/broker.102")
    process(13, 1, "--override", "broker.id=7", "--override", "log.dirs=/other")
    assert find_brokers(tmp_path) == [10, 13]
    assert find_brokers(tmp_path, data=Path("/data")) == [10]
    assert find_brokers(tmp_path, "101") == [11]
    assert find_brokers(tmp_path, "102", Path("/data")) == [12]
    assert [supervisor_of(tmp_path, pid) for pid in (10, 11, 12, 13, 99)] == [None, 10, 10, None, None]


def test_overrides_are_read_in_both_forms() -> None:
    assert parse_overrides(["--override", "a=b", "--override=c=d=e"]) == {"a": "b", "c": "d=e"}
    with pytest.raises(ToolError, match="USAGE"):
        parse_overrides(["extra"])


def test_the_start_script_starts_a_broker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[tuple[object, object]] = []

    def start(config: object, overrides: object, _environment: object = None) -> int:
        started.append((config, overrides))
        return 0

    monkeypatch.setattr(broker, "start", start)
    config = tmp_path / "server.properties"
    config.touch()
    assert start_broker(["-name", "kafkaServer", "-loggc", str(config), "--override", "a=b"]) == 0
    assert started == [(str(config), {"a": "b"})]


def test_the_start_script_needs_a_file(capsys: pytest.CaptureFixture[str]) -> None:
    assert start_broker([]) == 1
    assert capsys.readouterr().err.startswith("USAGE: kafka-server-start.sh [-daemon] server.properties")
    with pytest.raises(ToolError, match=r"nowhere.properties does not exist"):
        start_broker(["nowhere.properties"])
