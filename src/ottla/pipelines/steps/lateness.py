"""Exact counts of late rows, from Spark's progress of a batch.

Joins, deduplication and transformWithState drop late rows one by one, and Spark's count is right. A windowed
aggregation drops late groups after merging rows: Spark counts groups, and for `sql` only these are known. A window step
therefore also observes how many input rows there are per latest watermark at which they still count
(`observe_window_ends`); rows at or before the watermark were late. Spark compares with the watermark of the previous
batch.

The observation is a histogram. It is exact for up to ENDS_MAX distinct values in a batch; beyond that, neighboring bins
are merged and the count is approximate (`is_exact`).

The late rows themselves are found by reading the batch again with the same comparison (`track_late_rows`): in the first
step that drops rows, the only one that can have late rows while rows keep their origin.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from pyspark.sql import Column

    from ottla.pipelines.steps.frame import AppliedStep, Frame

ENDS = "late_ends"
END = "_end_ms"
ENDS_MAX = 2000


class LateRows(NamedTuple):
    """The late rows of one step in one batch."""

    passage: AppliedStep
    rows: int
    is_exact: bool = True


def late_rows(passages: Sequence[AppliedStep], progress: Mapping[str, Any], watermark_before_ms: int) -> list[LateRows]:
    """`progress` is Spark's StreamingQueryProgress as a dict; `watermark_before_ms` is the watermark of the previous
    batch."""
    operators = list(progress.get("stateOperators") or ())
    observed = progress.get("observedMetrics") or {}
    order = _operator_steps(in_plan_order(passages), len(operators))
    dropped: dict[int, int] = {}
    for passage, operator in zip(order, operators, strict=False):
        dropped[id(passage)] = dropped.get(id(passage), 0) + int(operator.get("numRowsDroppedByWatermark") or 0)
    found = {id(passage): passage for passage in order}
    return [
        _late_rows_of(found[key], count, observed, watermark_before_ms) for key, count in dropped.items() if count > 0
    ]


def _operator_steps(passages: Sequence[AppliedStep], count: int) -> list[AppliedStep]:
    """The step of each operator. Operators that no step declares belong to the only step with SQL or user code; with
    several such steps the mapping is unknown."""
    unknown = count - sum(passage.operators for passage in passages)
    own = [passage for passage in passages if passage.has_state and passage.operators == 0]
    own = own or [passage for passage in passages if passage.kind == "opaque" and passage.operators == 0]
    if unknown and len(own) != 1:
        return []
    return [
        passage for passage in passages for _ in range(unknown if unknown and passage is own[0] else passage.operators)
    ]


def watermark_ms(progress: Mapping[str, Any]) -> int:
    """The watermark of a batch, which applies to the next one; 0 without a watermark."""
    text = (progress.get("eventTime") or {}).get("watermark")
    if not text:
        return 0
    moment = datetime.strptime(str(text), "%Y-%m-%dT%H:%M:%S.%fZ").replace(tzinfo=UTC)
    return round(moment.timestamp() * 1000)


def in_plan_order(passages: Sequence[AppliedStep]) -> list[AppliedStep]:
    """The order in which Spark lists operators: the last first, and of a join the left side before the right."""
    order: list[AppliedStep] = []
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
    """The reason in a record of `late_rows`."""
    moment = datetime.fromtimestamp(watermark_ms / 1000, UTC).isoformat(timespec="milliseconds")
    return f"late: the watermark was {moment}"


def track_late_rows(frame: Frame, end_ms: Column | None = None, passage: AppliedStep | None = None) -> Frame:
    """Return the rows that are not late; called by steps that drop late rows. `end_ms`: the watermark at which a row
    no longer counts (default: its time); `passage`: the step (default: the last). Raises StepError if late rows
    cannot be identified."""
    if not frame.context.sends_late:
        return frame
    from pyspark.sql import functions as F  # noqa: N812, PLC0415

    from ottla.pipelines.steps.step import StepError  # noqa: PLC0415

    if "_offset" not in frame.rows.columns:
        if frame.is_streaming and not any(each.operators for each in frame.applied_steps):
            cause = (
                "its late rows cannot be sent (late_rows): a step before it made new rows, and records are not known"
            )
            raise StepError(cause, "leave late_rows out, or put the step behind this one")
        return frame
    if end_ms is None:
        end_ms = F.ceil(F.unix_micros(F.col(f"`{frame.event_time}`")) / 1000)
    return replace(frame, rows=frame.context.collect_late(frame.rows, end_ms, passage or frame.applied_steps[-1]))


def observe_window_ends(frame: Frame, end_ms: Column) -> Frame:
    """`end_ms`: the watermark in milliseconds at which the row no longer counts."""
    frame = track_late_rows(frame, end_ms)
    if not (frame.is_streaming and frame.context.is_counting):
        return frame
    from pyspark.sql import functions as F  # # noqa: N812, PLC0415 (the rest of this module works without Spark)

    # As a column: inside the histogram, Spark would compute it without code generation.
    told = frame.rows.withColumn(END, end_ms.cast("double"))
    name, rows = frame.context.observe(told, [F.histogram_numeric(F.col(END), F.lit(ENDS_MAX)).alias(ENDS)])
    last = replace(frame.applied_steps[-1], window_end_observation=name)
    return replace(frame, rows=rows.drop(END), applied_steps=(*frame.applied_steps[:-1], last))


def _late_rows_of(
    passage: AppliedStep, dropped: int, observed: Mapping[str, Any], watermark_before_ms: int
) -> LateRows:
    if not passage.window_end_observation:
        return LateRows(passage, dropped)
    bins = [_bin(each) for each in _ends(observed.get(passage.window_end_observation))]
    late = sum(count for end, count in bins if end <= watermark_before_ms)
    return LateRows(passage, round(late), is_exact=len(bins) < ENDS_MAX)


def _ends(figures: Any) -> Iterable[Any]:
    if figures is None:
        return ()
    return (figures.get(ENDS) if isinstance(figures, Mapping) else figures[ENDS]) or ()


def _bin(each: Any) -> tuple[float, float]:
    return float(each["x"]), float(each["y"])
