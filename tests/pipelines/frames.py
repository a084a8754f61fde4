"""Steps without a broker: rows as from a Kafka source, passed through steps, and the fate of each row."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from itertools import count
from typing import TYPE_CHECKING, Any

from ottla.pipelines.model.specs import Problems, read_spec
from ottla.pipelines.steps.frame import FATE, REASON, Frame, source_frame
from ottla.pipelines.steps.step_table import STEPS

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

NUMBERS = count()  # observation names must be unique, even across pipelines
SCHEMA = (
    "key binary, value binary, topic string, partition int, offset bigint, timestamp timestamp, timestampType int, "
    "headers array<struct<key string, value binary>>"
)


@dataclass
class Around:
    """The context that steps need."""

    spark: SparkSession
    folder: str = "."
    streams: dict[str, Frame] = field(default_factory=dict)
    is_streaming: bool = False
    is_counting: bool = True
    counts_filtered: bool = True
    sends_late: bool = False
    registry: Any = None
    on_error: str = "dead"

    @property
    def has_watermark(self) -> bool:
        return self.is_streaming

    def stream(self, name: str) -> Frame:
        return self.streams[name]

    def table(self, name: str) -> Frame:
        return self.streams[name]

    def observe(self, rows: DataFrame, figures: list[Any]) -> tuple[str, DataFrame]:
        name = f"test{next(NUMBERS)}"
        return name, rows.observe(name, *figures)

    def collect_late(self, rows: DataFrame, end_ms: Any, passage: Any) -> DataFrame:
        return rows

    def collect_marked(self, rows: DataFrame, marking: list[Any]) -> None:
        pass


def records(spark: SparkSession, values: Iterable[bytes | str | None], folder: object = ".") -> Frame:
    """A frame of records with these values; offsets count from 0."""
    rows = [
        (None, value.encode() if isinstance(value, str) else value, "events", 0, offset, None, 0, None)
        for offset, value in enumerate(values)
    ]
    return source_frame(spark.createDataFrame(rows, SCHEMA), Around(spark, str(folder)))


def table(spark: SparkSession, rows: Iterable[tuple[Any, ...]], schema: str, folder: object = ".") -> Frame:
    """A frame with columns of any kind."""
    return source_frame(spark.createDataFrame(list(rows), schema), Around(spark, str(folder)))


def step(name: str, fields: object) -> Any:
    """The step as in a pipeline file."""
    problems: Problems = []
    spec = read_spec(STEPS[name], fields, (name,), problems)
    assert spec is not None, [problem.text() for problem in problems]
    return spec


def problems_of(name: str, fields: object) -> list[str]:
    """Its problems, as the user sees them."""
    problems: Problems = []
    read_spec(STEPS[name], fields, (), problems)
    return [problem.text() for problem in problems]


def through(frame: Frame, *steps: Mapping[str, object]) -> Frame:
    """The frame after these steps, as the builder applies them."""
    for number, each in enumerate(steps, start=1):
        ((name, fields),) = each.items()
        spec = step(name, fields)
        if spec.KIND != "marks":
            frame = frame.drop_marked()
        frame = spec.apply(frame.begin("main", number, name, spec.KIND))
    return frame


def utc(*parts: int) -> datetime:
    """The form of Spark's timestamps: without a zone, which is UTC in our sessions."""
    return datetime(*parts)  # type: ignore[arg-type]  # noqa: DTZ001


def living(frame: Frame) -> list[dict[str, Any]]:
    """The remaining rows, visible columns only."""
    rows = frame.rows.filter(f"{FATE} = 0").select(*(f"`{name}`" for name in frame.columns)).collect()
    return [row.asDict(recursive=True) for row in rows]


def fates(frame: Frame) -> list[tuple[int, str | None]]:
    """Fate and reason of every row, in the order of the source."""
    return [(row[FATE], row[REASON]) for row in frame.rows.select(FATE, REASON).collect()]
