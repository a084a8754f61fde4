"""Metrics of this process and machine, from /proc. Every reading takes some microseconds; none of them blocks."""

from __future__ import annotations

import gc
import os
import platform
import resource
import sys
import threading
import time
from typing import Final

PAGE_BYTES: Final = os.sysconf("SC_PAGE_SIZE")
TICKS_PER_SECOND: Final = os.sysconf("SC_CLK_TCK")


class CollectorTimes:
    """The run time of the garbage collector, by generation."""

    def __init__(self) -> None:
        self.seconds = [0.0, 0.0, 0.0]
        self._started = 0.0

    def watch(self) -> None:
        gc.callbacks.append(self._note)

    def forget(self) -> None:
        if self._note in gc.callbacks:
            gc.callbacks.remove(self._note)

    def _note(self, phase: str, info: dict[str, int]) -> None:
        if phase == "start":
            self._started = time.perf_counter()
        else:
            self.seconds[info["generation"]] += time.perf_counter() - self._started

    def __repr__(self) -> str:
        return f"<CollectorTimes {sum(self.seconds) * 1000:.1f} ms>"


def cpu_seconds() -> float:
    """Return user and system time of all threads."""
    return time.process_time()


def resident_bytes() -> int:
    return int(_words("/proc/self/statm")[1]) * PAGE_BYTES


def virtual_bytes() -> int:
    return int(_words("/proc/self/statm")[0]) * PAGE_BYTES


def open_files() -> int:
    return len(os.listdir("/proc/self/fd")) - 1  # without the one of the listing itself


def open_files_max() -> int:
    return resource.getrlimit(resource.RLIMIT_NOFILE)[0]


def thread_count() -> int:
    return threading.active_count()


def disk_bytes() -> tuple[int, int]:
    """Return the bytes that this process read from and wrote to disks; zeros if the kernel does not report them."""
    try:
        fields = dict(line.split(": ") for line in _text("/proc/self/io").splitlines())
    except OSError:
        return 0, 0
    return int(fields["read_bytes"]), int(fields["write_bytes"])


def memory_bytes() -> tuple[int, int]:
    """Return the machine's total and free memory."""
    fields = dict(line.split(":") for line in _text("/proc/meminfo").splitlines()[:3])
    return int(fields["MemTotal"].split()[0]) * 1024, int(fields["MemFree"].split()[0]) * 1024


def started_s() -> float:
    """Return the start time of this process, in seconds since 1970."""
    ticks = int(_text("/proc/self/stat").rpartition(")")[2].split()[19])
    return time.time() - time.clock_gettime(time.CLOCK_BOOTTIME) + ticks / TICKS_PER_SECOND


def runtime_names() -> dict[str, str]:
    """Return the interpreter and the machine, under the names of Java's beans."""
    return {
        "VmName": platform.python_implementation(),
        "VmVersion": platform.python_version(),
        "SpecName": "Python",
        "SpecVersion": f"{sys.version_info.major}.{sys.version_info.minor}",
        "Name": f"{os.getpid()}@{platform.node()}",
    }


def _words(path: str) -> list[str]:
    return _text(path).split()


def _text(path: str) -> str:
    with open(path) as file:
        return file.read()
