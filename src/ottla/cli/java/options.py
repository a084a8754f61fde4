"""Command lines of Kafka's own tools, read the way that Kafka reads them (its parser is jopt-simple).

What scripts rely on: `--name value`, `--name=value` and `-name value` mean the same; names are never abbreviated;
a value may start with a dash; words that belong to no option are ignored; complaints have Kafka's wording and the
exit code is 1. `--help` is the exception: it goes to stdout and is no failure.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import NamedTuple, NoReturn

from ottla import __version__
from ottla.base.bootstrap import BOOTSTRAP_VARIABLE
from ottla.cli.terminal import EXIT_FAILED, ToolError, warn

KAFKA_VERSION = "4.3.1"  # the one whose tools these are modelled on
NAME_COLUMN_WIDTH = 44
BROKER_PORT = 9092
INTEGER_MAX = 2**31 - 1
LONG_MAX = 2**63 - 1


class Option(NamedTuple):
    """One option; `value` is what the help calls its value, "" if it takes none."""

    name: str
    note: str
    value: str = ""
    many: bool = False  # may be given several times
    alone: str | None = None  # what it means when the value is left out, if that is allowed


class OptionError(ToolError):
    """A value that cannot be used, in Kafka's words; Kafka notices it only while it works, so no usage follows."""


class KafkaOptions:
    """The options of one command line."""

    def __init__(
        self,
        tool: str,
        summary: str,
        table: Sequence[Option],
        arguments: Sequence[str],
        unreadable: str = "",  # what this tool writes before a complaint about words that make no options
        example: str = "",
    ) -> None:
        self.tool = tool
        self.unreadable = unreadable
        self.example = example
        self.summary = summary
        self.table = table
        self.values: dict[str, list[str]] = {}
        self.words: list[str] = []  # what belongs to no option
        self.order: list[str] = []  # the names of the options as they were given
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

    def require(self, *names: str) -> None:
        for name in names:
            if not self.has(name):
                self.refuse(f'Missing required argument "[{name}]"')

    def refuse_with(self, name: str, *others: str) -> None:
        """Option `name` cannot be combined with any of the others."""
        for other in others:
            if self.has(name) and self.has(other):
                self.refuse(f'Option "[{name}]" can\'t be used with option "[{other}]"')

    def refuse(self, message: str) -> NoReturn:
        """Say what is wrong with the command line and where to read more, and end."""
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
            lines.append(f"{name:{NAME_COLUMN_WIDTH}}{option.note}")
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
            self._take(known[name], value if is_joined else None, left)

    def _take(self, option: Option, value: str | None, left: list[str]) -> None:
        values = self.values.setdefault(option.name, [])
        self.order.append(option.name)
        if not option.value:
            return
        if value is None and option.alone is not None and (not left or left[0].startswith("-")):
            value = option.alone
        if value is None:
            if not left:
                self.refuse(f"{self.unreadable}Option {option.name} requires an argument")
            value = left.pop(0)
        values.append(value)

    def _unknown(self, name: str, known: dict[str, Option]) -> NoReturn:
        from difflib import get_close_matches  # noqa: PLC0415 (only needed for a mistake)

        close = get_close_matches(name, known, n=1)
        hint = f" (did you mean --{close[0]}?)" if close else ""
        self.refuse(f"{self.unreadable}{name} is not a recognized option{hint}")

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
    """The bootstrap servers under today's or yesterday's name."""
    if options.has("zookeeper") and not options.has("bootstrap-server"):
        return bootstrap_of_zookeeper(options.text("zookeeper") or "")
    return options.text("bootstrap-server") or options.text("broker-list")


def bootstrap_of_zookeeper(text: str) -> str:
    """Where the brokers are of whom an old script only knows the ZooKeeper: `host:2181,host2:2181/chroot`.

    The environment names a broker, else ZooKeeper knows those that are alive. Where no ZooKeeper runs, because the
    broker keeps its own metadata, it is looked for on the same hosts.
    """
    from ottla.cli.zookeeper.brokers import brokers_behind  # noqa: PLC0415 (only old scripts need it)

    given = os.environ.get(BOOTSTRAP_VARIABLE) or ",".join(brokers_behind(text))
    hosts = [part.strip().rpartition(":")[0] or part.strip() for part in text.partition("/")[0].split(",")]
    servers = given or ",".join(f"{host}:{BROKER_PORT}" for host in hosts if host)
    warn(f"--zookeeper is an old option: asking the broker at {servers} (another one: --bootstrap-server)")
    return servers


def is_of_old(options: KafkaOptions) -> bool:
    """Whether a script from the days of ZooKeeper asks, who expects the words of those days."""
    return options.has("zookeeper") and not options.has("bootstrap-server")
