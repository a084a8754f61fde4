"""A Spark driver that dies at a given step: a window count over a join, exactly once into a topic.

`python sink_driver.py PLAN.json`. A death is `{"batch": 2, "point": "after staging"}`; each happens once, because it
is noted in the folder before. Points:

  before staging, after staging   the driver, before and after the rows of the batch are pinned
  publishing                      driver and JVM, by a worker in the middle of a transaction
  worker                          that worker alone
  executor                        that worker and the JVM that it works for (only on a cluster: else it is the driver's)
  some committed                  driver and JVM, by a worker after its own commit
  all committed, released         the driver, before and after the pinned rows are given up, before Spark's own commit
  zombie                          as publishing, but the worker lives on and finishes when it is told to resume
  late zombie                     the same with a worker that has not yet begun its transaction
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pyspark import cloudpickle
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812

from ottla.pipelines.sinks import staging, topic
from ottla.pipelines.sinks.batch import ForeachBatch
from ottla.pipelines.sinks.file_publisher import PublishFile, TransactionalPublisher
from ottla.pipelines.sinks.staging import LocalStaging
from ottla.pipelines.sinks.topic import exactly_once_topic
from ottla.pipelines.source import register
from ottla.pipelines.spark.class_archive import archive_options
from ottla.pipelines.spark.class_path import ClassPath
from ottla.pipelines.spark.java import find_java, option_text
from ottla.pipelines.spark.places import find_spark

EVENT = "user int, page string, at timestamp"
ZOMBIE_SECONDS_MAX = 300.0
# It lives for seconds: what makes a JVM fast in the long run is not worth its start.
JAVA_OPTIONS = "spark.driver.extraJavaOptions"
SETTINGS = {
    JAVA_OPTIONS: "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.shuffle.partitions": "2",
    "spark.ui.showConsoleProgress": "false",
    "spark.python.sql.dataFrameDebugging.enabled": "false",
}


@dataclass(frozen=True)
class Death:
    """Dies once, when the right batch comes to the right point."""

    folder: str
    batch: int
    point: str
    processes: tuple[int, ...]

    def comes(self, batch: int, point: str) -> bool:
        if (batch, point) != (self.batch, self.point):
            return False
        try:
            os.close(os.open(f"{self.folder}/death-{self.batch}-{self.point}", os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            return False
        return True

    def strike(self) -> None:
        for process in self.processes:
            os.kill(process, signal.SIGKILL)

    def wait_for_resume(self) -> None:
        signal.signal(signal.SIGHUP, signal.SIG_IGN)  # Spark's daemon takes its workers along
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        deadline = time.monotonic() + ZOMBIE_SECONDS_MAX
        while not Path(f"{self.folder}/resume").exists() and time.monotonic() < deadline:
            time.sleep(0.05)

    def tell(self, what: str) -> None:
        with Path(f"{self.folder}/zombie").open("a") as file:
            file.write(f"{self.point}: {what}\n")


class Deaths(list[Death]):
    def strike_if(self, batch: int, point: str) -> None:
        for death in self:
            if death.comes(batch, point):
                death.strike()
                time.sleep(60)


@dataclass(frozen=True)
class DyingPublishFile(PublishFile):
    """Goes to the workers in the place of the real one."""

    deaths: Deaths
    has_markers: bool

    def __call__(self, number: int, batches: Callable[[], Iterator[Any]]) -> Iterator[Any]:
        batch = self.tasks[number].recorded.batch_id
        if not self.has_markers:
            forget_markers()
        zombie = self._late(batch) if number == 0 else None
        try:
            results = list(super().__call__(number, lambda: self._dying(batch, number, batches)))
            outcome = results[0].to_pylist()[0]["what"]
        except BaseException as problem:
            self._tell(batch, zombie, f"{type(problem).__name__} {problem}")
            raise
        self._tell(batch, zombie, outcome)
        if number == 0:
            self.deaths.strike_if(batch, "some committed")
        yield from results

    def _late(self, batch: int) -> Death | None:
        for death in self.deaths:
            if death.comes(batch, "late zombie"):
                death.strike()
                death.wait_for_resume()
                return death
        return None

    def _dying(self, batch: int, number: int, batches: Callable[[], Iterator[Any]]) -> Iterator[Any]:
        for index, rows in enumerate(batches()):
            yield rows
            if number == 1 and index == 0:
                time.sleep(0.3)  # so that something is on its way to the broker
                self._die(batch)

    def _die(self, batch: int) -> None:
        self.deaths.strike_if(batch, "publishing")
        for death in self.deaths:
            if death.comes(batch, "executor"):
                os.kill(parent(parent(os.getpid())), signal.SIGKILL)  # between them is Spark's daemon
                os.kill(os.getpid(), signal.SIGKILL)
            if death.comes(batch, "worker"):
                os.kill(os.getpid(), signal.SIGKILL)
            if death.comes(batch, "zombie"):
                death.strike()
                death.wait_for_resume()
                Path(f"{death.folder}/awake").touch()

    def _tell(self, batch: int, late: Death | None, what: str) -> None:
        awake = [death for death in self.deaths if death.point == "zombie" and Path(f"{death.folder}/awake").exists()]
        for death in [late] if late else awake:
            if death.batch == batch:
                death.tell(what)


def parent(process: int) -> int:
    return int(Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[1])


def forget_markers() -> None:
    """What happens without them."""
    TransactionalPublisher._read_marker = lambda self, settings, work: None  # type: ignore[method-assign]


def plan_deaths(plan: dict[str, Any], processes: tuple[int, ...]) -> Deaths:
    return Deaths(Death(plan["folder"], each["batch"], each["point"], processes) for each in plan["deaths"])


def die_in_driver(deaths: Deaths) -> None:
    pin, release = LocalStaging.pin, LocalStaging.release

    def dying_pin(self: LocalStaging, rows: Any, batch_id: int) -> Any:
        deaths.strike_if(batch_id, "before staging")
        staged = pin(self, rows, batch_id)
        deaths.strike_if(batch_id, "after staging")
        return staged

    def dying_release(self: LocalStaging, staged: Any) -> None:
        deaths.strike_if(staged.batch_id, "all committed")
        release(self, staged)
        deaths.strike_if(staged.batch_id, "released")

    LocalStaging.pin = dying_pin  # type: ignore[method-assign]
    LocalStaging.release = dying_release  # type: ignore[method-assign]


def result(spark: SparkSession, plan: dict[str, Any]) -> Any:
    events = spark.readStream.format("ottla").option("kafka.bootstrap.servers", plan["bootstrap"])
    events = events.option("subscribe", plan["source"]).option("startingOffsets", "earliest")
    events = events.option("maxOffsetsPerTrigger", str(plan["per_batch"])).load()
    rows = events.select(F.from_json(F.col("value").cast("string"), EVENT).alias("e")).select("e.*")
    users = spark.createDataFrame(
        [(int(user), country) for user, country in plan["users"].items()], "user int, country string"
    )
    joined = rows.withWatermark("at", "1 second").join(users.hint("shuffle_hash"), "user")
    windows = joined.groupBy(F.window("at", "1 second"), "page", "country").count()
    return windows.select(F.unix_seconds("window.start").alias("second"), "page", "country", "count")


@dataclass(frozen=True)
class Shuffled:
    """Every run gives the rows to other tasks, in another order: what a replay after a shuffle may do."""

    write: ForeachBatch

    def __call__(self, rows: Any, batch_id: int) -> None:
        self.write(rows.repartition(4, F.rand()), batch_id)


def main() -> None:
    plan = json.loads(Path(sys.argv[1]).read_text())
    cloudpickle.register_pickle_by_value(sys.modules[__name__])
    builder = SparkSession.builder.master(plan.get("master", "local[2]")).config("spark.ui.enabled", "false")
    archived = option_text(archive_options(find_java(), ClassPath(find_spark()), records=False))
    options = {JAVA_OPTIONS: f"{SETTINGS[JAVA_OPTIONS]} {archived}"}
    settings = {**SETTINGS, **options, **plan.get("settings", {})}
    for name, value in settings.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    machine = int(spark._jvm.java.lang.ProcessHandle.current().pid())  # type: ignore[union-attr]
    deaths = plan_deaths(plan, (machine, os.getpid()))
    die_in_driver(deaths)
    topic.PublishFile = lambda settings, works: DyingPublishFile(settings, works, deaths, plan["has_markers"])  # type: ignore[assignment,misc]
    if not plan.get("in_driver"):
        staging.DRIVER_BYTES_MAX = -1  # these batches are small: tasks have to publish them all the same
    register(spark)
    folder = f"{plan['folder']}/pinned"
    options = {"transaction_timeout_seconds": 60.0}
    write = exactly_once_topic(
        plan["target"], bootstrap_servers=plan["bootstrap"], query=plan["query"], folder=folder, **options
    )
    query = result(spark, plan).writeStream.foreachBatch(Shuffled(write)).trigger(availableNow=True)
    query.option("checkpointLocation", f"{plan['folder']}/checkpoint").start().awaitTermination()
    spark.stop()


if __name__ == "__main__":
    main()
