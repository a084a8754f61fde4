"""Logging never waits and never raises; what is lost is counted."""

import errno
import json
import logging
import os
import threading
from pathlib import Path

import pytest

from ottla.base import logs
from ottla.base.logs import JsonFormatter, LogFile, LogLimiter, Rotation, TextFormatter

ONE_SIZE = Rotation(max_bytes=100, max_ms=-1, kept=2)


def record(message: str, *args: object, level: int = logging.WARNING) -> logging.LogRecord:
    return logging.LogRecord("ottla.broker.main", level, __file__, 1, message, args, None)


@pytest.fixture
def started(tmp_path: Path):
    yield lambda **options: logs.start_logging(logs.LogOptions(folder=str(tmp_path), **options))
    logs.stop_logging()


# ---- how lines look


def test_a_text_line_has_kafkas_form_and_level_names() -> None:
    line = TextFormatter().format(record("closing %s", "it"))
    assert " WARN closing it (ottla.broker.main)" in line


def test_a_client_cannot_forge_a_line() -> None:
    line = TextFormatter().format(record("client %s", "x\n[2026-01-01] ERROR forged\x1b[2J\u202e"))
    assert "\n" not in line
    assert "\x1b" not in line
    assert "\u202e" not in line


def test_a_json_line_has_the_names_of_elastic_common_schema() -> None:
    fields = json.loads(JsonFormatter(7).format(record('a "quoted"\nline', level=logging.CRITICAL)))
    assert fields["log.level"] == "FATAL"
    assert fields["message"] == 'a "quoted"\nline'
    assert fields["service.node.name"] == "7"
    assert fields["@timestamp"].endswith("Z")
    assert {"ecs.version", "log.logger", "process.pid", "process.thread.name", "service.name"} <= fields.keys()


def test_a_traceback_stays_on_the_one_line_of_json() -> None:
    try:
        raise ValueError("bad\nvalue")
    except ValueError as problem:
        failed = logging.LogRecord(
            "ottla", logging.ERROR, __file__, 1, "it failed", (), (ValueError, problem, problem.__traceback__)
        )
    line = JsonFormatter(1).format(failed)
    assert "\n" not in line
    assert json.loads(line)["error.type"] == "ValueError"
    assert "Traceback" in json.loads(line)["error.stack_trace"]


# ---- files


def test_a_file_is_put_aside_when_it_is_full_and_few_are_kept(tmp_path: Path) -> None:
    file = LogFile(str(tmp_path / "server.log"), ONE_SIZE)
    for number in range(40):
        file.write(f"line {number:02d} " + "x" * 20)
    file.close()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["server.log", "server.log.1", "server.log.2"]
    assert (tmp_path / "server.log").read_text().startswith("line 39")
    assert (tmp_path / "server.log.1").read_text().splitlines()[-1].startswith("line 38")
    assert all(path.stat().st_size <= 100 for path in tmp_path.iterdir())


def test_a_file_is_put_aside_when_its_day_is_over(tmp_path: Path) -> None:
    path = tmp_path / "server.log"
    path.write_text("yesterday\n")
    os.utime(path, (1_000_000, 1_000_000))
    file = LogFile(str(path), Rotation(1_000_000, 86_400_000, 3))
    file.write("today")
    file.close()
    assert path.read_text() == "today\n"
    assert (tmp_path / "server.log.1").read_text() == "yesterday\n"


def test_without_old_files_a_full_one_begins_anew(tmp_path: Path) -> None:
    file = LogFile(str(tmp_path / "server.log"), Rotation(100, -1, 0))
    for number in range(20):
        file.write(f"{number} " + "x" * 30)
    file.close()
    assert [path.name for path in tmp_path.iterdir()] == ["server.log"]
    assert (tmp_path / "server.log").stat().st_size <= 100


def test_a_full_disk_costs_lines_and_reports_it_afterwards(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = LogFile(str(tmp_path / "server.log"), Rotation(10_000, -1, 3))
    file.write("before")
    write = os.write
    monkeypatch.setattr(os, "write", lambda *_: (_ for _ in ()).throw(OSError(errno.ENOSPC, "No space left on device")))
    file.write("lost 1")
    file.write("lost 2")
    assert (file.lost_lines, file.problem) == (2, "No space left on device")
    monkeypatch.setattr(os, "write", write)
    file.write("lost 3, too: the disk is not asked for every line")
    monkeypatch.setattr("ottla.base.logs.RETRY_SECONDS", 0.0)
    file._retry_s = 0.0
    file.write("after")
    file.close()
    text = (tmp_path / "server.log").read_text()
    assert text == "before\n(3 lines before this one were lost: No space left on device)\nafter\n"
    assert file.lost_total == 3


def test_a_folder_that_cannot_be_made_costs_lines_only(tmp_path: Path) -> None:
    (tmp_path / "occupied").write_text("a file")
    file = LogFile(str(tmp_path / "occupied" / "server.log"), ONE_SIZE)
    file.write("a line")
    assert file.lost_total == 1


# ---- all of it


def test_every_line_is_in_server_log_and_the_controllers_in_its_own(tmp_path: Path, started) -> None:
    started()
    logging.getLogger("ottla.controller.service").info("elected")
    logging.getLogger("ottla.broker.main").info("started")
    logs.stop_logging()
    assert [" elected " in line for line in (tmp_path / "server.log").read_text().splitlines()] == [True, False]
    assert "started" not in (tmp_path / "controller.log").read_text()


def test_levels_are_those_of_the_options(tmp_path: Path, started) -> None:
    started(level="error", levels={"ottla.network": "DEBUG"})
    try:
        logging.getLogger("ottla.broker.x").info("not said")
        logging.getLogger("ottla.network.socket_server").debug("said")
        logs.stop_logging()
        assert "not said" not in (tmp_path / "server.log").read_text()
        assert "said" in (tmp_path / "server.log").read_text()
    finally:
        logging.getLogger("ottla.network").setLevel(logging.NOTSET)


def test_a_target_that_takes_nothing_costs_no_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logs, "QUEUED_LINES_MAX", 5)
    monkeypatch.setattr(logs, "STOP_SECONDS_MAX", 0.01)
    gate = threading.Event()
    writer = logs.LineWriter("stuck", lambda *_: gate.wait(10) and None)
    for number in range(100):
        writer.put("ottla", f"line {number}")
    assert writer.dropped >= 90
    writer.stop()
    gate.set()


def test_a_line_that_cannot_be_written_does_not_end_the_writer() -> None:
    written: list[str] = []

    def write(_: str, line: str) -> None:
        if line == "bad":
            raise ValueError("no")
        written.append(line)

    writer = logs.LineWriter("failing", write)
    for line in ("first", "bad", "last"):
        writer.put("ottla", line)
    writer.stop()
    assert (written, writer.dropped) == (["first", "last"], 1)


def test_a_mistake_in_a_log_call_does_not_stop_the_caller(tmp_path: Path, started) -> None:
    started()
    logging.getLogger("ottla.broker.main").info("%d", "not a number")
    logs.stop_logging()
    assert "a log line cannot be written" in (tmp_path / "server.log").read_text()


def test_the_first_is_written_and_the_next_after_a_pause() -> None:
    log_limiter = LogLimiter(10)
    assert [log_limiter.is_due(now) for now in (0, 1, 9.9, 10, 11, 20, 35)] == [
        True,
        False,
        False,
        True,
        False,
        True,
        True,
    ]


def test_each_subject_has_a_time_of_its_own() -> None:
    log_limiter = LogLimiter(10)
    assert log_limiter.is_due(5, "a")
    assert log_limiter.is_due(6, "b")
    assert not log_limiter.is_due(7, "a")
    assert log_limiter.is_due(15, "a")
    assert not log_limiter.is_due(15, "b")
