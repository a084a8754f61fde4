"""How many rows came too late, exactly, from what Spark reports of a batch.

Joins, deduplication and transformWithState drop late rows one by one, and Spark's count of them is right. A windowed
aggregation drops what is late after rows were merged into groups: Spark counts groups, and for `sql` these are all that
is known. A window step also observes,
for the rows that go in, how many there are per last moment at which they could still count (`watch_ends`); those whose
moment is not after the watermark were late. Spark compares with the watermark of the batch before.

The observation is a histogram. It is exact as long as a batch has no more than ENDS_MAX different moments; beyond that,
neighbouring ones are merged, and the count is one of the merged ones (`is_exact` says so).

The rows themselves can be had in a second look at the batch, with the same comparison (`watch_late`): in the first step
of a query that drops rows, the only one that can have late ones as long as rows keep their origin.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from pyspark.sql import Column

    from ottla.pipelines.steps.frame import Frame, Passage

ENDS = "late_ends"
END = "_end_ms"
ENDS_MAX = 2000


class LateRows(NamedTuple):
    """Of one step in one batch; `passage` is the step."""

    passage: Passage
    rows: int
    is_exact: bool = True


def late_rows(passages: Sequence[Passage], progress: Mapping[str, Any], watermark_before_ms: int) -> list[LateRows]:
    """`progress` is Spark's report of a batch as a dict; `watermark_before_ms` the watermark of the batch before it."""
    operators = list(progress.get("stateOperators") or ())
    observed = progress.get("observedMetrics") or {}
    order = _owners(in_plan_order(passages), len(operators))
    dropped: dict[int, int] = {}
    for passage, operator in zip(order, operators, strict=False):
        dropped[id(passage)] = dropped.get(id(passage), 0) + int(operator.get("numRowsDroppedByWatermark") or 0)
    found = {id(passage): passage for passage in order}
    return [_late(found[key], count, observed, watermark_before_ms) for key, count in dropped.items() if count > 0]


def _owners(passages: Sequence[Passage], count: int) -> list[Passage]:
    """Whose each operator is. Operators that no step has announced are those of the one step with SQL or code of its
    own; where there are several of them nobody knows which is whose."""
    unknown = count - sum(passage.operators for passage in passages)
    own = [passage for passage in passages if passage.has_state and passage.operators == 0]
    own = own or [passage for passage in passages if passage.kind == "opaque" and passage.operators == 0]
    if unknown and len(own) != 1:
        return []
    return [
        passage for passage in passages for _ in range(unknown if unknown and passage is own[0] else passage.operators)
    ]


def watermark_ms(progress: Mapping[str, Any]) -> int:
    """The watermark of a batch, for the batch after it; 0 while there is none."""
    text = (progress.get("eventTime") or {}).get("watermark")
    if not text:
        return 0
    moment = datetime.strptime(str(text), "%Y-%m-%dT%H:%M:%S.%fZ").replace(tzinfo=UTC)
    return round(moment.timestamp() * 1000)


def in_plan_order(passages: Sequence[Passage]) -> list[Passage]:
    """As Spark lists a query's operators: the last first, and of a join the left side before the right."""
    order: list[Passage] = []
    waiting = [list(passages)]
    while waiting:
        rest = waiting.pop()
        if not rest:
            continue
        last = rest[-1]
        order.append(last)
        # The mark of a step is one more than the number of steps before it on its own (left) side.
        waiting += [rest[last.mark - 1 : -1], rest[: last.mark - 1]]
    return order


def late_reason(watermark_ms: int) -> str:
    """Why a record of `late_rows` is there."""
    moment = datetime.fromtimestamp(watermark_ms / 1000, UTC).isoformat(timespec="milliseconds")
    return f"late: the watermark was {moment}"


def watch_late(frame: Frame, end_ms: Column | None = None, passage: Passage | None = None) -> Frame:
    """Called by a step that drops late rows: what is not late. `end_ms`: the watermark at which a row no longer counts,
    in milliseconds (its time); `passage`: the step (the last one). Raises StepError where late rows cannot be told."""
    if not frame.around.sends_late:
        return frame
    from pyspark.sql import functions as F  # noqa: N812, PLC0415

    from ottla.pipelines.steps.step import StepError  # noqa: PLC0415

    if "_offset" not in frame.rows.columns:
        if frame.is_streaming and not any(each.operators for each in frame.passages):
            cause = (
                "its late rows cannot be sent (late_rows): a step before it made new rows, and records are not known"
            )
            raise StepError(cause, "leave late_rows out, or put the step behind this one")
        return frame
    if end_ms is None:
        end_ms = F.ceil(F.unix_micros(F.col(f"`{frame.event_time}`")) / 1000)
    return replace(frame, rows=frame.around.collect_late(frame.rows, end_ms, passage or frame.passages[-1]))


def watch_ends(frame: Frame, end_ms: Column) -> Frame:
    """`end_ms`: the watermark at which the row no longer counts, in milliseconds."""
    frame = watch_late(frame, end_ms)
    if not (frame.is_streaming and frame.around.is_counting):
        return frame
    from pyspark.sql import functions as F  # noqa: N812, PLC0415 (the rest of this file is for programs without Spark)

    # As a column: inside the histogram Spark would compute it without generated code.
    told = frame.rows.withColumn(END, end_ms.cast("double"))
    name, rows = frame.around.observe(told, [F.histogram_numeric(F.col(END), F.lit(ENDS_MAX)).alias(ENDS)])
    last = replace(frame.passages[-1], ends=name)
    return replace(frame, rows=rows.drop(END), passages=(*frame.passages[:-1], last))


def _late(passage: Passage, dropped: int, observed: Mapping[str, Any], watermark_before_ms: int) -> LateRows:
    if not passage.ends:
        return LateRows(passage, dropped)
    bins = [_pair(each) for each in _ends(observed.get(passage.ends))]
    late = sum(count for end, count in bins if end <= watermark_before_ms)
    return LateRows(passage, round(late), is_exact=len(bins) < ENDS_MAX)


def _ends(figures: Any) -> Iterable[Any]:
    if figures is None:
        return ()
    return (figures.get(ENDS) if isinstance(figures, Mapping) else figures[ENDS]) or ()


def _pair(each: Any) -> tuple[float, float]:
    return float(each["x"]), float(each["y"])
