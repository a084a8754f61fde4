"""Lines about consumer groups with Kafka's columns, which scripts parse, and the actions that both tools share."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence

from ottla.base.errors import Error
from ottla.base.names import TopicPartition
from ottla.cli.java.errors import java_sentence, java_text
from ottla.cli.java.hash_order import hash_map_order, partition_order
from ottla.cli.terminal import UsageError, print_line
from ottla.client.admin import Admin
from ottla.client.client import Client
from ottla.client.errors import BrokerError, error_from_code
from ottla.client.groups import (
    CLASSIC_TYPE,
    CONSUMER_TYPE,
    DEAD,
    Group,
    GroupListing,
    Member,
    delete_groups,
    delete_offsets,
    list_groups,
)
from ottla.operations.group_lag import GroupPartition
from ottla.operations.resets import ResetPlan, parse_partitions
from ottla.protocol.messages.consumer_groups import CONSUMER

NONE = "-"  # a column without a value
WIDTH = 15  # minimum width of most columns
INSTANCE_WIDTH = 17
ASSIGNMENT_WIDTH = 20
LIST_GAP = 10
EMPTY, STABLE, UNKNOWN = "Empty", "Stable", "Unknown"
REBALANCING = frozenset({"PreparingRebalance", "CompletingRebalance", "Assigning", "Reconciling"})
STATES = (STABLE, "CompletingRebalance", "PreparingRebalance", EMPTY, DEAD, "Assigning", "Reconciling")

OFFSET_COLUMNS = (
    "GROUP",
    "TOPIC",
    "PARTITION",
    "LEADER-EPOCH",
    "CURRENT-OFFSET",
    "LOG-END-OFFSET",
    "LAG",
    "CONSUMER-ID",
    "HOST",
    "CLIENT-ID",
)
EPOCH_COLUMN = 3  # only in a verbose report


def cell_text(value: object) -> str:
    return NONE if value is None else str(value)


def state_problem(group: Group) -> str | None:
    """A message about the state of a group, printed before its lines."""
    if group.state == EMPTY:
        return f"Consumer group '{group.group_id}' has no active members."
    if group.state in REBALANCING:
        return f"Warning: Consumer group '{group.group_id}' is rebalancing."
    return None


def list_lines(groups: Sequence[GroupListing], with_type: bool, with_state: bool) -> list[str]:
    width = max((len(group.group_id) for group in groups), default=WIDTH)
    widths = [max(WIDTH, width) + LIST_GAP, 20, 20]
    rows = [("GROUP", "TYPE", "STATE"), *map(_list_row, groups)]
    shown = [True, with_type, with_state]
    return [
        " ".join(cell.ljust(size) for cell, size, is_shown in zip(row, widths, shown, strict=True) if is_shown)
        for row in rows
    ]


def offset_lines(rows: Sequence[GroupPartition], is_verbose: bool) -> list[str]:
    """The partitions of one group; an empty line first, as in Kafka's tool."""
    table = [OFFSET_COLUMNS, *map(offset_row, rows)]
    widths = [WIDTH] * len(OFFSET_COLUMNS)
    widths[2], widths[-1] = 10, 0
    for index in (0, 1, 7, 8):
        widths[index] = max(WIDTH, *(len(row[index]) for row in table))
    if not is_verbose:
        del widths[EPOCH_COLUMN]
        table = [row[:EPOCH_COLUMN] + row[EPOCH_COLUMN + 1 :] for row in table]
    return ["", *(_line(row, widths) for row in table)]


def offset_row(row: GroupPartition) -> tuple[str, ...]:
    member = row.member
    return (
        row.group_id,
        row.partition.topic,
        str(row.partition.partition),
        cell_text(row.leader_epoch),
        cell_text(row.lag.committed),
        cell_text(row.lag.end),
        cell_text(row.lag.offsets),
        NONE if member is None else member.member_id,
        NONE if member is None else member.host,
        NONE if member is None else member.client_id,
    )


def member_lines(group: Group, is_verbose: bool) -> list[str]:
    """The members of one group. Static members, and members during an upgrade to the new protocol, add columns."""
    members = group.members
    has_instances = any(member.instance_id for member in members)
    is_mixed = {member.is_upgraded for member in members} >= {True, False}
    table = [_member_head(has_instances, is_verbose, is_mixed)]
    table += [_member_row(group, member, has_instances, is_verbose, is_mixed) for member in members]
    least = [WIDTH, WIDTH, *([INSTANCE_WIDTH] if has_instances else []), WIDTH, WIDTH]
    widths = [max(size, *(len(row[index]) for row in table)) for index, size in enumerate(least)] + [WIDTH]
    if is_verbose:
        first = len(widths)
        for index, size in enumerate((WIDTH, ASSIGNMENT_WIDTH, WIDTH, ASSIGNMENT_WIDTH), first):
            longest = max(len(row[index]) for row in table) if size == ASSIGNMENT_WIDTH else 0
            widths.append(max(size, longest))
    widths += [0] * is_mixed * is_verbose
    return ["", *(_line(row, widths) + ("" if is_verbose else " ") for row in table)]


def state_lines(group: Group, coordinator: str, is_verbose: bool) -> list[str]:
    epochs = [("GROUP-EPOCH", cell_text(group.epoch)), ("TARGET-ASSIGNMENT-EPOCH", cell_text(group.assignment_epoch))]
    cells = [
        ("GROUP", group.group_id),
        ("COORDINATOR (ID)", coordinator),
        ("ASSIGNMENT-STRATEGY", group.assignor or NONE),
        ("STATE", group.state),
        *(epochs if is_verbose else []),
        ("#MEMBERS", str(len(group.members))),
    ]
    widths = [max(WIDTH, len(group.group_id)), max(25, len(coordinator)), 20, 20, *([15, 25] if is_verbose else []), 0]
    return ["", *(_line([cell[index] for cell in cells], widths) for index in (0, 1))]


def reset_lines(plans: Mapping[str, Mapping[TopicPartition, int]]) -> list[str]:
    """The new offsets of groups."""
    topics = [partition.topic for offsets in plans.values() for partition in offsets]
    widths = [max(WIDTH, *map(len, plans)) if plans else WIDTH, max([WIDTH, *map(len, topics)]), 10, 0]
    rows = [
        (group_id, partition.topic, str(partition.partition), str(offset))
        for group_id, offsets in plans.items()
        for partition, offset in offsets.items()
    ]
    head = ("GROUP", "TOPIC", "PARTITION", "NEW-OFFSET")
    return ["", *(_line(row, widths) for row in ([head, *rows] if plans else []))]


def reset_warnings(plan: ResetPlan) -> list[str]:
    """A line for each offset that was moved into the range of its log."""
    return [
        f"New offset ({offset}) is "
        f"{'higher than latest' if offset > plan.offsets[partition] else 'lower than earliest'} offset "
        f"for topic partition {partition}. Value will be set to {plan.offsets[partition]}"
        for partition, offset in plan.out_of_range.items()
    ]


def reset_remarks(group_id: str, plan: ResetPlan) -> list[str]:
    """Messages that Kafka's tool prints between its output."""
    if not plan.has_group:
        return [f"\nError: No reset plan for group {group_id} found"]
    return [
        f"\nWarn: Partition {partition.partition} from topic {partition.topic} is empty. "
        "Falling back to latest known offset."
        for partition in partition_order(plan.without_record)
    ]


def deletion_lines(results: Mapping[TopicPartition, str]) -> list[str]:
    """The result of deleting offsets, by partition; a partition below zero means that the topic does not exist."""
    widths = [max([WIDTH, *(len(partition.topic) for partition in results)]), 10, WIDTH]
    table = [("TOPIC", "PARTITION", "STATUS")]
    for partition in sorted(results, key=lambda item: f"{item.topic}{item.partition}"):
        number = str(partition.partition) if partition.partition >= 0 else NONE
        table.append((partition.topic, number, results[partition]))
    return ["", *(_line(row, widths) for row in table)]


def assignment_text(partitions: Iterable[TopicPartition]) -> str:
    """`orders:0,2;audit:1`"""
    by_topic: defaultdict[str, list[int]] = defaultdict(list)
    for partition in partitions:
        by_topic[partition.topic].append(partition.partition)
    parts = [f"{topic}:{','.join(map(str, sorted(numbers)))}" for topic, numbers in by_topic.items()]
    return ";".join(sorted(parts)) or NONE


def _list_row(group: GroupListing) -> tuple[str, str, str]:
    return group.group_id, group.type or UNKNOWN, group.state or UNKNOWN


def _member_head(has_instances: bool, is_verbose: bool, is_mixed: bool) -> tuple[str, ...]:
    instance = ("GROUP-INSTANCE-ID",) if has_instances else ()
    more = ("CURRENT-EPOCH", "CURRENT-ASSIGNMENT", "TARGET-EPOCH", "TARGET-ASSIGNMENT") if is_verbose else ()
    upgraded = ("UPGRADED",) if is_verbose and is_mixed else ()
    return ("GROUP", "CONSUMER-ID", *instance, "HOST", "CLIENT-ID", "#PARTITIONS", *more, *upgraded)


def _member_row(group: Group, member: Member, has_instances: bool, is_verbose: bool, is_mixed: bool) -> tuple[str, ...]:
    row = [group.group_id, member.member_id, *([member.instance_id or ""] if has_instances else [])]
    row += [member.host, member.client_id, str(len(member.assigned))]
    if is_verbose:
        row += [cell_text(member.epoch), assignment_text(member.assigned)]
        row += [cell_text(group.assignment_epoch), assignment_text(member.target or ())]
        if is_mixed:
            row.append(NONE if member.is_upgraded is None else str(member.is_upgraded).lower())
    return tuple(row)


def _line(cells: Sequence[str], widths: Sequence[int]) -> str:
    return " ".join(cell.ljust(width) for cell, width in zip(cells, widths, strict=True))


# ---- actions of both tools
TYPES = (CONSUMER_TYPE, CLASSIC_TYPE)
DONE = "Successful"
# Errors about the whole group; their message is sufficient.
GROUP_ERRORS = frozenset(
    {
        Error.INVALID_GROUP_ID,
        Error.GROUP_ID_NOT_FOUND,
        Error.GROUP_AUTHORIZATION_FAILED,
        Error.NON_EMPTY_GROUP,
    }
)
PARTITION_ERRORS = frozenset(
    {Error.GROUP_SUBSCRIBED_TO_TOPIC, Error.TOPIC_AUTHORIZATION_FAILED, Error.UNKNOWN_TOPIC_OR_PARTITION}
)
UNKNOWN_PARTITION = -1  # as a partition number: the partitions of the topic are unknown


class FilterError(UsageError):
    """States or types that consumer groups do not have."""


def parse_states(text: str) -> list[str]:
    return _parse_words(text, STATES, f"Invalid state list '{text}'. Valid states are: ")


def parse_types(text: str) -> list[str]:
    return _parse_words(text, TYPES, f"Invalid types list '{text}'. Valid types are: ")


def list_consumer_groups(
    client: Client, states: Collection[str] = (), types: Collection[str] = ()
) -> list[GroupListing]:
    """Consumer groups in the order of Kafka's tool."""
    groups = {
        group.group_id: group
        for group in list_groups(client, states, types)
        if group.protocol_type in (CONSUMER, "") and group.type in (*TYPES, "")
    }
    return [groups[group_id] for group_id in hash_map_order(list(groups))]


def delete_groups_lines(client: Client, group_ids: Iterable[str]) -> list[str]:
    answers = delete_groups(client, group_ids)
    failed = hash_map_order([group_id for group_id, answer in answers.items() if answer is not None])
    done = ", ".join(f"'{group_id}'" for group_id in hash_map_order([*answers]) if group_id not in failed)
    if not failed:
        return [f"Deletion of requested consumer groups ({done}) was successful."]
    lines = ["", "Error: Deletion of some consumer groups failed:"]
    for group_id in failed:
        problem = answers[group_id]
        assert problem is not None
        lines.append(f"* Group '{group_id}' could not be deleted due to: {java_text(problem)}")
    return [*lines, "", f"These consumer groups were deleted successfully: {done}"] if done else lines


def delete_offsets_lines(client: Client, group_id: str, words: Sequence[str]) -> list[str]:
    """Delete the offsets of `orders:0,2` or `orders`; returns lines with the result of each partition."""
    results, problem = delete_offsets_of(client, group_id, words)
    statuses = {
        partition: DONE if refused is None else f"Error: {java_text(refused)}" for partition, refused in results.items()
    }
    return [*_deletion_summary(group_id, problem), *deletion_lines(statuses)]


def delete_offsets_of(
    client: Client, group_id: str, words: Sequence[str]
) -> tuple[dict[TopicPartition, BrokerError | None], BrokerError | None]:
    """The result of each partition, and the refusal of the whole request if there is one."""
    partitions = [partition for word in words if ":" in word for partition in parse_partitions(word)]
    names = [word for word in words if ":" not in word]
    topics = {topic.name: topic for topic in Admin(client).topics(names)} if names else {}
    partitions += [TopicPartition(name, item.number) for name in topics for item in topics[name].partitions]
    unknown = error_from_code(Error.UNKNOWN_TOPIC_OR_PARTITION)
    results: dict[TopicPartition, BrokerError | None] = {
        TopicPartition(name, UNKNOWN_PARTITION): unknown for name in names if name not in topics
    }
    try:
        found = delete_offsets(client, group_id, partitions)
    except BrokerError as problem:
        return results | dict.fromkeys(partitions, problem), problem
    return results | found, next((refused for refused in found.values() if refused is not None), None)


def describe_error_text(problem: BrokerError) -> str:
    """Why a group cannot be described, as Java prints it."""
    if problem.error is Error.INCONSISTENT_GROUP_PROTOCOL:  # the group exists and is not a consumer group
        return f"java.lang.IllegalArgumentException: {problem.broker_message}"
    return java_text(problem)


def print_lines(lines: Iterable[str]) -> None:
    for line in lines:
        print_line(line)


def print_error(message: str) -> None:
    print()
    print_line(f"Error: {message}")


def _deletion_summary(group_id: str, problem: BrokerError | None) -> list[str]:
    if problem is None:
        return [f"Request succeeded for deleting offsets from group {group_id}."]
    if problem.error in GROUP_ERRORS:
        return ["", f"Error: {java_sentence(problem)}"]
    if problem.error in PARTITION_ERRORS:
        return ["", "Error: Encountered some partition-level error, see the follow-up details."]
    return ["", f"Error: Encountered some unknown error: {problem.error.name}"]


def _parse_words(text: str, known: Sequence[str], complaint: str) -> list[str]:
    """The known words in a list of words, ignoring case."""
    if not text:
        return []
    by_word = {word.lower(): word for word in known}
    words = dict.fromkeys(word.strip().lower() for word in text.split(","))
    if not by_word.keys() >= words.keys():
        raise FilterError(complaint + ", ".join(known))
    return [by_word[word] for word in words]
