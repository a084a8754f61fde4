"""How many processes a machine is for: its cores, as far as this process may use them."""

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
    """Cores that the kernel lets this process run on, no more than the quota of its control group pays for."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, min([cores, *(int(quota) for quota in _quotas(own_cgroup, cgroups))]))


def _quotas(own_cgroup: Path, cgroups: Path) -> list[float]:
    """Cores that each group which this process is in may use (cgroup v2); groups without a quota are left out."""
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


def count_or_auto(what: str, most: int) -> Callable[[str], int]:
    """An argument type: a number from 1 to `most`, or `auto` for one of each core."""

    def parse(text: str) -> int:
        if text == AUTO:
            return min(usable_cores(), most)
        if not (text.isascii() and text.isdecimal()) or len(text) > 9 or not 1 <= int(text) <= most:
            raise argparse.ArgumentTypeError(f"{text!r} is not a number of {what}: 1 to {most}, or {AUTO}")
        return int(text)

    return parse
