"""Plots of a pipeline run: rates, lag, batch time, watermark and state over time, and row counts per step."""

from __future__ import annotations

import base64
import html
import io
import sys
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from matplotlib import use

use("Agg")  # before pyplot is loaded: a report is a file, also without a display

from matplotlib.dates import AutoDateLocator, ConciseDateFormatter
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter

from ottla.operations.pipeline_runs.progress_text import cost_line, end_line, growth_line, size, step_table
from ottla.operations.pipeline_runs.snapshots import StepCount, downsample
from ottla.operations.pipeline_runs.statuses import Status, read_points, read_status

if TYPE_CHECKING:
    from matplotlib.axes import Axes

POINTS_MAX = 2_000  # per query: more are not distinguishable
STEPS_MAX = 24
OUTCOMES = (("kept", "#4c9f70"), ("filtered", "#b8c4cc"), ("late", "#e0a030"), ("dead", "#c8453b"))
COLOURS = ("#2f6fb0", "#d1742d", "#4c9f70", "#8e5ea2", "#a0522d", "#3aa6a6")
# row, column, field of a point, title, factor, tick label format
PLOTS: tuple[tuple[int, int, str, str, float, Callable[[float], str] | None], ...] = (
    (0, 1, "lag", "records behind", 1, None),
    (1, 0, "batch_ms", "time of a batch (s)", 0.001, None),
    (1, 1, "batch_rows", "rows of a batch", 1, None),
    (2, 0, "watermark_age_ms", "watermark behind the clock (s)", 0.001, None),
    (2, 1, "state_bytes", "state in memory", 1, size),
)

Point = Mapping[str, Any]
PointsByQuery = Mapping[str, Sequence[Point]]


def write_report(run: Status, points: Sequence[Point], output: Path) -> None:
    """Write PNG, SVG or HTML, depending on the file name."""
    figure = draw(run, points)
    if output.suffix == ".html":
        output.write_text(html_page(run, figure), encoding="utf-8")
    else:
        figure.savefig(output, dpi=110)


def draw(run: Status, points: Sequence[Point]) -> Figure:
    """Two columns of small plots over time, and the steps below them."""
    curves = {name: downsample([p for p in points if p["query"] == name], POINTS_MAX) for name in _queries(points)}
    steps = [(step_name(run, query.query, step), step) for query in run.queries for step in query.steps][:STEPS_MAX]
    steps_height = 0.32 * len(steps) + 1.2 if steps else 0.0
    figure = Figure(figsize=(13, 8.4 + steps_height), layout="constrained")
    figure.suptitle(_title(run), fontsize=13, fontweight="bold", x=0.01, ha="left")
    grid = figure.add_gridspec(4 if steps else 3, 2, height_ratios=[2.6, 2.6, 2.6, *([steps_height] if steps else [])])
    rates = figure.add_subplot(grid[0, 0])
    _plot_rates(rates, curves)
    times = [point["at_ms"] / 1000 for point in points]
    rates.set_xlim(*(datetime.fromtimestamp(at, UTC) for at in (min(times) - 1, max(times) + 1)))  # type: ignore[arg-type]
    for row, column, field, title, factor, words in PLOTS:
        _plot(figure.add_subplot(grid[row, column], sharex=rates), curves, field, title, factor, words)
    if steps:
        _plot_steps(figure.add_subplot(grid[3, :]), steps)
    return figure


def html_page(run: Status, figure: Figure) -> str:
    """A self-contained HTML file."""
    picture = io.BytesIO()
    figure.savefig(picture, format="png", dpi=110)
    encoded = base64.b64encode(picture.getvalue()).decode()
    table = html.escape("\n".join(step_table(run.queries)))
    name = html.escape(run.name)
    return (
        f'<!doctype html><html lang="en"><meta charset="utf-8"><title>{name}</title>'
        "<style>body{font-family:sans-serif;margin:2em}img{max-width:100%}</style>"
        f"<h1>{name}</h1><p>{html.escape(_title(run))}</p>"
        f'<img alt="course of the run" src="data:image/png;base64,{encoded}"><pre>{table}</pre></html>\n'
    )


def _title(run: Status) -> str:
    begun = datetime.fromtimestamp(run.started_ms / 1000, UTC)
    first = f"{run.name}: {run.state}, {end_line(run.queries)}, started {begun:%Y-%m-%d %H:%M:%S} UTC"
    return "\n".join([first, *cost_lines(run)])


def cost_lines(run: Status) -> list[str]:
    """CPU and memory, growth of the state, number of restarts."""
    grown = [f"{query.query}: {words}" for query in run.queries if (words := growth_line(query))]
    cost = [cost_line(run.cost)] if run.cost is not None else []
    again = [f"started again {run.restarts} times, the last because of: {run.last_failure}"] if run.restarts else []
    return ["; ".join(words) for words in (cost, grown, again) if words]


def _queries(points: Sequence[Point]) -> list[str]:
    return list(dict.fromkeys(str(point["query"]) for point in points))


def _plot_rates(axes: Axes, curves: PointsByQuery) -> None:
    """The input rate as a solid line, the possible rate dashed: where they meet, the pipeline is at its limit."""
    for place, (name, points) in enumerate(curves.items()):
        colour = COLOURS[place % len(COLOURS)]
        times, values = _series(points, "rows_in_per_s", 1)
        axes.plot(times, values, color=colour, label=f"{name}, came in", **_style(points))

        times, values = _series(points, "rows_done_per_s", 1)
        axes.plot(times, values, color=colour, label=f"{name}, can do", alpha=0.5, linestyle="--")
    _style_axes(axes, "rows per second")
    axes.legend(fontsize=8, loc="upper left", framealpha=0.7)


def _plot(
    axes: Axes,
    curves: PointsByQuery,
    field: str,
    title: str,
    factor: float,
    words: Callable[[float], str] | None = None,
) -> None:
    known = False
    for place, (name, points) in enumerate(curves.items()):
        times, values = _series(points, field, factor)
        if any(values):
            known = True
        if values:
            axes.plot(times, values, color=COLOURS[place % len(COLOURS)], label=name, **_style(points))
    _style_axes(axes, title, words)
    if not known:
        axes.set_yticks([])
        nothing = "always 0" if axes.lines else "none"
        axes.text(0.5, 0.5, nothing, transform=axes.transAxes, ha="center", color="#888888")
    if len(curves) > 1 and axes.lines:
        axes.legend(fontsize=8, loc="upper left", framealpha=0.7)


def _series(points: Sequence[Point], field: str, factor: float) -> tuple[Any, list[float]]:
    known = [(point["at_ms"], point[field]) for point in points if point.get(field) is not None]
    times = [datetime.fromtimestamp(at_ms / 1000, UTC) for at_ms, _ in known]
    return times, [value * factor for _, value in known]


def _style(points: Sequence[Point]) -> dict[str, Any]:
    return {"linewidth": 1.4, "marker": "o" if len(points) < 60 else None, "markersize": 3}


def _style_axes(axes: Axes, title: str, words: Callable[[float], str] | None = None) -> None:
    axes.set_title(title, fontsize=10, loc="left")
    axes.grid(alpha=0.25)
    axes.spines[["top", "right"]].set_visible(False)
    axes.tick_params(labelsize=8)
    axes.set_ylim(bottom=0)
    locator = AutoDateLocator(maxticks=7)  # type: ignore[no-untyped-call]
    axes.xaxis.set_major_locator(locator)
    axes.xaxis.set_major_formatter(ConciseDateFormatter(locator))  # type: ignore[no-untyped-call]
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: words(value) if words else f"{value:,.6g}"))


def step_name(run: Status, query: str, step: StepCount) -> str:
    """With several queries the name includes the query, since bars of equal names would be drawn as one."""
    name = f"{step.stream}: {step.number} {step.step}"
    return f"{query}, {name}" if len(run.queries) > 1 else name


def _plot_steps(axes: Axes, named: Sequence[tuple[str, StepCount]]) -> None:
    """A stacked bar for each step: rows kept, filtered, late, dead."""
    names, steps = [name for name, _ in named], [step for _, step in named]
    left = [0] * len(steps)
    for fate, colour in OUTCOMES:
        counts = [getattr(step, fate) for step in steps]
        axes.barh(names, counts, left=left, color=colour, label=fate, height=0.65)
        left = [before + number for before, number in zip(left, counts, strict=True)]
    widest = max(left) or 1
    for place, step in enumerate(steps):
        gone = ", ".join(f"{getattr(step, fate):,} {fate}" for fate, _ in OUTCOMES[1:] if getattr(step, fate))

        label = f"{step.came:,} in" + (f", {gone}" if gone else "")
        axes.text(left[place] + widest * 0.01, place, label, va="center", fontsize=8)
    axes.set_xlim(0, widest * 1.3)
    axes.invert_yaxis()
    axes.set_title("what became of the rows at each step", fontsize=10, loc="left")
    axes.legend(fontsize=8, loc="lower right", bbox_to_anchor=(1, 1), ncols=4, frameon=False)
    axes.spines[["top", "right"]].set_visible(False)
    axes.tick_params(labelsize=8)
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))


def main(arguments: Sequence[str]) -> int:
    """STATE_FOLDER PIPELINE FILE: runs in a child process, to keep matplotlib out of long-running processes."""
    folder, name, output = arguments
    run = read_status(Path(folder), name)
    points = read_points(Path(folder), name)
    if run is None or not points:
        sys.stderr.write(f"{name} has not completed a batch: there is nothing to draw\n")
        return 1
    write_report(run, points, Path(output))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
