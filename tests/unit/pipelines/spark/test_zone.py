"""Times are UTC on a machine of any zone."""

import os
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any, cast

import pytest
from pyspark.sql.types import LongType, StructField, StructType

from ottla.cli.pipelines.early import early_java
from ottla.pipelines.model.row_order import TIME_MICROS
from ottla.pipelines.spark.settings import STARTING
from ottla.pipelines.steps.event_time_buffer import EventTimeBuffer
from ottla.pipelines.steps.join_tables import _convert_row

ELSEWHERE = "America/New_York"


@pytest.fixture
def elsewhere(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    with monkeypatch.context() as patch:
        patch.setenv("TZ", ELSEWHERE)
        time.tzset()
        yield
    time.tzset()


def local_hour() -> int:
    return datetime.fromtimestamp(0).hour  # noqa: DTZ006 (as Spark does it)


@pytest.mark.usefixtures("elsewhere")
def test_a_command_that_starts_spark_is_in_utc_and_so_are_workers_of_any_session() -> None:
    assert local_hour() == 19
    with early_java(None):
        assert (local_hour(), os.environ["TZ"]) == (0, "UTC")
    assert (local_hour(), os.environ["TZ"]) == (19, ELSEWHERE)
    assert STARTING["spark.executorEnv.TZ"] == "UTC"


@pytest.mark.usefixtures("elsewhere")
def test_rows_that_are_held_come_back_from_the_state_in_utc() -> None:
    buffer = EventTimeBuffer([TIME_MICROS], StructType([StructField(TIME_MICROS, LongType())]))
    buffer.init(cast("Any", SimpleNamespace(getListState=lambda *_: None)))
    assert local_hour() == 0


def test_a_time_without_zone_in_a_table_of_a_database_is_utc() -> None:
    naive = datetime(2026, 11, 1, 5, 30)  # noqa: DTZ001 (as PostgreSQL gives it)
    assert _convert_row((naive, "x"), ["timestamp", "string"]) == (naive.replace(tzinfo=UTC), "x")
