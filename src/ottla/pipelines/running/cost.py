"""CPU time and memory of a run on this machine: its Python process, Spark's Java, and Python workers.

Read from /proc; elsewhere the cost is unknown. Processes on other machines are not counted.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from ottla.operations.pipeline_runs.statuses import Cost
from ottla.pipelines.spark.processes import children_of

TICKS_PER_S = os.sysconf("SC_CLK_TCK")
PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
PROCESSES_MAX = 1_000


class CostMeter:
    """Measures on request. The CPU time of ended processes is kept, so the total never decreases."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self._spent: dict[int, float] = {}  # by process

    def __repr__(self) -> str:
        return f"CostMeter({self.pid}, {len(self._spent)} processes)"

    def look(self) -> Cost | None:
        """None if unknown."""
        memory = {"driver": 0, "java": 0, "workers": 0}
        for pid in _family(self.pid):
            found = _process(pid)
            if found is not None:
                name, seconds, resident = found
                self._spent[pid] = max(seconds, self._spent.get(pid, 0.0))
                kind = "driver" if pid == self.pid else "java" if name == "java" else "workers"
                memory[kind] += resident
        if not memory["driver"]:
            return None
        return Cost(round(sum(self._spent.values()), 2), memory["driver"], memory["java"], memory["workers"])


def _family(pid: int) -> Iterator[int]:
    """The process and all its descendants."""
    found = [pid]
    for each in found:
        yield each
        found += children_of(each)[: PROCESSES_MAX - len(found)]


def _process(pid: int) -> tuple[str, float, int] | None:
    """Name, own CPU seconds, resident memory."""
    with suppress(OSError, ValueError, IndexError):
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
        head, _, rest = text.rpartition(")")  # the name may contain spaces and parentheses
        fields = rest.split()
        return head.partition("(")[2], (int(fields[11]) + int(fields[12])) / TICKS_PER_S, int(fields[21]) * PAGE_BYTES
    return None
