"""Spark settings of trials. Separate from Spark's own code, so that its Java can start before PySpark is imported."""

from __future__ import annotations

from ottla.pipelines.spark.settings import LOCAL_CHECKPOINT

NAME = "trials"
JAVA = "spark.driver.extraJavaOptions"
JAVA_OPTIONS = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"  # the second compiler is for long-running programs
# Cases are small: generating code and formatting plans takes longer than running them. Pipeline settings override
# these.
SETTINGS = {
    "spark.sql.shuffle.partitions": "1",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.maxPlanStringLength": "100",
    "spark.sql.streaming.numRecentProgressUpdates": "10000",  # every batch is counted
}
SETTINGS |= LOCAL_CHECKPOINT
ALL_SETTINGS = {JAVA: JAVA_OPTIONS, **SETTINGS}
