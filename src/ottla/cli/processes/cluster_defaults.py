"""Defaults that depend on the size of a machine or cluster: processes per core, replicas per broker."""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable
from pathlib import Path
from typing import Final

AUTO: Final = "auto"
PROCESSES_MAX: Final = 128
CGROUPS: Final = Path("/sys/fs/cgroup")
OWN_CGROUP: Final = Path("/proc/self/cgroup")


def usable_cores(own_cgroup: Path = OWN_CGROUP, cgroups: Path = CGROUPS) -> int:
    """The cores that this process may use, limited by the CPU quota of its control group."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, min([cores, *(int(quota) for quota in _cgroup_cpu_quotas(own_cgroup, cgroups))]))


def _cgroup_cpu_quotas(own_cgroup: Path, cgroups: Path) -> list[float]:
    """The CPU quotas, in cores, of the control groups (v2) of this process; groups without a quota are skipped."""
    try:
        lines = own_cgroup.read_text().splitlines()
    except OSError:
        return []
    name = next((line.removeprefix("0::/") for line in lines if line.startswith("0::/")), "")
    found = []
    for group in (cgroups / name, *(cgroups / name).parents):
        try:
            quota, period = (group / "cpu.max").read_text().split()
        except (OSError, ValueError):
            continue
        if quota.isdecimal() and period.isdecimal():
            found.append(int(quota) / int(period))
    return found


def count_or_auto_type(noun: str, most: int) -> Callable[[str], int]:
    """Create an argument type: a number from 1 to `most`, or `auto` for one per core."""

    def parse(text: str) -> int:
        if text == AUTO:
            return min(usable_cores(), most)
        if not (text.isascii() and text.isdecimal()) or len(text) > 9 or not 1 <= int(text) <= most:
            raise argparse.ArgumentTypeError(f"{text!r} is not a number of {noun}: 1 to {most}, or {AUTO}")
        return int(text)

    return parse


# With three replicas any one broker may fail without data loss or downtime.
REPLICAS_MAX: Final = 3


def replica_settings(brokers: int) -> dict[str, str]:
    """Replication settings: up to three replicas; with three or more brokers, min.insync.replicas is 2."""
    replicas = min(REPLICAS_MAX, brokers)
    in_sync = max(1, replicas - 1)
    return {
        "default.replication.factor": str(replicas),
        "min.insync.replicas": str(in_sync),
        "offsets.topic.replication.factor": str(replicas),
        "transaction.state.log.replication.factor": str(replicas),
        "transaction.state.log.min.isr": str(in_sync),
        "share.coordinator.state.topic.replication.factor": str(replicas),
        "share.coordinator.state.topic.min.isr": str(in_sync),
    }
