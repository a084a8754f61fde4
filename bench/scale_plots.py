"""The plots of docs/scale.md, from the results of bench.controller."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import matplotlib as mpl

mpl.use("svg")

from matplotlib import pyplot as plt
from matplotlib.ticker import FuncFormatter

CHANGES = ("topic created", "partition added", "ISR change", "leader change")
STYLES = ("-o", "--s", ":^")

Row = dict[str, Any]


def write_scale_plots(rows: list[Row], folder: Path) -> None:
    plt.rcParams.update({"svg.hashsalt": "ottla", "svg.fonttype": "none", "font.size": 9, "axes.axisbelow": True})
    for name, draw in {"scale-changes.svg": _changes, "scale-recovery.svg": _recovery}.items():
        figure = draw(rows)
        figure.savefig(folder / name, metadata={"Date": None}, bbox_inches="tight")
        plt.close(figure)


def _changes(rows: list[Row]) -> Any:
    """CPU of one change over partitions, and with the telling of every broker over brokers."""
    figure, (alone, told) = plt.subplots(1, 2, figsize=(8, 3))
    for number, name in enumerate(CHANGES):
        _curves(alone, rows, "partitions", lambda row, name=name: row[name]["cpu_ms"], name, f"C{number}")
        _curves(told, rows, "brokers", lambda row, name=name: row["told"][name]["cpu_ms"], name, f"C{number}")
    _finish(alone, "partitions", "CPU ms of a change")
    _finish(told, "brokers", "CPU ms, all brokers told")
    alone.legend(fontsize=8)
    return figure


def _recovery(rows: list[Row]) -> Any:
    """What takes long: a broker dies, a broker joins, a controller is elected."""
    figure, axes = plt.subplots(figsize=(6, 3))
    kinds: dict[str, Callable[[Row], float]] = {
        "broker dies, all told": lambda row: row["fail-over"]["cpu_ms"] / 1000,
        "snapshot for a broker that joins": lambda row: row["snapshot"]["cpu_ms"] / 1000,
        "that broker takes it in": lambda row: row["snapshot"]["taken_cpu_ms"] / 1000,
        "new controller": lambda row: row["new controller"]["cpu_ms"] / 1000,
    }
    for number, (name, value) in enumerate(kinds.items()):
        _curves(axes, rows, "partitions", value, name, f"C{number}")
    _finish(axes, "partitions", "seconds of CPU")
    axes.legend(fontsize=8)
    return figure


def _curves(axes: Any, rows: list[Row], along: str, value: Callable[[Row], float], name: str, colour: str) -> None:
    """One curve for each number of the other thing, or one of all sizes where both grow together."""
    other = "brokers" if along == "partitions" else "partitions"
    counts = sorted({row[other] for row in rows})
    lots = [[row for row in rows if row[other] == count] for count in counts] if len(counts) < len(rows) else [rows]
    for style, lot in zip(STYLES, lots, strict=False):
        points = sorted((row[along], value(row)) for row in lot)
        label = name if style == STYLES[0] else None
        axes.plot([x for x, _ in points], [y for _, y in points], style, color=colour, label=label, markersize=4)


def _finish(axes: Any, along: str, unit: str) -> None:
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xlabel(along)
    axes.set_ylabel(unit)
    axes.grid(alpha=0.3)
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
