"""The figures of `ottla top` as text for a pipe, and as a picture for a terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ottla.cli.tables import padded
from ottla.cli.terminal import escape
from ottla.cli.top.history import History
from ottla.operations.broker_figures import Figures

if TYPE_CHECKING:
    from rich.console import RenderableType

ROWS: Final = 10
SPARK_WIDTH: Final = 30
UNITS: Final = ("", "k", "M", "G", "T")
TOPIC_COLUMNS: Final = ("TOPIC", "RECORDS/s", "IN/s", "OUT/s")
REQUEST_COLUMNS: Final = ("REQUEST", "PER s", "p50 ms", "p99 ms", "ERRORS/s")


class Trends:
    """Rates of the last minutes."""

    def __init__(self) -> None:
        self.messages_in = History()
        self.bytes_in = History()
        self.bytes_out = History()
        self.requests = History()

    def add(self, shown: Figures) -> None:
        self.messages_in.add(shown.messages_in)
        self.bytes_in.add(shown.bytes_in)
        self.bytes_out.add(shown.bytes_out)
        self.requests.add(shown.requests)

    def lines(self, shown: Figures) -> list[tuple[str, str, str]]:
        """Name, present value, the way there."""
        return [
            ("records in", f"{short(shown.messages_in)}/s", self.messages_in.line(SPARK_WIDTH)),
            ("bytes in", f"{short(shown.bytes_in)}B/s", self.bytes_in.line(SPARK_WIDTH)),
            ("bytes out", f"{short(shown.bytes_out)}B/s", self.bytes_out.line(SPARK_WIDTH)),
            ("requests", f"{short(shown.requests)}/s", self.requests.line(SPARK_WIDTH)),
        ]


def text_screen(shown: Figures) -> str:
    """Plain lines, one figure each, then the tables."""
    lines = [head_line(shown), ""]
    lines += [f"{name:12}{value}" for name, value in facts(shown)]
    lines += ["", *padded(TOPIC_COLUMNS, topic_rows(shown, len(shown.by_topic)))]
    lines += ["", *padded(REQUEST_COLUMNS, request_rows(shown, len(shown.by_request)))]
    return "\n".join(lines)


def head_line(shown: Figures) -> str:
    return (
        f"ottla {shown.version}  broker {shown.node_id} {shown.state} for {duration(shown.uptime_s)}  "
        f"cluster {shown.cluster_id}"
    )


def facts(shown: Figures) -> list[tuple[str, str]]:
    disk = f"{short(shown.disk_free_bytes)}B of {short(shown.disk_size_bytes)}B free" if shown.disk_size_bytes else "?"
    return [
        ("records in", f"{short(shown.messages_in)}/s"),
        ("bytes in", f"{short(shown.bytes_in)}B/s"),
        ("bytes out", f"{short(shown.bytes_out)}B/s"),
        ("requests", f"{short(shown.requests)}/s"),
        ("connections", f"{shown.connections} open, {shown.connections_per_s:.1f} new/s"),
        ("partitions", partitions(shown)),
        ("loop", f"{shown.loop_busy:.0%} busy, longest round {shown.loop_longest_ms:.1f} ms"),
        ("process", f"CPU {shown.cpu:.0%}, {short(shown.resident_bytes)}B, {shown.open_files} files open"),
        ("disk", disk),
    ]


def partitions(shown: Figures) -> str:
    text = f"{shown.partitions} of {shown.topics} topics, leading {shown.leaders}"
    text += f", {shown.offline} OFFLINE" if shown.offline else ""
    return text + (f", {shown.under_replicated} under-replicated" if shown.under_replicated else "")


def topic_rows(shown: Figures, count: int) -> list[tuple[str, ...]]:
    return [
        (escape(line.name), short(line.messages), f"{short(line.bytes_in)}B", f"{short(line.bytes_out)}B")
        for line in shown.by_topic[:count]
    ]


def request_rows(shown: Figures, count: int) -> list[tuple[str, ...]]:
    return [
        (line.name, short(line.rate), f"{line.p50_ms:.2f}", f"{line.p99_ms:.2f}", short(line.errors))
        for line in shown.by_request[:count]
    ]


def rich_screen(shown: Figures, trends: Trends) -> RenderableType:
    """Panels: rates with their recent course, the broker, topics, requests."""
    from rich.columns import Columns  # noqa: PLC0415 (50 ms, and only for a terminal)
    from rich.console import Group  # noqa: PLC0415
    from rich.panel import Panel  # noqa: PLC0415
    from rich.table import Table  # noqa: PLC0415
    from rich.text import Text  # noqa: PLC0415

    def table(columns: tuple[str, ...], rows: list[tuple[str, ...]], width: int) -> Table:
        made = Table(box=None, header_style="bold cyan", pad_edge=False, width=width)
        for place, name in enumerate(columns):
            made.add_column(name, justify="right" if place else "left", no_wrap=True, overflow="ellipsis")
        for row in rows or [("(none yet)", *[""] * (len(columns) - 1))]:
            made.add_row(*map(Text, row))
        return made

    rates = Table.grid(padding=(0, 2))
    for name, value, spark in trends.lines(shown):
        rates.add_row(Text(name, "dim"), Text(value, "bold"), Text(spark, "green"))
    state = Table.grid(padding=(0, 2))
    for name, value in facts(shown)[4:]:
        is_bad = name == "partitions" and (shown.offline or shown.under_replicated)
        state.add_row(Text(name, "dim"), Text(value, "bold red" if is_bad else ""))
    return Group(
        Text(head_line(shown), "bold"),
        Columns([Panel(rates, title="rates", width=60), Panel(state, title="broker", width=56)]),
        Columns(
            [
                Panel(table(TOPIC_COLUMNS, topic_rows(shown, ROWS), 56), title="busiest topics", width=60),
                Panel(table(REQUEST_COLUMNS, request_rows(shown, ROWS), 52), title="requests", width=56),
            ]
        ),
        Text("Ctrl-C ends", "dim"),
    )


def short(number: float) -> str:
    """12345 as 12.3k."""
    for unit in UNITS:
        if abs(number) < 999.5 or unit == UNITS[-1]:
            return f"{number:.0f}{unit}" if abs(number) >= 99.5 or number == int(number) else f"{number:.1f}{unit}"
        number /= 1000
    return ""


def duration(seconds: float) -> str:
    """The two largest parts: 3 d 4 h, 5 min 6 s."""
    parts: list[str] = []
    left = max(0, int(seconds))
    for name, size in (("d", 86_400), ("h", 3600), ("min", 60), ("s", 1)):
        count, left = divmod(left, size)
        if count or (name == "s" and not parts):
            parts.append(f"{count} {name}")
    return " ".join(parts[:2])
