"""Log files of a running broker: where they are, how they look, and that a full disk stops no client."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from tests.conformance.peer import Peer
from tests.conformance.raw import listening_pid

pytestmark = pytest.mark.needs_ottla


def test_the_log_goes_to_files_too(broker_factory: Any, tmp_path: Path) -> None:
    broker = broker_factory(ottla_log_dir=tmp_path / "logs")
    broker.stop()
    text = (tmp_path / "logs" / "server.log").read_text()
    assert "Registered broker 1 at path /brokers/ids/1 with addresses: PLAINTEXT://127.0.0.1:" in text
    assert "broker 1 has stopped" in text
    assert text in broker.log_text or all(line in broker.log_text for line in text.splitlines())
    controller = (tmp_path / "logs" / "controller.log").read_text()
    assert "[Controller id=1] 1 successfully elected as the controller. Epoch incremented to 1" in controller


def test_json_lines_carry_the_names_of_elastic_common_schema(broker_factory: Any, tmp_path: Path) -> None:
    broker = broker_factory(ottla_log_dir=tmp_path / "logs", ottla_log_format="json")
    broker.stop()
    lines = [json.loads(line) for line in (tmp_path / "logs" / "server.log").read_text().splitlines()]
    assert len(lines) >= 3
    for line in lines:
        assert {"@timestamp", "log.level", "message", "ecs.version", "log.logger", "service.node.name"} <= line.keys()


def test_files_are_put_aside_by_size(broker_factory: Any, tmp_path: Path) -> None:
    broker = broker_factory(
        ottla_log_dir=tmp_path / "logs", ottla_log_level="DEBUG", ottla_log_file_max_bytes=1024, ottla_log_files_kept=2
    )
    for _ in range(30):  # each one's end is a debug line
        with Peer(broker.bootstrap) as peer:
            peer.topic_names()
    broker.stop()
    names = sorted(path.name for path in (tmp_path / "logs").iterdir() if path.name.startswith("server.log"))
    assert names == ["server.log", "server.log.1", "server.log.2"]
    assert all((tmp_path / "logs" / name).stat().st_size <= 1024 + 512 for name in names)


def test_a_full_disk_under_the_log_stops_no_client(broker_factory: Any, tmp_path: Path) -> None:
    folder = tmp_path / "logs"
    folder.mkdir()
    (folder / "server.log").symlink_to("/dev/full")  # every write to it fails: no space left on device
    broker = broker_factory(ottla_log_dir=folder, ottla_metrics_port=0)
    for number in range(5):
        with Peer(broker.bootstrap) as peer:
            peer.create_topic(f"topic-{number}", 1)
    broker.stop()
    assert "No space left on device" in broker.log_text
    assert "broker 1 has stopped" in broker.log_text, "standard error still has every line"


def test_an_unread_standard_error_stops_no_client(broker_factory: Any) -> None:
    """A pipe that is full would block a write for ever."""
    broker = broker_factory(start=False, ottla_log_level="DEBUG")
    config = broker.directory / "server.properties"
    config.write_text("".join(f"{key}={value}\n" for key, value in broker.settings.items()))
    process = subprocess.Popen(
        [sys.executable, "-m", "ottla.cli.main", "broker", "--config", str(config)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    try:
        assert process.stdout is not None
        assert b"ready" in process.stdout.readline()
        for _ in range(700):  # more lines than a pipe holds
            with Peer(broker.bootstrap) as peer:
                peer.topic_names()
        started = time.monotonic()
        process.send_signal(signal.SIGTERM)
        assert process.wait(20) == 0
        assert time.monotonic() - started < 10
    finally:
        process.kill()
        process.wait()


def test_log4j_settings_of_kafka_are_followed(broker_factory: Any, tmp_path: Path, monkeypatch: Any) -> None:
    config = tmp_path / "log4j.properties"
    config.write_text("log4j.rootLogger=WARN, stdout\nlog4j.logger.kafka.controller=INFO\n")
    monkeypatch.setenv("KAFKA_LOG4J_OPTS", f"-Dlog4j.configuration=file:{config} -Dkafka.logs.dir={tmp_path / 'logs'}")
    broker = broker_factory()
    broker.stop()
    text = (tmp_path / "logs" / "server.log").read_text()
    assert "Registered broker" in text
    assert "has stopped" not in text, "that is no warning"


def test_a_daemon_writes_kafkas_files(broker_factory: Any, tmp_path: Path) -> None:
    broker = broker_factory(start=False)
    config = broker.directory / "server.properties"
    config.write_text("".join(f"{key}={value}\n" for key, value in broker.settings.items()))
    folder = tmp_path / "logs"
    environment = os.environ | {"LOG_DIR": str(folder), "PYTHONUNBUFFERED": "1"}
    command = [sys.executable, "-m", "ottla.cli.kafka_scripts", "kafka-server-start.sh", "-daemon", str(config)]
    assert subprocess.run(command, env=environment, check=False, timeout=30).returncode == 0
    deadline = time.monotonic() + 20
    while not (folder / "kafkaServer.out").exists() or "ready on" not in (folder / "kafkaServer.out").read_text():
        assert time.monotonic() < deadline
        time.sleep(0.05)
    os.kill(listening_pid(broker.bootstrap), signal.SIGTERM)
    while "has stopped" not in (folder / "server.log").read_text():
        assert time.monotonic() < deadline
        time.sleep(0.05)
    assert "Registered broker 1" in (folder / "server.log").read_text()
