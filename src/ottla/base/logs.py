"""Logging to standard error, and to files if a folder is set.

Rules:
1. Logging never blocks the caller: a thread writes the lines. With a full disk or a stalled terminal, lines are dropped
   and counted.
2. `server.log` has every line; `controller.log`, `log-cleaner.log` and `kafka-authorizer.log` repeat the lines of their
   parts.

Formats of log lines: Kafka's text format, or JSON with the field names of Elastic Common Schema.

Text from clients is escaped, so that a client cannot forge a line, move the cursor of a terminal or break the JSON.

Log files that rotate by size or age: `server.log`, `server.log.1`, `server.log.2` and so on.

Rule: disk errors never raise here. A line that cannot be written is dropped and counted; when the disk accepts lines
again, a line reports how many are missing.

Rate limiting of log lines that would repeat many times a second.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import queue
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Final, NamedTuple

TRACE: Final = 5
LEVELS: Final = {  # as Kafka names them
    "TRACE": TRACE,
    "DEBUG": logging.DEBUG,
    "INFO": logging.INFO,
    "WARN": logging.WARNING,
    "ERROR": logging.ERROR,
    "FATAL": logging.CRITICAL,
    "OFF": logging.CRITICAL + 10,
}
TEXT_FORMAT: Final = "[%(asctime)s,%(msecs)03d] %(kafka_level)s %(message)s (%(name)s)"
TIME_FORMAT: Final = "%Y-%m-%d %H:%M:%S"
ECS_VERSION: Final = "8.11.0"
_NAMES: Final = {number: name for name, number in LEVELS.items()}


class TextFormatter(logging.Formatter):
    """Time, level, message, and the logger in brackets; a traceback follows on lines of its own."""

    def __init__(self) -> None:
        super().__init__(TEXT_FORMAT, TIME_FORMAT)

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 (the name is logging's)
        record.message = escaped(record.message)
        record.kafka_level = level_name(record)
        return super().formatMessage(record)


class JsonFormatter(logging.Formatter):
    """One JSON object a line, tracebacks included: Filebeat and Splunk read it without parsing rules."""

    def __init__(self, node_id: int) -> None:
        super().__init__()
        self._node = str(node_id)

    def format(self, record: logging.LogRecord) -> str:
        seconds = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
        fields: dict[str, object] = {
            "@timestamp": f"{seconds}.{int(record.msecs):03d}Z",
            "log.level": level_name(record),
            "message": record.getMessage(),
            "ecs.version": ECS_VERSION,
            "log.logger": record.name,
            "process.pid": os.getpid(),
            "process.thread.name": record.threadName,
            "service.name": "ottla",
            "service.node.name": self._node,
            "event.dataset": "ottla.server",
        }
        if record.exc_info and record.exc_info[0] is not None:
            fields["error.type"] = record.exc_info[0].__name__
            fields["error.message"] = str(record.exc_info[1])
            fields["error.stack_trace"] = self.formatException(record.exc_info)
        return json.dumps(fields)


def escaped(text: str) -> str:
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def level_name(record: logging.LogRecord) -> str:
    return _NAMES.get(record.levelno) or record.levelname


PACKAGE: Final = "ottla"
AUTHORIZER: Final = "kafka.authorizer.logger"  # Kafka's name of this logger
SERVER_FILE: Final = "server.log"
FILES: Final = {  # file name -> the loggers that also write to it
    "controller.log": ("ottla.controller",),
    "kafka-authorizer.log": (AUTHORIZER,),
    "log-cleaner.log": ("ottla.broker.log_manager.log_cleaner", "ottla.storage.cleaning"),
}
PACKAGES: Final = (PACKAGE, AUTHORIZER)
QUEUED_LINES_MAX: Final = 10_000  # lines
STOP_SECONDS_MAX: Final = 2.0

Write = Callable[[str, str], None]  # a logger's name and the line


RETRY_SECONDS: Final = 1.0


class Rotation(NamedTuple):
    """When a file is rotated, and how many rotated files are kept."""

    max_bytes: int
    max_ms: int  # from midnight (UTC), so that a file holds the lines of one day; -1: no limit
    kept: int


class LogFile:
    """One log file with its rotated files. Owned by one thread."""

    def __init__(self, path: str, rotation: Rotation) -> None:
        self.path = path
        self._rotation = rotation
        self._descriptor = -1
        self._size = 0
        self._period = 0
        self._is_torn = False  # the last line was written in part
        self._retry_s = 0.0
        self.lost_lines = 0  # lines since the first failed write
        self.lost_total = 0
        self.problem = ""

    def write(self, line: str) -> None:
        """Append a line, or count it as lost."""
        now_s = time.time()
        if self.lost_lines and time.monotonic() < self._retry_s:
            self._drop_line(self.problem)
            return
        try:
            self._write(line, now_s)
        except OSError as error:
            self._drop_line(error.strerror or str(error))
            self._retry_s = time.monotonic() + RETRY_SECONDS

    def close(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def _write(self, line: str, now_s: float) -> None:
        self._open(now_s)
        data = f"{line}\n".encode("utf-8", "backslashreplace")
        if self._is_due(len(data), now_s):
            self._rotate(now_s)
        if self.lost_lines:
            note = f"({self.lost_lines} lines before this one were lost: {self.problem})\n"
            self._append(b"\n" * self._is_torn + note.encode())
            self.lost_lines = 0
        self._append(data)

    def _append(self, data: bytes) -> None:
        written = os.write(self._descriptor, data)
        self._size += written
        self._is_torn = written < len(data)
        if self._is_torn:
            self._append(data[written:])  # raises with the reason of the short write

    def _drop_line(self, problem: str) -> None:
        self.lost_lines += 1
        self.lost_total += 1
        self.problem = problem

    def _open(self, now_s: float) -> None:
        if self._descriptor >= 0:
            return
        os.makedirs(os.path.dirname(self.path) or ".", exist_ok=True)
        self._descriptor = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o640)
        found = os.fstat(self._descriptor)
        self._size = found.st_size
        self._period = self._period_of(found.st_mtime if found.st_size else now_s)

    def _is_due(self, more_bytes: int, now_s: float) -> bool:
        if self._size == 0:
            return False
        return self._size + more_bytes > self._rotation.max_bytes or self._period_of(now_s) != self._period

    def _period_of(self, time_s: float) -> int:
        max_ms = self._rotation.max_ms
        return int(time_s * 1000) // max_ms if max_ms > 0 else 0

    def _rotate(self, now_s: float) -> None:
        """Rotate: rename every file to the next number. A file that cannot be renamed stays in use."""
        self._period = self._period_of(now_s)
        kept = self._rotation.kept
        if kept == 0:
            os.ftruncate(self._descriptor, 0)
            self._size = 0
            return
        for number in range(kept - 1, 0, -1):
            with contextlib.suppress(FileNotFoundError):
                os.replace(f"{self.path}.{number}", f"{self.path}.{number + 1}")
        os.replace(self.path, f"{self.path}.1")
        self.close()
        self._open(now_s)

    def __repr__(self) -> str:
        return f"<LogFile {self.path}, {self._size} bytes, {self.lost_total} lines lost>"


class LogLimiter:
    """Decides when the next line is due; the owner passes the time."""

    def __init__(self, pause: float) -> None:
        self._pause = pause
        self._due: dict[str, float] = {}

    def is_due(self, now: float, subject: str = "") -> bool:
        """Whether to write the line now; each subject has its own interval."""
        if now < self._due.get(subject, now):
            return False
        self._due[subject] = now + self._pause
        return True

    def __repr__(self) -> str:
        return f"<LogLimiter about {sorted(self._due)}>"


class LogOptions(NamedTuple):
    """The logging options of the settings."""

    folder: str | None = None
    is_json: bool = False
    level: str = "INFO"
    levels: Mapping[str, str] = {}  # of single loggers
    rotation: Rotation = Rotation(104_857_600, 86_400_000, 10)
    node_id: int = 0


class LineWriter:
    """A thread that writes lines in order, and drops lines when its queue is full."""

    def __init__(self, name: str, write: Write) -> None:
        self._write = write
        self._lines: queue.SimpleQueue[tuple[str, str] | None] = queue.SimpleQueue()
        self.dropped = 0
        self._has_failed = False
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def put(self, logger_name: str, line: str) -> None:
        if self._lines.qsize() >= QUEUED_LINES_MAX:
            self.dropped += 1
        else:
            self._lines.put((logger_name, line))

    def stop(self) -> None:
        """Write the queued lines; if the target blocks, give up after a time-out."""
        self._lines.put(None)
        self._thread.join(STOP_SECONDS_MAX)

    def _run(self) -> None:
        while (item := self._lines.get()) is not None:
            try:
                self._write(*item)
            except Exception as error:  # noqa: BLE001 (a line about it would fail in the same way)
                self.dropped += 1
                self._report_failure(error)

    def _report_failure(self, error: Exception) -> None:
        """Once, on standard error; also that may be closed."""
        if not self._has_failed:
            self._has_failed = True
            with contextlib.suppress(Exception):
                _write_to_stderr("", f"log lines cannot be written: {error!r}")

    def __repr__(self) -> str:
        return f"<LineWriter {self._thread.name}: {self._lines.qsize()} waiting, {self.dropped} dropped>"


class LogFolder:
    """All log files of one broker."""

    def __init__(self, folder: str, rotation: Rotation) -> None:
        self._server = LogFile(os.path.join(folder, SERVER_FILE), rotation)
        self._others = [(prefixes, LogFile(os.path.join(folder, name), rotation)) for name, prefixes in FILES.items()]
        self._is_reporting_failure = False

    def write(self, logger_name: str, line: str) -> None:
        self._server.write(line)
        for prefixes, file in self._others:
            if logger_name.startswith(prefixes):
                file.write(line)
        self._report_failure()

    def _report_failure(self) -> None:
        """Report once on standard error that a file cannot be written."""
        if self._server.lost_lines and not self._is_reporting_failure:
            _write_to_stderr("", f"{self._server.path}: {self._server.problem}; lines are lost until it is writable")
        self._is_reporting_failure = self._server.lost_lines > 0

    @property
    def lost(self) -> int:
        return self._server.lost_total

    def __repr__(self) -> str:
        return f"<LogFolder {self._server!r}>"


class QueueingHandler(logging.Handler):
    """Formats a record at once, and queues it for the writer threads."""

    def __init__(self, formatter: logging.Formatter, writers: Sequence[LineWriter]) -> None:
        super().__init__()
        self.setFormatter(formatter)
        self.writers = writers

    def emit(self, record: logging.LogRecord) -> None:
        try:
            line = self.format(record)
        except (TypeError, ValueError) as problem:  # a wrong argument in a logging call must not stop the caller
            line = f"a log line cannot be written: {problem} ({record.name}:{record.lineno})"
        for writer in self.writers:
            writer.put(record.name, line)


class Logging:
    """Everything that start_logging() has set up; stop() undoes it."""

    def __init__(self, options: LogOptions) -> None:
        self.folder = LogFolder(options.folder, options.rotation) if options.folder else None
        self.writers = [LineWriter("log-stderr", _write_to_stderr)]
        if self.folder is not None:
            self.writers.append(LineWriter("log-files", self.folder.write))
        formatter = JsonFormatter(options.node_id) if options.is_json else TextFormatter()
        for package in PACKAGES:
            root = logging.getLogger(package)
            root.handlers[:] = [QueueingHandler(formatter, self.writers)]
            root.setLevel(LEVELS[options.level.upper()])
            root.propagate = False
        for name, level in options.levels.items():
            logging.getLogger(name).setLevel(LEVELS[level])

    @property
    def lost(self) -> int:
        return sum(writer.dropped for writer in self.writers) + (self.folder.lost if self.folder is not None else 0)

    def stop(self) -> None:
        for package in PACKAGES:
            logging.getLogger(package).handlers.clear()
        for writer in self.writers:
            writer.stop()

    def __repr__(self) -> str:
        return f"<Logging {self.writers}, {self.lost} lines lost>"


_current: list[Logging] = []


def start_logging(options: LogOptions) -> None:
    """Send the log lines of this process to the targets of these options."""
    stop_logging()
    _current.append(Logging(options))


def stop_logging() -> None:
    """Write the queued lines and close the files."""
    while _current:
        _current.pop().stop()


def lost_lines() -> int:
    """The number of log lines dropped since the start."""
    return sum(logs.lost for logs in _current)


def _write_to_stderr(_logger_name: str, line: str) -> None:
    """Bypasses Python's buffer: a thread that blocks in it would keep the process from exiting."""
    data = f"{line}\n".encode("utf-8", "backslashreplace")
    try:
        descriptor = sys.stderr.fileno()
        while data:
            data = data[os.write(descriptor, data) :]
    except (AttributeError, OSError, ValueError):
        return  # closed, or the reader is gone


def _after_fork() -> None:
    """A forked child has no writer thread: it logs directly."""
    if _current:
        _current.clear()
        handler = logging.StreamHandler(sys.stderr)
        handler.setFormatter(TextFormatter())
        for package in PACKAGES:
            logging.getLogger(package).handlers[:] = [handler]


os.register_at_fork(after_in_child=_after_fork)
