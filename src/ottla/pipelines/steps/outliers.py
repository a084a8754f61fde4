"""`outliers`: is this row unlike those that a model was trained with? Each row gets `score` and `verdict`.

    outliers: {model: readings.npz, threshold: 0.6}

The model is an isolation forest over several columns, trained in a batch over a topic's history (`train_forest` in
forest.py) and kept in a file. It knows no time and no key: for that, see `anomalies`. `verdict` is normal, anomaly, or
"no value" where a column is null, NaN or infinite.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from pyspark.sql import functions as F  # noqa: N812 (everybody's name for it)

from ottla.pipelines.model.row_order import RowOrder
from ottla.pipelines.steps.forest import Forest, load_forest, read_forest
from ottla.pipelines.steps.frame import Frame
from ottla.pipelines.steps.step import Kind, StepError

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True, kw_only=True)
class Outliers:
    """Judge rows with a model that was trained before."""

    model: str = field(metadata={"doc": "file of an isolation forest, .npz"})
    threshold: float = field(default=0.6, metadata={"doc": "score from which a row is an anomaly; 0.5 is ordinary"})
    columns: list[str] = field(default_factory=list, metadata={"doc": "columns for the model (as it was trained)"})
    KIND: ClassVar[Kind] = "marks"

    def problems(self) -> Iterator[tuple[str, str, str]]:
        if not 0 < self.threshold <= 1:
            yield "threshold", "must be above 0 and at most 1", ""

    def apply(self, frame: Frame) -> Frame:
        path = Path(frame.around.folder, self.model)
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
        return before.without(["score", "verdict"])

    def _forest(self, path: Path) -> Forest:
        try:
            return load_forest(path)
        except OSError as problem:
            raise StepError(f"cannot read {path}: {problem.strerror}", "", "model") from None
        except ValueError as problem:
            raise StepError(f"{path}: {problem}", "make one with train_forest", "model") from None


def scored(model: bytes, arrays: tuple[pa.Array, ...]) -> pa.Array:
    """Runs in Spark's Python processes; null where a value is missing."""
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
