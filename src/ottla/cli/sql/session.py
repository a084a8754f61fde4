"""A session of `ottla sql`, which executes one statement after another.

Rules:
1. A statement that cannot be executed raises StatementError: one sentence, with line and column if known, and an exit
   code that distinguishes a wrong statement from a failure during its execution.
2. Spark starts with the first statement that needs it, or earlier in the background; SHOW and DESCRIBE never wait for
   it.
3. Unreadable records are reported after each result and end the session with exit code 1: an incomplete result must not
   look complete. `unreadable = 'skip'` in a table's declaration allows it.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from py4j.protocol import Py4JError, Py4JJavaError
from pyspark.errors import AnalysisException, PySparkException

from ottla.base.text import format_count
from ottla.cli.sql import pipelines
from ottla.cli.sql.output import Output
from ottla.cli.sql.problems import StatementError, exit_code_of, unknown_table, words_of
from ottla.cli.terminal import EXIT_FAILED, EXIT_USAGE, is_terminal, warn
from ottla.client.errors import ClientError
from ottla.operations.pipeline_runs.statuses import list_runs
from ottla.pipelines.expressions.problems import SqlError
from ottla.pipelines.expressions.query import Query
from ottla.pipelines.model.pipeline import Pipeline, read_pipeline
from ottla.pipelines.model.problems import PipelineError
from ottla.pipelines.running.builder import Builder
from ottla.pipelines.running.failures import first_cause
from ottla.pipelines.running.problem_location import plain_words, spark_places
from ottla.pipelines.running.source_options import starting_options
from ottla.pipelines.source.data_loss import SourceError
from ottla.pipelines.sql import statements as s
from ottla.pipelines.sql.catalog import Catalog
from ottla.pipelines.sql.changes import ChangesQuery
from ottla.pipelines.sql.documents import (
    RESULT,
    Head,
    check_comparisons,
    document_of,
    late_words,
    output_of,
    starting_at,
    tables_in,
    without_limit,
)
from ottla.pipelines.sql.execution import HistoryQuery, QueryFailedError, RunningQuery, check_values
from ottla.pipelines.sql.stream_limits import output_mode, with_cure
from ottla.pipelines.sql.tables import RECORD_TYPES, Table
from ottla.pipelines.steps.step_table import STEPS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

WARMING_TOPICS_MAX = 3
SETTINGS = {"auto.offset.reset": "latest"}
HELP = """\
SELECT … FROM topic …;                  over the existing records
SELECT … FROM topic … EMIT CHANGES;     over new records; Ctrl-C ends it
CREATE TABLE t (id BIGINT, at TIMESTAMP) WITH (topic = 't', format = 'json', event_time = 'at');
CREATE PIPELINE p AS SELECT … INTO TOPIC t;
SHOW TABLES; SHOW TOPICS; SHOW PIPELINES; DESCRIBE t; EXPLAIN SELECT …; DROP TABLE t;
SET 'auto.offset.reset' = 'earliest';   where EMIT CHANGES begins
QUIT;                                   or Ctrl-D"""


class Session:
    def __init__(self, head: Head, output: Output, start: Any, state: Path, starting: str | None = None) -> None:
        self.head = head
        self.output = output
        self.start = start  # () -> SparkSession; raises ToolError
        self.state = state
        self.catalog = Catalog(head)
        self.roots: tuple[str, ...] = ()  # folders of readable files in addition to the working directory
        self.settings = dict(SETTINGS) | ({"auto.offset.reset": starting} if starting else {})
        self.has_losses = False
        self.is_ended = False
        self._spark: Future[SparkSession] | None = None

    def __repr__(self) -> str:
        return f"<Session {self.head.bootstrap}>"

    # Spark

    def begin(self, is_warming: bool = False) -> None:
        """Start Spark in a background thread, which also keeps its signal handlers out of this one."""
        if self._spark is None:
            self._spark = Future()
            threading.Thread(target=self._begin, args=(is_warming,), name="start of Spark", daemon=True).start()

    def _begin(self, is_warming: bool) -> None:
        assert self._spark is not None
        try:
            self._spark.set_result(self.start())
        except BaseException as problem:  # noqa: BLE001 (reported to the waiting statement)
            self._spark.set_exception(problem)
            return
        if is_warming:
            with suppress(Exception):  # only speeds up the user's first query
                self._warm_up()

    def _warm_up(self) -> None:
        """Read one row of any topic while the user types: Java loads thousands of classes for the first query."""
        for topic in list(self.catalog.topics())[:WARMING_TOPICS_MAX]:  # some topics may be unreadable
            with suppress(SqlError):
                query, tables = tables_in(f"SELECT 1 AS one FROM `{topic}`", [topic])  # noqa: S608 (the name is checked)
                found = {name: Catalog(self.head).table(name) for name in tables}
                pipeline = self._pipeline(document_of(query, found, self.head))
                list(HistoryQuery(self.spark, pipeline, 1).batches())
                return

    @property
    def spark(self) -> SparkSession:
        """The Spark session. Raises ToolError."""
        self.begin()
        assert self._spark is not None
        return self._spark.result()

    @property
    def started(self) -> SparkSession | None:
        """The Spark session to stop at the end."""
        if self._spark is None:
            return None
        try:
            return self._spark.result()
        except Exception:  # noqa: BLE001 (already reported)
            return None

    # statements

    def run(self, text: str) -> None:
        """Execute a statement. Raises StatementError, ToolError, KeyboardInterrupt."""
        try:
            self._run(s.read_statement(text))
        except SqlError as problem:
            raise StatementError(f"the statement {problem}", problem.at) from None
        except (SourceError, ClientError) as problem:
            raise StatementError(str(problem), code=EXIT_FAILED) from None
        except PipelineError as wrong:
            raise StatementError(words_of(wrong)) from None
        except (PySparkException, Py4JError) as problem:  # Spark only parsed the text
            code = EXIT_USAGE if isinstance(problem, PySparkException | Py4JJavaError) else EXIT_FAILED
            raise StatementError(first_cause(str(problem)), code=code) from None

    def _run(self, statement: s.Statement) -> None:
        match statement:
            case s.Select():
                self._select(statement)
            case s.Explain():
                self._explain(statement.select)
            case s.CreateTable():
                self._create_table(statement)
            case s.CreatePipeline():
                self._create_pipeline(statement)
            case s.DropTable():
                self.catalog.drop(statement.name, statement.if_exists)
            case s.Show():
                self._show(statement.what)
            case s.Describe():
                self._describe(self.catalog.table(statement.name))
            case s.SetOption():
                self._set(statement)
            case s.Help():
                print(HELP)
            case s.Quit():
                self.is_ended = True

    # queries

    def _select(self, select: s.Select) -> None:
        rows_max: int | None = None
        if not select.is_continuous:
            text, rows_max = without_limit(select.text)
            select = replace(select, text=text)
        query, tables = self._tables(select)
        running: RunningQuery
        if select.is_continuous:
            self._check_continuous(tables)
            starting = self.settings["auto.offset.reset"]
            tables = {name: starting_at(table, starting) for name, table in tables.items()}
            pipeline = self._pipeline(document_of(query, tables, self.head))
            running = ChangesQuery(self.spark, pipeline, self.output.is_whole)
        else:
            pipeline = self._pipeline(document_of(query, tables, self.head))
            running = HistoryQuery(self.spark, pipeline, rows_max)
        try:
            self._follow(running, select)
        except QueryFailedError as problem:
            at = self._place(query, select, problem.problem)
            raise StatementError(str(problem), at, exit_code_of(problem)) from None
        except PipelineError as wrong:
            at = self._place(query, select, wrong.__cause__)
            raise StatementError(with_cure(words_of(wrong)), at) from None
        self._tell_losses(running, query, list(tables.values()))

    def _tables(self, select: s.Select) -> tuple[Query, dict[str, Table]]:
        """Analyse a query. Raises SqlError with its place in the statement."""
        try:
            query, names = tables_in(select.text, self.catalog.names())
            tables = {name: self.catalog.table(name) for name in names}
            check_comparisons(query, list(tables.values()))
        except SqlError as problem:
            unknown = getattr(problem, "name", None)
            if unknown:
                problem = unknown_table(self.catalog, unknown, problem)
            problem.at = None if problem.at is None else problem.at + select.start
            raise problem from None
        for table in tables.values():
            self._tell_remarks(table)
        return query, tables

    def _pipeline(self, document: dict[str, object], folder: str = ".") -> Pipeline:
        return read_pipeline(document, STEPS, folder)._replace(roots=self.roots)

    def _check_continuous(self, tables: dict[str, Table]) -> None:
        if all(table.key for table in tables.values()):
            names = ", ".join(table.name for table in tables.values())
            raise StatementError(
                f"{names} has a primary key, so it is the newest row of each key and not a stream: omit EMIT CHANGES"
            )

    def _follow(self, running: RunningQuery, select: s.Select) -> None:
        count, started = 0, time.monotonic()
        try:
            for batch in running.batches():
                if batch.remark:
                    self.output.remark(batch.remark)
                    continue
                if select.rows_max is not None and not batch.is_whole:
                    batch = batch._replace(rows=batch.rows[: select.rows_max - count])  # noqa: PLW2901
                self.output.batch(batch)
                count += len(batch.rows)
                if select.rows_max is not None and count >= select.rows_max:
                    break
        except KeyboardInterrupt:
            if not select.is_continuous:
                raise
        finally:
            running.cancel()
        self.output.end(count)
        if is_terminal(sys.stdout) and is_terminal(sys.stderr) and not select.is_continuous:
            warn(f"{time.monotonic() - started:.1f} s")

    def _tell_losses(self, running: RunningQuery, query: Query, tables: Sequence[Table]) -> None:
        losses = running.losses
        if losses.unreadable:
            example = f", the first: {losses.example}" if losses.example else ""
            count = losses.unreadable
            warn(f"{format_count(count, 'record')} could not be read and {_are(count)} in no row{example}")
            self.has_losses = self.has_losses or not all(table.skips_unreadable for table in tables)
        if losses.empty:
            warn(f"{format_count(losses.empty, 'tombstone')} (no value) {_are(losses.empty)} in no row")
        if losses.late:
            warn(late_words(query, losses.late))

    def _tell_remarks(self, table: Table) -> None:
        for remark in table.remarks:
            warn(f"{table.name}: {remark}")

    def _place(self, query: Query, select: s.Select, problem: BaseException | None) -> int | None:
        """The place of Spark's error in the statement."""
        if not isinstance(problem, PySparkException):
            return None
        for text, index in spark_places(problem):
            at = query.origin(text, index)
            if at is not None:
                return select.start + at
        return None

    def _explain(self, select: s.Select) -> None:
        query, tables = self._tables(select)
        pipeline = self._pipeline(document_of(query, tables, self.head))
        try:
            _, rows = Builder(self.spark, pipeline, is_streaming=select.is_continuous).query(RESULT)
        except PipelineError as wrong:
            raise StatementError(words_of(wrong), self._place(query, select, wrong.__cause__)) from None
        plan = rows._jdf.queryExecution().simpleString()
        self.output.listing(("PLAN",), [(text,) for text in plan.splitlines() if text.strip()])

    # tables

    def _create_table(self, statement: s.CreateTable) -> None:
        if self.catalog.declare(statement.table, statement.or_replace, statement.if_not_exists):
            table = self.catalog.table(statement.table.name)
            self._tell_remarks(table)

    def _show(self, what: str) -> None:
        if what == "TOPICS":
            rows = [(name, str(count)) for name, count in sorted(self.catalog.topics().items())]
            self.output.listing(("TOPIC", "PARTITIONS"), rows)
        elif what == "TABLES":
            declared = [(table.name, table.topic, "declared") for table in self.catalog.declared.values()]
            hidden = set(self.catalog.declared)
            topics = [(name, name, "topic") for name in sorted(self.catalog.topics()) if name.lower() not in hidden]
            self.output.listing(("TABLE", "TOPIC", "COLUMNS"), [*declared, *topics])
        else:
            runs = [(run.name, run.state, run.file) for run in list_runs(self.state)]
            self.output.listing(("PIPELINE", "STATE", "FILE"), runs)

    def _describe(self, table: Table) -> None:
        self._tell_remarks(table)
        known = {name.lower() for name in table.columns}
        rows = [(name, kind, _role(table, name)) for name, kind in table.columns.items()]
        rows += [(name, kind, "of the record") for name, kind in RECORD_TYPES.items() if name not in known]
        self.output.listing(("COLUMN", "TYPE", "ROLE"), rows)

    def _create_pipeline(self, statement: s.CreatePipeline) -> None:
        query, tables = self._tables(statement.select)
        options = dict(statement.options)
        given = options.pop("output", "")
        output = given or output_of(query, list(tables.values()))
        document = document_of(query, tables, self.head, name=statement.name, sink=dict(statement.sink), output=output)
        pipeline = self._pipeline({**document, **options}, str(Path.cwd()))
        try:
            _, rows = Builder(self.spark, pipeline).query(RESULT)
            output = given or output_mode(rows, output)
            check_values(rows)
        except PipelineError as wrong:
            at = self._place(query, statement.select, wrong.__cause__)
            raise StatementError(words_of(wrong), at) from None
        except AnalysisException as wrong:
            words = "; ".join(filter(None, plain_words(wrong)))
            raise StatementError(with_cure(words, is_pipeline=True), statement.select.start) from None
        document = document_of(query, tables, self.head, name=statement.name, sink=dict(statement.sink), output=output)
        file = pipelines.write_pipeline({**document, **options}, self.state, statement.or_replace)
        roots = (self.roots,) if self.roots else ()
        warn(pipelines.start_pipeline(file, statement.name, self.state, *roots))

    def _set(self, statement: s.SetOption) -> None:
        if not statement.key:
            self.output.listing(("KEY", "VALUE"), sorted(self.settings.items()))
            return
        if statement.key not in SETTINGS:
            raise SqlError(f"sets {statement.key!r}; known: {', '.join(SETTINGS)}")
        try:
            starting_options(statement.value)
        except ValueError as wrong:
            raise SqlError(f"sets {statement.key!r}, but {wrong}") from None
        self.settings[statement.key] = statement.value


def _are(count: int) -> str:
    return "is" if count == 1 else "are"


def _role(table: Table, name: str) -> str:
    roles = []
    if name.lower() in {each.lower() for each in table.key}:
        roles.append("primary key")
    if name.lower() == (table.event_time or "").lower():
        roles.append(f"event time, watermark {table.delay}")
    if name in table.required:
        roles.append("not null")
    return ", ".join(roles)
