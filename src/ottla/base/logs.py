"""Where log lines go: to standard error, and to files if a folder is named.

Rules:
1. Whoever logs never waits: lines are handed to a thread that writes them. A full disk or a terminal that nobody reads
   costs lines, which are counted, and never time.
2. `server.log` has every line; `controller.log`, `log-cleaner.log` and `kafka-authorizer.log` have those of their own
   parts once more.
"""

from __future__ import annotations

import logging
import os
import queue
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Final, NamedTuple

from ottla.base.log_files import LogFile, Rotation
from ottla.base.log_formats import LEVELS, JsonFormatter, TextFormatter

PACKAGE: Final = "ottla"
AUTHORIZER: Final = "kafka.authorizer.logger"  # the name that Kafka has given it
SERVER_FILE: Final = "server.log"
FILES: Final = {  # file name -> the loggers that write to it, too
    "controller.log": ("ottla.controller",),
    "kafka-authorizer.log": (AUTHORIZER,),
    "log-cleaner.log": ("ottla.broker.logs.cleaning", "ottla.broker.logs.cleaner", "ottla.storage.clean"),
}
PACKAGES: Final = (PACKAGE, AUTHORIZER)
WAITING_MAX: Final = 10_000  # lines
STOP_SECONDS_MAX: Final = 2.0

Write = Callable[[str, str], None]  # a logger's name and the line


class LogOptions(NamedTuple):
    """What the settings say about logging."""

    folder: str | None = None
    is_json: bool = False
    level: str = "INFO"
    levels: Mapping[str, str] = {}  # of single loggers
    rotation: Rotation = Rotation(104_857_600, 86_400_000, 10)
    node_id: int = 0


class LineWriter:
    """A thread that writes lines one after the other, and drops what it cannot keep up with."""

    def __init__(self, name: str, write: Write) -> None:
        self._write = write
        self._lines: queue.SimpleQueue[tuple[str, str] | None] = queue.SimpleQueue()
        self.dropped = 0
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def put(self, logger_name: str, line: str) -> None:
        if self._lines.qsize() >= WAITING_MAX:
            self.dropped += 1
        else:
            self._lines.put((logger_name, line))

    def stop(self) -> None:
        """Write what is waiting; a target that takes nothing is given up."""
        self._lines.put(None)
        self._thread.join(STOP_SECONDS_MAX)

    def _run(self) -> None:
        while (item := self._lines.get()) is not None:
            self._write(*item)

    def __repr__(self) -> str:
        return f"<LineWriter {self._thread.name}: {self._lines.qsize()} waiting, {self.dropped} dropped>"


class LogFolder:
    """All log files of one broker."""

    def __init__(self, folder: str, rotation: Rotation) -> None:
        self._server = LogFile(os.path.join(folder, SERVER_FILE), rotation)
        self._others = [(prefixes, LogFile(os.path.join(folder, name), rotation)) for name, prefixes in FILES.items()]
        self._is_complaining = False

    def write(self, logger_name: str, line: str) -> None:
        self._server.write(line)
        for prefixes, file in self._others:
            if logger_name.startswith(prefixes):
                file.write(line)
        self._complain()

    def _complain(self) -> None:
        """Say once on standard error that a file takes no lines."""
        if self._server.lost and not self._is_complaining:
            _write_to_stderr("", f"{self._server.path}: {self._server.problem}; lines are lost until it is writable")
        self._is_complaining = self._server.lost > 0

    @property
    def lost(self) -> int:
        return self._server.lost_total

    def __repr__(self) -> str:
        return f"<LogFolder {self._server!r}>"


class QueueingHandler(logging.Handler):
    """Formats a record at once, and leaves the writing to others."""

    def __init__(self, formatter: logging.Formatter, writers: Sequence[LineWriter]) -> None:
        super().__init__()
        self.setFormatter(formatter)
        self.writers = writers

    def emit(self, record: logging.LogRecord) -> None:
        try:
            line = self.format(record)
        except (TypeError, ValueError) as problem:  # a mistake in a call of a logger must not stop the caller
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
    """From now on everything that ottla says goes where these options want it."""
    stop_logging()
    _current.append(Logging(options))


def stop_logging() -> None:
    """Write what is waiting and let go of the files."""
    while _current:
        _current.pop().stop()


def lost_lines() -> int:
    """Log lines that were not written since the start."""
    return sum(logs.lost for logs in _current)


def _write_to_stderr(_logger_name: str, line: str) -> None:
    """Past Python's own buffer: a thread that is stuck in it would keep the process from ending."""
    data = f"{line}\n".encode("utf-8", "backslashreplace")
    try:
        descriptor = sys.stderr.fileno()
        while data:
            data = data[os.write(descriptor, data) :]
    except (AttributeError, OSError, ValueError):
        return  # closed, or nobody reads it any more


def _after_fork() -> None:
    """A child has no thread that would write for it: it says everything itself."""
    if _current:
        _current.clear()
        handler = logging.StreamHandler(sys.stderr)
        handler.setFormatter(TextFormatter())
        for package in PACKAGES:
            logging.getLogger(package).handlers[:] = [handler]


os.register_at_fork(after_in_child=_after_fork)
