"""ottla as a user starts it: `ottla broker --config FILE`."""

import json
import re
import signal
import sys
import time
from pathlib import Path

from bench.broker_process import SHARED_SETTINGS, BrokerProcess, properties
from bench.errors import BenchError
from bench.figures import Figures
from bench.procfs import catches_signal

READY_LINE = re.compile(r"^ottla broker \d+ ready on \S+:\d+", re.MULTILINE)
CALLBACK_LINE = re.compile(r"longest loop callback: ([\d.]+) ms")
ANSWER_SECONDS_MAX = 2.0
# The longest callback by wall time; and the most CPU time in one, if over 10 ms.
LOOP_FIGURES = ("longest_callback_ms", "most_running_ms")


class OttlaProcess(BrokerProcess):
    """One broker with the embedded metadata store."""

    system = "ottla"

    def prepare(self) -> None:
        if not _program().exists():
            raise BenchError(f"{_program()} does not exist; run `make install`")
        settings = {"listeners": f"PLAINTEXT://{self.host}:{self.port}", "log.dirs": str(self.data_folder)}
        (self.folder / "server.properties").write_text(properties(settings | SHARED_SETTINGS | self.settings))

    def command(self) -> list[str]:
        return [str(_program()), "broker", "--config", str(self.folder / "server.properties")]

    def is_ready(self) -> bool:
        return READY_LINE.search(self.log_text()) is not None

    def loop_figures(self) -> Figures | None:
        """The longest callback of the event loop so far; None if the broker does not report it."""
        if not self.is_alive or not catches_signal(self.target.pid, signal.SIGUSR1):
            return None
        seen = len(read_loop_lines(self.log_text()))
        assert self._process is not None
        self._process.send_signal(signal.SIGUSR1)
        end = time.monotonic() + ANSWER_SECONDS_MAX
        while time.monotonic() < end:
            lines = read_loop_lines(self.log_text())
            if len(lines) > seen:
                return lines[-1]
            time.sleep(0.02)
        return None


def read_loop_lines(log: str) -> list[Figures]:
    """The broker's output on each SIGUSR1: JSON lines with longest_callback_ms."""
    found = []
    for line in log.splitlines():
        start = line.find('{"')
        if start < 0 or "longest_callback_ms" not in line:
            continue
        try:
            told = json.loads(line[start:])
            figures: Figures = {name: float(told[name]) for name in LOOP_FIGURES if name in told}
        except (ValueError, TypeError):
            continue
        found.append(figures)
    return found


def read_callback_at_shutdown(log: str) -> float | None:
    found = CALLBACK_LINE.findall(log)
    return float(found[-1]) if found else None


def _program() -> Path:
    return Path(sys.executable).parent / "ottla"
