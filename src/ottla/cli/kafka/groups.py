"""`kafka-consumer-groups.sh`: Kafka's tool for consumer groups, with Kafka's options, words and exit codes.

Kafka's tool ends with 0 after most failures and tells them on stdout, in a line that begins with "Error: "; scripts
look for that line. Only a wrong command line, and here also a broker that cannot be reached, ends with 1.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence

from ottla.cli.client_settings import client_of_file
from ottla.cli.groups.actions import (
    FilterError,
    delete_groups_lines,
    delete_offsets_lines,
    list_consumer_groups,
    parse_states,
    parse_types,
    refused_text,
    say_error,
    say_lines,
)
from ottla.cli.groups.regex_check import regex_problem
from ottla.cli.groups.report import list_lines, member_lines, offset_lines, state_lines, state_problem
from ottla.cli.java.errors import java_text, wrapped_refusals
from ottla.cli.java.options import (
    BOOTSTRAP,
    BROKER_LIST,
    COMMAND_CONFIG,
    LONG_MAX,
    KafkaOptions,
    Option,
    bootstrap_of,
)
from ottla.cli.java.order import hash_map_order
from ottla.cli.kafka.groups_reset import reset_groups
from ottla.cli.terminal import EXIT_FAILED, ToolError, say, warn
from ottla.client.client import Client
from ottla.client.errors import ClientError, RefusedError
from ottla.client.groups import DEAD, Group, describe_groups
from ottla.operations.errors import OperationError
from ottla.operations.group_lag import group_partitions
from ottla.operations.resets import SCENARIOS, WrongPlaceError

TOOL = "kafka-consumer-groups.sh"
SUMMARY = "List, describe and delete consumer groups, and set their offsets."
EXAMPLE = "--describe --group orders-app"
ACTIONS = ("list", "describe", "delete", "reset-offsets", "delete-offsets", "validate-regex")
TIMEOUT_MS = 5000
INTEGER_BITS = 32  # Kafka cuts the time-out to them
NO_EXECUTE = (
    "WARN: No action will be performed as the --execute option is missing. In version 5.0, this command will require "
    "either --dry-run or --execute to be specified. You should add the --dry-run option explicitly if you are "
    "scripting this command and want to keep the current default behavior without prompting."
)

OPTIONS = (
    BOOTSTRAP,
    BROKER_LIST,
    COMMAND_CONFIG,
    Option("list", "List the groups."),
    Option("describe", "Show groups: what they read and how far they are."),
    Option("delete", "Delete groups that have no members."),
    Option("reset-offsets", "Set the offsets of groups that have no members; needs a scenario, topics and --execute."),
    Option("delete-offsets", "Forget what a group has committed for some topics."),
    Option("validate-regex", "Say whether the brokers take this regular expression.", "pattern"),
    Option("group", "The group; can be given several times.", "group", many=True),
    Option("all-groups", "All groups."),
    Option("topic", "A topic, or some of its partitions, such as orders:0,2.", "topic", many=True),
    Option("all-topics", "With --reset-offsets: all topics that the group has committed offsets for."),
    Option("members", "With --describe: the members."),
    Option("offsets", "With --describe: the partitions with offsets and lag (this is the default)."),
    Option("state", "With --describe: the state. With --list: states, or only groups in some.", "states", alone=""),
    Option("type", "With --list: show types, or only groups of some.", "types", alone=""),
    Option("verbose", "With --describe: more columns."),
    Option("timeout", "How long to wait for answers (default 5000).", "ms"),
    Option("dry-run", "With --reset-offsets: only show what would change (this is the default)."),
    Option("execute", "With --reset-offsets: do it."),
    Option("export", "With --reset-offsets: print comma-separated values that --from-file reads."),
    Option("to-earliest", "Go on at the first record."),
    Option("to-latest", "Go on at the next new record."),
    Option("to-current", "Commit the present offsets again."),
    Option("to-offset", "Go on at this offset.", "offset"),
    Option("shift-by", "Go on so many records later, or earlier if negative.", "records"),
    Option("to-datetime", "Go on at a time, such as 2026-11-15T08:00:00.000.", "time"),
    Option("by-duration", "Go on so far in the past, such as P1D or PT2H30M.", "span"),
    Option("from-file", "Go on where this file says: lines topic,partition,offset or group,topic,...", "file"),
)

# Option -> the actions without which it means nothing.
_ONLY_WITH = {
    "members": ("describe",),
    "offsets": ("describe",),
    "state": ("describe", "list"),
    "type": ("list",),
    "verbose": ("describe",),
}


def run(arguments: Sequence[str]) -> int:
    options = KafkaOptions(TOOL, SUMMARY, OPTIONS, arguments, example=EXAMPLE)
    if not arguments:
        options.refuse(SUMMARY)
    check_options(options)
    if options.has("validate-regex"):
        return _validate(options)
    try:
        return _run(options)
    except (FilterError, WrongPlaceError) as problem:
        options.refuse(str(problem))
    except RefusedError as problem:
        return _failed(java_text(problem))
    except ClientError as problem:
        _failed(str(problem))
        return EXIT_FAILED
    except OperationError as problem:
        return _failed(str(problem))


def _run(options: KafkaOptions) -> int:
    timeout_ms = options.number("timeout", LONG_MAX)
    with client_of_file(bootstrap_of(options) or "", options.text("command-config")) as client:
        client.timeout_ms = TIMEOUT_MS if timeout_ms is None else max(_as_integer(timeout_ms), 1)
        action = next(action for action in ACTIONS if options.has(action))
        _ACTIONS[action](client, options)
    return 0


def check_options(options: KafkaOptions) -> None:
    """Refuse what Kafka refuses, in the same order."""
    for name, actions in _ONLY_WITH.items():
        if options.has(name) and not any(map(options.has, actions)):
            options.refuse(f"Option(s) [{name}] are unavailable given other options on the command line")
    if options.has("validate-regex") and len(options.values) == 1:
        return
    if bootstrap_of(options) is None:
        options.refuse('Missing required argument "[bootstrap-server]"')
    if options.has("describe"):
        _check_describe(options)
    if options.has("delete"):
        _check_groups(options, "delete")
        if options.has("topic"):
            options.refuse("The consumer does not support topic-specific offset deletion from a consumer group.")
    if options.has("delete-offsets") and not (options.has("group") and options.has("topic")):
        options.refuse("Option [delete-offsets] takes the following options: [group], [topic]")
    if options.has("reset-offsets"):
        _check_reset(options)
    options.refuse_with("group", "all-groups", "list")
    options.refuse_with("topic", "list", "describe")
    if sum(map(options.has, ACTIONS)) != 1:
        names = ", ".join(f"--{action}" for action in ACTIONS)
        options.refuse(f"Command must include exactly one action: {names}")


def _check_groups(options: KafkaOptions, action: str) -> None:
    if not options.has("group") and not options.has("all-groups"):
        options.refuse(f"Option [{action}] takes one of these options: [group], [all-groups]")


def _check_describe(options: KafkaOptions) -> None:
    _check_groups(options, "describe")
    if sum(map(options.has, ("members", "offsets", "state"))) > 1:
        options.refuse("Option [describe] takes at most one of these options: [members], [offsets], [state]")
    if options.text("state"):
        options.refuse("Option [describe] does not take a value for [state]")


def _check_reset(options: KafkaOptions) -> None:
    if options.has("dry-run") and options.has("execute"):
        options.refuse("Option [reset-offsets] only accepts one of [execute] and [dry-run]")
    if not options.has("dry-run") and not options.has("execute"):
        warn(NO_EXECUTE)
    _check_groups(options, "reset-offsets")
    for name in SCENARIOS:
        options.refuse_with(name, *(other for other in SCENARIOS if other != name))


def _validate(options: KafkaOptions) -> int:
    pattern = options.text("validate-regex") or ""
    problem = regex_problem(pattern)
    say(f"The regular expression `{pattern}` is {'valid' if problem is None else f'invalid: {problem}'}.")
    return 0


def _list(client: Client, options: KafkaOptions) -> None:
    states, types = parse_states(options.text("state") or ""), parse_types(options.text("type") or "")
    if options.has("state") or options.has("type"):
        groups = list_consumer_groups(client, states, types)
        for line in list_lines(groups, options.has("type"), options.has("state")):
            say(line)
        return
    for group_id in _all_groups(client):
        say(group_id)


def _describe(client: Client, options: KafkaOptions) -> None:
    answers = describe_groups(client, _groups(client, options))
    for group_id in hash_map_order(list(answers)):  # the first refusal is told, and Kafka comes by in this order
        answer = answers[group_id]
        if isinstance(answer, RefusedError):
            raise ToolError(refused_text(answer))
    show = _show_members if options.has("members") else _show_state if options.has("state") else _show_offsets
    groups = [answers[group_id] for group_id in sorted(answers)]
    for group in groups:
        assert isinstance(group, Group)
        show(client, group, options.has("verbose"))


def _show_offsets(client: Client, group: Group, is_verbose: bool) -> None:
    with wrapped_refusals():
        rows = group_partitions(client, group)
    if _is_alive(group) and rows:
        say_lines(offset_lines(rows, is_verbose))


def _show_members(_client: Client, group: Group, is_verbose: bool) -> None:
    _is_alive(group)
    say_lines(member_lines(group, is_verbose))


def _show_state(client: Client, group: Group, is_verbose: bool) -> None:
    if _is_alive(group):
        addresses = {node.node_id: f"{node.host}:{node.port}" for node in client.cluster().brokers}
        coordinator = f"{addresses.get(group.coordinator, '')}  ({group.coordinator})"
        say_lines(state_lines(group, coordinator, is_verbose))


def _is_alive(group: Group) -> bool:
    """Tell what there is to tell about the state of a group."""
    if group.state == DEAD:
        say_error(f"Consumer group '{group.group_id}' does not exist.")
        return False
    problem = state_problem(group)
    if problem is not None:
        sys.stdout.flush()
        warn(f"\n{problem}")
    return True


def _delete(client: Client, options: KafkaOptions) -> None:
    say_lines(delete_groups_lines(client, _groups(client, options)))


def _delete_offsets(client: Client, options: KafkaOptions) -> None:
    say_lines(delete_offsets_lines(client, options.text("group") or "", options.texts("topic")))


def _reset(client: Client, options: KafkaOptions) -> None:
    reset_groups(client, options, _groups(client, options))


def _groups(client: Client, options: KafkaOptions) -> list[str]:
    return _all_groups(client) if options.has("all-groups") else options.texts("group")


def _all_groups(client: Client) -> list[str]:
    with wrapped_refusals():
        return [group.group_id for group in list_consumer_groups(client)]


def _as_integer(number: int) -> int:
    """A long cut to 32 bits, as Kafka's tool does with the time-out."""
    cut = number & (1 << INTEGER_BITS) - 1
    return cut - (1 << INTEGER_BITS) if cut >> INTEGER_BITS - 1 else cut


def _failed(cause: str) -> int:
    say_error(f"Executing consumer group command failed due to {cause}")
    return 0


_ACTIONS: dict[str, Callable[[Client, KafkaOptions], None]] = {
    "list": _list,
    "describe": _describe,
    "delete": _delete,
    "delete-offsets": _delete_offsets,
    "reset-offsets": _reset,
}
