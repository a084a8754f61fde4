"""The plots of the report, as SVG files that are the same for the same results."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import matplotlib as mpl

mpl.use("svg")

from matplotlib import pyplot as plt
from matplotlib.ticker import FuncFormatter

from bench.goals import KAFKA, OTTLA
from bench.results import Results
from bench.table import Line, lines

COLOURS = {KAFKA: "#8c8c8c", OTTLA: "#1f77b4"}
NAMES = {KAFKA: "Apache Kafka", OTTLA: "ottla"}
GOOD, BAD = "#2a9d5c", "#d1495b"
PARTITIONS, CONNECTIONS = (10, 1000, 10_000), (1, 100, 1000)
LATENCIES = {
    "one in flight\np50": "sync.raw.p50_ms",
    "one in flight\np99": "sync.raw.p99_ms",
    "end to end\np50": "end_to_end.rate_1000.p50_ms",
    "end to end\np99": "end_to_end.rate_1000.p99_ms",
}


def write_plots(results: Results, folder: Path) -> dict[str, Path]:
    """Draws every plot that there are figures for; returns the files by title."""
    plt.rcParams.update({"svg.hashsalt": "ottla", "svg.fonttype": "none", "font.size": 9, "axes.axisbelow": True})
    drawings: dict[str, tuple[str, Callable[[Results], Any]]] = {
        "Speed against Apache Kafka": ("performance-ratios.svg", _ratios),
        "CPU of the broker per GB": ("performance-cpu.svg", _cpu_per_gb),
        "Latency": ("performance-latency.svg", _latencies),
        "Cost of a request with many partitions and connections": ("performance-partitions.svg", _growth),
    }
    written = {}
    for title, (name, draw) in drawings.items():
        figure = draw(results)
        if figure is None:
            continue
        figure.savefig(folder / name, metadata={"Date": None}, bbox_inches="tight")
        plt.close(figure)
        written[title] = folder / name
    return written


def _ratios(results: Results) -> Any:
    """Bars of ottla / Kafka for every rate, with a mark where the goal is."""
    shown = [
        line for line in lines(results) if line.ratio and line.row.unit in ("requests/s", "MB/s") and line.row.goal
    ]
    if not shown:
        return None
    figure, axes = plt.subplots(figsize=(8, 0.6 + 0.26 * len(shown)))
    places = range(len(shown))
    axes.barh(places, [line.ratio or 0 for line in shown], color=[GOOD if line.is_met else BAD for line in shown])
    for place, line in zip(places, shown, strict=True):
        if line.row.goal:
            axes.plot([line.row.goal.bound] * 2, [place - 0.45, place + 0.45], color="black", linewidth=1.5)
        axes.text((line.ratio or 0) * 1.02, place, f"{line.ratio:.2f}", va="center", fontsize=8)
    axes.set_yticks(places, [line.row.label for line in shown])
    axes.invert_yaxis()
    axes.axvline(1, color="black", linewidth=0.6, linestyle=":")
    axes.set_xlabel("ottla / Apache Kafka (longer is faster; the black mark is the goal)")
    axes.grid(axis="x", alpha=0.3)
    return figure


def _cpu_per_gb(results: Results) -> Any:
    shown = [line for line in lines(results) if line.row.cpu == "cpu_s_per_gb" and line.ottla_cpu is not None]
    if not shown:
        return None
    figure, axes = plt.subplots(figsize=(8, 0.6 + 0.36 * len(shown)))
    _bar_pairs(axes, shown)
    axes.set_xlabel("CPU seconds of the broker per GB (shorter is better)")
    return figure


def _bar_pairs(axes: Any, shown: list[Line]) -> None:
    places = range(len(shown))
    axes.barh([place - 0.2 for place in places], [line.kafka_cpu or 0 for line in shown], 0.4, color=COLOURS[KAFKA])
    axes.barh([place + 0.2 for place in places], [line.ottla_cpu or 0 for line in shown], 0.4, color=COLOURS[OTTLA])
    axes.set_yticks(places, [line.row.label for line in shown])
    axes.invert_yaxis()
    axes.grid(axis="x", alpha=0.3)
    axes.legend([NAMES[KAFKA], NAMES[OTTLA]], loc="lower right")


def _latencies(results: Results) -> Any:
    shown = {
        name: path for name, path in LATENCIES.items() if results.median(OTTLA, path) or results.median(KAFKA, path)
    }
    if not shown:
        return None
    figure, axes = plt.subplots(figsize=(6, 3))
    for shift, system in ((-0.2, KAFKA), (0.2, OTTLA)):
        heights = [results.median(system, path) or 0 for path in shown.values()]
        bars = axes.bar(
            [place + shift for place in range(len(shown))], heights, 0.4, color=COLOURS[system], label=NAMES[system]
        )
        axes.bar_label(bars, fmt="%.2f", fontsize=8)
    axes.set_xticks(range(len(shown)), list(shown))
    axes.set_yscale("log")
    axes.margins(y=0.15)
    axes.set_ylabel("ms")
    axes.grid(axis="y", alpha=0.3)
    axes.legend()
    return figure


def _growth(results: Results) -> Any:
    """CPU per request over the number of partitions, and over the number of connections."""
    if not any(results.median(system, "partitions.produce_partitions_10.cpu_us_per_request") for system in NAMES):
        return None
    figure, panels = plt.subplots(1, 2, figsize=(8, 3), sharey=True)
    for axes, (what, counts) in zip(panels, (("partitions", PARTITIONS), ("connections", CONNECTIONS)), strict=True):
        for system in NAMES:
            for kind, style in (("produce", "-o"), ("fetch", "--s")):
                _growth_curve(axes, results, system, f"{kind}_{what}", counts, style)
        axes.set_xscale("log")
        axes.set_xlabel(f"{what} on the broker")
        axes.grid(alpha=0.3)
        axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
    panels[0].set_ylim(bottom=0)  # of both: they share it, and only now hold all their curves
    panels[0].set_ylabel("CPU µs per request")
    panels[1].legend(fontsize=8)
    return figure


def _growth_curve(axes: Any, results: Results, system: str, name: str, counts: tuple[int, ...], style: str) -> None:
    points = [(count, results.median(system, f"partitions.{name}_{count}.cpu_us_per_request")) for count in counts]
    known = [(count, cost) for count, cost in points if cost is not None]
    if known:
        xs, ys = zip(*known, strict=True)
        axes.plot(xs, ys, style, color=COLOURS[system], label=f"{NAMES[system]}, {name.partition('_')[0]}")
