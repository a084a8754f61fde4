"""The tables and plots of docs/tuning.md, from the figures of bench/tuning.py."""

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import matplotlib as mpl

mpl.use("svg")

from matplotlib import pyplot as plt

from bench.errors import BenchError
from bench.goals import KAFKA, OTTLA
from bench.plots import COLOURS, NAMES
from bench.report import NOISE_SHARE_MAX, noise
from bench.table import DASH, format_value

PAGE = "tuning.md"
BEGIN, END = "<!-- measured: {} -->", "<!-- end -->"


class Column(NamedTuple):
    """A figure by its name in the results."""

    name: str
    heading: str
    short: str = ""  # for a plot


SPEED = Column("records_per_s", "records/s", "records/s")
CLIENT = Column("client_us_per_record", "client CPU, µs/record", "client µs/record")
BROKER = Column("cpu_us_per_record", "broker CPU, µs/record", "broker µs/record")
WIRE = Column("wire_bytes_per_record", "wire, B/record", "wire B/record")
DISK = Column("disk_bytes_per_record", "disk, B/record", "disk B/record")
REQUESTS = Column("requests_per_s", "requests/s", "requests/s")
P50, P99 = Column("p50_ms", "p50, ms", "p50 ms"), Column("p99_ms", "p99, ms", "p99 ms")
CLIENT_SHARE = Column("client_ms_per_s", "client CPU, ms/s", "client ms/s")
BROKER_SHARE = Column("broker_ms_per_s", "broker CPU, ms/s", "broker ms/s")
WIRE_SHARE = Column("wire_bytes_per_s", "wire, B/s", "wire B/s")
CONNECTIONS = Column("connections", "connections", "connections")

FLOOD = (SPEED, CLIENT, BROKER)
PACED = (P50, P99, CLIENT, BROKER)
TABLES: dict[str, tuple[Column, ...]] = {
    "compression": (*FLOOD, WIRE),
    "reading": FLOOD,
    "linger": (REQUESTS, *PACED, WIRE),
    "batch_size": (SPEED, REQUESTS, CLIENT, BROKER, WIRE),
    "fetch": (REQUESTS, P50, P99, CLIENT_SHARE, BROKER_SHARE, WIRE_SHARE),
    "idle": (REQUESTS, CLIENT_SHARE, BROKER_SHARE, WIRE_SHARE),
    "sockets": FLOOD,
    "readers": (CONNECTIONS, P50, P99, CLIENT_SHARE, BROKER_SHARE, WIRE_SHARE),
    "connections": (CONNECTIONS, *PACED),
    "partitions": FLOOD,
    "in_flight": FLOOD,
    "acks": PACED,
    "flush": PACED,
    "recompression": (*FLOOD, WIRE, DISK),
}
PLOTS: dict[str, tuple[tuple[str, tuple[Column, ...]], ...]] = {
    "tuning-compression.svg": (("compression", (SPEED, CLIENT, BROKER, WIRE)),),
    "tuning-batching.svg": (("linger", (REQUESTS, P50, BROKER, WIRE)),),
    "tuning-network.svg": (("fetch", (REQUESTS, P50, CLIENT_SHARE, BROKER_SHARE)),),
    "tuning-multiplexing.svg": (
        ("connections", (REQUESTS, P50, CLIENT, BROKER)),
        ("readers", (REQUESTS, P50, CLIENT_SHARE, BROKER_SHARE)),
        ("partitions", (SPEED, REQUESTS, CLIENT, BROKER)),
    ),
    "tuning-parameters.svg": (
        ("recompression", (SPEED, CLIENT, BROKER, DISK)),
        ("flush", (P50, P99, CLIENT, BROKER)),
    ),
}


def write_report(results: dict[str, Any], docs: Path) -> None:
    """The page's words stay; what stands between its marks is written anew."""
    page = (docs / PAGE).read_text()
    page = replaced(page, "run", _about(results))
    for axis, columns in TABLES.items():
        page = replaced(page, axis, table(results["figures"], axis, columns))
    (docs / PAGE).write_text(page)
    plt.rcParams.update({"svg.hashsalt": "ottla", "svg.fonttype": "none", "font.size": 8, "axes.axisbelow": True})
    for name, rows in PLOTS.items():
        figure = _drawn(results["figures"], rows)
        figure.savefig(docs / "images" / name, metadata={"Date": None}, bbox_inches="tight")
        plt.close(figure)


def replaced(page: str, name: str, text: str) -> str:
    begin = BEGIN.format(name)
    head, found, rest = page.partition(begin)
    _, closed, tail = rest.partition(END)
    if not found or not closed:
        raise BenchError(f"{PAGE} has no {begin} … {END}")
    return f"{head}{begin}\n{text}\n{END}{tail}"


def table(figures: dict[str, Any], axis: str, columns: Sequence[Column]) -> str:
    """Each cell: ottla / Apache Kafka."""
    lines = [
        "| | " + " | ".join(column.heading for column in columns) + " |",
        "|---|" + "---:|" * len(columns),
    ]
    for label in figures[OTTLA][axis]:
        cells = [_cell(figures, axis, label, column.name) for column in columns]
        lines.append(f"| `{label}` | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def _cell(figures: dict[str, Any], axis: str, label: str, name: str) -> str:
    values = [figures.get(system, {}).get(axis, {}).get(label, {}).get(name) for system in (OTTLA, KAFKA)]
    return " / ".join(DASH if value is None else format_value(value, "") for value in values)


def _about(results: dict[str, Any]) -> str:
    lines = [
        f"Taken on {results['started']} in one run of {results['took_s']} s: {results['seconds']:g} s a measurement,",
        f"{'one round' if results['rounds'] == 1 else 'median of ' + str(results['rounds']) + ' rounds'}.",
        "",
        *noise(each for axes in results["figures"].values() for cases in axes.values() for each in cases.values()),
        *_noisy(results["figures"]),
        "| | |",
        "|---|---|",
    ]
    skipped = ("ottla",)
    lines += [f"| {name} | {value} |" for name, value in results["machine"].items() if name not in skipped]
    return "\n".join(lines)


def _noisy(figures: dict[str, Any]) -> list[str]:
    """Which measurements others disturbed, by name."""
    named = [
        f"{NAMES[system]} {axis} `{label}`"
        for system, axes in figures.items()
        for axis, cases in axes.items()
        for label, each in cases.items()
        if (each["other_cpu_s"] + each["stolen_s"]) / (each["seconds"] * (os.cpu_count() or 1)) > NOISE_SHARE_MAX
    ]
    return [f"Disturbed: {', '.join(named)}.", ""] if named else []


def _drawn(figures: dict[str, Any], rows: Sequence[tuple[str, Sequence[Column]]]) -> Any:
    """A row of panels an axis: one figure each, both systems beside each other."""
    width = max(len(columns) for _, columns in rows)
    figure, panels = plt.subplots(len(rows), width, figsize=(2.6 * width, 2.3 * len(rows)), squeeze=False)
    for line, (axis, columns) in zip(panels, rows, strict=True):
        labels = list(figures[OTTLA][axis])
        for place, (axes, column) in enumerate(zip(line, columns, strict=True)):
            _bars(axes, labels, lambda system, label, a=axis, c=column: figures[system][a][label].get(c.name, 0.0))
            axes.set_xlabel(column.short)
            axes.set_yticks(range(len(labels)), labels if place == 0 else [""] * len(labels))
    panels[0][-1].legend(fontsize=7)
    figure.tight_layout()
    return figure


def _bars(axes: Any, labels: Sequence[str], value: Callable[[str, str], float]) -> None:
    for shift, system in ((-0.2, KAFKA), (0.2, OTTLA)):
        places = [place + shift for place in range(len(labels))]
        axes.barh(places, [value(system, label) for label in labels], 0.4, color=COLOURS[system], label=NAMES[system])
    axes.invert_yaxis()
    axes.grid(axis="x", alpha=0.3)
    axes.ticklabel_format(axis="x", style="plain")
    axes.locator_params(axis="x", nbins=4)
