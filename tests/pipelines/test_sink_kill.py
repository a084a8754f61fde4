"""One kill -9 at the worst moment; all the others are in tests/faults."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.faults.sink_rounds import Round


@pytest.mark.faults
def test_a_driver_killed_after_some_of_its_tasks_have_committed(bootstrap: str, tmp_path: Path) -> None:
    """A count over a join, and rows that come to other tasks in the second run."""
    run = Round(bootstrap, tmp_path, events=1000, batches=2)
    assert run.run(run.plan([(1, "some committed")]), starts_max=2) == 2
    run.assert_exactly_once()
