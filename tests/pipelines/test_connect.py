"""Spark Connect: a local session on a remote Spark."""

from __future__ import annotations

from pathlib import Path

from tests.pipelines.processes import run_python

JOB = """
import sys, time
from pathlib import Path
from ottla.pipelines.spark.connect_server import ConnectServer
from ottla.pipelines.spark.session import start_session

folder = Path(sys.argv[1])
with ConnectServer(folder / "server") as server:
    spark = start_session("job", server.master, settings={"spark.driver.memory": "1g"})
    from pyspark.sql import functions as F  # noqa: N812, PLC0415
    print("kind", type(spark).__module__, spark.conf.get("spark.sql.session.timeZone"))
    print("sum", spark.range(100).agg(F.sum("id")).first()[0])
    (folder / "in").mkdir()
    (folder / "in" / "one.txt").write_text("first\\nsecond\\n")
    writer = spark.readStream.text(str(folder / "in")).writeStream.option("checkpointLocation", str(folder / "state"))
    def keep(rows, number, out=str(folder / "out")):
        rows.write.mode("append").parquet(out)
    query = writer.foreachBatch(keep).trigger(availableNow=True).start()
    query.awaitTermination(120)
    print("rows", sorted(row.value for row in spark.read.parquet(str(folder / "out")).collect()))
    spark.stop()
"""


def test_a_stream_runs_on_a_spark_connect_server(tmp_path: Path) -> None:
    done = run_python(JOB, str(tmp_path))
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [
        "kind pyspark.sql.connect.session UTC",
        "sum 4950",
        "rows ['first', 'second']",
    ]
