"""`ottla top`: shows the current activity of a broker, live in the terminal."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

from ottla.cli.arguments import Argument, Parser, flag
from ottla.cli.live_screen import METRICS_URL, metrics_url_of, run_live, seconds_of
from ottla.cli.reports.broker_screen import Trends, rich_screen, text_screen
from ottla.cli.terminal import is_terminal
from ottla.operations.broker_rates import BrokerFigures, broker_figures
from ottla.operations.metric_readings import Reading, read_metrics

if TYPE_CHECKING:
    from rich.console import RenderableType

EXAMPLES = """
ottla top
ottla top --url http://127.0.0.1:9404 --interval 5
ottla top --once
"""


def run(arguments: Sequence[str]) -> int:
    options = _parser().parse_args(arguments)
    url = metrics_url_of(options)
    first = read_metrics(url)
    if options.once or not is_terminal(sys.stdout):
        time.sleep(options.interval)
        print(text_screen(_figures(first, read_metrics(url))))
        return 0
    return _live(url, first, options.interval)


def _parser() -> Parser:
    return Parser(
        prog="ottla top",
        description="Show the activity of a broker: rates, busiest topics, request times, connections. Ctrl-C ends it.",
        examples=EXAMPLES,
        arguments=(
            METRICS_URL,
            Argument("--interval", type=seconds_of, default=1.0, metavar="S", help="seconds between readings (1)"),
            flag("--once", help="print one plain screen and exit, as in a pipe"),
        ),
    )


def _live(url: str, before: Reading, interval: float) -> int:
    trends = Trends()

    def screen() -> RenderableType:
        nonlocal before
        now = read_metrics(url)
        shown = _figures(before, now)
        trends.add(shown)
        before = now
        return rich_screen(shown, trends)

    run_live(screen, interval, "ottla top")


def _figures(before: Reading, now: Reading) -> BrokerFigures:
    return broker_figures(before, now, time.time())
