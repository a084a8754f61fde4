"""The figures of `ottla top`, as text for a pipe and as panels for a terminal."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final

from ottla.base.text import escape_cell
from ottla.cli.tables import padded
from ottla.operations.broker_rates import BrokerFigures

if TYPE_CHECKING:
    from rich.console import RenderableType


HISTORY: Final = 60
BLOCKS: Final = "▁▂▃▄▅▆▇█"


class Sparkline:
    """The last values of a rate as a sparkline."""

    def __init__(self) -> None:
        self._values: deque[float] = deque(maxlen=HISTORY)

    def add(self, value: float) -> None:
        self._values.append(value)

    def line(self, width: int) -> str:
        values = list(self._values)[-width:]
        largest = max(values, default=0.0) or 1.0
        return "".join(BLOCKS[min(7, int(value / largest * 8))] for value in values).rjust(width)

    def __repr__(self) -> str:
        return f"<Sparkline of {len(self._values)}>"


ROWS: Final = 10
SPARK_WIDTH: Final = 30
UNITS: Final = ("", "k", "M", "G", "T")
TOPIC_COLUMNS: Final = ("TOPIC", "RECORDS/s", "IN/s", "OUT/s")
REQUEST_COLUMNS: Final = ("REQUEST", "PER s", "p50 ms", "p99 ms", "ERRORS/s")


class Trends:
    """The rates of the last minutes."""

    def __init__(self) -> None:
        self.messages_in = Sparkline()
        self.bytes_in = Sparkline()
        self.bytes_out = Sparkline()
        self.requests = Sparkline()

    def add(self, shown: BrokerFigures) -> None:
        self.messages_in.add(shown.messages_in)
        self.bytes_in.add(shown.bytes_in)
        self.bytes_out.add(shown.bytes_out)
        self.requests.add(shown.requests)

    def lines(self, shown: BrokerFigures) -> list[tuple[str, str, str]]:
        """Name, current value and sparkline of each rate."""
        return [
            ("records in", f"{short_number(shown.messages_in)}/s", self.messages_in.line(SPARK_WIDTH)),
            ("bytes in", f"{short_number(shown.bytes_in)}B/s", self.bytes_in.line(SPARK_WIDTH)),
            ("bytes out", f"{short_number(shown.bytes_out)}B/s", self.bytes_out.line(SPARK_WIDTH)),
            ("requests", f"{short_number(shown.requests)}/s", self.requests.line(SPARK_WIDTH)),
        ]


def text_screen(shown: BrokerFigures) -> str:
    """Plain lines, one figure each, then the tables."""
    lines = [head_line(shown), ""]
    lines += [f"{name:12}{value}" for name, value in figure_lines(shown)]
    lines += ["", *padded(TOPIC_COLUMNS, topic_rows(shown, len(shown.by_topic)))]
    lines += ["", *padded(REQUEST_COLUMNS, request_rows(shown, len(shown.by_request)))]
    return "\n".join(lines)


def head_line(shown: BrokerFigures) -> str:
    return (
        f"ottla {shown.version}  broker {shown.node_id} {shown.state} for {duration_text(shown.uptime_s)}  "
        f"cluster {shown.cluster_id}"
    )


def figure_lines(shown: BrokerFigures) -> list[tuple[str, str]]:
    disk = (
        f"{short_number(shown.disk_free_bytes)}B of {short_number(shown.disk_size_bytes)}B free"
        if shown.disk_size_bytes
        else "?"
    )
    return [
        ("records in", f"{short_number(shown.messages_in)}/s"),
        ("bytes in", f"{short_number(shown.bytes_in)}B/s"),
        ("bytes out", f"{short_number(shown.bytes_out)}B/s"),
        ("requests", f"{short_number(shown.requests)}/s"),
        ("connections", f"{shown.connections} open, {shown.connections_per_s:.1f} new/s"),
        ("partitions", partitions(shown)),
        ("loop", f"{shown.loop_busy:.0%} busy, longest round {shown.loop_longest_ms:.1f} ms"),
        ("process", f"CPU {shown.cpu:.0%}, {short_number(shown.resident_bytes)}B, {shown.open_files} files open"),
        ("disk", disk),
    ]


def partitions(shown: BrokerFigures) -> str:
    text = f"{shown.partitions} of {shown.topics} topics, leading {shown.leaders}"
    text += f", {shown.offline} OFFLINE" if shown.offline else ""
    return text + (f", {shown.under_replicated} under-replicated" if shown.under_replicated else "")


def topic_rows(shown: BrokerFigures, count: int) -> list[tuple[str, ...]]:
    return [
        (
            escape_cell(line.name),
            short_number(line.messages),
            f"{short_number(line.bytes_in)}B",
            f"{short_number(line.bytes_out)}B",
        )
        for line in shown.by_topic[:count]
    ]


def request_rows(shown: BrokerFigures, count: int) -> list[tuple[str, ...]]:
    return [
        (line.name, short_number(line.rate), f"{line.p50_ms:.2f}", f"{line.p99_ms:.2f}", short_number(line.errors))
        for line in shown.by_request[:count]
    ]


def rich_screen(shown: BrokerFigures, trends: Trends) -> RenderableType:
    """Panels for rates with sparklines, the broker, topics and requests."""
    from rich.columns import Columns  # noqa: PLC0415 (50 ms, and only for a terminal)
    from rich.console import Group  # noqa: PLC0415
    from rich.panel import Panel  # noqa: PLC0415
    from rich.table import Table  # noqa: PLC0415
    from rich.text import Text  # noqa: PLC0415

    def table(columns: tuple[str, ...], rows: list[tuple[str, ...]], width: int) -> Table:
        made = Table(box=None, header_style="bold cyan", pad_edge=False, width=width)
        for index, name in enumerate(columns):
            made.add_column(name, justify="right" if index else "left", no_wrap=True, overflow="ellipsis")
        for row in rows or [("(none yet)", *[""] * (len(columns) - 1))]:
            made.add_row(*map(Text, row))
        return made

    rates = Table.grid(padding=(0, 2))
    for name, value, spark in trends.lines(shown):
        rates.add_row(Text(name, "dim"), Text(value, "bold"), Text(spark, "green"))
    state = Table.grid(padding=(0, 2))
    for name, value in figure_lines(shown)[4:]:
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


def short_number(number: float) -> str:
    """Format 12345 as 12.3k."""
    for unit in UNITS:
        if abs(number) < 999.5 or unit == UNITS[-1]:
            return f"{number:.0f}{unit}" if abs(number) >= 99.5 or number == int(number) else f"{number:.1f}{unit}"
        number /= 1000
    return ""


def duration_text(seconds: float) -> str:
    """A duration in its two largest units: 3 d 4 h, 5 min 6 s."""
    parts: list[str] = []
    left = max(0, int(seconds))
    for name, size in (("d", 86_400), ("h", 3600), ("min", 60), ("s", 1)):
        count, left = divmod(left, size)
        if count or (name == "s" and not parts):
            parts.append(f"{count} {name}")
    return " ".join(parts[:2])
