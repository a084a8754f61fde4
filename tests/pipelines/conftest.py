"""One Spark session for all tests of pipelines: starting it takes longer than most of them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from ottla.pipelines.spark.session import start_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


# Java's second compiler works for programs that run for hours: here it took a third of all processor time.
JAVA_OPTIONS = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    settings = {
        "spark.ui.enabled": "false",
        "spark.sql.shuffle.partitions": "2",
        "spark.driver.extraJavaOptions": JAVA_OPTIONS,
    }
    session = start_session("tests", master="local[2]", settings=settings)
    yield session
    session.stop()
