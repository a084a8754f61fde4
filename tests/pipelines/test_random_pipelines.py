"""Random pipelines with random accidents, compared with an oracle in plain Python (tests/pipelines/random).

A few seeds here, hundreds in `make faults`. `python -m tests.pipelines.random.play FIRST [SEEDS]` plays any of them.
"""

from __future__ import annotations

import os
import subprocess
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.pipelines.random.cases import Case, Query, Round
from tests.pipelines.random.killing import kill_and_compare
from tests.pipelines.random.making import make_case
from tests.pipelines.random.places import Table, World, producer_for
from tests.pipelines.random.playing import Player, WrongError
from tests.pipelines.random.records import Record
from tests.pipelines.random.steps import Parse

from ottla.cli.pipelines import run as pipeline_run
from ottla.pipelines.sinks import database

FEW = (97, 179)
MANY = 300
SECONDS_MAX = float(os.environ.get("OTTLA_RANDOM_SECONDS", "3600"))
KILLED = range(10)


@pytest.fixture(scope="module")
def own_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A broker that may be killed."""
    from tests.conftest import Broker  # noqa: PLC0415 (with importlib mode it is known when tests run)

    broker = Broker(tmp_path_factory.mktemp("broker"), {"group.initial.rebalance.delay.ms": "0"}).start()
    yield broker
    producer_for.cache_clear()  # else it would look for its broker until the end
    broker.discard()


@pytest.fixture(autouse=True)
def shared_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pipeline_run, "_stop_spark", lambda _spark: None)


def play(case: Case, broker: Any, spark: Any, folder: Path, postgres: str | None = None) -> None:
    name = f"case-{max(case.seed, 0)}-{uuid.uuid4().hex[:6]}"
    Player(case, World(name, broker.bootstrap, folder / name / "now", postgres), spark, broker).play()


@pytest.mark.parametrize("seed", FEW)
def test_a_random_pipeline_is_right_or_refused(seed: int, own_broker: Any, spark: Any, tmp_path: Path) -> None:
    play(make_case(seed), own_broker, spark, tmp_path)


def test_the_same_seed_is_the_same_case(tmp_path: Path) -> None:
    world = World("x", "127.0.0.1:1", tmp_path)
    for seed in range(50):
        one, two = make_case(seed), make_case(seed)
        assert one.text(world) == two.text(world)
        assert one.rounds == two.rounds


def test_what_is_planted_is_found(own_broker: Any, spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A sink that does not check whether it has a batch already."""
    monkeypatch.setattr(database, "is_written", lambda *_: False)
    query = Query("main", [Parse(False, "die")], "append", [Table("main0", ["id", "k", "n"], True, None)])
    rounds = [Round([Record(0, "a", '{"id": 1}')], point="after: SQLite commits")]
    with pytest.raises(WrongError, match="main to main0: 1 rows too many"):
        play(Case(-1, 1, None, [], [query], rounds), own_broker, spark, tmp_path)


@pytest.mark.faults
def test_hundreds_of_random_pipelines() -> None:
    """As many as time permits, several in parallel; all failures are reported."""
    limits = ["--seconds", str(SECONDS_MAX), "--jobs", str(os.cpu_count() or 1)]
    command = [sys.executable, "-m", "tests.pipelines.random.play", "1000", str(MANY), *limits]
    done = subprocess.run(command, cwd=Path(__file__).parents[2], capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{done.stdout[-20_000:]}\n{done.stderr[-3000:]}"


@pytest.mark.faults
@pytest.mark.parametrize("seed", KILLED)
def test_a_random_pipeline_whose_runs_are_killed(seed: int, own_broker: Any, spark: Any, tmp_path: Path) -> None:
    """Real processes, kill -9 of all of them at random moments."""
    kill_and_compare(seed, own_broker, spark, tmp_path)
