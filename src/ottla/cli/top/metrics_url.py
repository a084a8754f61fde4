"""The option --url of the tools that read a broker's metrics."""

from __future__ import annotations

import argparse
import os

from ottla.operations.metric_readings import DEFAULT_URL, VARIABLE


def add_metrics_url(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--url", metavar="URL", help=f"the broker's metrics endpoint (default: ${VARIABLE} or {DEFAULT_URL})"
    )


def metrics_url_of(options: argparse.Namespace) -> str:
    return options.url or os.environ.get(VARIABLE) or DEFAULT_URL
