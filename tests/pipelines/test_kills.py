"""Two kills of `ottla pipeline run`; twenty more, and those of workers, brokers and clusters, are in tests/faults."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.faults.pipeline_rounds import PipelineRound

pytestmark = pytest.mark.faults  # four starts of Spark: a minute and more


def test_a_killed_run_goes_on_without_loss_or_repetition(bootstrap: str, tmp_path: Path) -> None:
    """The whole process group during a batch, then the driver alone, right after its report of a batch."""
    run = PipelineRound(bootstrap, tmp_path, clicks=600, per_batch=150)
    run.feed(seconds=5)
    run.killed_run("group", batches=2, delay_s=0.3)
    run.killed_run("driver", batches=1, delay_s=0.0)
    run.finish()
    run.assert_exactly_once()
