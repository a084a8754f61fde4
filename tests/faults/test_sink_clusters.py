"""The same on clusters: executors that die on a standalone cluster, and Spark Connect."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.faults.sink_rounds import Round
from tests.pipelines.processes import run_python
from tests.pipelines.sink_helpers import committed, new_topic

from ottla.pipelines.spark.standalone import StandaloneCluster

pytestmark = pytest.mark.faults

EXECUTORS = {"spark.executor.memory": "512m", "spark.executor.cores": "1", "spark.driver.host": "127.0.0.1"}
CONNECT = """
import sqlite3, sys
from pathlib import Path
from ottla.pipelines.sinks.database import sqlite_table
from ottla.pipelines.sinks.files import parquet_files
from ottla.pipelines.sinks.topic import at_least_once_topic, exactly_once_topic
from ottla.pipelines.spark.connect_server import ConnectServer
from ottla.pipelines.spark.session import start_session

folder, bootstrap, first, second = sys.argv[1:]
with ConnectServer(Path(folder) / "server") as server:
    spark = start_session("job", server.master)
    spark.range(0, 20000, 1, 4).selectExpr("id", "id % 3 as kind").write.json(f"{folder}/in/1")
    stream = spark.readStream.schema("id long, kind long").json(f"{folder}/in/*")
    def run(name, write):
        writer = stream.writeStream.foreachBatch(write).option("checkpointLocation", f"{folder}/{name}")
        query = writer.trigger(availableNow=True).start()
        query.awaitTermination()
    run("a", exactly_once_topic(first, bootstrap_servers=bootstrap, query=first, folder=f"{folder}/a-pinned"))
    run("b", at_least_once_topic(second, bootstrap_servers=bootstrap))
    run("c", sqlite_table(f"{folder}/rows.db", "rows", query="c", folder=f"{folder}/c-pinned"))
    run("d", parquet_files(f"{folder}/files", query="d", folder=f"{folder}/d-pinned"))
    print(sqlite3.connect(f"{folder}/rows.db").execute("SELECT count(*), sum(id) FROM rows").fetchone())
    print(spark.read.parquet(f"{folder}/files").count())
    spark.stop()
"""


def test_executors_and_drivers_of_a_standalone_cluster_die(bootstrap: str, tmp_path: Path) -> None:
    run = Round(bootstrap, tmp_path, batches=4)
    deaths = [(1, "executor"), (2, "executor"), (2, "some committed"), (3, "publishing")]
    with StandaloneCluster(tmp_path / "cluster", workers=2) as cluster:
        plan = run.plan(deaths, master=cluster.master, settings=EXECUTORS)
        assert run.run(plan, starts_max=3) == 3
    run.assert_exactly_once()


def test_sinks_work_on_a_spark_connect_server(bootstrap: str, tmp_path: Path) -> None:
    first, second = new_topic(bootstrap), new_topic(bootstrap)
    done = run_python(CONNECT, str(tmp_path), bootstrap, first, second)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [str((20000, sum(range(20000)))), "20000"]
    for topic in (first, second):
        found = sorted(json.loads(message.value())["id"] for message in committed(bootstrap, topic))
        assert found == list(range(20000))
