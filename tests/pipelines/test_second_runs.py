"""A pipeline that runs twice at the same time, and a batch that runs twice: the results are consistent."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
import uuid
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.pipelines.random.failing import failing
from tests.pipelines.running import LOOK_SECONDS, pipeline_of, produce, run_once, wait_for
from tests.pipelines.sink_helpers import new_topic

from ottla.pipelines import pipeline, topic
from ottla.pipelines.python_api import WrittenPipeline
from ottla.pipelines.running.status import AlreadyRunningError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FILE = """\
name: {name}
bootstrap.servers: {bootstrap}
from: {{topic: {topic}}}
steps:
  - parse: {{format: json, schema: {{id: long}}}}
  - {step}
output: update
to:
  - {{sqlite: {folder}/one.db, table: rows, create: true}}
  - {{sqlite: {folder}/two.db, table: rows, create: true}}
"""
CODE = """\
import uuid


def by_row(row):
    return {**row, "mark": str(uuid.uuid4())}


def by_batch(rows):
    return rows.assign(mark=[str(uuid.uuid4()) for _ in range(len(rows))])


def by_frame(rows):
    from pyspark.sql import functions as F  # noqa: N812, PLC0415

    return rows.withColumn("mark", F.expr("uuid()"))

"""
SCHEMA = "schema: {id: long, mark: string}"
STEPS = {
    "row": f"python: {{function: 'own:by_row', each: row, {SCHEMA}}}",
    "batch": f"python: {{function: 'own:by_batch', each: batch, {SCHEMA}}}",
    "frame": "python: {function: 'own:by_frame'}",
}


@pytest.mark.parametrize("kind", STEPS)
def test_two_sinks_get_the_same_values_of_own_code_after_a_crash_between_them(
    spark: SparkSession, bootstrap: str, tmp_path: Path, kind: str
) -> None:
    (tmp_path / "own.py").write_text(CODE)
    source = new_topic(bootstrap, 2)
    produce(bootstrap, source, [{"id": n} for n in range(20)])
    name = f"twice-{uuid.uuid4().hex[:8]}"
    text = FILE.format(name=name, bootstrap=bootstrap, topic=source, step=STEPS[kind], folder=tmp_path)
    found = pipeline_of(text, tmp_path)
    with failing("before: a sink gets its rows", 2), pytest.raises(AssertionError, match="lets it die"):
        run_once(spark, found, tmp_path / "state")
    assert len(marks(tmp_path / "one.db")) == 20
    run_once(spark, found, tmp_path / "state")
    assert marks(tmp_path / "one.db") == marks(tmp_path / "two.db")
    assert len(marks(tmp_path / "two.db")) == 20


def test_rows_that_were_pinned_with_other_columns_are_not_read_as_nulls(
    spark: SparkSession, bootstrap: str, tmp_path: Path
) -> None:
    (tmp_path / "own.py").write_text(CODE)
    source = new_topic(bootstrap, 1)
    produce(bootstrap, source, [{"id": n} for n in range(3)])
    name = f"twice-{uuid.uuid4().hex[:8]}"
    text = FILE.format(name=name, bootstrap=bootstrap, topic=source, step=STEPS["row"], folder=tmp_path)
    with failing("before: a sink gets its rows", 2), pytest.raises(AssertionError, match="lets it die"):
        run_once(spark, pipeline_of(text, tmp_path), tmp_path / "state")
    changed = text.replace("output:", "  - derive: {more: id + 1}\noutput:")
    with pytest.raises(AssertionError, match=r"batch 0 was started with other columns .* run the unchanged file"):
        run_once(spark, pipeline_of(changed, tmp_path), tmp_path / "state")
    run_once(spark, pipeline_of(text, tmp_path), tmp_path / "state")
    assert marks(tmp_path / "one.db") == marks(tmp_path / "two.db")


def marks(file: Path) -> list[str]:
    with sqlite3.connect(file) as database:
        return sorted(mark for (mark,) in database.execute("SELECT mark FROM rows"))


@pytest.fixture
def written(bootstrap: str, tmp_path: Path) -> WrittenPipeline:
    source = new_topic(bootstrap, 1)
    produce(bootstrap, source, [{"id": 1}])
    rows = topic(source).parse(format="json", schema={"id": "long"}).to(parquet=str(tmp_path / "rows")).named("rows")
    made = pipeline(f"twice-{uuid.uuid4().hex[:8]}", rows, bootstrap_servers=bootstrap)
    made.file = str(tmp_path / "pipeline.py")
    Path(made.file).touch()
    return made


def test_a_second_run_in_a_notebook_is_refused(spark: SparkSession, written: WrittenPipeline, tmp_path: Path) -> None:
    state = str(tmp_path / "state")
    running = written.start(spark, state)
    try:
        for second in (lambda: written.start(spark, state), lambda: written.run(spark, state)):
            with pytest.raises(AlreadyRunningError, match="already run by process"):
                second()
        again = [sys.executable, "-m", "ottla.cli.main", "pipeline", "reset", command_file(written, tmp_path)]
        done = subprocess.run([*again, "--state", state, "--yes"], capture_output=True, text=True, check=False)
        assert (done.returncode, "already run by process" in done.stderr) == (1, True), done
    finally:
        running.stop()
    once = written.start(spark, state, once=True)
    wait_for(lambda: not any(each.is_active for each in once.poll()), "the end of the run", LOOK_SECONDS * 5_000)
    written.run(spark, state)


def test_a_run_in_a_notebook_that_cannot_start_gives_the_lock_back(
    spark: SparkSession, written: WrittenPipeline, tmp_path: Path
) -> None:
    state = str(tmp_path / "state")
    written.document["bootstrap_servers"] = "127.0.0.1:1"
    for _ in range(2):
        with pytest.raises(Exception) as refused:
            written.start(spark, state)
        assert not isinstance(refused.value, AlreadyRunningError)


def command_file(written: WrittenPipeline, folder: Path) -> str:
    file = folder / "p.yaml"
    file.write_text(f"name: {written.document['name']}\nfrom: {{topic: x}}\nto: console\n")
    return str(file)
