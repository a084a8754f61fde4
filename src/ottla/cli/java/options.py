"""Parses the command lines of Kafka's tools like Kafka's parser, jopt-simple.

Scripts rely on these rules: `--name value`, `--name=value` and `-name value` are equal; names are never abbreviated; a
value may start with a dash; words without an option are ignored; errors have Kafka's wording and exit code 1. `--help`
differs from Kafka: it goes to stdout and ends with exit code 0.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import Any, NamedTuple, NoReturn

from ottla import __version__
from ottla.base.bootstrap import BOOTSTRAP_VARIABLE
from ottla.base.regular_expressions import PatternError, compile_java_pattern
from ottla.cli.terminal import EXIT_FAILED, ToolError, warn

KAFKA_VERSION = "4.3.1"  # the version that these tools emulate
NAME_COLUMN_WIDTH = 44
BROKER_PORT = 9092
INTEGER_MAX = 2**31 - 1
LONG_MAX = 2**63 - 1


class Option(NamedTuple):
    """One option; `value` names its value in the help, "" if it takes none."""

    name: str
    description: str
    value: str = ""
    is_repeatable: bool = False  # may be repeated
    bare_value: str | None = None  # the value if it is omitted; None: the value is required


class OptionError(ToolError):
    """An invalid value. Kafka detects it during the run, so no usage is printed."""


class KafkaOptions:
    """The options of one command line."""

    def __init__(
        self,
        tool: str,
        summary: str,
        table: Sequence[Option],
        arguments: Sequence[str],
        unreadable: str = "",  # the tool's prefix of parse errors
        example: str = "",
    ) -> None:
        self.tool = tool
        self.parse_error_prefix = unreadable
        self.example = example
        self.summary = summary
        self.table = table
        self.values: dict[str, list[str]] = {}
        self.words: list[str] = []  # words without an option
        self.order: list[str] = []  # option names in the given order
        self._parse(list(arguments), {option.name: option for option in table})
        self._help_or_version()

    def has(self, name: str) -> bool:
        return name in self.values

    def text(self, name: str) -> str | None:
        values = self.values.get(name)
        if not values:
            return None
        if len(values) > 1:
            raise OptionError(f"Found multiple arguments for option {name}, but you asked for only one")
        return values[0]

    def number(self, name: str, most: int = INTEGER_MAX) -> int | None:
        text = self.text(name)
        if text is None:
            return None
        digits = text[1:] if text[:1] in ("-", "+") else text
        if not (digits.isascii() and digits.isdecimal()) or abs(int(digits)) > most:
            raise OptionError(f"Cannot parse argument '{text}' of option {name}")
        return int(text)

    def texts(self, name: str) -> list[str]:
        return self.values.get(name, [])

    def check_required_args(self, *names: str) -> None:
        for name in names:
            if not self.has(name):
                self.print_usage_and_exit(f'Missing required argument "[{name}]"')

    def check_invalid_args(self, name: str, *others: str) -> None:
        """Reject option `name` together with any of the others."""
        for other in others:
            if self.has(name) and self.has(other):
                self.print_usage_and_exit(f'Option "[{name}]" can\'t be used with option "[{other}]"')

    def print_usage_and_exit(self, message: str) -> NoReturn:
        """Print the error and the usage, and exit."""
        warn(message)
        warn(f"Usage: {self.tool} [options]. All options: {self.tool} --help")
        raise SystemExit(EXIT_FAILED)

    def help(self) -> str:
        example = ["", f"  {self.tool} --bootstrap-server 127.0.0.1:9092 {self.example}"] if self.example else []
        lines = [self.summary, *example, "", f"Usage: {self.tool} [options]", ""]
        for option in sorted((*self.table, HELP, VERSION)):
            name = f"  --{option.name}" + (f" <{option.value}>" if option.value else "")
            if len(name) >= NAME_COLUMN_WIDTH:
                lines.append(name)
                name = ""
            lines.append(f"{name:{NAME_COLUMN_WIDTH}}{option.description}")
        return "\n".join(lines)

    def _parse(self, left: list[str], known: dict[str, Option]) -> None:
        known |= {"help": HELP, "version": VERSION}
        while left:
            word = left.pop(0)
            if word == "--":
                self.words += left
                return
            if not word.startswith("-") or word == "-":
                self.words.append(word)
                continue
            name, is_joined, value = word.lstrip("-").partition("=")
            if name not in known:
                self._unknown(name, known)
            self._read_value(known[name], value if is_joined else None, left)

    def _read_value(self, option: Option, value: str | None, left: list[str]) -> None:
        values = self.values.setdefault(option.name, [])
        self.order.append(option.name)
        if not option.value:
            return
        if value is None and option.bare_value is not None and (not left or left[0].startswith("-")):
            value = option.bare_value
        if value is None:
            if not left:
                self.print_usage_and_exit(f"{self.parse_error_prefix}Option {option.name} requires an argument")
            value = left.pop(0)
        values.append(value)

    def _unknown(self, name: str, known: dict[str, Option]) -> NoReturn:
        from difflib import get_close_matches  # noqa: PLC0415 (only needed for a mistake)

        close = get_close_matches(name, known, n=1)
        hint = f" (did you mean --{close[0]}?)" if close else ""
        self.print_usage_and_exit(f"{self.parse_error_prefix}{name} is not a recognized option{hint}")

    def _help_or_version(self) -> None:
        if self.has("help"):
            print(self.help())
            sys.stdout.flush()
            raise SystemExit(0)
        if self.has("version"):
            print(f"{KAFKA_VERSION} (ottla {__version__})")
            sys.stdout.flush()
            raise SystemExit(0)

    def __repr__(self) -> str:
        return f"<KafkaOptions {self.tool} {' '.join(self.values)}>"


HELP = Option("help", "Print this help.")
VERSION = Option("version", "Print the version.")
BOOTSTRAP = Option("bootstrap-server", "Brokers to connect to: host:port, commas between several. Required.", "servers")
BROKER_LIST = Option("broker-list", "Old name of --bootstrap-server.", "servers")
ZOOKEEPER = Option("zookeeper", "Old way to reach a cluster: it is asked for its brokers.", "address")
COMMAND_CONFIG = Option("command-config", "File with properties of the client.", "file")


def bootstrap_of(options: KafkaOptions) -> str | None:
    """The bootstrap servers from the current option or its deprecated names."""
    if options.has("zookeeper") and not options.has("bootstrap-server"):
        return bootstrap_of_zookeeper(options.text("zookeeper") or "")
    return options.text("bootstrap-server") or options.text("broker-list")


def bootstrap_of_zookeeper(text: str) -> str:
    """The brokers of a script that names only ZooKeeper: `host:2181,host2:2181/chroot`.

    The environment variable wins, else the brokers registered in ZooKeeper are used. Without ZooKeeper, because the
    broker keeps its own metadata, the same hosts are assumed.
    """
    from ottla.cli.zookeeper.znodes import registered_brokers  # noqa: PLC0415 (only old scripts need it)

    given = os.environ.get(BOOTSTRAP_VARIABLE) or ",".join(registered_brokers(text))
    hosts = [part.strip().rpartition(":")[0] or part.strip() for part in text.partition("/")[0].split(",")]
    servers = given or ",".join(f"{host}:{BROKER_PORT}" for host in hosts if host)
    warn(f"--zookeeper is deprecated: using the broker at {servers} (to change it: --bootstrap-server)")
    return servers


def is_legacy_zookeeper(options: KafkaOptions) -> bool:
    """Whether a script uses --zookeeper and therefore expects the output of that time."""
    return options.has("zookeeper") and not options.has("bootstrap-server")


def topic_pattern(text: str) -> Any:
    """Compile a topic pattern of Kafka's tools: a comma means "or"; surrounding quotes and spaces are dropped."""
    try:
        return compile_java_pattern(text.strip().replace(",", "|").replace(" ", "").strip("\"'"))
    except PatternError:
        raise OptionError(f"{text} is an invalid regex.") from None
