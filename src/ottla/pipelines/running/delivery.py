"""What foreachBatch calls: the rows of a batch go to every sink of the stream, each getting the rows meant for it.

Picklable: on Spark Connect it runs in the server. A new checkpoint is a new query: its batches are counted from 0, so
what sinks remember is kept under the checkpoint's own id and not under the pipeline's name alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812 (everybody's name for it)

from ottla.pipelines.model import sinks as model
from ottla.pipelines.model.pipeline import Pipeline, Stream
from ottla.pipelines.model.problems import PipelineError, Problem
from ottla.pipelines.running.checkpoint import Checkpoint, Ends
from ottla.pipelines.running.sink_factory import Setting, make_database, make_sink
from ottla.pipelines.sinks.batch import Batch, Sink, SinkError
from ottla.pipelines.sinks.external_offsets import kept_offsets

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


@dataclass(frozen=True)
class Route:
    """Which rows and columns go to which sink."""

    sink: Sink
    where: str | None
    columns: tuple[str, ...]
    is_lasting: bool  # it remembers nothing, or beyond the checkpoint: its offsets are in the database

    def write(self, rows: DataFrame, batch: Batch) -> None:
        chosen = rows.filter(self.where) if self.where else rows
        if self.columns:
            chosen = chosen.select(*(F.col(f"`{name}`") for name in self.columns))
        self.sink.write(chosen, batch)


@dataclass(frozen=True)
class Delivery:
    """`identity` is given for a run without a checkpoint."""

    query: str
    folder: str
    routes: tuple[Route, ...]
    identity: str = ""

    def __call__(self, rows: DataFrame, batch_id: int) -> None:
        identity = self.identity or self._checkpoint_id(rows)
        shared = rows.persist() if len(self.routes) > 1 else rows  # the plan runs once, however many sinks there are
        try:
            for number, route in enumerate(self.routes):
                name = f"{self.query}.{number}" if route.is_lasting else f"{self.query}.{identity}.{number}"
                route.write(shared, Batch(name, batch_id, f"{self.folder}/sinks/{number}"))
        finally:
            if shared is not rows:
                shared.unpersist()

    def _checkpoint_id(self, rows: DataFrame) -> str:
        found = Checkpoint(rows.sparkSession, f"{self.folder}/checkpoint").query_id()
        if found is None:
            raise RuntimeError(f"{self.folder}/checkpoint has no id: was it deleted while the query ran?")
        return found


def make_delivery(
    pipeline: Pipeline, stream: Stream, folder: str, identity: str = "", started_at: Ends | None = None
) -> Delivery:
    """Raises PipelineError for a sink that cannot be."""
    setting = Setting(pipeline, f"{folder}/checkpoint", started_at or {})
    routes: list[Route] = []
    for number, spec in enumerate(stream.sinks):
        try:
            sink = make_sink(spec, number, setting)
        except SinkError as problem:
            raise PipelineError([Problem((*stream.path, "to", number), str(problem))]) from None
        routes.append(Route(sink, spec.where, written_columns(spec), _is_lasting(spec) and not identity))
    return Delivery(f"{pipeline.name}.{stream.name}", folder, tuple(routes), identity)


def kept_by_sinks(pipeline: Pipeline, stream: Stream) -> Ends:
    """Where a database that keeps offsets says that the query stands; nothing if none does."""
    for number, spec in enumerate(stream.sinks):
        if isinstance(spec, model.DatabaseSink) and spec.keep_offsets:
            sink = make_database(spec, Setting(pipeline, ""))
            kept = kept_offsets(sink, f"{pipeline.name}.{stream.name}.{number}")
            return {topic: dict(each) for topic, each in kept.items()}
    return {}


def _is_lasting(sink: model.Sink) -> bool:
    return isinstance(sink, model.ConsoleSink) or (isinstance(sink, model.DatabaseSink) and sink.keep_offsets)


def written_columns(sink: model.Sink) -> tuple[str, ...]:
    """For a topic the encoding chooses them: the key may be a column that is not in the value."""
    return () if isinstance(sink, model.TopicSink) else tuple(sink.columns or ())
