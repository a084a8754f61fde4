"""Command lines of ottla's own tools, parsed with argparse.

Unknown options and commands end with exit code 2, the usage and the closest known name. Names cannot be abbreviated:
otherwise a new option could change the meaning of an existing script.
"""

from __future__ import annotations

import argparse
import os
import re
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, ClassVar, Final, NoReturn

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


class Argument:
    """One argument of a command line, in the words of argparse."""

    def __init__(self, *names: str, **details: Any) -> None:
        self._names = names
        self._details = details

    def add_to(self, parser: argparse._ActionsContainer) -> None:
        parser.add_argument(*self._names, **self._details)

    def __repr__(self) -> str:
        return f"<Argument {self._names}>"


def flag(*names: str, **details: Any) -> Argument:
    """An option without a value: True if it is given."""
    return Argument(*names, action="store_true", **details)


class OneOf:
    """Arguments that exclude each other; with `is_required` one of them must be given."""

    def __init__(self, *arguments: Argument, is_required: bool = False) -> None:
        self._arguments = arguments
        self._is_required = is_required

    def add_to(self, parser: argparse._ActionsContainer) -> None:
        group = parser.add_mutually_exclusive_group(required=self._is_required)
        for argument in self._arguments:
            argument.add_to(group)

    def __repr__(self) -> str:
        return f"<OneOf {self._arguments}>"


Arguments = Iterable[Argument | OneOf]


class Command:
    """A sub-command: its name, its line in the help, and the function that runs it (`options.action`)."""

    def __init__(
        self,
        name: str,
        summary: str,
        action: Callable[..., Any],
        *arguments: Argument | OneOf,
        has_shared: bool = True,
        defaults: Mapping[str, Any] | None = None,
        **details: Any,
    ) -> None:
        """`has_shared`: whether the shared arguments of its parser follow those of the command."""
        self._name = name
        self._arguments = arguments
        self._has_shared = has_shared
        self._defaults = {"action": action, **(defaults or {})}
        self._details = {"help": summary, **details}

    def add_to(self, commands: argparse._SubParsersAction[Any], shared: Arguments) -> None:
        parser = commands.add_parser(self._name, **self._details)
        for argument in (*self._arguments, *(shared if self._has_shared else ())):
            argument.add_to(parser)
        parser.set_defaults(**self._defaults)

    def __repr__(self) -> str:
        return f"<Command {self._name}>"


class Parser(argparse.ArgumentParser):
    """A parser whose help begins with examples and whose errors suggest a correction."""

    # Shell completion needs only the parser of a command: it sets a function here that does not return.
    on_parse: ClassVar[Callable[[argparse.ArgumentParser], NoReturn] | None] = None

    def __init__(
        self,
        *,
        examples: str = "",
        arguments: Arguments = (),
        shared: Sequence[Argument | OneOf] = (),
        commands: Sequence[Command] = (),
        **details: Any,
    ) -> None:
        """`shared`: arguments that are accepted before and after a command."""
        details.setdefault("allow_abbrev", False)
        details.setdefault("formatter_class", HelpFormatter)
        if examples:  # before the options: most users need only the examples
            lines = "\n".join(f"  {line}" for line in examples.strip().splitlines())
            details["description"] = f"{details.get('description') or ''}\n\nexamples:\n{lines}".lstrip()
        super().__init__(**details)
        for argument in (*shared, *arguments):
            argument.add_to(self)
        if commands:
            chosen = self.add_subparsers(title="commands", required=True, metavar="COMMAND", parser_class=type(self))
            for command in commands:
                command.add_to(chosen, shared)

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


# The arguments that connect to a cluster. They are accepted before and after a sub-command, so they have no default.
BOOTSTRAP: Final = Argument(
    "--bootstrap-server",
    default=argparse.SUPPRESS,
    metavar="HOST:PORT",
    help=f"broker to connect to (default: ${BOOTSTRAP_VARIABLE} or {DEFAULT_BOOTSTRAP})",
)
CONNECTION: Final = (
    BOOTSTRAP,
    Argument("--command-config", default=argparse.SUPPRESS, metavar="FILE", help="file with properties of the client"),
)


def add_connection(parser: argparse.ArgumentParser) -> None:
    for argument in CONNECTION:
        argument.add_to(parser)


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
