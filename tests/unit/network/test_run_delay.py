"""How long a thread waited for a core."""

from __future__ import annotations

from pathlib import Path

import pytest

from ottla.network import run_delay
from ottla.network.run_delay import RunDelay


def test_it_tells_what_was_added_since_the_last_question(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    counters = tmp_path / "schedstat"
    monkeypatch.setattr(run_delay, "PATH", str(counters))
    counters.write_text("900 5000 3\n")
    delay = RunDelay()
    assert delay.since_last() == 0
    counters.write_text("900 7500 3\n")
    assert (delay.since_last(), delay.since_last()) == (2500, 0)
    delay.close()
    delay.close()
    assert delay.since_last() == 0


def test_where_the_kernel_does_not_count_nobody_waits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_delay, "PATH", str(tmp_path / "none"))
    assert RunDelay().since_last() == 0


def test_the_kernel_counts_for_this_thread() -> None:
    delay = RunDelay()
    delay.since_last()
    assert delay.since_last() >= 0
    delay.close()
