"""`ottla completion bash|zsh|fish`: prints a script that completes commands, options, topics and groups.

At each Tab the small script calls `ottla completion words ...`, which reads the argparse definitions of the commands,
so the completion is never outdated. argcomplete needs a marker in every script and runs the whole command; shtab writes
static words and cannot know topics.
"""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Callable, Iterable, Sequence
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from ottla.cli.arguments import Parser, bootstrap_of
from ottla.cli.main import COMMANDS
from ottla.cli.terminal import ToolError
from ottla.client.errors import ClientError

if TYPE_CHECKING:
    from ottla.client.client import Client

EXAMPLES = """
source <(ottla completion bash)                          in ~/.bashrc
source <(ottla completion zsh)                           in ~/.zshrc, after compinit
ottla completion fish > ~/.config/fish/completions/ottla.fish
"""
REQUEST_MS_MAX = 300  # limit of a query for topics or groups
GLOBAL_OPTIONS = ("--help", "--version")
TOPIC_PLACES = ("names", "topic", "topics")  # argparse names of arguments for topics
FILE_PLACES = ("FILE", "DIR")

BASH = """\
_ottla() {
    local IFS=$'\\n' words
    words=$(ottla completion line "${COMP_LINE:0:COMP_POINT}" 2>/dev/null) || return
    if [ "$words" = "<files>" ]; then
        compopt -o filenames
        COMPREPLY=($(compgen -f -- "${COMP_WORDS[COMP_CWORD]}"))
    else
        COMPREPLY=($words)
    fi
}
complete -F _ottla ottla
"""
ZSH = """\
#compdef ottla
_ottla() {
    local -a found
    found=("${(@f)$(ottla completion words "${(@)words[2,CURRENT]}" 2>/dev/null)}")
    if [[ "$found[1]" == "<files>" ]]; then
        _files
    else
        compadd -- "${(@)found:#}"
    fi
}
compdef _ottla ottla
"""
FISH = """\
function __ottla_words
    set -l words (commandline -opc) (commandline -ct)
    set -l found (ottla completion words $words[2..-1] 2>/dev/null)
    if test "$found" = "<files>"
        __fish_complete_path (commandline -ct)
    else
        printf '%s\\n' $found
    end
end
complete -c ottla -f -a '(__ottla_words)'
"""
SCRIPTS = {"bash": BASH, "zsh": ZSH, "fish": FISH}
FILES = "<files>"  # marker of "any file" in the scripts


def run(arguments: Sequence[str]) -> int:
    if arguments[:1] in (["words"], ["line"]):
        words = list(arguments[1:]) if arguments[0] == "words" else split_line(" ".join(arguments[1:]))
        print("\n".join(candidates(words or [""])))
        return 0
    parser = Parser(prog="ottla completion", description="Print the completion script of a shell.", examples=EXAMPLES)
    parser.add_argument("shell", choices=sorted(SCRIPTS), metavar="SHELL", help="bash, zsh or fish")
    print(SCRIPTS[parser.parse_args(arguments).shell], end="")
    return 0


def split_line(line: str) -> list[str]:
    """Split a line into the words after the command; bash would also split at colons."""
    try:
        words = shlex.split(line)
    except ValueError:  # an open quote
        words = line.split()
    return words[1:] + [""] * line.endswith(" ")


def candidates(words_before_cursor: list[str]) -> list[str]:
    """The completions of the last, possibly incomplete word."""
    *before, begun = words_before_cursor
    if not before:
        return _with_prefix([*COMMANDS, *GLOBAL_OPTIONS], begun)
    if before[0] not in COMMANDS:
        return []
    parser = parser_of(before[0])
    return [] if parser is None else _of_parser(parser, before[1:], begun)


class _ParserCapturedError(Exception):
    """Carries a command's parser out of the command before it parses."""

    def __init__(self, parser: argparse.ArgumentParser) -> None:
        super().__init__(parser.prog)
        self.parser = parser


def parser_of(command: str) -> argparse.ArgumentParser | None:
    """The parser of a command, captured right before the command uses it."""

    def show(parser: argparse.ArgumentParser) -> NoReturn:
        raise _ParserCapturedError(parser)

    Parser.on_parse = show
    try:
        import_module(COMMANDS[command].module).run([])
    except _ParserCapturedError as seen:
        return seen.parser
    finally:
        Parser.on_parse = None
    return None


def _of_parser(parser: argparse.ArgumentParser, before: list[str], begun: str) -> list[str]:
    """Consume the complete words, then return what may follow."""
    positionals = [action for action in parser._actions if not action.option_strings]
    taken = 0
    awaited: argparse.Action | None = None  # an option that expects a value
    for index, word in enumerate(before):
        if awaited is not None:
            awaited = None
            continue
        if word.startswith("-"):
            option = parser._option_string_actions.get(word.partition("=")[0])
            awaited = option if option is not None and option.nargs != 0 and "=" not in word else None
            continue
        commands = _sub_commands(positionals[taken : taken + 1])
        if commands is not None:
            return _of_parser(commands[word], before[index + 1 :], begun) if word in commands else []
        taken += taken < len(positionals) and positionals[taken].nargs not in ("*", "+")
    if awaited is not None:
        return _values(awaited, before, begun)
    if begun.startswith("-"):
        return _with_prefix(parser._option_string_actions, begun)
    return _values(positionals[taken], before, begun) if taken < len(positionals) else []


def _sub_commands(places: Sequence[argparse.Action]) -> dict[str, argparse.ArgumentParser] | None:
    if places and isinstance(places[0], argparse._SubParsersAction):
        return dict(places[0].choices)
    return None


def _values(action: argparse.Action, before: Sequence[str], begun: str) -> list[str]:
    if action.choices is not None:
        return _with_prefix(map(str, action.choices), begun)
    is_topic = action.dest == "name" and before[-1:] == ["topic"]  # ottla configs ... topic NAME
    if is_topic or action.dest in TOPIC_PLACES or action.metavar in ("TOPIC", "REGEX"):
        return _with_prefix(topic_names(before), begun)
    if action.metavar == "GROUP":
        return _with_prefix(group_names(before), begun)
    if action.metavar == "PIPELINE":
        return _with_prefix(pipeline_names(before), begun)
    return [FILES] if action.metavar in FILE_PLACES else []


def topic_names(words: Sequence[str]) -> list[str]:
    from ottla.client.admin import Admin  # noqa: PLC0415 (only needed for topics)

    return _query_broker(
        words, lambda client: [topic.name for topic in Admin(client).topics() if not topic.is_internal]
    )


def group_names(words: Sequence[str]) -> list[str]:
    from ottla.client.groups import list_groups  # noqa: PLC0415 (only needed for groups)

    return _query_broker(words, lambda client: [group.group_id for group in list_groups(client)])


def pipeline_names(words: Sequence[str]) -> list[str]:
    from ottla.operations.pipeline_runs.statuses import list_runs, state_folder  # noqa: PLC0415 (only needed for pipelines)

    given = [words[index + 1] for index, word in enumerate(words[:-1]) if word == "--state"]
    return [run.name for run in list_runs(Path(given[-1]) if given else state_folder())]


def _query_broker(words: Sequence[str], ask: Callable[[Client], list[str]]) -> list[str]:
    """Query the broker on the command line; empty if it does not answer quickly."""
    from ottla.cli.client_settings import command_properties  # noqa: PLC0415
    from ottla.client.client import open_client  # noqa: PLC0415

    given = [words[index + 1] for index, word in enumerate(words[:-1]) if word == "--bootstrap-server"]
    bootstrap = bootstrap_of(argparse.Namespace(bootstrap_server=given[-1] if given else None))
    try:
        with open_client(bootstrap, command_properties(None), timeout_ms=REQUEST_MS_MAX, connect_retry_ms=0) as client:
            return ask(client)
    except (ClientError, ToolError):
        return []


def _with_prefix(words: Iterable[str], begun: str) -> list[str]:
    return sorted({word for word in words if word.startswith(begun)})
