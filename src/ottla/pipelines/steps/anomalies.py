"""`anomalies` and `outliers`: unusual values of a key, and rows that differ from a model's training data.

    anomalies: {value: temperature, by: [sensor]}
    anomalies: {value: views, by: [page], season: hour of week, history: 8, warm_up: 4}

Each row gets score, expected and verdict. A value is compared with the last `history` values of its key (with `season`:
of its key at that hour). Rows are judged in time order after the watermark has passed them, so the verdict does not
depend on the order of arrival. `verdict` is normal, anomaly, "warming up" before `warm_up` values were seen, or "no
value" (null, NaN, infinite). The state of a key without rows for `forget` is removed.

robust: distance from the median of the last values, in units of their median absolute deviation (Iglewicz and Hoaglin's
modified z-score); up to half of the history may be outliers. ewma: distance from an exponentially weighted mean, in
weighted standard deviations; it adapts to drift sooner.

    outliers: {model: readings.npz, threshold: 0.6}

Each row gets `score` and `verdict`. The model is an isolation forest over several columns, trained in a batch over a
topic's history (`train_forest` in forest.py) and stored in a file. It uses neither time nor key. `verdict` is normal,
anomaly, or "no value" if a column is null, NaN or infinite.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from statistics import fmean, median
from typing import TYPE_CHECKING, ClassVar, Literal, NamedTuple

from pyspark.sql import functions as F  # noqa: N812 (the usual alias)
from pyspark.sql import types as T  # noqa: N812 (the usual alias)

from ottla.pipelines.model.row_order import TIME_MICROS, RowOrder
from ottla.pipelines.model.specs import Duration
from ottla.pipelines.steps.event_time import require_event_time, rows_with_watermark
from ottla.pipelines.steps.event_time_buffer import EventTimeBuffer, Values, schema_without_metadata, sort_by_time
from ottla.pipelines.steps.forest import Forest, load_forest, read_forest
from ottla.pipelines.steps.frame import Frame
from ottla.pipelines.steps.lateness import track_late_rows
from ottla.pipelines.steps.order import LINE
from ottla.pipelines.steps.step import StepError, StepKind

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.stateful_processor import StatefulProcessorHandle


HISTORY_MAX = 10_000
HOUR_US = 3_600_000_000
VALUE = "_number"
RESULT = ("score", "expected", "verdict")
RESULT_SCHEMA = (
    T.StructType().add("score", T.DoubleType()).add("expected", T.DoubleType()).add("verdict", T.StringType())
)  # fmt: skip

Season = Literal["hour of day", "hour of week", "day of week"]
SeasonHistories = dict[int, list[float]]

MAD_TO_DEVIATION = 1.4826  # for normally distributed values
MEAN_TO_DEVIATION = 1.2533  # for the mean absolute deviation, used if more than half of the values are equal
SCORE_MAX = 1e6
Method = Literal["robust", "ewma"]
Verdict = Literal["normal", "anomaly", "warming up", "no value"]


@dataclass(frozen=True, kw_only=True)
class Anomalies:
    """Judge whether values are unusual for their key."""

    value: str = field(metadata={"doc": "column to judge"})
    by: list[str] = field(default_factory=list, metadata={"doc": "key columns (one key for all rows)"})
    method: Method = field(default="robust", metadata={"doc": "robust (median) or ewma (weighted mean)"})
    season: Season | None = field(
        default=None, metadata={"doc": "compare with the same hour of day, hour of week, day of week"}
    )
    threshold: float = field(default=3.5, metadata={"doc": "minimum score of an anomaly"})
    history: int = field(default=100, metadata={"doc": "number of values to compare with (per hour, with a season)"})
    warm_up: int = field(default=20, metadata={"doc": "values before the first verdict"})
    forget: Duration = field(
        default=Duration(30 * 86_400_000), metadata={"doc": "state of a key without rows for this time is removed"}
    )
    KIND: ClassVar[StepKind] = "merges"

    def problems(self) -> Iterator[tuple[str, str, str]]:
        if not 2 <= self.history <= HISTORY_MAX:
            yield "history", f"must be from 2 to {HISTORY_MAX}", ""
        if not 2 <= self.warm_up <= self.history:
            yield "warm_up", "must be from 2 to history", ""
        if not 0 < self.threshold < float("inf"):
            yield "threshold", "must be above 0", ""
        if self.forget < 1:
            yield "forget", "must be at least a millisecond", ""

    def apply(self, frame: Frame) -> Frame:
        time = require_event_time(frame)
        frame = track_late_rows(frame)
        names = frame.columns if time in frame.columns else [*frame.columns, time]
        for name in RESULT:
            if name in names:
                raise StepError(f"there is a column {name!r} already", "rename it before")
        number = F.col(f"`{self.value}`").cast("double").alias(VALUE)
        line = F.lit(0).alias(LINE)
        instant = F.unix_micros(f"`{time}`").alias(TIME_MICROS)
        rows = rows_with_watermark(frame).select(*(f"`{name}`" for name in names), number, instant, line)
        made = self._streaming(rows, time) if frame.is_streaming else self._in_batch(rows)
        return frame.stateful(1).merged(made.drop(VALUE, LINE), time, (TIME_MICROS,))

    def row_order(self, before: RowOrder) -> RowOrder:  # noqa: ARG002
        return RowOrder((TIME_MICROS,))  # time order, also across batches

    def _streaming(self, rows: DataFrame, time: str) -> DataFrame:
        judge_ = AnomalyProcessor(self, rows.columns, schema_without_metadata(rows))
        schema = T.StructType([*schema_without_metadata(rows).fields, *RESULT_SCHEMA.fields])
        keyed = rows.groupBy(*(self.by or [LINE]))
        return keyed.transformWithState(judge_, schema, "Append", "EventTime", eventTimeColumnName=time)

    def _in_batch(self, rows: DataFrame) -> DataFrame:
        schema = T.StructType([*schema_without_metadata(rows).fields, *RESULT_SCHEMA.fields])
        return rows.groupBy(*(self.by or [LINE])).applyInArrow(lambda table: judge_table(table, self), schema)


class KeyHistory:
    """The state of one key: values by season, and the time of the last one."""

    def __init__(self, spec: Anomalies, last_ms: int | None = None) -> None:
        self.spec = spec
        self.rules = ScoringRules(spec.method, spec.threshold, spec.history, spec.warm_up)
        self.slots: SeasonHistories = {}
        self.last_ms = last_ms

    def __repr__(self) -> str:
        return f"KeyHistory({len(self.slots)} slots, last {self.last_ms})"

    def judge(self, instant: int, value: float | None) -> Score:
        """Must be called in time order."""
        now_ms = instant // 1000
        if self.is_forgotten(now_ms):
            self.forget()
        self.last_ms = now_ms
        return score_value(value, self.season_history(self.season_number(instant)), self.rules)

    def is_forgotten(self, now_ms: int) -> bool:
        return self.last_ms is not None and now_ms - self.last_ms >= self.spec.forget

    def forget(self) -> None:
        self.slots.clear()

    def season_history(self, number: int) -> list[float]:
        return self.slots.setdefault(number, [])

    def season_number(self, instant: int) -> int:
        """The season of this time, in UTC."""
        if self.spec.season is None:
            return 0
        hours = instant // HOUR_US
        return {"hour of day": hours % 24, "hour of week": hours % 168, "day of week": hours // 24 % 7}[
            self.spec.season
        ]


class AnomalyProcessor(EventTimeBuffer):
    """Holds rows until the watermark has passed them, then judges them."""

    def __init__(self, spec: Anomalies, columns: list[str], schema: T.StructType) -> None:
        super().__init__(columns, schema)
        self.spec = spec
        self.value = columns.index(VALUE)

    def output(self) -> list[str]:
        return [*self.columns, *RESULT]

    def init(self, handle: StatefulProcessorHandle) -> None:
        super().init(handle)
        self.last = handle.getValueState("last", "last_ms bigint")
        self.kept = handle.getMapState("kept", "slot int", "numbers array<double>")

    def process_rows(self, key: Values, rows: list[Values], watermark_ms: int) -> Iterable[Values]:  # noqa: ARG002
        stored = self.last.get() if self.last.exists() else None
        memory = KeyHistory(self.spec, stored[0] if stored else None)
        if not rows:
            self._clean(memory, watermark_ms)
            return []
        made = []
        for row in rows:
            self._load(memory, row[self.time])
            made.append((*row, *memory.judge(row[self.time], row[self.value])))
        self._store(memory, stored[0] if stored else None)
        return made

    def _load(self, memory: KeyHistory, instant: int) -> None:
        number = memory.season_number(instant)
        if memory.is_forgotten(instant // 1000):
            self.kept.clear()  # all seasons, including those that are not loaded
        elif number not in memory.slots:
            found = self.kept.getValue((number,))
            memory.slots[number] = list(found[0]) if found else []

    def _store(self, memory: KeyHistory, before_ms: int | None) -> None:
        assert memory.last_ms is not None
        if before_ms is not None:
            self.handle.deleteTimer(before_ms + int(self.spec.forget))
        for number, numbers in memory.slots.items():
            self.kept.updateValue((number,), (numbers,))
        self.last.update((memory.last_ms,))
        self.handle.registerTimer(memory.last_ms + int(self.spec.forget))

    def _clean(self, memory: KeyHistory, watermark_ms: int) -> None:
        if memory.is_forgotten(watermark_ms):
            self.kept.clear()
            self.last.clear()


def judge_table(table: pa.Table, spec: Anomalies) -> pa.Table:
    """Judge all rows of one key in a batch."""
    import pyarrow as pa  # # noqa: PLC0415 (only Spark's workers need it)

    rows = [tuple(row.values()) for row in table.to_pylist()]
    columns = table.column_names
    time, value = columns.index(TIME_MICROS), columns.index(VALUE)
    memory = KeyHistory(spec)
    made = [(*row, *memory.judge(row[time], row[value])) for row in sort_by_time(rows, time)]
    schema = table.schema
    for name, kind in zip(RESULT, (pa.float64(), pa.float64(), pa.string()), strict=True):
        schema = schema.append(pa.field(name, kind))
    return pa.Table.from_arrays(
        [pa.array([row[at] for row in made], each.type) for at, each in enumerate(schema)], schema=schema
    )


class Score(NamedTuple):
    score: float | None
    expected: float | None
    verdict: Verdict


class ScoringRules(NamedTuple):
    """`history` is the number of values to compare with; no verdict before `warm_up` of them."""

    method: Method = "robust"
    threshold: float = 3.5
    history: int = 100
    warm_up: int = 20


def score_value(value: float | None, history: list[float], rules: ScoringRules) -> Score:
    """Judge a value and add it to the bounded history."""
    if value is None or not math.isfinite(value):
        return Score(None, None, "no value")
    seen = int(history[0]) if rules.method == "ewma" and history else len(history)
    scored = _robust(value, history) if rules.method == "robust" else _weighted(value, history)
    _add_to_history(value, history, rules)
    if seen < rules.warm_up or scored is None:
        return Score(None, None, "warming up")
    score, expected = scored
    return Score(score, expected, "anomaly" if abs(score) >= rules.threshold else "normal")


def _robust(value: float, history: list[float]) -> tuple[float, float] | None:
    if not history:
        return None
    middle = median(history)
    distances = [abs(each - middle) for each in history]
    spread = median(distances) * MAD_TO_DEVIATION or _mean(distances) * MEAN_TO_DEVIATION
    return _distance(value, middle, spread), middle


def _mean(distances: list[float]) -> float:
    try:
        return fmean(distances)
    except OverflowError:  # the sum overflows, the mean does not
        return math.fsum(each / len(distances) for each in distances)


def _weighted(value: float, history: list[float]) -> tuple[float, float] | None:
    """The history of ewma holds the number of values, their mean and their variance."""
    if not history:
        return None
    _, mean, variance = history
    return _distance(value, mean, math.sqrt(variance)), mean


def _distance(value: float, expected: float, spread: float) -> float:
    away = value - expected
    if away == 0:
        return 0.0
    if spread == 0 or not math.isfinite(away) or not math.isfinite(spread):
        return math.copysign(SCORE_MAX, away)
    return max(-SCORE_MAX, min(SCORE_MAX, away / spread))


def _add_to_history(value: float, history: list[float], rules: ScoringRules) -> None:
    if rules.method == "robust":
        history.append(value)
        del history[: -rules.history]
        return
    if not history:
        history[:] = [1.0, value, 0.0]
        return
    count, mean, variance = history
    weight = max(2 / (rules.history + 1), 1 / (count + 1))  # a plain mean at first
    if count >= rules.warm_up and variance > 0:  # an outlier moves the mean at most by the threshold
        reach = rules.threshold * math.sqrt(variance)
        value = max(mean - reach, min(mean + reach, value))
    away = value - mean
    changed = [count + 1, mean + weight * away, (1 - weight) * (variance + weight * away * away)]
    if all(map(math.isfinite, changed)):
        history[:] = changed


@dataclass(frozen=True, kw_only=True)
class Outliers:
    """Judge rows with a trained model."""

    model: str = field(metadata={"doc": "file of an isolation forest, .npz"})
    threshold: float = field(default=0.6, metadata={"doc": "score from which a row is an anomaly; 0.5 is ordinary"})
    columns: list[str] = field(default_factory=list, metadata={"doc": "columns for the model (as it was trained)"})
    KIND: ClassVar[StepKind] = "marks"

    def problems(self) -> Iterator[tuple[str, str, str]]:
        if not 0 < self.threshold <= 1:
            yield "threshold", "must be above 0 and at most 1", ""

    def files(self) -> Iterator[tuple[str, str]]:
        yield "model", self.model

    def apply(self, frame: Frame) -> Frame:
        path = Path(frame.context.folder, self.model)
        forest = self._forest(path)
        columns = self.columns or [str(name) for name in forest.columns]
        if len(columns) != len(forest.columns):
            raise StepError(f"the model wants {len(forest.columns)} columns", f"as it was trained: {forest}", "columns")
        missing = [name for name in columns if name not in frame.columns]
        if missing:
            raise StepError(f"there is no column {missing[0]!r}", f"there are: {', '.join(frame.columns)}", "columns")
        model = path.read_bytes()
        score = F.arrow_udf(lambda *arrays: scored(model, arrays), "double")  # type: ignore[attr-defined]
        frame = frame.with_columns({"score": score(*(F.col(f"`{name}`").cast("double") for name in columns))})
        unusual = F.when(F.col("score") >= self.threshold, "anomaly").otherwise("normal")
        return frame.with_columns({"verdict": F.when(F.col("score").isNull(), "no value").otherwise(unusual)})

    def row_order(self, before: RowOrder) -> RowOrder:
        return before.without_columns(["score", "verdict"])

    def _forest(self, path: Path) -> Forest:
        try:
            return load_forest(path)
        except OSError as problem:
            raise StepError(f"cannot read {path}: {problem.strerror}", "", "model") from None
        except ValueError as problem:
            raise StepError(f"{path}: {problem}", "create one with train_forest", "model") from None


def scored(model: bytes, arrays: tuple[pa.Array, ...]) -> pa.Array:
    """Runs in Spark's Python workers; null if a value is missing."""
    import numpy as np  # noqa: PLC0415
    import pyarrow as pa  # noqa: PLC0415

    matrix = np.column_stack([array.to_numpy(zero_copy_only=False).astype(float) for array in arrays])
    whole = np.isfinite(matrix).all(axis=1)
    scores = np.full(len(matrix), np.nan)
    if whole.any():
        scores[whole] = _unpacked(model).scores(matrix[whole])
    return pa.array(scores, pa.float64(), mask=~whole)


@lru_cache(maxsize=4)
def _unpacked(model: bytes) -> Forest:
    return read_forest(model)
