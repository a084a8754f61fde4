"""Usable cores, and the argument type for process counts."""

import argparse
import os
from pathlib import Path

import pytest

from ottla.cli.processes.cluster_defaults import count_or_auto_type, usable_cores


def group(folder: Path, name: str, quota: str) -> None:
    (folder / "cgroups" / name).mkdir(parents=True, exist_ok=True)
    (folder / "cgroups" / name / "cpu.max").write_text(f"{quota}\n")


def cores(folder: Path, own: str = "0::/system.slice/ottla.service\n") -> int:
    (folder / "own").write_text(own)
    return usable_cores(folder / "own", folder / "cgroups")


def test_a_quota_of_any_group_around_it_bounds_the_cores(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(16)))
    assert cores(tmp_path) == 16
    group(tmp_path, "system.slice/ottla.service", "max 100000")
    assert cores(tmp_path) == 16
    group(tmp_path, "system.slice", "650000 100000")
    assert cores(tmp_path) == 6
    group(tmp_path, "system.slice/ottla.service", "50000 100000")
    assert cores(tmp_path) == 1
    assert cores(tmp_path, "1:cpu:/old\n") == 16
    assert usable_cores(tmp_path / "missing", tmp_path) == 16


def test_cpu_affinity_limits_the_cores(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {3, 5, 7})
    assert cores(tmp_path) == 3
    assert count_or_auto_type("processes", 2)("auto") == 2


@pytest.mark.parametrize("text", ["0", "-1", "abc", "1000", "", "2.5", "1e1", "٣", "9" * 5000, "Auto"])
def test_a_bad_number_is_refused_in_a_sentence(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match="is not a number of processes: 1 to 128, or auto"):
        count_or_auto_type("processes", 128)(text)
