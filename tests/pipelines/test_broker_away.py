"""An unavailable broker: unsent data is sent when it is back."""

from __future__ import annotations

import time
import uuid
from pathlib import Path
from typing import TYPE_CHECKING

from tests.conftest import Broker, BrokerFactory
from tests.pipelines.running import pipeline_of, produce, read_all, wait_for

from ottla.pipelines.model.pipeline import Pipeline, read_pipeline
from ottla.pipelines.running.following import Following
from ottla.pipelines.running.runner import Runner, RunOptions
from ottla.pipelines.sql.catalog import Catalog
from ottla.pipelines.sql.changes import ChangesQuery
from ottla.pipelines.sql.documents import Head, document_of, starting_at, tables_in
from ottla.pipelines.steps.step_table import STEPS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FILE = """\
name: {name}
bootstrap.servers: {bootstrap}
from: {{topic: {name}-in}}
steps:
  - parse: {{format: json, schema: {{user: string, ms: int}}}}
to: {{sqlite: rows.db, table: rows}}
"""


def made(broker: Broker, folder: Path) -> tuple[str, Pipeline]:
    """Its name, and a pipeline with one good record and one that dies."""
    name = f"away-{uuid.uuid4().hex[:8]}"
    produce(broker.bootstrap, f"{name}-in", [{"user": "a", "ms": 1}, "broken"])
    return name, pipeline_of(FILE.format(name=name, bootstrap=broker.bootstrap), folder)


def test_dead_letters_are_sent_when_the_broker_is_back(
    spark: SparkSession, broker_factory: BrokerFactory, tmp_path: Path
) -> None:
    """It goes when the query has ended and its letters have not been sent."""
    broker = broker_factory()
    name, pipeline = made(broker, tmp_path)
    runner = Runner(pipeline, spark, RunOptions(str(tmp_path), is_once=True))
    runner.start()
    wait_for(lambda: not runner.is_active, "the end of the query")
    broker.stop()
    warnings: list[str] = []
    while not warnings:
        (state,) = runner.poll()
        assert (state.unsent, state.is_active, state.failure) == (1, True, None)
        warnings += state.warnings
    assert "1 dead letter is not sent yet: cannot reach" in warnings[0]
    broker.start()
    while state.is_active:
        (state,) = runner.poll()
        time.sleep(0.1)
    assert (state.unsent, state.failure) == (0, None)
    assert [letter.value for letter in read_all(broker.bootstrap, f"{name}-dead-letters")] == [b"broken"]


def test_a_broker_that_is_away_is_told_and_waited_for(
    spark: SparkSession, broker_factory: BrokerFactory, tmp_path: Path
) -> None:
    broker = broker_factory()
    name, pipeline = made(broker, tmp_path)
    runner = Runner(pipeline, spark, RunOptions(str(tmp_path)))
    runner.start()
    following = Following(runner, ["main"])

    def is_done(rows: int) -> bool:
        following.poll()
        now = following.snapshots[0]
        assert now.error is None
        return (now.rows, now.unsent, now.doing) == (rows, 0, "")

    try:
        wait_for(lambda: is_done(2), "the batch and its letter")
        broker.stop()
        wait_for(lambda: bool(following.poll()) or following.snapshots[0].doing.startswith("broker away"), "word of it")
        broker.start()
        produce(broker.bootstrap, f"{name}-in", [{"user": "b", "ms": 2}])
        wait_for(lambda: is_done(3), "the next batch")
        assert "main: the broker takes no connection; waiting for it" in following.warnings
    finally:
        runner.stop(grace_seconds=1)


def test_a_query_over_what_comes_tells_that_the_broker_is_away_and_misses_nothing(
    spark: SparkSession, broker_factory: BrokerFactory
) -> None:
    broker = broker_factory()
    topic = f"away_{uuid.uuid4().hex[:8]}"
    produce(broker.bootstrap, topic, [{"id": number} for number in range(3)])
    head = Head(broker.bootstrap)
    catalog = Catalog(head)
    query, names = tables_in(f"SELECT id FROM {topic}", catalog.names())
    tables = {name: starting_at(catalog.table(name), "earliest") for name in names}
    running = ChangesQuery(spark, read_pipeline(document_of(query, tables, head), STEPS, "."), False)
    rows: list[int] = []
    remarks: list[str] = []
    try:
        for batch in running.batches():
            rows += [row["id"] for row in batch.rows]
            remarks += [batch.remark] if batch.remark else []
            if len(rows) == 3 and broker.is_running and not remarks:
                broker.kill9()
            elif remarks and not broker.is_running:
                broker.start()
                produce(broker.bootstrap, topic, [{"id": number} for number in range(3, 6)])
            elif len(rows) >= 6 and len(remarks) >= 2:
                break
    finally:
        running.cancel()
    assert sorted(rows) == list(range(6))
    assert remarks[0].startswith("broker away since ")
    assert remarks[0].endswith(" UTC, waiting")
    assert remarks[1].startswith("broker back after ")
