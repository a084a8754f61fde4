"""A small query beside the start of a pipeline: what the first batch needs of Spark is then loaded and has run once.

A first batch costs seconds of processor time in which Spark initialises its optimizer, its compiler of generated code,
its scheduler and its writer of files. Meanwhile, before that batch, one core has nothing to do: there the same is done
with two made-up rows. Nothing waits for it, and if it fails nobody needs to know.
"""

from __future__ import annotations

import tempfile
import threading
from contextlib import suppress
from typing import TYPE_CHECKING

from ottla.pipelines.spark.masters import runs_here

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# What most pipelines do: read JSON, judge it, count by a window and a key.
QUERY = """
SELECT window.start AS start, key, count(1) AS n
FROM (
  SELECT read.key AS key, try_cast(read.at AS timestamp) AS at
  FROM (
    SELECT from_json(concat('{"key":"', id, '","at":"2026-01-01T00:00:0', id, 'Z"}'), 'key string, at string') AS read
    FROM range(0, 2, 1, 1)
  )
  WHERE read.key IS NOT NULL
)
GROUP BY window(at, '1 minute'), key
"""


def warm_up(spark: SparkSession) -> None:
    """Returns at once. Only on this machine: elsewhere there may be no core to spare."""
    if not runs_here(spark):
        return
    threading.Thread(target=_run, args=(spark,), name="warm-up", daemon=True).start()


def _run(spark: SparkSession) -> None:
    with (
        suppress(Exception),  # whatever it is, the pipeline meets it as well, or it is over before
        tempfile.TemporaryDirectory(prefix="ottla-warm-", ignore_cleanup_errors=True) as folder,
    ):
        session = spark.newSession()
        session.conf.set("spark.sql.adaptive.enabled", "false")  # as for streams with state
        session.sql(QUERY).write.parquet(f"file://{folder}/rows")
