"""Detects text that Spark replaces by the planning time: 'now', 'today', 'tomorrow', 'yesterday' as date or timestamp.

`cast('now' as timestamp)`, `to_date('today')`, `at > 'yesterday'` and `cast(concat('n', 'ow') as timestamp)` all become
a constant by Spark's rule SpecialDatetimeValues: one value for all rows, and another one in a repeated batch. That rule
decides which casts are replaced, so this module applies it to the analyzed plan and inspects its changes. Columns with
the text 'now' are not affected: Spark replaces only constants.

Literals that the parser replaces (`TIMESTAMP 'now'`) are constants in the plan; expressions/folding.py rejects them in
the text, and casts of constant texts.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from ottla.pipelines.steps.step import StepError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

SPECIAL = ("now", "today", "tomorrow", "yesterday")  # 'epoch' is constant and therefore allowed
TIMES = ("date", "timestamp", "timestamp_ntz")


def refuse_special_times(rows: DataFrame, field: str = "") -> None:
    """Raises StepError. Over Spark Connect the plan is not available, and nothing is rejected."""
    found = special_time(rows) if hasattr(rows, "_jdf") else None
    if found is not None:
        text, kind = found
        raise StepError(
            f"takes the text {text!r} for a {kind}: Spark computes it once for all rows, and again for a repeat",
            "compare columns, or use current_timestamp() or current_date() in `derive`",
            field,
        )


def special_time(rows: DataFrame) -> tuple[str, str] | None:
    """The first such text in the plan of these rows, and the target type of its cast."""
    optimizer = rows.sparkSession._jvm.org.apache.spark.sql.catalyst.optimizer  # type: ignore[union-attr]
    analysed = rows._jdf.queryExecution().analyzed()
    for plan in (analysed, *_elements(analysed.subqueriesAll())):
        plain = optimizer.ReplaceExpressions.apply(plan)
        if optimizer.SpecialDatetimeValues.apply(plain).fastEquals(plain):
            continue
        found = next(_special_casts(plain), None)
        if found is not None:
            return found
    return None


def _special_casts(plan: Any) -> Iterator[tuple[str, str]]:
    for expression in _elements(plan.expressions()):
        yield from _special_in(expression)
    for child in _elements(plan.children()):
        yield from _special_casts(child)


def _special_in(expression: Any) -> Iterator[tuple[str, str]]:
    children = list(_elements(expression.children()))
    kind = expression.dataType().typeName() if expression.getClass().getSimpleName() == "Cast" else ""
    if kind in TIMES and children[0].dataType().typeName() == "string" and children[0].foldable():
        text = str(children[0].eval(None))
        if text.strip().lower().startswith(SPECIAL):  # a zone may follow: 'today UTC'
            yield text, kind
    for child in children:
        yield from _special_in(child)


def _elements(sequence: Any) -> Iterator[Any]:
    """The elements of a Scala sequence."""
    for place in range(sequence.size()):
        yield sequence.apply(place)
