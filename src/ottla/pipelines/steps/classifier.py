"""Models in files: scikit-learn (joblib) or MLlib (the folder of a PipelineModel), applied to columns.

A joblib file is a pickle: loading it runs code. Only models that the pipeline names are loaded, and their origin must
be trusted. MLlib folders contain data only. scikit-learn models run in Arrow batches on the executors, to which the
file is sent; MLlib models run in the JVM. Records with null or non-finite features die: most models, and with them the
query, would fail.
"""

from __future__ import annotations

import io
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812 (the usual alias)
from pyspark.sql import types as T  # noqa: N812 (the usual alias)

from ottla.pipelines.steps.columns import require_columns
from ottla.pipelines.steps.frame import ALIVE, FATE, Frame
from ottla.pipelines.steps.parsing.reader import arrow_function, quoted
from ottla.pipelines.steps.step import StepError

MODEL_BYTES_MAX = 256 << 20
CLASS = "_class"
SCORE = "_score"
SCORED = "_scored"
SCORED_TYPE = T.StructType([T.StructField("label", T.StringType()), T.StructField("score", T.DoubleType())])


@dataclass(frozen=True, kw_only=True)
class Classifier:
    """A model that decides which records to keep."""

    model: str = field(metadata={"doc": "file.joblib (scikit-learn) or folder (MLlib's PipelineModel)"})
    features: list[str] = field(metadata={"doc": "columns that the model gets, in its order"})
    keep: list[str] = field(metadata={"doc": "class or classes to keep"})
    threshold: float | None = field(
        default=None,
        metadata={"doc": "keep when their probability together is at least this (the likeliest class wins)"},
    )
    labels: list[str] = field(
        default_factory=list, metadata={"doc": "MLlib: class names by number, if the model has none"}
    )

    def problems(self) -> Iterator[tuple[str, str, str]]:
        if not self.features or not self.keep:
            yield "", "needs features and classes to keep", ""
        if self.threshold is not None and not 0 <= self.threshold <= 1:
            yield "threshold", f"{self.threshold} is not between 0 and 1", ""


def keep_class(frame: Frame, spec: Classifier) -> Frame:
    """Mark rejected records as filtered, and records that the model cannot judge as dead."""
    require_columns(frame, spec.features, "classifier")
    path = Path(frame.context.folder, spec.model)
    names = frame.columns
    frame = _reject_invalid_features(frame, spec.features)
    if path.is_dir():
        frame = _with_mllib(frame, spec, path)
    elif path.is_file():
        frame = _with_sklearn(frame, spec, path)
    else:
        raise StepError(f"there is no model {path}", field="classifier")
    wanted = F.col(SCORE) >= spec.threshold if spec.threshold is not None else F.col(CLASS).isin(list(spec.keep))
    kept = frame.mark_filtered_unless(wanted)
    return replace(kept, rows=kept.rows.select(*map(quoted, names), *frame.hidden))


def _reject_invalid_features(frame: Frame, features: list[str]) -> Frame:
    """Marked rows need valid values as well: see _filled."""
    kinds = {entry.name: entry.dataType for entry in frame.rows.schema.fields}
    faults: list[tuple[Column, Column]] = []
    for name in features:
        value = F.col(quoted(name))
        faults.append((value.isNull(), F.lit(f"feature `{name}` is null")))
        if isinstance(kinds[name], T.DoubleType | T.FloatType):
            not_finite = F.isnan(value) | (F.abs(value) == float("inf"))
            faults.append((not_finite, F.lit(f"feature `{name}` is not a finite number")))
    for condition, text in faults:
        frame = frame.mark_dead(condition, text)
    return frame


# scikit-learn


def _with_sklearn(frame: Frame, spec: Classifier, path: Path) -> Frame:
    if path.stat().st_size > MODEL_BYTES_MAX:
        raise StepError(f"{path} is larger than {MODEL_BYTES_MAX >> 20} MiB", field="classifier")
    model = path.read_bytes()
    _check_sklearn(model, spec, path)
    features, keep = tuple(spec.features), tuple(spec.keep)

    def score(rows: pa.Array) -> pa.Array:
        return score_rows(_load_model(model), rows, features, keep)

    given = F.struct(*(F.col(quoted(name)).alias(f"f{number}") for number, name in enumerate(features)))
    made = arrow_function(score, SCORED_TYPE)(frame.if_alive(given))
    rows = frame.rows.withColumn(SCORED, made)
    return replace(frame, rows=rows.withColumns({CLASS: F.col(f"{SCORED}.label"), SCORE: F.col(f"{SCORED}.score")}))


def score_rows(model: Any, rows: pa.Array, features: tuple[str, ...], keep: tuple[str, ...]) -> pa.Array:
    """Class and probability of the kept classes for each row that is not null."""
    import pandas as pd  # # noqa: PLC0415 (runs on executors)

    living = [place for place, is_there in enumerate(rows.is_valid().to_pylist()) if is_there]
    labels: list[str | None] = [None] * len(rows)
    scores: list[float | None] = [None] * len(rows)
    if living:
        chosen = rows.take(pa.array(living))
        table = pd.DataFrame({name: chosen.field(number).to_pandas() for number, name in enumerate(features)})
        given = table if getattr(model, "feature_names_in_", None) is not None else _matrix(table)
        predicted = [str(label) for label in model.predict(given)]
        certain = _probabilities(model, given, keep)
        for number, place in enumerate(living):
            labels[place] = predicted[number]
            scores[place] = certain[number] if certain is not None else float(predicted[number] in keep)
    return pa.StructArray.from_arrays(
        [pa.array(labels, pa.string()), pa.array(scores, pa.float64())], ["label", "score"]
    )


def _matrix(table: Any) -> Any:
    """A model trained on text expects text, any other model expects numbers."""
    return table.iloc[:, 0] if table.shape[1] == 1 and table.dtypes.iloc[0].kind == "O" else table.to_numpy()


def _probabilities(model: Any, given: Any, keep: tuple[str, ...]) -> list[float] | None:
    if not hasattr(model, "predict_proba"):
        return None
    wanted = [number for number, label in enumerate(model.classes_) if str(label) in keep]
    return [float(sum(row[number] for number in wanted)) for row in model.predict_proba(given)]


def _check_sklearn(model: bytes, spec: Classifier, path: Path) -> None:
    try:
        loaded = _load_model(model)
    except ImportError as problem:
        raise StepError(f"{path} needs a package that is not installed: {problem}", field="classifier") from None
    except (ValueError, EOFError, KeyError, TypeError, AttributeError, OSError) as problem:
        raise StepError(f"{path} is not a joblib file of a model: {problem}", field="classifier") from None
    if not hasattr(loaded, "predict"):
        raise StepError(f"{path} holds {type(loaded).__name__}, which has no predict()", field="classifier")
    if spec.threshold is not None and not hasattr(loaded, "predict_proba"):
        raise StepError(f"{type(loaded).__name__} has no probabilities", "remove threshold", "classifier")
    classes = [str(label) for label in getattr(loaded, "classes_", spec.keep)]
    _check_classes(spec, classes)
    wanted = getattr(loaded, "n_features_in_", None)
    if wanted is not None and wanted != len(spec.features):
        raise StepError(f"the model wants {wanted} features, there are {len(spec.features)}", field="classifier")


@lru_cache(maxsize=4)
def _load_model(model: bytes) -> Any:
    import joblib  # noqa: PLC0415 (comes with scikit-learn)

    return joblib.load(io.BytesIO(model))


# MLlib


def _with_mllib(frame: Frame, spec: Classifier, path: Path) -> Frame:
    from pyspark.ml import PipelineModel  # # noqa: PLC0415 (slow import)
    from pyspark.ml.functions import vector_to_array  # noqa: PLC0415

    try:
        model = PipelineModel.load(path.resolve().as_uri())
    except Exception as problem:
        text = str(problem).splitlines()[0]
        raise StepError(f"{path} is not a PipelineModel: {text}", field="classifier") from problem
    words = _indexer_labels(model)
    frame = _reject_unknown_values(frame, {name: known for name, known in words.items() if name in frame.columns})
    rows = model.transform(_fill_dead_rows(frame, spec.features, words))
    labels = spec.labels or _labels(model)
    if labels:
        _check_classes(spec, labels)
    number = F.col("prediction").cast("int")
    label = F.array(*map(F.lit, labels))[number] if labels else number.cast("string")
    wanted = [place for place, name in enumerate(labels) if name in spec.keep] or [
        int(each) for each in spec.keep if each.isdigit()
    ]
    if "probability" in rows.columns:
        certain = vector_to_array(F.col("probability"))
        score = sum((F.coalesce(F.get(certain, F.lit(place)), F.lit(0.0)) for place in wanted), F.lit(0.0))
    elif spec.threshold is not None:
        raise StepError("the model has no probabilities", "remove threshold", "classifier")
    else:
        score = label.isin(list(spec.keep)).cast("double")
    return replace(frame, rows=rows.withColumns({CLASS: label, SCORE: score}))


def _fill_dead_rows(frame: Frame, features: list[str], words: dict[str, list[str]]) -> Any:
    """Dead rows pass through the model too, with a harmless value."""
    kinds = {entry.name: entry.dataType for entry in frame.rows.schema.fields}
    filled: dict[str, Column] = {}
    for name in {*features, *words} & set(frame.columns):
        harmless = F.lit(words[name][0] if words.get(name) else "" if isinstance(kinds[name], T.StringType) else 0)
        filled[name] = F.when(F.col(FATE) == ALIVE, F.col(quoted(name))).otherwise(harmless.cast(kinds[name]))
    return frame.rows.withColumns(filled)


def _indexer_labels(model: Any) -> dict[str, list[str]]:
    """The training values of each StringIndexer that would stop the query on others."""
    known: dict[str, list[str]] = {}
    for stage in model.stages:
        if hasattr(stage, "labelsArray") and stage.getHandleInvalid() == "error":
            inputs = stage.getInputCols() if stage.isSet("inputCols") else [stage.getInputCol()]
            known.update({name: list(words) for name, words in zip(inputs, stage.labelsArray, strict=True)})
    return known


def _reject_unknown_values(frame: Frame, words: dict[str, list[str]]) -> Frame:
    for name, known in words.items():
        is_strange = ~F.coalesce(F.col(quoted(name)).cast("string").isin(known), F.lit(False))
        frame = frame.mark_dead(is_strange, f"feature `{name}` has a value that the model was not trained with")
    return frame


def _labels(model: Any) -> list[str]:
    """The labels of a final IndexToString stage."""
    for stage in reversed(model.stages):
        if type(stage).__name__ == "IndexToString" and stage.isSet("labels"):
            return [str(label) for label in stage.getLabels()]
    return []


def _check_classes(spec: Classifier, known: list[str]) -> None:
    for name in spec.keep:
        if name not in known:
            raise StepError(f"the model has no class {name!r}", f"it has {', '.join(known[:20])}", "classifier")
