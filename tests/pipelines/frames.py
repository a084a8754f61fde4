"""Steps without a broker: rows as a Kafka source would give them, through steps, and what became of each."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from itertools import count
from typing import TYPE_CHECKING, Any

from ottla.pipelines.model.fields import Problems, read_spec
from ottla.pipelines.steps.frame import FATE, REASON, Frame, source_frame
from ottla.pipelines.steps.table import STEPS

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

NUMBERS = count()  # observations must not share a name, also when frames of several pipelines meet
SCHEMA = (
    "key binary, value binary, topic string, partition int, offset bigint, timestamp timestamp, timestampType int, "
    "headers array<struct<key string, value binary>>"
)


@dataclass
class Around:
    """What steps ask of the pipeline around them."""

    spark: SparkSession
    folder: str = "."
    streams: dict[str, Frame] = field(default_factory=dict)
    is_streaming: bool = False
    is_counting: bool = True
    counts_filtered: bool = True
    sends_late: bool = False
    registry: Any = None

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
    """The step as a pipeline file describes it."""
    problems: Problems = []
    spec = read_spec(STEPS[name], fields, (name,), problems)
    assert spec is not None, [problem.text() for problem in problems]
    return spec


def problems_of(name: str, fields: object) -> list[str]:
    """What is wrong with it, as the user reads it."""
    problems: Problems = []
    read_spec(STEPS[name], fields, (), problems)
    return [problem.text() for problem in problems]


def through(frame: Frame, *steps: Mapping[str, object]) -> Frame:
    """The frame after these steps, as the builder applies them."""
    for number, each in enumerate(steps, start=1):
        ((name, fields),) = each.items()
        spec = step(name, fields)
        if spec.KIND != "marks":
            frame = frame.settle()
        frame = spec.apply(frame.begin("main", number, name, spec.KIND))
    return frame


def utc(*parts: int) -> datetime:
    """As Spark hands out timestamps: without a zone, which is UTC in our sessions."""
    return datetime(*parts)  # type: ignore[arg-type]  # noqa: DTZ001


def living(frame: Frame) -> list[dict[str, Any]]:
    """The rows that go on, visible columns only."""
    rows = frame.rows.filter(f"{FATE} = 0").select(*(f"`{name}`" for name in frame.columns)).collect()
    return [row.asDict(recursive=True) for row in rows]


def fates(frame: Frame) -> list[tuple[int, str | None]]:
    """Fate and reason of every row, in the order of the source."""
    return [(row[FATE], row[REASON]) for row in frame.rows.select(FATE, REASON).collect()]
