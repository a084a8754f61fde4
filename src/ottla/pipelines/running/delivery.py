"""The function for foreachBatch: the rows of a batch go to every sink of the stream, each with its own filter and
columns.

Picklable: on Spark Connect it runs in the server. A new checkpoint is a new query whose batches count from 0, so sinks
store batches under the checkpoint's id, not only under the pipeline's name. A new query can continue an old one only if
all sinks of the stream store the source offsets beside their rows.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import pyarrow.parquet as pq
from pyspark.sql import functions as F  # noqa: N812 (the usual alias)

from ottla.pipelines.expressions.texts import column_of_sql
from ottla.pipelines.model import sink_specs as model
from ottla.pipelines.model.pipeline import Pipeline, Stream
from ottla.pipelines.model.problems import PipelineError, Problem
from ottla.pipelines.running.accounting import Taken
from ottla.pipelines.running.belonging import Memory
from ottla.pipelines.running.builder import Builder
from ottla.pipelines.running.checkpoint import CheckpointError, Ends
from ottla.pipelines.running.dead_letters import (
    CarriedLetters,
    carried_letters,
    dead_letter_sink,
    letters_aside,
    living,
)
from ottla.pipelines.running.laid_aside import LaidAside
from ottla.pipelines.running.late_letters import late_rows_aside
from ottla.pipelines.running.own_code import CODE
from ottla.pipelines.running.sink_checks import is_upsert, sink_order
from ottla.pipelines.running.sink_factory import Setting, make_database, make_sink
from ottla.pipelines.sinks.batch import Batch, Sink, SinkError
from ottla.pipelines.sinks.batch_ledger import LedgerSink
from ottla.pipelines.sinks.database import DatabaseSink
from ottla.pipelines.sinks.external_offsets import CONFLICTING_OFFSET, Offsets, kept_offsets
from ottla.pipelines.sinks.sql_tables import DELETED
from ottla.pipelines.sinks.staging import local_path, staging_for
from ottla.pipelines.sinks.topic import TopicSink
from ottla.pipelines.steps.frame import AppliedStep, Frame

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

SINKS_FOLDER = "sinks"
LETTERS_FOLDER = "carried-letters"
PINNED_FOLDER = "pinned"
UNSTEADY_KINDS = ("merges", "thins", "opaque")
ROW_BY_ROW = ("explode", "union")
SPARK_SCHEMA = b"org.apache.spark.sql.parquet.row.metadata"
NOT_IN_PARQUET = re.compile(r'[tT]ype":"(?:void|interval)"')


@dataclass(frozen=True)
class Route:
    """The rows and columns for one sink."""

    sink: Sink
    where: str | None
    delete_when: str | None
    columns: tuple[str, ...]
    without: tuple[str, ...]  # hidden columns of other sinks
    is_lasting: bool  # it stores no batches, or stores offsets in its database

    def chosen(self, rows: DataFrame) -> DataFrame:
        chosen = rows.filter(column_of_sql(self.where)) if self.where else rows
        if self.delete_when:  # may use columns that are not written
            chosen = chosen.withColumn(DELETED, column_of_sql(self.delete_when))
        if self.columns:
            return chosen.select(*(F.col(f"`{name}`") for name in self.columns))
        return chosen.drop(*self.without)


@dataclass(frozen=True)
class Delivery:
    """`identity` is the id of the query, or of a run without a checkpoint; `folder` is that of its state."""

    query: str
    folder: str
    routes: tuple[Route, ...]
    identity: str
    letters: CarriedLetters | None = None
    aside: tuple[LaidAside, ...] = ()
    pins: bool = False  # a repetition may give other rows: all sinks get the first result
    _taken: list[Taken] = field(default_factory=list, repr=False, compare=False)

    def __call__(self, rows: DataFrame, batch_id: int) -> None:
        if self.pins:
            rows = self._pinned(rows, batch_id)
        is_shared = not self.pins and (len(self.routes) > 1 or self.letters is not None)
        shared = rows.persist() if is_shared else rows  # the plan runs once for all sinks
        try:
            if self.letters is not None:
                name = f"{self.query}.letters.{self.identity}"
                self.letters.write(shared, Batch(name, batch_id, f"{self.folder}/{LETTERS_FOLDER}", self.identity))
            alive = living(shared)
            for number in range(len(self.routes)):
                self._write(number, alive, batch_id)
            for each in self.aside:
                name = f"{self.query}.{each.name}.{self.identity}"
                each.write(rows.sparkSession, Batch(name, batch_id, f"{self.folder}/{each.name}", self.identity))
        finally:
            if shared is not rows:
                shared.unpersist()

    def _write(self, number: int, rows: DataFrame, batch_id: int) -> None:
        batch = Batch(self.name(number), batch_id, f"{self.folder}/{SINKS_FOLDER}/{number}", self.identity)
        sink, chosen = self.routes[number].sink, self.routes[number].chosen(rows)
        if isinstance(sink, TopicSink):
            published = sink.publish(chosen, batch)
            self._taken.append(Taken(number, sink.place, published.rows, published.refused))
        else:
            sink.write(chosen, batch)

    def _pinned(self, rows: DataFrame, batch_id: int) -> DataFrame:
        """Staged rows stay until those of the next batch are staged."""
        batch = Batch(self.query, batch_id, self.folder, self.identity)
        paths = [each.path for each in staging_for(batch, PINNED_FOLDER).pin(rows, batch_id).files]
        spark = rows.sparkSession
        _check_columns(rows.schema, paths, batch_id)
        return spark.read.schema(rows.schema).parquet(*paths) if paths else spark.createDataFrame([], rows.schema)

    def taken(self) -> Iterator[Taken]:
        """Counts of topic sinks since the last call; other sinks take all rows or none."""
        while self._taken:
            yield self._taken.pop()

    def memories(self) -> Iterator[Memory]:
        """The stored batches of all sinks that have them. Raises SinkError if a sink cannot be read."""
        for number, route in enumerate(self.routes):
            sink = route.sink
            if isinstance(sink, LedgerSink):
                own, batches = self.name(number), sink.last_batches()
                yield Memory(
                    sink.place,
                    own,
                    batches,
                    is_lasting=route.is_lasting,
                    is_exclusive=sink.has_single_query,
                    is_forgetful=sink.may_forget_batches,
                    ends=_ends(sink, own) if route.is_lasting and own in batches else {},
                )

    def name(self, number: int) -> str:
        """The query name that sinks store."""
        is_lasting = self.routes[number].is_lasting
        return f"{self.query}.{number}" if is_lasting else f"{self.query}.{self.identity}.{number}"


def make_delivery(
    pipeline: Pipeline,
    stream: Stream,
    folder: str,
    identity: str,
    checkpoint: str | None = None,
    started_at: Ends | None = None,
) -> Delivery:
    """Without a checkpoint no state is kept. Raises PipelineError for an invalid sink."""
    order = sink_order(pipeline, stream)
    setting = Setting(pipeline, checkpoint or "", started_at or {}, order)
    routes: list[Route] = []
    for number, spec in enumerate(stream.sinks):
        try:
            sink = make_sink(spec, number, setting)
        except SinkError as problem:
            raise PipelineError([Problem((*stream.path, "to", number), str(problem))]) from None
        routes.append(route_to(sink, spec, order, _is_lasting(spec) and checkpoint is not None))
    return Delivery(f"{pipeline.name}.{stream.name}", folder, tuple(routes), identity)


def for_frame(delivery: Delivery, pipeline: Pipeline, stream: Stream, frame: Frame, builder: Builder) -> Delivery:
    """Adds the requirements of the query's steps."""
    sink = dead_letter_sink(pipeline)
    aside = (
        letters_aside(sink, pipeline, stream, builder.aside_folder, builder.aside),
        late_rows_aside(pipeline, builder),
    )
    return replace(
        delivery,
        letters=carried_letters(sink, pipeline, stream, frame),
        aside=tuple(each for each in aside if each is not None),
        pins=pins_rows(frame.applied_steps, len(delivery.routes), frame.rows.schema),
    )


def pins_rows(passages: Sequence[AppliedStep], sinks: int, schema: StructType) -> bool:
    """Whether rows must be staged before the first sink gets them, because a repeated batch may differ: lookups may
    have other answers, user code may not be deterministic, and shuffled rows come in another order. A single sink
    writes a batch as a whole or not at all, so it needs no staging."""
    if any(each.kind == "asks" for each in passages):
        return True
    changes = any(
        each.step in CODE or (each.kind in UNSTEADY_KINDS and each.step not in ROW_BY_ROW) for each in passages
    )
    return sinks > 1 and changes and NOT_IN_PARQUET.search(schema.json()) is None


def can_last(stream: Stream) -> bool:
    """Whether all its sinks can continue without the checkpoint."""
    return all(_is_lasting(spec) for spec in stream.sinks) and any(_keeps_offsets(spec) for spec in stream.sinks)


def kept_by_sinks(pipeline: Pipeline, stream: Stream) -> Ends:
    """The offsets that all databases agree on; empty if none has any. Raises CheckpointError if they disagree."""
    found: list[tuple[str, Ends]] = []
    for number, spec in enumerate(stream.sinks):
        if isinstance(spec, model.DatabaseSink) and can_last(stream):
            sink = make_database(spec, Setting(pipeline, ""))
            kept = kept_offsets(sink, f"{pipeline.name}.{stream.name}.{number}")
            found.append((sink.place, {topic: dict(each) for topic, each in kept.items()}))
    return agreed_ends(found)


def agreed_ends(found: Sequence[tuple[str, Ends]]) -> Ends:
    """For sinks and the end offsets of their rows. Raises CheckpointError."""
    first, expected = found[0] if found else ("", {})
    for place, ends in found:
        if ends != expected:
            raise CheckpointError(
                f"the checkpoint is gone, and {first} ends at {json.dumps(expected)}, {place} at {json.dumps(ends)}:"
                " put back the checkpoint, or begin anew (ottla pipeline reset … --sinks)"
            )
    unknown = [topic for topic, each in expected.items() if CONFLICTING_OFFSET in each.values()]
    if unknown:
        raise CheckpointError(
            f"the checkpoint is gone, and two streams of the query had read {unknown[0]} up to different offsets when"
            f" the last rows came to {first}: put back the checkpoint, or begin anew (ottla pipeline reset … --sinks)"
        )
    return expected


def route_to(sink: Sink, spec: model.Sink, order: tuple[str, ...], is_lasting: bool) -> Route:
    """`order`: hidden columns that determine the later row, for upserts only."""
    columns, without = written_columns(spec), () if is_upsert(spec) else order
    if columns and is_upsert(spec):
        columns += (*order, *([DELETED] if _delete_when(spec) else []))
    return Route(sink, spec.where, _delete_when(spec), columns, without, is_lasting)


def _check_columns(wanted: StructType, paths: Sequence[str], batch_id: int) -> None:
    """For rows staged before the file was changed: missing columns would become null. Raises SinkError."""
    local = local_path(paths[0]) if paths else None
    if local is None:
        return
    noted = (pq.read_schema(local).metadata or {}).get(SPARK_SCHEMA)
    pinned = type(wanted).fromJson(json.loads(noted)) if noted is not None else wanted
    if pinned.simpleString() != wanted.simpleString():
        old = pinned.simpleString()
        raise SinkError(
            f"batch {batch_id} was started with other columns ({old}), and some sinks have it: run the unchanged file"
        )


def _ends(sink: Sink, query: str) -> Offsets:
    assert isinstance(sink, DatabaseSink)  # a console stores no batches
    return kept_offsets(sink, query)


def _is_lasting(sink: model.Sink) -> bool:
    return isinstance(sink, model.ConsoleSink) or _keeps_offsets(sink)


def _keeps_offsets(sink: model.Sink) -> bool:
    return isinstance(sink, model.DatabaseSink) and sink.keep_offsets


def _delete_when(sink: model.Sink) -> str | None:
    return sink.delete_when if isinstance(sink, model.DatabaseSink) else None


def written_columns(sink: model.Sink) -> tuple[str, ...]:
    """For a topic the encoding selects them: the key may be a column that is not in the value."""
    return () if isinstance(sink, model.TopicSink) else tuple(sink.columns or ())
