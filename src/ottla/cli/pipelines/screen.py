"""The output of a running pipeline: a live picture on a terminal, one line per batch in a pipe, or JSON."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Protocol, Self

from ottla.base.text import escape, escape_cell
from ottla.cli.pipelines.fitting import Cell, FittingTable, Layout
from ottla.cli.reports.broker_screen import Sparkline, duration_text, short_number
from ottla.cli.terminal import print_line, warn
from ottla.operations.pipeline_runs.progress_text import (
    age,
    batch_line,
    count,
    end_line,
    seconds,
    size,
    step_columns,
    step_rows,
    step_table,
    waiting_text,
)
from ottla.operations.pipeline_runs.snapshots import Snapshot
from ottla.operations.pipeline_runs.statuses import now_ms

if TYPE_CHECKING:
    from rich.console import RenderableType

SPARK_WIDTH = 14
REFRESHES_PER_S = 4
QUERY_COLUMNS = ("query", "batch", "rows", "in/s", "", "done/s", "lag", "", "watermark", "state", "batch time", "")
STEP_WORDS = ("query", "stream", "step")
STEP_STYLES = {"late": "yellow", "dead": "red"}

Source = Callable[[], Sequence[Snapshot]]


class Display(Protocol):
    """Opened before Spark starts, receives all events, closed at the end."""

    source: Source

    def __enter__(self) -> Self: ...
    def __exit__(self, *_: object) -> None: ...

    def step(self, line: str) -> None:
        """Announce an activity that takes time."""

    def warning(self, line: str) -> None: ...
    def batch(self, snapshot: Snapshot) -> None: ...
    def end(self, snapshots: Sequence[Snapshot]) -> None: ...


class PlainDisplay:
    """Prints activities on stderr, batches and the final table on stdout; `lead` identifies the pipeline."""

    def __init__(self, name: str, lead: str = "") -> None:
        self.name = name
        self.lead = lead
        self.source: Source = list

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        return None

    def step(self, line: str) -> None:
        warn(f"{self.name}: {line}")

    def warning(self, line: str) -> None:
        warn(f"{self.name}: {line}")

    def batch(self, snapshot: Snapshot) -> None:
        print_line(f"{self.lead}{batch_line(snapshot)}")
        sys.stdout.flush()

    def end(self, snapshots: Sequence[Snapshot]) -> None:
        for line in ("", *step_table(snapshots), "", f"{self.name}: {end_line(snapshots)}"):
            print_line(line)


class JsonDisplay(PlainDisplay):
    """Prints one JSON object per line, with its kind under "event"."""

    def step(self, line: str) -> None:
        self._print({"event": "step", "text": line})

    def warning(self, line: str) -> None:
        self._print({"event": "warning", "text": line})

    def batch(self, snapshot: Snapshot) -> None:
        self._print({"event": "batch", **snapshot.as_json()})

    def end(self, snapshots: Sequence[Snapshot]) -> None:
        self._print({"event": "end", "queries": [snapshot.as_json() for snapshot in snapshots]})

    def _print(self, value: dict[str, object]) -> None:
        print(json.dumps({"pipeline": self.name, "at_ms": now_ms(), **value}), flush=True)


class LiveDisplay(PlainDisplay):
    """Draws a picture several times a second; the output of queries scrolls above it."""

    def __init__(self, name: str, master: str) -> None:
        from rich.live import Live  # noqa: PLC0415 (50 ms, and only for a terminal)

        super().__init__(name)
        self.master = master
        self.started_s = time.monotonic()
        self.doing = "starting"
        self.trends: dict[str, Trend] = {}
        self._live = Live(get_renderable=self.picture, refresh_per_second=REFRESHES_PER_S, transient=True)

    def __enter__(self) -> Self:
        self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._live.stop()

    def step(self, line: str) -> None:
        self.doing = line

    def warning(self, line: str) -> None:
        self._live.console.print(escape(line), style="yellow", markup=False, highlight=False)

    def batch(self, snapshot: Snapshot) -> None:
        self.trends.setdefault(snapshot.query, Trend()).add(snapshot)

    def end(self, snapshots: Sequence[Snapshot]) -> None:
        self._live.stop()
        super().end(snapshots)

    def picture(self) -> RenderableType:
        head = f"{self.name} on {self.master}, {duration_text(time.monotonic() - self.started_s)}: {self.doing}"
        return rich_picture(head, self.source(), self.trends)


class Trend:
    """The recent rates of one query."""

    def __init__(self) -> None:
        self.rows_in, self.lag, self.batch_time = Sparkline(), Sparkline(), Sparkline()

    def add(self, snapshot: Snapshot) -> None:
        self.rows_in.add(snapshot.rows_in_per_s or 0.0)
        self.lag.add(float(snapshot.lag or 0))
        self.batch_time.add(float(snapshot.batch_ms or 0))


def rich_picture(head: str, snapshots: Sequence[Snapshot], trends: dict[str, Trend]) -> RenderableType:
    """A line of figures for each query, its wait reason, and the row counts of each step."""
    from rich.console import Group  # noqa: PLC0415 (50 ms, and only for a terminal)
    from rich.text import Text  # noqa: PLC0415

    parts: list[RenderableType] = [Text(escape(head), "bold"), Text("")]
    if snapshots:
        waits = [f"{each.query}: {words}" for each in snapshots if (words := waiting_text(each))]
        parts += [query_table(snapshots, trends), *(Text(escape(line), "yellow") for line in waits), Text("")]
    if any(each.steps for each in snapshots):
        parts += [FittingTable(step_layouts(snapshots)), Text("")]
    return Group(*parts, Text("Ctrl-C stops it after the current batch", "dim"))


def query_table(snapshots: Sequence[Snapshot], trends: dict[str, Trend]) -> RenderableType:
    """A line of figures for each query."""
    at_ms = now_ms()
    rows = [query_cells(each, trends.get(each.query), at_ms) for each in snapshots]
    layouts = [Layout(QUERY_COLUMNS, rows, ("query",))]
    while "" in layouts[-1].columns:  # the rightmost sparkline is dropped first
        last = len(layouts[-1].columns) - 1 - layouts[-1].columns[::-1].index("")
        layouts.append(layouts[-1].without(last))
    narrow = [query_cells(each, None, at_ms, is_narrow=True) for each in snapshots]
    places = [place for place, name in enumerate(QUERY_COLUMNS) if name]
    layouts.append(layouts[-1]._replace(rows=[[row[place] for place in places] for row in narrow]))
    return FittingTable(layouts)


def step_layouts(snapshots: Sequence[Snapshot]) -> list[Layout]:
    """The table with whole numbers, and with short ones."""
    columns = step_columns(snapshots)
    styles = [STEP_STYLES.get(name, "") for name in columns]
    rows = [
        [(escape_cell(text), style if text != "0" else "dim") for text, style in zip(row, styles, strict=True)]
        for row in step_rows(snapshots)
    ]
    narrow = [[(_shortened(text), style) for text, style in row] for row in rows]
    return [Layout(columns, rows, STEP_WORDS), Layout(columns, narrow, STEP_WORDS)]


def query_cells(now: Snapshot, trend: Trend | None, at_ms: int, is_narrow: bool = False) -> list[Cell]:
    """Text and style of each cell; the rates of an idle query are zero, not those of its last batch."""
    whole = short_number if is_narrow else "{:,}".format
    is_idle = now.is_idle(at_ms)
    lines = (trend.rows_in, trend.lag, trend.batch_time) if trend else (Sparkline(), Sparkline(), Sparkline())
    rows_in, lag, batch_time = (line.line(SPARK_WIDTH) for line in lines)
    watermark = "" if now.watermark_ms is None else f"{age(at_ms - now.watermark_ms)}{'' if is_narrow else ' ago'}"
    state = f"{whole(now.state_rows)} {'' if is_narrow else 'rows '}{size(now.state_bytes)}" if now.state_rows else ""
    behind = count(now.lag) if now.lag is None else whole(now.lag)
    return [
        (escape_cell(now.query), "bold red" if now.error else "bold"),
        (str(now.batch) if now.batches else "-", ""),
        (whole(now.rows), ""),
        ("idle" if is_idle else _rate(now.rows_in_per_s), "dim" if is_idle else "bold"),
        (rows_in, "green"),
        ("" if is_idle else _rate(now.rows_done_per_s), ""),
        (behind if now.batches else "", "yellow" if now.lag else ""),
        (lag, "yellow"),
        (watermark, ""),
        (state, ""),
        (seconds(now.batch_ms) if now.batches else "", ""),
        (batch_time, "blue"),
    ]


def _shortened(text: str) -> str:
    digits = text.replace(",", "")
    return short_number(int(digits)) if digits.isdigit() else text


def _rate(per_s: float | None) -> str:
    return "" if per_s is None else short_number(per_s)
