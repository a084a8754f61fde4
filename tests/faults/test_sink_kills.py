"""P1: drivers, workers and brokers die during micro-batches; the topic has every row of the result exactly once."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.faults.sink_rounds import Round

pytestmark = pytest.mark.faults

DRIVER_POINTS = ("before staging", "after staging", "publishing", "some committed", "all committed", "released")
SETTINGS = {"transaction_state_log_num_partitions": 3, "offsets_topic_num_partitions": 3}
BrokerFactory = Callable[..., Any]


def test_a_driver_killed_at_every_point_repeats_and_loses_nothing(bootstrap: str, tmp_path: Path) -> None:
    run = Round(bootstrap, tmp_path, batches=3)
    deaths = [(1, point) for point in DRIVER_POINTS]
    assert run.run(run.plan(deaths), starts_max=len(deaths) + 1) == len(deaths) + 1
    run.assert_exactly_once()


def test_the_first_batch_is_no_exception(bootstrap: str, tmp_path: Path) -> None:
    run = Round(bootstrap, tmp_path, batches=3)
    deaths = [(0, "some committed"), (1, "publishing"), (1, "all committed")]
    assert run.run(run.plan(deaths), starts_max=4) == 4
    run.assert_exactly_once()


def test_without_markers_the_same_kill_repeats_rows(bootstrap: str, tmp_path: Path) -> None:
    """So that the others can fail."""
    run = Round(bootstrap, tmp_path, batches=4)
    run.run(run.plan([(2, "some committed")], has_markers=False), starts_max=2)
    repeated = run.found() - run.expected()
    assert repeated.total() > 0
    assert not run.expected() - run.found()


def test_a_worker_that_is_killed_is_replaced(bootstrap: str, tmp_path: Path) -> None:
    run = Round(bootstrap, tmp_path, batches=4)
    plan = run.plan([(1, "worker"), (2, "worker")], master="local[2,4]")
    assert run.run(plan, starts_max=1) == 1
    run.assert_exactly_once()


@pytest.mark.parametrize("point", ["zombie", "late zombie"])
def test_a_zombie_that_resumes_after_its_replacement_writes_nothing(bootstrap: str, tmp_path: Path, point: str) -> None:
    run = Round(bootstrap, tmp_path, batches=4)
    plan = run.plan([(2, point)])
    assert run.run(plan, starts_max=2) == 2
    before = run.found()
    (tmp_path / "resume").touch()
    deadline = time.monotonic() + 60
    while not (tmp_path / "zombie").exists():
        assert time.monotonic() < deadline, "the zombie did not wake up"
        time.sleep(0.1)
    told = (tmp_path / "zombie").read_text()
    assert "published" not in told, told
    assert run.found() == before
    run.assert_exactly_once()


def test_a_broker_that_dies_while_rows_are_published(broker_factory: BrokerFactory, tmp_path: Path) -> None:
    broker = broker_factory(**SETTINGS)
    (tmp_path / "round").mkdir()
    run = Round(broker.bootstrap, tmp_path / "round", batches=6)
    chance = random.Random(5)
    deaths: list[float] = []
    due = [time.monotonic() + 15]

    def disturb() -> None:
        if time.monotonic() >= due[0] and len(deaths) < 4:
            broker.kill9()
            time.sleep(chance.uniform(0.2, 2.0))
            broker.start()
            deaths.append(time.monotonic())
            due[0] = time.monotonic() + chance.uniform(2.0, 6.0)

    run.run(run.plan([]), starts_max=6, meanwhile=disturb)
    assert deaths
    run.assert_exactly_once()


def test_twenty_kills(bootstrap: str, tmp_path: Path) -> None:
    """P1's number: any point, any batch, a batch also several times."""
    run = Round(bootstrap, tmp_path, seed=7, batches=4)
    places = [(batch, point) for batch in range(4) for point in DRIVER_POINTS]
    deaths = random.Random(20).sample(places, 20)
    assert run.run(run.plan(deaths), starts_max=len(deaths) + 1) > 15  # a death in a task may come before another's
    run.assert_exactly_once()
