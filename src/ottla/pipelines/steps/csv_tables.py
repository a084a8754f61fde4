"""A CSV file as a table: a column has a type only where every value of it is written as that type is.

Spark's own guess would destroy what is no number: 01234 and +49123 become 1234 and 49123, the code 1e5 becomes 100000,
and the opening time 10:30 is taken for today, and tomorrow for tomorrow. Such columns stay text.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as F  # noqa: N812 (everybody's name for it)
from pyspark.sql import types as T  # noqa: N812 (everybody's name for it)

from ottla.pipelines.steps.parsing.reader import quoted
from ottla.pipelines.steps.step import StepError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

OPTIONS: dict[str, Any] = {"header": True, "escape": '"', "multiLine": True}
WHOLE = r"-?(0|[1-9][0-9]*)"
FRACTION = rf"{WHOLE}(\.[0-9]+([eE][-+]?[0-9]+)?)?|NaN"
BAD = "_bad"
MOMENT = r"[0-9]{4}-[0-9]{2}.*"


def csv_table(spark: SparkSession, path: str, wanted: Collection[str] = ()) -> DataFrame:
    """The first line has the names; `wanted` are text whatever stands there. Raises AnalysisException and StepError."""
    guessed = spark.read.csv(path, inferSchema=True, **OPTIONS)
    _refuse_ragged(spark, path, guessed.columns)
    forms = {entry.name: _form(entry.dataType) for entry in guessed.schema.fields}
    doubtful = [name for name, form in forms.items() if form is not None]
    if not doubtful and not wanted:
        return guessed
    texts = spark.read.csv(path, schema=_schema(guessed.schema, guessed.columns), **OPTIONS)
    odd = [F.max(~F.col(quoted(name)).rlike(f"^({forms[name]})$")).alias(name) for name in doubtful]
    found: Mapping[str, bool] = texts.agg(*odd).collect()[0].asDict() if odd else {}
    plain = [name for name in guessed.columns if name in wanted or (name in doubtful and found[name])]
    return spark.read.csv(path, schema=_schema(guessed.schema, plain), **OPTIONS)


def _refuse_ragged(spark: SparkSession, path: str, names: list[str]) -> None:
    """Spark would make nulls of fields that are missing, and leave out those that are too many."""
    fields = [
        *(T.StructField(f"_{at}", T.StringType()) for at in range(len(names))),
        T.StructField(BAD, T.StringType()),
    ]
    lines = spark.read.csv(path, schema=T.StructType(fields), columnNameOfCorruptRecord=BAD, **OPTIONS)
    bad = lines.cache().filter(F.col(BAD).isNotNull()).select(BAD).head()  # cached: Spark reads no such column alone
    lines.unpersist()
    if bad is not None:
        raise StepError(f"a line has not the {len(names)} fields of the first one: {bad[0]}", "correct it", "table")


def _form(kind: T.DataType) -> str | None:
    if isinstance(kind, T.IntegralType | T.DecimalType):
        return WHOLE
    if isinstance(kind, T.FractionalType):
        return FRACTION
    return MOMENT if isinstance(kind, T.TimestampType | T.TimestampNTZType) else None


def _schema(guessed: T.StructType, texts: list[str]) -> T.StructType:
    return T.StructType(
        [T.StructField(each.name, T.StringType() if each.name in texts else each.dataType) for each in guessed.fields]
    )
