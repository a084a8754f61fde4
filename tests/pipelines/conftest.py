"""One Spark session for all tests of pipelines: starting it takes longer than most of them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from ottla.pipelines.spark.class_archive import DISABLED, SWITCH
from ottla.pipelines.spark.session import start_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


# Java's second compiler works for programs that run for hours: here it took a third of all processor time. So do plans
# that are compiled to run once (tests that start a Spark of their own have them compiled, as users do), and logs. For
# every file of a checkpoint Hadoop starts a `chmod`: the shortest way to start a program is the best.
JAVA_OPTIONS = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Djdk.lang.Process.launchMechanism=VFORK"
SETTINGS = {
    "spark.sql.shuffle.partitions": "2",
    "spark.driver.extraJavaOptions": JAVA_OPTIONS,
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.maxPlanStringLength": "1000",
    "spark.log.level": "WARN",
}


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    # No archive of classes: the one that this Java would write when it ends costs more than it spares, and no other
    # session asks for it. Tests that start a Spark of their own have theirs.
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(SWITCH, DISABLED)
        session = start_session("tests", master="local[2]", settings=SETTINGS)
    yield session
    session.stop()
