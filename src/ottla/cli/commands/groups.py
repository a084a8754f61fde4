"""`ottla groups`: lists and describes consumer groups, resets and deletes their offsets."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from ottla.base.errors import Error
from ottla.base.names import TopicPartition
from ottla.base.regular_expressions import topic_pattern_problem
from ottla.base.text import escape_line
from ottla.cli.arguments import CONNECTION, Argument, Command, OneOf, Parser, flag, not_negative
from ottla.cli.client_settings import run_action
from ottla.cli.java.hash_order import partition_order
from ottla.cli.java.times import TimeTextError, parse_duration
from ottla.cli.reports.group_report import (
    DONE,
    EMPTY,
    NONE,
    UNKNOWN_PARTITION,
    assignment_text,
    cell_text,
    delete_offsets_of,
    list_consumer_groups,
    offset_row,
    parse_states,
    parse_types,
    reset_remarks,
    reset_warnings,
    state_problem,
)
from ottla.cli.tables import print_table
from ottla.cli.terminal import (
    EXIT_FAILED,
    ToolError,
    UsageError,
    confirm_unless_scripted,
    is_terminal,
    print_line,
    warn,
)
from ottla.client.client import Client
from ottla.client.errors import BrokerError
from ottla.client.groups import (
    DEAD,
    Group,
    commit_offsets,
    committed_offsets,
    delete_groups,
    describe_groups,
)
from ottla.operations.group_lag import add_time_lag, group_partitions
from ottla.operations.resets import (
    BY_DURATION,
    FROM_FILE,
    SHIFT_BY,
    TO_CURRENT,
    TO_DATETIME,
    TO_EARLIEST,
    TO_LATEST,
    TO_OFFSET,
    OffsetResetter,
    Offsets,
    Scenario,
    export_text,
    named_partitions,
    read_plans,
)

EXAMPLES = """
ottla groups list
ottla groups describe orders-app
ottla groups describe orders-app --members
ottla groups describe orders-app --time
ottla groups reset-offsets orders-app orders --to-earliest --execute
ottla groups reset-offsets orders-app orders:0,1 --by-duration PT2H
ottla groups delete-offsets orders-app orders
ottla groups delete orders-app
"""
OFFSET_COLUMNS = ("Group", "Topic", "Partition", "Offset", "End", "Lag", "Member", "Host", "Client")
OFFSET_NUMBERS = ("Partition", "Offset", "End", "Lag")
TIME_COLUMNS = ("Group", "Topic", "Partition", "Offset", "Start", "End", "To read", "Seconds behind")
MEMBER_COLUMNS = ("Group", "Member", "Instance", "Host", "Client", "Epoch", "Partitions", "Target")
STATE_COLUMNS = ("Group", "State", "Assignor", "Coordinator", "Epoch", "Assignment epoch", "Members")


def run(arguments: Sequence[str]) -> int:
    options = _parser().parse_args(arguments)
    if options.action is _validate:  # needs no broker
        valid: int = _validate(options)
        return valid
    return run_action(options)


def _parser() -> Parser:
    yes = flag("--yes", "-y", help="skip the confirmation")
    return Parser(
        prog="ottla groups",
        description="Manage consumer groups.",
        examples=EXAMPLES,
        shared=CONNECTION,
        commands=(
            Command(
                "list",
                "list groups",
                _list,
                Argument(
                    "--state", default="", metavar="S,S", help="only groups in these states, such as stable,empty"
                ),
                Argument("--type", default="", metavar="T,T", help="only these types: classic, consumer"),
            ),
            Command(
                "describe",
                "show the partitions of groups and their lag",
                _describe,
                Argument("groups", nargs="*", metavar="GROUP", help="default: all groups"),
                OneOf(
                    flag("--members", help="the members and their partitions"),
                    flag("--state", help="state, coordinator and assignor"),
                    flag("--time", help="how old the first record is that was not read"),
                ),
            ),
            Command(
                "delete", "delete groups without members", _delete, Argument("groups", nargs="+", metavar="GROUP"), yes
            ),
            Command(
                "delete-offsets",
                "delete the committed offsets of a group for some topics",
                _delete_offsets,
                *_group_and_topics("+"),
                yes,
            ),
            Command(
                "reset-offsets",
                "set the committed offsets of a group (only printed without --execute)",
                _reset,
                SCENARIO_ARGUMENT,
                flag("--execute", help="do it"),
                flag("--export", help="print comma-separated values"),
                *_group_and_topics("*"),
                examples=EXAMPLES,
            ),
            Command(
                "validate-regex",
                "check a regular expression as the brokers do",
                _validate,
                Argument("pattern", metavar="REGEX"),
                has_shared=False,
            ),
        ),
    )


def _group_and_topics(count: str) -> tuple[Argument, Argument]:
    return (
        Argument("group", metavar="GROUP"),
        Argument("topics", nargs=count, metavar="TOPIC[:N,N]", help="a topic, or some partitions of it"),
    )


SCENARIO_ARGUMENT = OneOf(
    *(
        Argument(f"--{name}", action="store_const", dest="scenario", const=Scenario(name), help=help_text)
        for name, help_text in (
            (TO_EARLIEST, "at the first record"),
            (TO_LATEST, "at the next new record"),
            (TO_CURRENT, "at the current offsets, which are committed again"),
        )
    ),
    Argument(f"--{TO_OFFSET}", type=not_negative, metavar="N", help="at this offset"),
    Argument(
        f"--{SHIFT_BY}", type=int, metavar="N", help="move forward by this number of records; backward if negative"
    ),
    Argument(f"--{TO_DATETIME}", metavar="TIME", help="at a time, such as 2026-11-15T08:00:00"),
    Argument(f"--{BY_DURATION}", metavar="SPAN", help="so far in the past, such as P1D or PT2H30M"),
    Argument(f"--{FROM_FILE}", metavar="FILE", help="at the offsets in this file, as written by --export"),
    is_required=True,
)


def _list(client: Client, options: argparse.Namespace) -> int:
    groups = sorted(list_consumer_groups(client, parse_states(options.state), parse_types(options.type)))
    if not groups and is_terminal(sys.stdout):
        print("No groups. To create one: ottla consume TOPIC --group NAME")
    elif groups:
        rows = [(group.group_id, group.type or NONE, group.state or NONE) for group in groups]
        print_table(("Group", "Type", "State"), rows)
    return 0


def _describe(client: Client, options: argparse.Namespace) -> int:
    names = options.groups or [group.group_id for group in list_consumer_groups(client)]
    answers = describe_groups(client, names)
    code = 0
    groups = []
    for name in names if options.groups else sorted(names):
        answer = answers[name]
        if isinstance(answer, BrokerError) or answer.state == DEAD:
            why = answer if isinstance(answer, BrokerError) else "the group does not exist"
            warn(escape_line(f"group {name}: {why}"))
            code = EXIT_FAILED
            continue
        groups.append(answer)
        problem = state_problem(answer)
        if problem is not None and not options.state:
            warn(escape_line(problem))
    views = {"members": _show_members, "state": _show_states, "time": _show_times}
    show = next((show for name, show in views.items() if getattr(options, name)), _show_offsets)
    show(client, groups)
    return code


def _show_offsets(client: Client, groups: Sequence[Group]) -> None:
    rows = []
    for group in groups:
        for row in group_partitions(client, group):
            name, topic, partition, _, *rest = offset_row(row)
            rows.append((name, topic, partition, *rest))
    if rows:
        print_table(OFFSET_COLUMNS, rows, OFFSET_NUMBERS)


def _show_times(client: Client, groups: Sequence[Group]) -> None:
    rows = []
    for group in groups:
        found = group_partitions(client, group)
        lags = add_time_lag(client, {row.partition: row.lag for row in found})
        for row in found:
            lag = lags[row.partition]
            seconds = NONE if lag.seconds is None else f"{lag.seconds:.1f}"
            cells = map(cell_text, (lag.committed, lag.start, lag.end, lag.records))
            rows.append((group.group_id, *_place(row.partition), *cells, seconds))
    if rows:
        print_table(TIME_COLUMNS, rows, TIME_COLUMNS[2:])


def _show_members(_client: Client, groups: Sequence[Group]) -> None:
    rows = [
        (
            group.group_id,
            member.member_id,
            member.instance_id or NONE,
            member.host,
            member.client_id,
            cell_text(member.epoch),
            assignment_text(member.assigned),
            assignment_text(member.target or ()),
        )
        for group in groups
        for member in group.members
    ]
    if rows:
        print_table(MEMBER_COLUMNS, rows, ("Epoch",))


def _show_states(_client: Client, groups: Sequence[Group]) -> None:
    rows = [
        (
            group.group_id,
            group.state,
            group.assignor or NONE,
            str(group.coordinator),
            cell_text(group.epoch),
            cell_text(group.assignment_epoch),
            str(len(group.members)),
        )
        for group in groups
    ]
    if rows:
        print_table(STATE_COLUMNS, rows, ("Coordinator", "Epoch", "Assignment epoch", "Members"))


def _delete(client: Client, options: argparse.Namespace) -> int:
    if not _is_sure(options, f"Delete {', '.join(options.groups)} with all offsets?"):
        return EXIT_FAILED
    answers = delete_groups(client, options.groups)
    for name, problem in answers.items():
        if problem is None:
            print_line(f"Deleted group {name}.")
        else:
            warn(f"group {name}: {problem}")
    return EXIT_FAILED if any(answers.values()) else 0


def _delete_offsets(client: Client, options: argparse.Namespace) -> int:
    if not _is_sure(options, f"Forget the offsets of {options.group} for {', '.join(options.topics)}?"):
        return EXIT_FAILED
    results, problem = delete_offsets_of(client, options.group, options.topics)
    if problem is not None and len({id(result) for result in results.values()}) == 1 and len(results) > 1:
        raise ToolError(f"group {options.group}: {problem}")
    rows = [
        (*_place(partition), DONE if refused is None else str(refused))
        for partition, refused in sorted(results.items())
    ]
    print_table(("Topic", "Partition", "Result"), rows, ("Partition",))
    return EXIT_FAILED if any(results.values()) else 0


def _reset(client: Client, options: argparse.Namespace) -> int:
    name = options.group
    answer = describe_groups(client, [name])[name]
    if isinstance(answer, BrokerError) and answer.error is not Error.GROUP_ID_NOT_FOUND:
        raise answer
    if isinstance(answer, Group) and answer.state not in (EMPTY, DEAD):
        raise ToolError(f"group {name} has members ({answer.state}): stop its consumers first")
    committed = {partition: item.offset for partition, item in committed_offsets(client, name).items()}
    scenario = _scenario(options)
    if scenario.name == FROM_FILE:
        partitions: list[TopicPartition] = []
    else:
        partitions = named_partitions(client, options.topics) if options.topics else list(committed)
    if not partitions and scenario.name != FROM_FILE:
        raise UsageError(f"group {name} has no committed offsets: name the topics")
    plan = OffsetResetter(client, scenario).plan(name, partitions)
    for line in (*reset_remarks(name, plan), *reset_warnings(plan)):
        warn(line.strip())
    offsets = {partition: plan.offsets[partition] for partition in partition_order(list(plan.offsets))}
    if options.execute:
        commit_offsets(client, name, offsets)
    _show_reset(name, offsets, committed, options)
    return 0


def _show_reset(name: str, offsets: Offsets, committed: Offsets, options: argparse.Namespace) -> None:
    if options.export:
        sys.stdout.write(export_text({name: offsets}, is_one_group=True))
    else:
        rows = [
            (*_place(partition), cell_text(committed.get(partition)), str(offsets[partition]))
            for partition in sorted(offsets)
        ]
        print_table(("Topic", "Partition", "Offset", "New offset"), rows, ("Partition", "Offset", "New offset"))
    if not options.execute:
        sys.stdout.flush()
        warn("Nothing was changed: --execute does it.")


def _scenario(options: argparse.Namespace) -> Scenario:
    from ottla.cli.records.partition_filter import parse_timestamp  # noqa: PLC0415 (only needed here)

    if options.to_offset is not None:
        return Scenario(TO_OFFSET, options.to_offset)
    if options.shift_by is not None:
        return Scenario(SHIFT_BY, options.shift_by)
    if options.to_datetime is not None:
        return Scenario(TO_DATETIME, parse_timestamp(options.to_datetime))
    if options.by_duration is not None:
        return Scenario(BY_DURATION, _moment_before(options.by_duration))
    if options.from_file is not None:
        return Scenario(FROM_FILE, plans=read_plans(options.from_file, options.group))
    scenario: Scenario = options.scenario
    return scenario


def _moment_before(text_: str) -> int:
    import time  # noqa: PLC0415

    try:
        return int(time.time() * 1000) - parse_duration(text_)
    except TimeTextError:
        raise UsageError(f"{text_!r} is not a duration: write P1D, PT2H or PT30M") from None


def _validate(options: argparse.Namespace) -> int:
    problem = topic_pattern_problem(options.pattern)
    print_line(f"{options.pattern} is {'valid' if problem is None else f'not valid: {problem}'}")
    return EXIT_FAILED if problem is not None else 0


def _is_sure(options: argparse.Namespace, question: str) -> bool:
    return options.yes or confirm_unless_scripted(question, "Nothing was deleted.")


def _place(place: TopicPartition) -> tuple[str, str]:
    return place.topic, NONE if place.partition == UNKNOWN_PARTITION else str(place.partition)
