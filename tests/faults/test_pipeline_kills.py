"""P1 as a user meets it: `ottla pipeline run` and what it runs on die, the same command is given again, and topic,
table, files, dead letters and consumer groups have everything exactly once."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.faults.pipeline_rounds import PipelineRound, Victim, strike

from ottla.pipelines.spark.standalone import StandaloneCluster

pytestmark = pytest.mark.faults

BrokerFactory = Callable[..., Any]
KILLS = 20
FEW_PARTITIONS = {"transaction_state_log_num_partitions": 3, "offsets_topic_num_partitions": 3}
EXECUTORS = ("--set=spark.executor.memory=512m", "--set=spark.executor.cores=1", "--set=spark.driver.host=127.0.0.1")


def test_twenty_kills_of_the_driver(bootstrap: str, tmp_path: Path) -> None:
    """The whole group, the command alone (its Java lives on for a moment) or Java alone, at any moment."""
    run = PipelineRound(bootstrap, tmp_path, clicks=4000, seed=20, per_batch=100)
    chance = random.Random(20)
    victims: list[Victim] = ["group", "driver", "java"]
    for part in range(KILLS):
        run.feed(seconds=5, part=part, parts=KILLS)
        run.killed_run(chance.choice(victims), batches=chance.randrange(4), delay_s=chance.uniform(0.0, 3.0))
    run.finish()
    assert len(run.deaths) > KILLS - 3  # on a busy machine one may end before it is killed
    assert run.in_the_middle >= KILLS // 4, run
    run.assert_exactly_once()


@pytest.mark.parametrize("master", ["local[2]", "local[2,4]"])
def test_python_workers_are_killed(bootstrap: str, tmp_path: Path, master: str) -> None:
    """Either the task is tried again, or the run ends with a line that says so, and the next one goes on."""
    run = PipelineRound(bootstrap, tmp_path, clicks=1500, seed=3, per_batch=120)
    chance = random.Random(3)
    run.feed(seconds=10)
    for _ in range(3):
        process = run.start(master=master)
        while run.kill(process, "worker", batches=1, delay_s=chance.uniform(0.5, 3.0)) and len(run.deaths) % 4:
            pass
        if process.poll() is None:
            strike(process, "group")
        else:
            assert process.returncode == 1
            assert len(run.errors.read_text().splitlines()) == 1, run.told()
    assert run.deaths, run
    run.finish(runs=2)
    run.assert_exactly_once()


def test_the_broker_is_killed_while_batches_run(broker_factory: BrokerFactory, tmp_path: Path) -> None:
    broker = broker_factory(**FEW_PARTITIONS)
    run = PipelineRound(broker.bootstrap, tmp_path / "round", clicks=2500, seed=5, per_batch=120)
    chance = random.Random(5)
    run.feed(seconds=60)
    process = run.start()
    for death in range(6):
        while run.batches() < death and process.poll() is None:
            time.sleep(0.05)
        time.sleep(chance.uniform(0.0, 2.0))
        broker.kill9()
        time.sleep(chance.uniform(0.2, 3.0))
        broker.start()
        if process.poll() is not None:  # it may give up, with a word, and is started again
            assert len(run.errors.read_text().splitlines()) == 1, run.told()
            process = run.start()
    strike(process, "group")
    run.finish(runs=2)
    run.assert_exactly_once()


def test_a_worker_of_a_cluster_is_killed(bootstrap: str, tmp_path: Path) -> None:
    """With its executors; another one comes, and the run goes on."""
    run = PipelineRound(bootstrap, tmp_path / "round", clicks=1500, seed=7, per_batch=150)
    run.feed(seconds=20)
    with StandaloneCluster(tmp_path / "cluster", workers=2) as cluster:
        process = run.start(*EXECUTORS, master=cluster.master)
        for number in range(2):
            wanted = run.batches() + 1
            while run.batches() < wanted and process.poll() is None:
                time.sleep(0.05)
            time.sleep(0.3)
            cluster.kill_worker(number)
            run.deaths.append("cluster worker")
            cluster.add_worker()
        wanted = run.batches() + 2
        while run.batches() < wanted and process.poll() is None:
            time.sleep(0.05)
        assert process.poll() is None, run.told()  # it has survived both
        strike(process, "group")
        run.finish(master=cluster.master, words=EXECUTORS)
    run.assert_exactly_once()
