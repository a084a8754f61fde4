"""The Spark on which cases are tried. Here without Spark's own code, so that its Java can be started before that is
imported."""

from __future__ import annotations

from ottla.pipelines.spark.settings import LOCAL_CHECKPOINT

NAME = "trials"
JAVA = "spark.driver.extraJavaOptions"
JAVA_OPTIONS = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"  # the second compiler is for programs that run for hours
# Cases are small: compiling plans and writing them out takes longer than running them. What a pipeline sets goes first.
SETTINGS = {
    "spark.sql.shuffle.partitions": "1",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.maxPlanStringLength": "100",
    "spark.sql.streaming.numRecentProgressUpdates": "10000",  # every batch is counted
}
SETTINGS |= LOCAL_CHECKPOINT
WHOLE = {JAVA: JAVA_OPTIONS, **SETTINGS}
