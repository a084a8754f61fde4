"""Kernel figures of processes and the machine. A broker is its process and all its descendants."""

import os
import time
from pathlib import Path
from typing import NamedTuple

CLOCK_TICKS = os.sysconf("SC_CLK_TCK")


class Memory(NamedTuple):
    """Resident memory of a broker, and what it holds open."""

    rss_mb: float
    files: int
    threads: int


class MachineCpu(NamedTuple):
    """Seconds since boot that all cores were busy, and that the hypervisor withheld."""

    busy_s: float
    stolen_s: float


def process_tree(pid: int) -> list[int]:
    """The process and its living descendants."""
    found, waiting = [], [pid]
    while waiting:
        parent = waiting.pop()
        found.append(parent)
        try:
            tasks = os.listdir(f"/proc/{parent}/task")
            for task in tasks:
                waiting += map(int, Path(f"/proc/{parent}/task/{task}/children").read_text().split())
        except OSError:
            continue  # ended meanwhile
    return found


def cpu_seconds(pid: int) -> float:
    """CPU time of the process tree in nanosecond steps (/proc/PID/stat has only 10 ms steps)."""
    total = 0.0
    for process in process_tree(pid):
        try:
            total += time.clock_gettime(_cpu_clock(process))
        except OSError:
            continue
    return total


def memory(pid: int) -> Memory:
    rss_kb = files = threads = 0
    for process in process_tree(pid):
        try:
            status = _status(process)
            rss_kb += int(status["VmRSS"].split()[0])
            threads += int(status["Threads"])
            files += len(os.listdir(f"/proc/{process}/fd"))
        except (OSError, KeyError):
            continue
    return Memory(rss_kb / 1024, files, threads)


def disk_read_bytes(pid: int) -> int:
    """Bytes that the process tree read from the disk, not from the page cache."""
    total = 0
    for process in process_tree(pid):
        try:
            lines = Path(f"/proc/{process}/io").read_text().splitlines()
        except OSError:
            continue
        total += sum(int(line.split()[1]) for line in lines if line.startswith("read_bytes"))
    return total


def catches_signal(pid: int, signal_number: int) -> bool:
    """Whether a signal would reach a handler; without one SIGUSR1 ends the process."""
    try:
        caught = int(_status(pid)["SigCgt"], 16)
    except (OSError, KeyError):
        return False
    return bool(caught >> (signal_number - 1) & 1)


def machine_cpu() -> MachineCpu:
    with open("/proc/stat") as file:
        user, nice, system, _idle, _wait, irq, softirq, steal = map(int, file.readline().split()[1:9])
    return MachineCpu((user + nice + system + irq + softirq) / CLOCK_TICKS, steal / CLOCK_TICKS)


def meminfo_mb(name: str) -> int:
    """One line of /proc/meminfo, such as MemFree, in MiB."""
    with open("/proc/meminfo") as file:
        for line in file:
            if line.startswith(name + ":"):
                return int(line.split()[1]) >> 10
    raise KeyError(name)


def wait_until_quiet(pid: int, seconds_max: float, share: float = 0.1) -> None:
    """Waits until the broker used less than `share` of one core for a second (work left over from before is done)."""
    end = time.monotonic() + seconds_max
    while time.monotonic() < end:
        before = cpu_seconds(pid)
        time.sleep(1)
        if cpu_seconds(pid) - before < share:
            return


def _cpu_clock(pid: int) -> int:
    return (~pid << 3) | 2  # what clock_getcpuclockid(3) gives: the process's own scheduler clock


def _status(pid: int) -> dict[str, str]:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return {name: value.strip() for name, _, value in (line.partition(":") for line in lines)}
