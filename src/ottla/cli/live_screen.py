"""A terminal screen that is redrawn until Ctrl-C, and the options of the tools that draw one."""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, NoReturn

from ottla.cli.arguments import Argument
from ottla.cli.terminal import ToolError
from ottla.operations.metric_readings import DEFAULT_URL, URL_VARIABLE

if TYPE_CHECKING:
    from rich.console import RenderableType


def run_live(screen: Callable[[], RenderableType], interval_s: float, tool: str) -> NoReturn:
    try:
        from rich.live import Live  # noqa: PLC0415 (50 ms, and only for a terminal)
        from rich.text import Text  # noqa: PLC0415
    except ImportError:
        raise ToolError(f"the live screen needs rich: pip install 'ottla[cli]', or use {tool} --once") from None
    with Live("reading ...", screen=True, auto_refresh=False) as live:
        while True:
            time.sleep(interval_s)
            shown = screen()
            live.update(
                Text(shown) if isinstance(shown, str) else shown, refresh=True
            )  # a plain string could contain markup


def seconds_of(text: str) -> float:
    """Argument type: seconds between two updates."""
    try:
        seconds = float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of seconds") from None
    if not 0.1 <= seconds <= 3600:
        raise argparse.ArgumentTypeError(f"{text} is out of range: 0.1 to 3600 seconds")
    return seconds


METRICS_URL: Final = Argument(
    "--url", metavar="URL", help=f"the broker's metrics endpoint (default: ${URL_VARIABLE} or {DEFAULT_URL})"
)


def metrics_url_of(options: argparse.Namespace) -> str:
    return options.url or os.environ.get(URL_VARIABLE) or DEFAULT_URL
