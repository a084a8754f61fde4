"""The first Spark of a new installation, alone: its Java leaves an archive of the classes that it has loaded.

Else the sessions of all tests begin at the same time, none of them finds an archive, each loads its classes one by one
and writes an archive of its own when it ends. `make install` runs this while the other core compiles.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))  # as tests/conftest.py does

from pyspark.core.context import SparkContext

from ottla.pipelines.spark.launch import end_java
from ottla.pipelines.spark.session import start_session
from ottla.testing import broker
from pipelines.conftest import SETTINGS
from pipelines.running import pipeline_of, produce, run_batch, run_once

END_SECONDS_MAX = 300
TEXT = """\
name: first
bootstrap.servers: {bootstrap}
streams:
  rows:
    from: {topic: first-in}
    steps:
      - parse: {format: json, schema: {n: long, second: int}}
      - filter: {where: "n >= 0"}
      - derive: {at: timestamp_seconds(1767225600 + second)}
      - watermark: {time: at, delay: 5 seconds}
  plain:
    from: rows
    to: [{topic: first-out, key: n}, {parquet: rows}]
  windows:
    from: rows
    steps: [{deduplicate: {by: [n]}}, {window: {size: 10 seconds, count: rows}}]
    to: {sqlite: first.db, table: windows}
  pairs:
    from: rows
    steps: [{join: {with_stream: rows, on: [n], within: 5 seconds}}]
    to: {sqlite: first.db, table: pairs}
"""


def main() -> None:
    with broker() as kafka, tempfile.TemporaryDirectory() as folder:
        records = [*({"n": n, "second": n} for n in range(100)), "no JSON"]
        produce(kafka.bootstrap_servers, "first-in", records)
        pipeline = pipeline_of(TEXT.replace("{bootstrap}", kafka.bootstrap_servers), folder)
        spark = start_session("first", "local[2]", settings=SETTINGS, on_step=print)
        assert SparkContext._gateway is not None
        java = SparkContext._gateway.proc
        run_once(spark, pipeline, Path(folder) / "state")
        run_batch(spark, pipeline, Path(folder) / "batch")
        spark.stop()
        end_java()
        java.wait(END_SECONDS_MAX)


if __name__ == "__main__":
    main()
