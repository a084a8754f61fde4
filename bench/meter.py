"""Measures the cost of an interval: wall time, CPU of the broker, of this client and of everything else."""

import resource
import time
from types import TracebackType
from typing import Self

from bench.figures import Figures
from bench.procfs import cpu_seconds, machine_cpu


class Meter:
    """`with Meter(pid) as meter: ...`, then `meter.figures(requests=..., payload_bytes=...)`."""

    def __init__(self, broker_pid: int) -> None:
        self.broker_pid = broker_pid
        self.seconds = 0.0
        self.broker_cpu_s = 0.0
        self.client_cpu_s = 0.0
        self.other_cpu_s = 0.0
        self.stolen_s = 0.0

    def __enter__(self) -> Self:
        self.restart()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.seconds = time.perf_counter() - self.started
        self.broker_cpu_s = cpu_seconds(self.broker_pid) - self._broker
        self.client_cpu_s = _own_cpu_seconds() - self._client
        machine = machine_cpu()
        busy = machine.busy_s - self._machine.busy_s
        self.other_cpu_s = max(0.0, busy - self.broker_cpu_s - self.client_cpu_s)
        self.stolen_s = machine.stolen_s - self._machine.stolen_s

    def __repr__(self) -> str:
        return (
            f"<Meter {self.seconds:.2f} s, broker {self.broker_cpu_s:.2f} CPU s, client {self.client_cpu_s:.2f} CPU s>"
        )

    def restart(self) -> None:
        """Discard earlier measurements: the load starts now."""
        self._machine = machine_cpu()
        self._client = _own_cpu_seconds()
        self._broker = cpu_seconds(self.broker_pid)
        self.started = time.perf_counter()

    def figures(self, *, requests: int = 0, payload_bytes: int = 0, records: int = 0) -> Figures:
        """Rates and the broker's CPU per unit of work, for kinds of work that were done."""
        figures: Figures = {
            "seconds": self.seconds,
            "broker_cpu_s": self.broker_cpu_s,
            "client_cpu_s": self.client_cpu_s,
            "other_cpu_s": self.other_cpu_s,
            "stolen_s": self.stolen_s,
        }
        if requests:
            figures["requests"] = requests
            figures["requests_per_s"] = requests / self.seconds
            figures["cpu_us_per_request"] = self.broker_cpu_s * 1e6 / requests
        if records:
            figures["records_per_s"] = records / self.seconds
            figures["cpu_us_per_record"] = self.broker_cpu_s * 1e6 / records
        if payload_bytes:
            figures["mb_per_s"] = payload_bytes / 1e6 / self.seconds
            figures["cpu_s_per_gb"] = self.broker_cpu_s / (payload_bytes / 1e9)
        return figures


def _own_cpu_seconds() -> float:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime
