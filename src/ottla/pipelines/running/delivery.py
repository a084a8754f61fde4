"""What foreachBatch calls: the rows of a batch go to every sink of the stream, each getting the rows meant for it.

Picklable: on Spark Connect it runs in the server. A new checkpoint is a new query: its batches are counted from 0, so
what sinks remember is kept under the checkpoint's own id and not under the pipeline's name alone. Only if all sinks of
a stream keep the offsets of the source beside their rows can a new query go on where the old one was.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812 (everybody's name for it)

from ottla.pipelines.model import sinks as model
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
from ottla.pipelines.running.sink_checks import is_upsert, sink_order
from ottla.pipelines.running.sink_factory import Setting, make_database, make_sink
from ottla.pipelines.sinks.batch import Batch, Sink, SinkError
from ottla.pipelines.sinks.database import DatabaseSink
from ottla.pipelines.sinks.external_offsets import DIFFERENT, Offsets, kept_offsets
from ottla.pipelines.sinks.ledger import Remembering
from ottla.pipelines.sinks.staging import staging_for
from ottla.pipelines.sinks.tables import DELETED
from ottla.pipelines.sinks.topic import TopicSink
from ottla.pipelines.steps.frame import Frame

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

SINKS_FOLDER = "sinks"
LETTERS_FOLDER = "carried-letters"
PINNED_FOLDER = "pinned"


@dataclass(frozen=True)
class Route:
    """Which rows and columns go to which sink."""

    sink: Sink
    where: str | None
    delete_when: str | None
    columns: tuple[str, ...]
    without: tuple[str, ...]  # hidden columns that are for other sinks
    is_lasting: bool  # it remembers nothing, or beyond the checkpoint: its offsets are in the database

    def chosen(self, rows: DataFrame) -> DataFrame:
        chosen = rows.filter(self.where) if self.where else rows
        if self.delete_when:  # may name columns that are not written
            chosen = chosen.withColumn(DELETED, F.expr(self.delete_when))
        if self.columns:
            return chosen.select(*(F.col(f"`{name}`") for name in self.columns))
        return chosen.drop(*self.without)


@dataclass(frozen=True)
class Delivery:
    """`identity` is the id of the query, or of a run without a checkpoint; `folder` is where it keeps things."""

    query: str
    folder: str
    routes: tuple[Route, ...]
    identity: str
    letters: CarriedLetters | None = None
    aside: tuple[LaidAside, ...] = ()
    pins: bool = False  # a repetition would give other rows: what came first is what all sinks get
    _taken: list[Taken] = field(default_factory=list, repr=False, compare=False)

    def __call__(self, rows: DataFrame, batch_id: int) -> None:
        if self.pins:
            rows = self._pinned(rows, batch_id)
        is_shared = not self.pins and (len(self.routes) > 1 or self.letters is not None)
        shared = rows.persist() if is_shared else rows  # the plan runs once, however many sinks there are
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
        """They stay until those of the next batch are there."""
        batch = Batch(self.query, batch_id, self.folder, self.identity)
        paths = [each.path for each in staging_for(batch, PINNED_FOLDER).pin(rows, batch_id).files]
        spark = rows.sparkSession
        return spark.read.schema(rows.schema).parquet(*paths) if paths else spark.createDataFrame([], rows.schema)

    def taken(self) -> Iterator[Taken]:
        """By topics, since the last look; other sinks take all rows or none."""
        while self._taken:
            yield self._taken.pop()

    def memories(self) -> Iterator[Memory]:
        """What the sinks remember, as far as they do. Raises SinkError where one cannot be asked."""
        for number, route in enumerate(self.routes):
            sink = route.sink
            if isinstance(sink, Remembering):
                own, batches = self.name(number), sink.remembered()
                yield Memory(
                    sink.place,
                    own,
                    batches,
                    is_lasting=route.is_lasting,
                    is_exclusive=sink.is_exclusive,
                    is_forgetful=sink.is_forgetful,
                    ends=_ends(sink, own) if route.is_lasting and own in batches else {},
                )

    def name(self, number: int) -> str:
        """Under which a sink remembers this query."""
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
    """Without a checkpoint nothing is kept for a next time. Raises PipelineError for a sink that cannot be."""
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
    """With what the steps of the query ask of its delivery."""
    sink = dead_letter_sink(pipeline)
    aside = (
        letters_aside(sink, pipeline, stream, builder.aside_folder, builder.aside),
        late_rows_aside(pipeline, builder),
    )
    return replace(
        delivery,
        letters=carried_letters(sink, pipeline, stream, frame),
        aside=tuple(each for each in aside if each is not None),
        pins=any(each.kind == "asks" for each in frame.passages),
    )


def can_last(stream: Stream) -> bool:
    """Whether all its sinks know without the checkpoint where to go on."""
    return all(_is_lasting(spec) for spec in stream.sinks) and any(_keeps_offsets(spec) for spec in stream.sinks)


def kept_by_sinks(pipeline: Pipeline, stream: Stream) -> Ends:
    """Where all databases say that the query stands; nothing if none does. Raises CheckpointError if they disagree."""
    found: list[tuple[str, Ends]] = []
    for number, spec in enumerate(stream.sinks):
        if isinstance(spec, model.DatabaseSink) and can_last(stream):
            sink = make_database(spec, Setting(pipeline, ""))
            kept = kept_offsets(sink, f"{pipeline.name}.{stream.name}.{number}")
            found.append((sink.place, {topic: dict(each) for topic, each in kept.items()}))
    return agreed_ends(found)


def agreed_ends(found: Sequence[tuple[str, Ends]]) -> Ends:
    """Of sinks and where their rows end. Raises CheckpointError."""
    first, expected = found[0] if found else ("", {})
    for place, ends in found:
        if ends != expected:
            raise CheckpointError(
                f"the checkpoint is gone, and {first} ends at {json.dumps(expected)}, {place} at {json.dumps(ends)}:"
                " put back the checkpoint, or begin anew (ottla pipeline reset … --sinks)"
            )
    unknown = [topic for topic, each in expected.items() if DIFFERENT in each.values()]
    if unknown:
        raise CheckpointError(
            f"the checkpoint is gone, and two streams of the query had read {unknown[0]} up to different offsets when"
            f" the last rows came to {first}: put back the checkpoint, or begin anew (ottla pipeline reset … --sinks)"
        )
    return expected


def route_to(sink: Sink, spec: model.Sink, order: tuple[str, ...], is_lasting: bool) -> Route:
    """`order`: hidden columns that tell the later row, for upserts alone."""
    columns, without = written_columns(spec), () if is_upsert(spec) else order
    if columns and is_upsert(spec):
        columns += (*order, *([DELETED] if _delete_when(spec) else []))
    return Route(sink, spec.where, _delete_when(spec), columns, without, is_lasting)


def _ends(sink: Sink, query: str) -> Offsets:
    assert isinstance(sink, DatabaseSink)  # a console remembers nothing
    return kept_offsets(sink, query)


def _is_lasting(sink: model.Sink) -> bool:
    return isinstance(sink, model.ConsoleSink) or _keeps_offsets(sink)


def _keeps_offsets(sink: model.Sink) -> bool:
    return isinstance(sink, model.DatabaseSink) and sink.keep_offsets


def _delete_when(sink: model.Sink) -> str | None:
    return sink.delete_when if isinstance(sink, model.DatabaseSink) else None


def written_columns(sink: model.Sink) -> tuple[str, ...]:
    """For a topic the encoding chooses them: the key may be a column that is not in the value."""
    return () if isinstance(sink, model.TopicSink) else tuple(sink.columns or ())
