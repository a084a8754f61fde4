"""`ottla broker`: one broker in the foreground, from a server.properties file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ottla.cli.arguments import Parser
from ottla.cli.client_settings import parse_pairs
from ottla.cli.terminal import ToolError

EXAMPLES = """
ottla broker --config server.properties
ottla broker --config server.properties --override log.dirs=/data/ottla --override num.partitions=3
"""


def run(arguments: Sequence[str]) -> int:
    parser = Parser(
        prog="ottla broker",
        description="Run one broker in the foreground. SIGTERM and Ctrl-C stop it in order.",
        examples=EXAMPLES,
    )
    parser.add_argument("--config", metavar="FILE", help="server.properties; without it Kafka's defaults")
    parser.add_argument(
        "--override", action="append", default=[], metavar="KEY=VALUE", help="wins over the file; can be repeated"
    )
    options = parser.parse_args(arguments)
    return start(options.config, parse_pairs(options.override, allow_bare=False))


def start(config: str | None, overrides: Mapping[str, str]) -> int:
    """Read the settings and run until somebody stops the broker; returns the exit code."""
    from ottla.base.broker_settings import load_broker_settings  # noqa: PLC0415 (help needs none of it)
    from ottla.base.settings import SettingsError  # noqa: PLC0415

    try:
        settings = load_broker_settings(config, overrides)
    except SettingsError as problem:
        raise ToolError(str(problem)) from None
    from ottla.broker.main import run_broker  # noqa: PLC0415

    return run_broker(settings)
