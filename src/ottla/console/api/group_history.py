"""How a group did in the last hour or day: lag in records and in time, and how fast it read."""

from __future__ import annotations

import math

import msgspec

from ottla.console.api.call import Call
from ottla.console.api.groups import group_of
from ottla.console.history.archive import COARSE_MS, FINE_MS

HOURS_MAX = 24
GAP = 3  # rounds that are missing: the console was not there


class GroupHistory(msgspec.Struct, frozen=True):
    """Columns, oldest first: wall time in ms, lag in records and in ms, records a second; null: not known."""

    at_ms: list[int]
    lag: list[float | None]
    lag_ms: list[float | None]
    rate: list[float | None]


async def show_history(call: Call) -> GroupHistory:
    group = group_of(call)
    hours = max(1, call.number("hours", 1, HOURS_MAX))
    points = await call.console.recorder.group(call.parameters["cluster"], group.group_id, hours)
    gap_ms = GAP * (FINE_MS if hours <= 1 else COARSE_MS)
    rows: list[tuple[float | None, ...]] = []
    for at_ms, point in points:
        if rows and at_ms - (rows[-1][0] or 0) > gap_ms:
            rows.append((at_ms - 1, None, None, None))  # a line through it would be a lie
        rows.append((at_ms, *(None if math.isnan(number) else round(number, 3) for number in point)))
    columns = [list(column) for column in zip(*rows, strict=True)] if rows else [[], [], [], []]
    return msgspec.convert(dict(zip(GroupHistory.__struct_fields__, columns, strict=True)), GroupHistory)
