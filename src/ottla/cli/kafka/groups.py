"""`kafka-consumer-groups.sh`, including --reset-offsets, with Kafka's options, wording and exit codes.

Like Kafka's tool it ends with 0 after most failures and prints them on stdout in a line that begins with "Error: ",
which scripts look for. Only a wrong command line and an unreachable broker end with 1.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence

from ottla.base.errors import Error
from ottla.base.names import TopicPartition
from ottla.base.regular_expressions import topic_pattern_problem
from ottla.base.text import escape_line
from ottla.cli.client_settings import client_of_file
from ottla.cli.java.errors import WRAPPER, java_sentence, java_text, wrap_refusals
from ottla.cli.java.hash_order import hash_map_order, partition_order
from ottla.cli.java.options import (
    BOOTSTRAP,
    BROKER_LIST,
    COMMAND_CONFIG,
    LONG_MAX,
    KafkaOptions,
    Option,
    bootstrap_of,
)
from ottla.cli.java.times import parse_date_time, parse_duration
from ottla.cli.reports.group_report import (
    EMPTY,
    FilterError,
    delete_groups_lines,
    delete_offsets_lines,
    describe_error_text,
    list_consumer_groups,
    list_lines,
    member_lines,
    offset_lines,
    parse_states,
    parse_types,
    print_error,
    print_lines,
    reset_lines,
    reset_remarks,
    reset_warnings,
    state_lines,
    state_problem,
)
from ottla.cli.terminal import EXIT_FAILED, ToolError, print_line, print_text, warn
from ottla.client.client import Client
from ottla.client.errors import BrokerError, ClientError
from ottla.client.groups import DEAD, Group, commit_offsets, committed_offsets, describe_groups
from ottla.operations.errors import OperationError
from ottla.operations.group_lag import group_partitions
from ottla.operations.resets import (
    BY_DURATION,
    FROM_FILE,
    SCENARIOS,
    SHIFT_BY,
    TO_DATETIME,
    TO_OFFSET,
    OffsetResetter,
    Offsets,
    Scenario,
    UnreadableError,
    WrongPartitionsError,
    export_text,
    named_partitions,
    read_plans,
)

TOOL = "kafka-consumer-groups.sh"
SUMMARY = "List, describe and delete consumer groups, and set their offsets."
EXAMPLE = "--describe --group orders-app"
ACTIONS = ("list", "describe", "delete", "reset-offsets", "delete-offsets", "validate-regex")
TIMEOUT_MS = 5000
INTEGER_BITS = 32  # Kafka truncates the timeout
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
    Option("describe", "Show the partitions of groups and their lag."),
    Option("delete", "Delete groups without members."),
    Option("reset-offsets", "Set the offsets of groups without members; needs a scenario, topics and --execute."),
    Option("delete-offsets", "Delete the committed offsets of a group for some topics."),
    Option("validate-regex", "Check a regular expression as the brokers do.", "pattern"),
    Option("group", "The group; may be repeated.", "group", is_repeatable=True),
    Option("all-groups", "All groups."),
    Option("topic", "A topic, or some of its partitions, such as orders:0,2.", "topic", is_repeatable=True),
    Option("all-topics", "With --reset-offsets: all topics that the group has committed offsets for."),
    Option("members", "With --describe: the members."),
    Option("offsets", "With --describe: the partitions with offsets and lag (this is the default)."),
    Option(
        "state", "With --describe: the state. With --list: states, or only groups in some.", "states", bare_value=""
    ),
    Option("type", "With --list: show types, or only groups of some.", "types", bare_value=""),
    Option("verbose", "With --describe: more columns."),
    Option("timeout", "How long to wait for answers (default 5000).", "ms"),
    Option("dry-run", "With --reset-offsets: only print the changes (default)."),
    Option("execute", "With --reset-offsets: do it."),
    Option("export", "With --reset-offsets: print comma-separated values that --from-file reads."),
    Option("to-earliest", "Reset to the first record."),
    Option("to-latest", "Reset to the next new record."),
    Option("to-current", "Commit the present offsets again."),
    Option("to-offset", "Reset to this offset.", "offset"),
    Option("shift-by", "Move the offsets forward, or backward if negative.", "records"),
    Option("to-datetime", "Reset to a time, such as 2026-11-15T08:00:00.000.", "time"),
    Option("by-duration", "Reset to a duration ago, such as P1D or PT2H30M.", "span"),
    Option("from-file", "Reset to the offsets in this file: lines topic,partition,offset or group,topic,...", "file"),
)

# Option -> the actions that it requires.
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
        options.print_usage_and_exit(SUMMARY)
    check_options(options)
    if options.has("validate-regex"):
        return _validate(options)
    try:
        return _run(options)
    except (FilterError, WrongPartitionsError) as problem:
        options.print_usage_and_exit(str(problem))
    except BrokerError as problem:
        return _print_failure(java_text(problem))
    except ClientError as problem:
        _print_failure(str(problem))
        return EXIT_FAILED
    except OperationError as problem:
        return _print_failure(str(problem))


def _run(options: KafkaOptions) -> int:
    timeout_ms = options.number("timeout", LONG_MAX)
    with client_of_file(bootstrap_of(options) or "", options.text("command-config")) as client:
        client.timeout_ms = TIMEOUT_MS if timeout_ms is None else max(_to_int32(timeout_ms), 1)
        action = next(action for action in ACTIONS if options.has(action))
        _ACTIONS[action](client, options)
    return 0


def check_options(options: KafkaOptions) -> None:
    """Reject what Kafka rejects, in the same order."""
    for name, actions in _ONLY_WITH.items():
        if options.has(name) and not any(map(options.has, actions)):
            options.print_usage_and_exit(f"Option(s) [{name}] are unavailable given other options on the command line")
    if options.has("validate-regex") and len(options.values) == 1:
        return
    if bootstrap_of(options) is None:
        options.print_usage_and_exit('Missing required argument "[bootstrap-server]"')
    if options.has("describe"):
        _check_describe(options)
    if options.has("delete"):
        _check_groups(options, "delete")
        if options.has("topic"):
            options.print_usage_and_exit(
                "The consumer does not support topic-specific offset deletion from a consumer group."
            )
    if options.has("delete-offsets") and not (options.has("group") and options.has("topic")):
        options.print_usage_and_exit("Option [delete-offsets] takes the following options: [group], [topic]")
    if options.has("reset-offsets"):
        _check_reset(options)
    options.check_invalid_args("group", "all-groups", "list")
    options.check_invalid_args("topic", "list", "describe")
    if sum(map(options.has, ACTIONS)) != 1:
        names = ", ".join(f"--{action}" for action in ACTIONS)
        options.print_usage_and_exit(f"Command must include exactly one action: {names}")


def _check_groups(options: KafkaOptions, action: str) -> None:
    if not options.has("group") and not options.has("all-groups"):
        options.print_usage_and_exit(f"Option [{action}] takes one of these options: [group], [all-groups]")


def _check_describe(options: KafkaOptions) -> None:
    _check_groups(options, "describe")
    if sum(map(options.has, ("members", "offsets", "state"))) > 1:
        options.print_usage_and_exit(
            "Option [describe] takes at most one of these options: [members], [offsets], [state]"
        )
    if options.text("state"):
        options.print_usage_and_exit("Option [describe] does not take a value for [state]")


def _check_reset(options: KafkaOptions) -> None:
    if options.has("dry-run") and options.has("execute"):
        options.print_usage_and_exit("Option [reset-offsets] only accepts one of [execute] and [dry-run]")
    if not options.has("dry-run") and not options.has("execute"):
        warn(NO_EXECUTE)
    _check_groups(options, "reset-offsets")
    for name in SCENARIOS:
        options.check_invalid_args(name, *(other for other in SCENARIOS if other != name))


def _validate(options: KafkaOptions) -> int:
    pattern = options.text("validate-regex") or ""
    problem = topic_pattern_problem(pattern)
    print_line(f"The regular expression `{pattern}` is {'valid' if problem is None else f'invalid: {problem}'}.")
    return 0


def _list(client: Client, options: KafkaOptions) -> None:
    states, types = parse_states(options.text("state") or ""), parse_types(options.text("type") or "")
    if options.has("state") or options.has("type"):
        groups = list_consumer_groups(client, states, types)
        for line in list_lines(groups, options.has("type"), options.has("state")):
            print_line(line)
        return
    for group_id in _all_groups(client):
        print_line(group_id)


def _describe(client: Client, options: KafkaOptions) -> None:
    answers = describe_groups(client, _groups(client, options))
    for group_id in hash_map_order(list(answers)):  # Kafka reports the first refusal in this order
        answer = answers[group_id]
        if isinstance(answer, BrokerError):
            raise ToolError(describe_error_text(answer))
    show = _show_members if options.has("members") else _show_state if options.has("state") else _show_offsets
    groups = [answers[group_id] for group_id in sorted(answers)]
    for group in groups:
        assert isinstance(group, Group)
        show(client, group, options.has("verbose"))


def _show_offsets(client: Client, group: Group, is_verbose: bool) -> None:
    with wrap_refusals():
        rows = group_partitions(client, group)
    if _print_state(group) and rows:
        print_lines(offset_lines(rows, is_verbose))


def _show_members(_client: Client, group: Group, is_verbose: bool) -> None:
    _print_state(group)
    print_lines(member_lines(group, is_verbose))


def _show_state(client: Client, group: Group, is_verbose: bool) -> None:
    if _print_state(group):
        addresses = {node.node_id: f"{node.host}:{node.port}" for node in client.cluster().brokers}
        coordinator = f"{addresses.get(group.coordinator, '')}  ({group.coordinator})"
        print_lines(state_lines(group, coordinator, is_verbose))


def _print_state(group: Group) -> bool:
    """Print a message about the state of a group; returns whether the group exists."""
    if group.state == DEAD:
        print_error(f"Consumer group '{group.group_id}' does not exist.")
        return False
    problem = state_problem(group)
    if problem is not None:
        sys.stdout.flush()
        warn(f"\n{escape_line(str(problem))}")
    return True


def _delete(client: Client, options: KafkaOptions) -> None:
    print_lines(delete_groups_lines(client, _groups(client, options)))


def _delete_offsets(client: Client, options: KafkaOptions) -> None:
    print_lines(delete_offsets_lines(client, options.text("group") or "", options.texts("topic")))


def _reset(client: Client, options: KafkaOptions) -> None:
    reset_groups(client, options, _groups(client, options))


def _groups(client: Client, options: KafkaOptions) -> list[str]:
    return _all_groups(client) if options.has("all-groups") else options.texts("group")


def _all_groups(client: Client) -> list[str]:
    with wrap_refusals():
        return [group.group_id for group in list_consumer_groups(client)]


def _to_int32(number: int) -> int:
    """Truncate a long to 32 bits, as Kafka's tool does with the timeout."""
    cut = number & (1 << INTEGER_BITS) - 1
    return cut - (1 << INTEGER_BITS) if cut >> INTEGER_BITS - 1 else cut


def _print_failure(cause: str) -> int:
    print_error(f"Executing consumer group command failed due to {cause}")
    return 0


_ACTIONS: dict[str, Callable[[Client, KafkaOptions], None]] = {
    "list": _list,
    "describe": _describe,
    "delete": _delete,
    "delete-offsets": _delete_offsets,
    "reset-offsets": _reset,
}


# ---- --reset-offsets
def reset_groups(client: Client, options: KafkaOptions, group_ids: Sequence[str]) -> None:
    """Compute the new offsets of each group, commit them with --execute, and print them."""
    answers = describe_groups(client, group_ids)
    plans: dict[str, Offsets] = {}
    for group_id in hash_map_order(hash_map_order(list(answers)), copied_map_capacity(len(answers))):
        answer = answers[group_id]
        if isinstance(answer, BrokerError) and answer.error is not Error.GROUP_ID_NOT_FOUND:
            raise ToolError(WRAPPER + describe_error_text(answer))
        if isinstance(answer, Group) and answer.state not in (EMPTY, DEAD):
            print_error(
                f"Assignments can only be reset if the group '{group_id}' is inactive, but the current state is "
                f"{answer.state}."
            )
            plans[group_id] = {}
        else:
            plans[group_id] = _reset_group(client, options, group_id)
    ordered = {group_id: plans[group_id] for group_id in hash_map_order(list(plans))}
    if options.has("export"):
        print_text(export_text(ordered, is_one_group=len(options.texts("group")) == 1))
    else:
        print_lines(reset_lines(ordered))


def _reset_group(client: Client, options: KafkaOptions, group_id: str) -> Offsets:
    """The new offsets of one group; committing them creates a missing group."""
    partitions = _partitions(client, options, group_id)
    resetter = OffsetResetter(client, scenario_of(options))
    with wrap_refusals():
        plan = resetter.plan(group_id, partitions)
    for line in reset_remarks(group_id, plan):
        print()
        print_line(line.removeprefix("\n"))
    for line in reset_warnings(plan):
        warn(line)
    offsets = {partition: plan.offsets[partition] for partition in partition_order(list(plan.offsets))}
    if options.has("execute"):
        try:
            commit_offsets(client, group_id, offsets)
        except BrokerError as problem:
            raise ToolError(java_sentence(problem)) from None
    return offsets


def _partitions(client: Client, options: KafkaOptions, group_id: str) -> list[TopicPartition]:
    if options.has("all-topics"):
        with wrap_refusals():
            return list(committed_offsets(client, group_id))
    if options.has("topic"):
        try:
            return named_partitions(client, options.texts("topic"))
        except BrokerError as problem:
            raise ToolError(java_sentence(problem)) from None
    if not options.has(FROM_FILE):
        options.print_usage_and_exit("One of the reset scopes should be defined: --all-topics, --topic.")
    return []


def scenario_of(options: KafkaOptions) -> Scenario:
    name = next((name for name in SCENARIOS if options.has(name)), None)
    if name is None:
        names = "[to-datetime], [by-duration], [to-latest], [to-current], [to-earliest], [to-offset], [shift-by], "
        options.print_usage_and_exit(
            f"Option '[reset-offsets]' requires one of the following scenarios: [{names}[from-file]]"
        )
    if name in (TO_OFFSET, SHIFT_BY):
        return Scenario(name, options.number(name, LONG_MAX) or 0)
    if name == FROM_FILE:
        groups = options.texts("group")
        try:
            return Scenario(name, plans=read_plans(options.texts(name)[0], groups[0] if len(groups) == 1 else None))
        except UnreadableError as problem:
            raise ToolError(f"java.io.IOException: {problem}") from None
    if name in (TO_DATETIME, BY_DURATION):
        return Scenario(name, time_of(name, options.texts(name)[0]))
    return Scenario(name)


def time_of(name: str, text: str) -> int:
    return parse_date_time(text) if name == TO_DATETIME else int(time.time() * 1000) - parse_duration(text)


def copied_map_capacity(count: int) -> int:
    """The initial capacity of a Java map that copies another one."""
    return int(count / 0.75 + 1)
