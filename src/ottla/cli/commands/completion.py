"""`ottla completion bash|zsh|fish`: a script that has the shell complete commands, options, names of topics and groups.

The scripts are small: at each Tab they ask `ottla completion words ...`, which reads the same argparse definitions
that the commands use, so nothing can be out of date. (argcomplete does this too, but wants a marker in every script
and runs the whole command; shtab writes out all words beforehand and so cannot know topics.)
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
PATIENCE_MS = 300  # for names of topics and groups: nobody waits longer for a Tab
GLOBAL_OPTIONS = ("--help", "--version")
TOPIC_PLACES = ("names", "topic", "topics")  # what positional arguments and options for topics are called
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
FILES = "<files>"  # what the scripts take as "any file"


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
    """The words after the command; bash itself would also split them at colons."""
    try:
        words = shlex.split(line)
    except ValueError:  # a quote that is still open
        words = line.split()
    return words[1:] + [""] * line.endswith(" ")


def candidates(words: list[str]) -> list[str]:
    """What can stand in place of the last word, which may have been begun."""
    *before, begun = words
    if not before:
        return _starting([*COMMANDS, *GLOBAL_OPTIONS], begun)
    if before[0] not in COMMANDS:
        return []
    parser = parser_of(before[0])
    return [] if parser is None else _of_parser(parser, before[1:], begun)


class _SeenError(Exception):
    """A command is about to use its parser: that is all we wanted of it."""

    def __init__(self, parser: argparse.ArgumentParser) -> None:
        super().__init__(parser.prog)
        self.parser = parser


def parser_of(command: str) -> argparse.ArgumentParser | None:
    """The parser of a command, caught when the command is about to use it."""

    def show(parser: argparse.ArgumentParser) -> NoReturn:
        raise _SeenError(parser)

    Parser.on_use = show
    try:
        import_module(COMMANDS[command].module).run([])
    except _SeenError as seen:
        return seen.parser
    finally:
        Parser.on_use = None
    return None


def _of_parser(parser: argparse.ArgumentParser, before: list[str], begun: str) -> list[str]:
    """Walk through the words that are complete, then say what may follow."""
    places = [action for action in parser._actions if not action.option_strings]
    taken = 0
    awaited: argparse.Action | None = None  # an option whose value comes next
    for place, word in enumerate(before):
        if awaited is not None:
            awaited = None
            continue
        if word.startswith("-"):
            option = parser._option_string_actions.get(word.partition("=")[0])
            awaited = option if option is not None and option.nargs != 0 and "=" not in word else None
            continue
        commands = _sub_commands(places[taken : taken + 1])
        if commands is not None:
            return _of_parser(commands[word], before[place + 1 :], begun) if word in commands else []
        taken += taken < len(places) and places[taken].nargs not in ("*", "+")
    if awaited is not None:
        return _values(awaited, before, begun)
    if begun.startswith("-"):
        return _starting(parser._option_string_actions, begun)
    return _values(places[taken], before, begun) if taken < len(places) else []


def _sub_commands(places: Sequence[argparse.Action]) -> dict[str, argparse.ArgumentParser] | None:
    if places and isinstance(places[0], argparse._SubParsersAction):
        return dict(places[0].choices)
    return None


def _values(action: argparse.Action, before: Sequence[str], begun: str) -> list[str]:
    if action.choices is not None:
        return _starting(map(str, action.choices), begun)
    is_topic = action.dest == "name" and before[-1:] == ["topic"]  # ottla configs ... topic NAME
    if is_topic or action.dest in TOPIC_PLACES or action.metavar in ("TOPIC", "REGEX"):
        return _starting(topic_names(before), begun)
    if action.metavar == "GROUP":
        return _starting(group_names(before), begun)
    if action.metavar == "PIPELINE":
        return _starting(pipeline_names(before), begun)
    return [FILES] if action.metavar in FILE_PLACES else []


def topic_names(words: Sequence[str]) -> list[str]:
    from ottla.client.admin import Admin  # noqa: PLC0415 (only needed for topics)

    return _asked(words, lambda client: [topic.name for topic in Admin(client).topics() if not topic.is_internal])


def group_names(words: Sequence[str]) -> list[str]:
    from ottla.client.groups import list_groups  # noqa: PLC0415 (only needed for groups)

    return _asked(words, lambda client: [group.group_id for group in list_groups(client)])


def pipeline_names(words: Sequence[str]) -> list[str]:
    from ottla.operations.pipeline_runs.statuses import list_runs, state_folder  # noqa: PLC0415 (only needed for pipelines)

    given = [words[place + 1] for place, word in enumerate(words[:-1]) if word == "--state"]
    return [run.name for run in list_runs(Path(given[-1]) if given else state_folder())]


def _asked(words: Sequence[str], ask: Callable[[Client], list[str]]) -> list[str]:
    """What the broker that the command line names says; nothing if it does not answer at once."""
    from ottla.cli.client_settings import command_properties  # noqa: PLC0415
    from ottla.client.opening import open_client  # noqa: PLC0415

    given = [words[place + 1] for place, word in enumerate(words[:-1]) if word == "--bootstrap-server"]
    bootstrap = bootstrap_of(argparse.Namespace(bootstrap_server=given[-1] if given else None))
    try:
        with open_client(bootstrap, command_properties(None), timeout_ms=PATIENCE_MS, patience_ms=0) as client:
            return ask(client)
    except (ClientError, ToolError):
        return []


def _starting(words: Iterable[str], begun: str) -> list[str]:
    return sorted({word for word in words if word.startswith(begun)})
