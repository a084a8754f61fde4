"""Command lines of ottla's own tools, parsed with argparse.

Unknown options and commands end with exit code 2, the usage and the closest known name. Names cannot be abbreviated:
otherwise a new option could change the meaning of an existing script.
"""

from __future__ import annotations

import argparse
import os
import re
import sys
from collections.abc import Callable, Iterable
from typing import Any, ClassVar, NoReturn

from ottla.base.bootstrap import BOOTSTRAP_VARIABLE, DEFAULT_BOOTSTRAP, default_bootstrap
from ottla.cli.terminal import UsageError

DEFAULT_COLUMNS = 80  # without a terminal
_UNITS_MS = {"s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_DURATION = re.compile("([0-9]{1,12})([smhd])")


class HelpFormatter(argparse.RawDescriptionHelpFormatter):
    """Help formatter that knows the terminal's width. argparse creates one for each option and would import shutil to
    find the width.
    """

    def __init__(self, prog: str) -> None:
        super().__init__(prog, width=_screen_columns() - 2)


class Parser(argparse.ArgumentParser):
    """A parser whose help begins with examples and whose errors suggest a correction."""

    # Shell completion needs only the parser of a command: it sets a function here that does not return.
    on_parse: ClassVar[Callable[[argparse.ArgumentParser], NoReturn] | None] = None

    def __init__(self, *, examples: str = "", **details: Any) -> None:
        details.setdefault("allow_abbrev", False)
        details.setdefault("formatter_class", HelpFormatter)
        if examples:  # before the options: most users need only the examples
            lines = "\n".join(f"  {line}" for line in examples.strip().splitlines())
            details["description"] = f"{details.get('description') or ''}\n\nexamples:\n{lines}".lstrip()
        super().__init__(**details)

    def parse_args(self, *words: Any, **details: Any) -> Any:
        if Parser.on_parse is not None:
            Parser.on_parse(self)
        return super().parse_args(*words, **details)

    def parse_intermixed_args(self, *words: Any, **details: Any) -> Any:
        if Parser.on_parse is not None:
            Parser.on_parse(self)
        return super().parse_intermixed_args(*words, **details)

    def error(self, message: str) -> NoReturn:
        self.print_usage(sys.stderr)
        hint = self._hint(message)
        self.exit(2, f"{self.prog}: {message}{hint}. More: {self.prog} --help\n")

    def _hint(self, message: str) -> str:
        if "unrecognized" not in message and "invalid choice" not in message:
            return ""
        options, commands = self._known()
        for word in message.partition("(choose")[0].replace("'", " ").split():
            name = word.partition("=")[0]
            guess = closest_match(name, options if name.startswith("-") else commands)
            if guess and guess != name:  # equal if the option belongs to another command
                return f" (did you mean {guess}?)"
        return ""

    def _known(self) -> tuple[list[str], list[str]]:
        """The option names of this parser and its sub-commands, and the names of the sub-commands."""
        options = [name for name in self._option_string_actions if name.startswith("--")]
        commands: list[str] = []
        for action in self._actions:
            if isinstance(action, argparse._SubParsersAction):
                commands += action.choices
                for parser in action.choices.values():
                    options += [name for name in parser._option_string_actions if name.startswith("--")]
        return options, commands


def parse_pairs(pairs: Iterable[str], allow_bare: bool = True) -> dict[str, str]:
    """Parse `key=value` words; a key without a value maps to the empty string, as in Kafka."""
    found = {}
    for pair in pairs:
        key, is_pair, value = pair.partition("=")
        if not key or not (is_pair or allow_bare):
            raise UsageError(f"{pair!r} is not of the form key=value")
        found[key] = value
    return found


def _screen_columns() -> int:
    """The width of the terminal, determined as in shutil.get_terminal_size."""
    wanted = os.environ.get("COLUMNS", "")
    if wanted.isdecimal() and int(wanted):
        return int(wanted)
    try:
        return os.get_terminal_size(sys.stdout.fileno()).columns or DEFAULT_COLUMNS
    except (AttributeError, ValueError, OSError):  # no terminal or no stdout
        return DEFAULT_COLUMNS


def closest_match(word: str, known: Iterable[str]) -> str | None:
    """The known word closest to the given one, or None."""
    from difflib import get_close_matches  # noqa: PLC0415 (only needed for a mistake)

    found = get_close_matches(word, list(known), n=1)
    return found[0] if found else None


def add_bootstrap(parser: argparse.ArgumentParser) -> None:
    """Add --bootstrap-server. It is accepted before and after a sub-command, so it has no default."""
    parser.add_argument(
        "--bootstrap-server",
        default=argparse.SUPPRESS,
        metavar="HOST:PORT",
        help=f"broker to connect to (default: ${BOOTSTRAP_VARIABLE} or {DEFAULT_BOOTSTRAP})",
    )


def add_connection(parser: argparse.ArgumentParser) -> None:
    """Add the connection options. They are accepted before and after a sub-command."""
    add_bootstrap(parser)
    parser.add_argument(
        "--command-config", default=argparse.SUPPRESS, metavar="FILE", help="file with properties of the client"
    )


def bootstrap_of(options: argparse.Namespace) -> str:
    given: str | None = getattr(options, "bootstrap_server", None)
    return given or default_bootstrap()


def positive(text: str) -> int:
    """Argument type: an integer above zero."""
    return _number(text, 1)


def not_negative(text: str) -> int:
    return _number(text, 0)


def duration(text: str) -> int:
    """Argument type: a duration such as 90s, 30m, 2h or 1d, in milliseconds. The unit is required."""
    match = _DURATION.fullmatch(text.strip())
    if match is None or not 0 < int(match[1]) < 10**9:
        raise argparse.ArgumentTypeError(f"{text!r} is not a duration: write 90s, 30m, 2h or 1d")
    return int(match[1]) * _UNITS_MS[match[2]]


def _number(text: str, least: int) -> int:
    try:
        number = int(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number") from None
    if not least <= number < 2**63:
        raise argparse.ArgumentTypeError(f"{text} is out of range: it must be at least {least}")
    return number
