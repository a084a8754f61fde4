"""Lines about consumer groups, with Kafka's columns: scripts cut them apart."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

from ottla.base.names import TopicPartition
from ottla.cli.java.order import partition_order
from ottla.client.groups import DEAD, Group, Listing, Member
from ottla.operations.group_lag import GroupPartition
from ottla.operations.resets import ResetPlan

NONE = "-"  # what stands in a column without a value
WIDTH = 15  # of most columns, at least
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


def text(value: object) -> str:
    return NONE if value is None else str(value)


def state_problem(group: Group) -> str | None:
    """What is worth telling about the state of a group before its lines."""
    if group.state == EMPTY:
        return f"Consumer group '{group.group_id}' has no active members."
    if group.state in REBALANCING:
        return f"Warning: Consumer group '{group.group_id}' is rebalancing."
    return None


def list_lines(groups: Sequence[Listing], with_type: bool, with_state: bool) -> list[str]:
    width = max((len(group.group_id) for group in groups), default=WIDTH)
    widths = [max(WIDTH, width) + LIST_GAP, 20, 20]
    rows = [("GROUP", "TYPE", "STATE"), *map(_listed, groups)]
    shown = [True, with_type, with_state]
    return [
        " ".join(cell.ljust(size) for cell, size, is_shown in zip(row, widths, shown, strict=True) if is_shown)
        for row in rows
    ]


def offset_lines(rows: Sequence[GroupPartition], is_verbose: bool) -> list[str]:
    """The partitions of one group; an empty line first, as Kafka's tool has it."""
    table = [OFFSET_COLUMNS, *map(offset_row, rows)]
    widths = [WIDTH] * len(OFFSET_COLUMNS)
    widths[2], widths[-1] = 10, 0
    for place in (0, 1, 7, 8):
        widths[place] = max(WIDTH, *(len(row[place]) for row in table))
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
        text(row.leader_epoch),
        text(row.lag.committed),
        text(row.lag.end),
        text(row.lag.offsets),
        NONE if member is None else member.member_id,
        NONE if member is None else member.host,
        NONE if member is None else member.client_id,
    )


def member_lines(group: Group, is_verbose: bool) -> list[str]:
    """The members of one group; static ones and ones that are just moving to the new protocol add columns."""
    members = group.members
    has_instances = any(member.instance_id for member in members)
    is_mixed = {member.is_upgraded for member in members} >= {True, False}
    table = [_member_head(has_instances, is_verbose, is_mixed)]
    table += [_member_row(group, member, has_instances, is_verbose, is_mixed) for member in members]
    least = [WIDTH, WIDTH, *([INSTANCE_WIDTH] if has_instances else []), WIDTH, WIDTH]
    widths = [max(size, *(len(row[place]) for row in table)) for place, size in enumerate(least)] + [WIDTH]
    if is_verbose:
        first = len(widths)
        for place, size in enumerate((WIDTH, ASSIGNMENT_WIDTH, WIDTH, ASSIGNMENT_WIDTH), first):
            longest = max(len(row[place]) for row in table) if size == ASSIGNMENT_WIDTH else 0
            widths.append(max(size, longest))
    widths += [0] * is_mixed * is_verbose
    return ["", *(_line(row, widths) + ("" if is_verbose else " ") for row in table)]


def state_lines(group: Group, coordinator: str, is_verbose: bool) -> list[str]:
    epochs = [("GROUP-EPOCH", text(group.epoch)), ("TARGET-ASSIGNMENT-EPOCH", text(group.assignment_epoch))]
    cells = [
        ("GROUP", group.group_id),
        ("COORDINATOR (ID)", coordinator),
        ("ASSIGNMENT-STRATEGY", group.assignor or NONE),
        ("STATE", group.state),
        *(epochs if is_verbose else []),
        ("#MEMBERS", str(len(group.members))),
    ]
    widths = [max(WIDTH, len(group.group_id)), max(25, len(coordinator)), 20, 20, *([15, 25] if is_verbose else []), 0]
    return ["", *(_line([cell[place] for cell in cells], widths) for place in (0, 1))]


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
    """A line for each offset that was moved into its log."""
    return [
        f"New offset ({offset}) is {'higher than latest' if offset > plan.offsets[place] else 'lower than earliest'} "
        f"offset for topic partition {place}. Value will be set to {plan.offsets[place]}"
        for place, offset in plan.outside.items()
    ]


def reset_remarks(group_id: str, plan: ResetPlan) -> list[str]:
    """What Kafka's tool remarks among its output."""
    if not plan.has_group:
        return [f"\nError: No reset plan for group {group_id} found"]
    return [
        f"\nWarn: Partition {place.partition} from topic {place.topic} is empty. Falling back to latest known offset."
        for place in partition_order(plan.late)
    ]


def deletion_lines(results: Mapping[TopicPartition, str]) -> list[str]:
    """What became of the offsets of each partition; a partition below zero stands for a topic that is not there."""
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


def _listed(group: Listing) -> tuple[str, str, str]:
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
        row += [text(member.epoch), assignment_text(member.assigned)]
        row += [text(group.assignment_epoch), assignment_text(member.target or ())]
        if is_mixed:
            row.append(NONE if member.is_upgraded is None else str(member.is_upgraded).lower())
    return tuple(row)


def _line(cells: Sequence[str], widths: Sequence[int]) -> str:
    return " ".join(cell.ljust(width) for cell, width in zip(cells, widths, strict=True))
