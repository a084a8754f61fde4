"""`ottla top`: what a broker is doing right now, live in the terminal."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence

from ottla.cli.arguments import Parser
from ottla.cli.terminal import ToolError, is_terminal
from ottla.cli.top.figures import Figures, figures
from ottla.cli.top.reading import Reading, add_metrics_url, metrics_url_of, read_metrics
from ottla.cli.top.screen import Trends, rich_screen, text_screen

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
    parser = Parser(
        prog="ottla top",
        description="Show what a broker is doing: rates, busiest topics, request times, connections. Ctrl-C ends it.",
        examples=EXAMPLES,
    )
    add_metrics_url(parser)
    parser.add_argument("--interval", type=_seconds, default=1.0, metavar="S", help="seconds between readings (1)")
    parser.add_argument("--once", action="store_true", help="print one plain screen and end, as in a pipe")
    return parser


def _live(url: str, before: Reading, interval: float) -> int:
    try:
        from rich.live import Live  # noqa: PLC0415 (50 ms, and only for a terminal)
        from rich.text import Text  # noqa: PLC0415
    except ImportError:
        raise ToolError("the live screen needs rich: pip install 'ottla[cli]', or use ottla top --once") from None
    trends = Trends()
    with Live(Text("reading ..."), screen=True, auto_refresh=False) as live:
        while True:
            time.sleep(interval)
            now = read_metrics(url)
            shown = _figures(before, now)
            trends.add(shown)
            live.update(rich_screen(shown, trends), refresh=True)
            before = now


def _figures(before: Reading, now: Reading) -> Figures:
    return figures(before, now, time.time())


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of seconds") from None
    if not 0.1 <= seconds <= 3600:
        raise argparse.ArgumentTypeError(f"{text} is out of range: 0.1 to 3600 seconds")
    return seconds
