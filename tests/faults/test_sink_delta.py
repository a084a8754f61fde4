"""A Delta table gets each batch once, also of a query with state; Delta's jars are fetched once and kept."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.pipelines.processes import run_python

pytestmark = pytest.mark.faults

JOB = """
import os, sys
from ottla.pipelines.sinks.batch import ForeachBatch
from ottla.pipelines.sinks.files import DeltaSink
from ottla.pipelines.spark.session import start_session

folder = sys.argv[1]
spark = start_session("job", "local[2]", packages=["delta"], settings={"spark.sql.shuffle.partitions": "2"})
spark.range(0, 100, 1, 2).selectExpr("id", "id % 3 as kind").write.json(f"{folder}/in/1")
stream = spark.readStream.schema("id long, kind long").json(f"{folder}/in/*").groupBy("kind").count()

def run():
    write = ForeachBatch(DeltaSink(f"{folder}/table"), "q", f"{folder}/pinned")
    writer = stream.writeStream.outputMode("update").foreachBatch(write)
    writer.option("checkpointLocation", f"{folder}/state").trigger(availableNow=True).start().awaitTermination()
    return sorted((row.kind, row["count"]) for row in spark.read.format("delta").load(f"{folder}/table").collect())

print(run())
for path in ("commits/0", "commits/.0.crc"):  # as if the driver had died between the table's commit and Spark's
    os.remove(f"{folder}/state/{path}")
print(run())
spark.stop()
"""


def test_a_batch_that_comes_again_is_in_the_table_once(tmp_path: Path) -> None:
    done = run_python(JOB, str(tmp_path))
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout.splitlines() == ["[(0, 34), (1, 33), (2, 33)]"] * 2
