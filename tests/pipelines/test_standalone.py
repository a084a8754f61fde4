"""A real cluster: a master, two workers, and one of them killed in the middle of a job."""

from __future__ import annotations

import signal
import time
from pathlib import Path

import pytest
from tests.pipelines.processes import run_python

JOB = """
import os, sys, threading, time
from pathlib import Path
from ottla.pipelines.spark.processes import command_of
from ottla.pipelines.spark.session import start_session
from ottla.pipelines.spark.standalone import StandaloneCluster

with StandaloneCluster(Path(sys.argv[1]), workers=2) as cluster:
    spark = start_session("job", cluster.master, settings={"spark.executor.memory": "512m"})
    def work(number):
        time.sleep(0.02)
        return number, os.getppid()
    numbers = spark.sparkContext.parallelize(range(100), 10)
    print("executors", len({parent for _, parent in numbers.map(work).collect()}))
    before = [cluster.executor_pids(number) for number in (0, 1)]
    threading.Timer(0.5, cluster.kill_worker, [0]).start()
    print("sum", numbers.map(work).map(lambda pair: pair[0]).sum())
    cluster.wait_for_workers(1)
    deadline = time.monotonic() + 30
    while any(command_of(pid) for pid in before[0]) and time.monotonic() < deadline:  # a JVM takes its time to die
        time.sleep(0.05)
    print("left", cluster.executor_pids(1) == before[1], any(command_of(pid) for pid in before[0]))
    cluster.add_worker()
    cluster.wait_for_workers(2)
    print("again", cluster)
    spark.stop()
    master = cluster.master
print("gone", not any(worker.is_running for worker in cluster.workers))
"""

SMALL_JOB = """
import sys
from pathlib import Path
from ottla.pipelines.spark.session import start_session
from ottla.pipelines.spark.standalone import StandaloneCluster

with StandaloneCluster(Path(sys.argv[1]), workers=1) as cluster:
    spark = start_session("job", cluster.master, settings={"spark.executor.memory": "512m"})
    print("sum", spark.sparkContext.parallelize(range(100), 2).map(lambda number: number + 1).sum())
    spark.stop()
print("gone", not any(worker.is_running for worker in cluster.workers))
"""

ORPHANS = """
import os, sys
from pathlib import Path
from ottla.base.java import Java
from ottla.pipelines.spark.places import Installed
from ottla.pipelines.spark.processes import JavaProcess

process = JavaProcess("sleeper", Path(sys.argv[1], "log"))
process.start(Installed(Path(sys.argv[1]), "4.2.1", "2.13"), Java(Path("/java"), 17, "PATH"), ["600"], {})
print(process.pid, flush=True)
os.kill(os.getpid(), 9)
"""


def test_what_we_have_started_does_not_outlive_us(tmp_path: Path) -> None:
    script = tmp_path / "bin" / "spark-class"
    script.parent.mkdir()
    script.write_text('#!/bin/sh\nsleep "$1"\n')
    script.chmod(0o755)
    done = run_python(ORPHANS, str(tmp_path))
    assert done.returncode == -signal.SIGKILL
    deadline = time.monotonic() + 10
    while Path(f"/proc/{done.stdout.strip()}").exists():
        assert time.monotonic() < deadline
        time.sleep(0.01)


@pytest.mark.faults
def test_a_job_runs_on_a_cluster_of_this_machine(tmp_path: Path) -> None:
    done = run_python(SMALL_JOB, str(tmp_path))
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == ["sum 5050", "gone True"]


@pytest.mark.faults
def test_a_job_survives_the_death_of_a_worker(tmp_path: Path) -> None:
    done = run_python(JOB, str(tmp_path))
    assert done.returncode == 0, done.stderr
    executors, total, left, again, gone = done.stdout.splitlines()
    assert executors == "executors 2"
    assert total == "sum 4950"
    assert left == "left True False"
    assert again.startswith("again StandaloneCluster(spark://127.0.0.1:")
    assert again.endswith("2 of 3 workers)")
    assert gone == "gone True"
