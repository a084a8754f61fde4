"""`kafka-consumer-groups.sh --reset-offsets`: which groups, which partitions, which scenario, and what is printed."""

from __future__ import annotations

import time
from collections.abc import Sequence

from ottla.base.errors import Error
from ottla.base.names import TopicPartition
from ottla.cli.groups.actions import refused_text, say_error, say_lines
from ottla.cli.groups.report import EMPTY, reset_lines, reset_remarks, reset_warnings
from ottla.cli.java.errors import WRAPPER, java_sentence, wrapped_refusals
from ottla.cli.java.options import LONG_MAX, KafkaOptions
from ottla.cli.java.order import hash_map_order, partition_order
from ottla.cli.java.times import TimeTextError, parse_date_time, parse_duration
from ottla.cli.terminal import ToolError, say, warn
from ottla.client.client import Client
from ottla.client.errors import RefusedError
from ottla.client.groups import DEAD, Group, commit_offsets, committed_offsets, describe_groups
from ottla.operations.reset_file import UnreadableError, export_text, read_plans
from ottla.operations.resets import (
    BY_DURATION,
    FROM_FILE,
    SCENARIOS,
    SHIFT_BY,
    TO_DATETIME,
    TO_OFFSET,
    Offsets,
    Resetter,
    Scenario,
    named_partitions,
)


def reset_groups(client: Client, options: KafkaOptions, group_ids: Sequence[str]) -> None:
    """Work out the new offsets of each group, commit them on request, and print them."""
    answers = describe_groups(client, group_ids)
    plans: dict[str, Offsets] = {}
    for group_id in hash_map_order(hash_map_order(list(answers)), copied_capacity(len(answers))):
        answer = answers[group_id]
        if isinstance(answer, RefusedError) and answer.error is not Error.GROUP_ID_NOT_FOUND:
            raise ToolError(WRAPPER + refused_text(answer))
        if isinstance(answer, Group) and answer.state not in (EMPTY, DEAD):
            say_error(
                f"Assignments can only be reset if the group '{group_id}' is inactive, but the current state is "
                f"{answer.state}."
            )
            plans[group_id] = {}
        else:
            plans[group_id] = _reset(client, options, group_id)
    ordered = {group_id: plans[group_id] for group_id in hash_map_order(list(plans))}
    if options.has("export"):
        say(export_text(ordered, is_one_group=len(options.texts("group")) == 1))
    else:
        say_lines(reset_lines(ordered))


def _reset(client: Client, options: KafkaOptions, group_id: str) -> Offsets:
    """A group that does not exist is made by its first offsets."""
    partitions = _partitions(client, options, group_id)
    resetter = Resetter(client, scenario_of(options))
    with wrapped_refusals():
        plan = resetter.plan(group_id, partitions)
    for line in reset_remarks(group_id, plan):
        say(line)
    for line in reset_warnings(plan):
        warn(line)
    offsets = {place: plan.offsets[place] for place in partition_order(list(plan.offsets))}
    if options.has("execute"):
        try:
            commit_offsets(client, group_id, offsets)
        except RefusedError as problem:
            raise ToolError(java_sentence(problem)) from None
    return offsets


def _partitions(client: Client, options: KafkaOptions, group_id: str) -> list[TopicPartition]:
    if options.has("all-topics"):
        with wrapped_refusals():
            return list(committed_offsets(client, group_id))
    if options.has("topic"):
        try:
            return named_partitions(client, options.texts("topic"))
        except RefusedError as problem:
            raise ToolError(java_sentence(problem)) from None
    if not options.has(FROM_FILE):
        options.refuse("One of the reset scopes should be defined: --all-topics, --topic.")
    return []


def scenario_of(options: KafkaOptions) -> Scenario:
    name = next((name for name in SCENARIOS if options.has(name)), None)
    if name is None:
        names = "[to-datetime], [by-duration], [to-latest], [to-current], [to-earliest], [to-offset], [shift-by], "
        options.refuse(f"Option '[reset-offsets]' requires one of the following scenarios: [{names}[from-file]]")
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
    try:
        return parse_date_time(text) if name == TO_DATETIME else int(time.time() * 1000) - parse_duration(text)
    except TimeTextError as problem:
        raise ToolError(str(problem)) from None


def copied_capacity(count: int) -> int:
    """The table of a Java map that was made from another one."""
    return int(count / 0.75 + 1)
