"""A Spark cluster on one machine: a master and workers, each a separate process, from the PySpark that pip installed.

    with StandaloneCluster(folder, workers=2) as cluster:
        spark = start_session("job", cluster.master)

Tests use it to verify that pipelines run on a cluster, including the loss of a worker.
"""

from __future__ import annotations

import itertools
import json
import re
import time
import urllib.request
from pathlib import Path
from typing import NamedTuple, Self

from ottla.base.java import Java
from ottla.pipelines.spark.class_archive import archive_options
from ottla.pipelines.spark.class_path import ClassPath
from ottla.pipelines.spark.java import find_java, option_text
from ottla.pipelines.spark.places import Installed, SparkStartError, find_spark
from ottla.pipelines.spark.processes import HOST, LOOK_SECONDS, READY_SECONDS_MAX, JavaProcess, children_of, command_of

MASTER_AT = re.compile(r"Starting Spark master at (spark://\S+)")
PAGE_AT = re.compile(r"MasterWebUI.*?(http://\S+:\d+)")
REGISTERED = re.compile(r"Successfully registered with master")
EXECUTOR = "CoarseGrainedExecutorBackend"
MEMORY = "256m"  # for the master or worker process; executors have their own


class WorkerSize(NamedTuple):
    """The resources of one worker."""

    cores: int = 1
    memory: str = "1g"


class StandaloneCluster:
    """`folder` holds the logs and the workers' files."""

    def __init__(self, folder: Path, workers: int = 2, size: WorkerSize = WorkerSize()) -> None:  # # noqa: B008 (immutable)
        self.folder = folder
        self.size = size
        self.master = ""  # spark://HOST:PORT while it runs
        self.workers: list[JavaProcess] = []
        self._count = workers
        self._numbers = itertools.count()
        self._page = ""
        self._process = JavaProcess("Spark master", folder / "master.log")
        self._spark: Installed = find_spark()
        self._java: Java = find_java()

    def __repr__(self) -> str:
        alive = sum(worker.is_running for worker in self.workers)
        return f"StandaloneCluster({self.master or 'not running'}, {alive} of {len(self.workers)} workers)"

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_failure: object) -> None:
        self.close()

    def start(self) -> Self:
        """Return when all workers have registered. Raises SparkStartError."""
        self.folder.mkdir(parents=True, exist_ok=True)
        try:
            self._start_master()
            for worker in [self._launch_worker() for _ in range(self._count)]:
                worker.wait_for(REGISTERED)
        except BaseException:
            self.close()
            raise
        return self

    def add_worker(self) -> int:
        """Add a worker; return its number."""
        self._launch_worker().wait_for(REGISTERED)
        return len(self.workers) - 1

    def kill_worker(self, number: int) -> None:
        """kill -9 of the worker and its executors, as in a machine failure."""
        self.workers[number].kill()

    def stop_worker(self, number: int) -> None:
        self.workers[number].stop()

    def executor_pids(self, number: int) -> list[int]:
        """The process ids of a worker's executors."""
        return [pid for pid in children_of(self.workers[number].pid) if EXECUTOR in command_of(pid)]

    def workers_alive(self) -> int:
        """The master's view."""
        return sum(worker["state"] == "ALIVE" for worker in self._state()["workers"])

    def wait_for_workers(self, count: int, seconds_max: float = READY_SECONDS_MAX) -> None:
        deadline = time.monotonic() + seconds_max
        while (alive := self.workers_alive()) != count:
            if time.monotonic() > deadline:
                raise SparkStartError(f"{self.master} has {alive} workers and not {count} after {seconds_max:g} s")
            time.sleep(LOOK_SECONDS)

    def close(self) -> None:
        for worker in self.workers:
            worker.kill()
        self._process.kill()

    def _start_master(self) -> None:
        name = "org.apache.spark.deploy.master.Master"
        self._start(self._process, [name, "--host", HOST, "--port", "0", "--webui-port", "0"])
        self.master = self._process.wait_for(MASTER_AT)[1]
        self._page = self._process.wait_for(PAGE_AT)[1]

    def _launch_worker(self) -> JavaProcess:
        number = next(self._numbers)
        worker = JavaProcess(f"Spark worker {number}", self.folder / f"worker-{number}.log")
        offered = ["--cores", str(self.size.cores), "--memory", self.size.memory]
        places = ["--host", HOST, "--webui-port", "0", "--work-dir", str(self.folder / f"work-{number}")]
        self._start(worker, ["org.apache.spark.deploy.worker.Worker", *offered, *places, self.master])
        self.workers.append(worker)
        return worker

    def _start(self, process: JavaProcess, arguments: list[str]) -> None:
        # Seconds until the master detects a lost worker; Spark's default is 60.
        options = ["-Dspark.worker.timeout=10", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC"]
        options += archive_options(self._java, ClassPath(self._spark), records=False)
        extra = {"SPARK_DAEMON_MEMORY": MEMORY, "SPARK_DAEMON_JAVA_OPTS": option_text(options)}
        process.start(self._spark, self._java, arguments, extra)

    def _state(self) -> dict[str, list[dict[str, str]]]:
        with urllib.request.urlopen(f"{self._page}/json/", timeout=10) as answer:  # # noqa: S310 (our own page)
            found: dict[str, list[dict[str, str]]] = json.load(answer)
            return found
