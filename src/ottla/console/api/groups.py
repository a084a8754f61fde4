"""Consumer groups: list, one group, history of its lag, deletion, and resets of offsets.

A reset has two requests: a plan, which changes nothing, and its execution, which fails if the group has committed
since.
"""

from __future__ import annotations

import asyncio
import math
from typing import Literal

import msgspec

from ottla.base.names import TopicPartition
from ottla.client.client import Client
from ottla.client.errors import BrokerError, ClientError
from ottla.client.groups import commit_offsets, committed_offsets, delete_groups, delete_offsets
from ottla.console.api.call import Call
from ottla.console.api.errors import bad_request, conflict, from_client_error, not_found
from ottla.console.api.topics import Outcome, Outcomes
from ottla.console.auth.rights import Role
from ottla.console.clusters.group_verdicts import Verdict, VerdictState
from ottla.console.clusters.snapshot import Group, Part, Snapshot, lag
from ottla.console.history.archive import COARSE_MS, FINE_MS
from ottla.operations.resets import (
    BY_DURATION,
    FROM_FILE,
    SHIFT_BY,
    TO_DATETIME,
    TO_OFFSET,
    OffsetResetter,
    ResetPlan,
    Scenario,
    named_partitions,
)


class GroupRow(msgspec.Struct, frozen=True):
    """A group in the list; `lag` None: nothing committed, or not read yet."""

    group: str
    state: str
    type: str
    protocol_type: str
    members: int | None  # None: not a consumer group
    topics: int
    lag: int | None
    rate: float
    verdict: str | None = None  # OK, WARN or ERR; None: no verdict
    lag_ms: int | None = None  # the age of the first record that is not committed
    is_lag_older: bool = False  # `lag_ms` is a lower bound


class Verdicts(msgspec.Struct, frozen=True):
    """Whether there are verdicts, the time of their data, and why there are none."""

    is_ready: bool
    at_ms: int
    problem: str


class GroupList(msgspec.Struct, frozen=True):
    groups: list[GroupRow]
    verdicts: Verdicts


class GroupMember(msgspec.Struct, frozen=True):
    member_id: str
    instance_id: str | None
    client_id: str
    host: str
    partitions: int


class GroupPartition(msgspec.Struct, frozen=True):
    topic: str
    partition: int
    committed: int | None
    start: int | None
    end: int | None
    lag: int | None
    rate: float
    member_id: str | None
    client_id: str | None
    host: str | None
    verdict: str | None = None  # OK, WARN, STOP, STALL or REWIND
    lag_ms: int | None = None
    is_lag_older: bool = False


class GroupAnswer(msgspec.Struct, frozen=True):
    """`hidden`: partitions of topics that the caller may not see; the totals of the group include them."""

    group: GroupRow
    assignor: str
    coordinator: int | None
    members: list[GroupMember]
    partitions: list[GroupPartition]
    verdicts: Verdicts
    hidden: int = 0


async def list_groups(call: Call) -> GroupList:
    call.cluster.verdict_watch.request()
    return await asyncio.to_thread(_list_groups, call)


async def show_group(call: Call) -> GroupAnswer:
    call.cluster.verdict_watch.request()
    return await asyncio.to_thread(_show_group, call)


def _list_groups(call: Call) -> GroupList:
    snapshot, seen = call.snapshot, call.cluster.verdict_watch.state
    groups = [group for group in snapshot.groups.values() if call.sees(group.group_id)]
    rows = [group_row(snapshot, group, seen.groups.get(group.group_id)) for group in groups]
    return GroupList(rows, _verdicts(seen))


def _show_group(call: Call) -> GroupAnswer:
    snapshot, group, seen = call.snapshot, find_group(call), call.cluster.verdict_watch.state
    verdict = seen.groups.get(group.group_id)
    partitions = group_partitions(snapshot, group, verdict)
    shown = [row for row in partitions if call.sees(row.topic)]
    return GroupAnswer(
        group_row(snapshot, group, verdict),
        group.assignor,
        group.coordinator,
        [
            GroupMember(member.member_id, member.instance_id, member.client_id, member.host, len(member.assigned))
            for member in group.members
        ],
        shown,
        _verdicts(seen),
        len(partitions) - len(shown),
    )


def _verdicts(seen: VerdictState) -> Verdicts:
    return Verdicts(seen.is_ready, seen.at_ms, seen.problem)


async def delete_several(call: Call) -> Outcomes:
    names = call.names_to_change("name 1 to {0} groups")
    before = {
        name: group_row(call.snapshot, call.snapshot.groups[name]) for name in names if name in call.snapshot.groups
    }
    answers = await call.cluster.change(delete_groups, names, refresh=(Part.GROUPS, Part.COMMITS))
    results = []
    for name in names:
        refused = answers.get(name)
        error = from_client_error(refused) if isinstance(refused, ClientError) else None
        results.append(Outcome(name, error.code, error.message) if error is not None else Outcome(name))
        call.audit(
            f"group {name}", before.get(name), problem=f"{error.code}: {error.message}" if error is not None else ""
        )
    return Outcomes(results)


async def delete_group(call: Call) -> None:
    group = find_group(call)
    call.audit(group.group_id, before=group_partitions(call.snapshot, group))

    def delete(client: Client) -> None:
        refused = delete_groups(client, [group.group_id])[group.group_id]
        if isinstance(refused, BrokerError):
            raise refused

    await call.cluster.change(delete, refresh=(Part.GROUPS, Part.COMMITS))


def find_group(call: Call) -> Group:
    name = call.parameters["group"]
    if name not in call.snapshot.groups:
        raise not_found("there is no group {0}", name)
    return call.snapshot.groups[name]


def group_row(snapshot: Snapshot, group: Group, verdict: Verdict | None = None) -> GroupRow:
    commits = snapshot.commits.get(group.group_id, {})
    behind = [lag(snapshot.ends.get(place), offset) for place, offset in commits.items()]
    known = [each for each in behind if each is not None]
    topics = {place.topic for place in commits} | {place.topic for one in group.members for place in one.assigned}
    return GroupRow(
        group.group_id,
        group.state,
        group.type,
        group.protocol_type,
        len(group.members) if group.is_described else None,
        len(topics),
        sum(known) if known else None,
        snapshot.consume_rates.get(group.group_id, 0.0),
        *(verdict[:3] if verdict is not None else ()),
    )


def group_partitions(snapshot: Snapshot, group: Group, verdict: Verdict | None = None) -> list[GroupPartition]:
    """The assigned and committed partitions of a group, sorted."""
    commits = snapshot.commits.get(group.group_id, {})
    judged = verdict.partitions if verdict is not None else {}
    owners = {place: member for member in group.members for place in member.assigned}
    rows = []
    for place in sorted({*commits, *owners}, key=lambda each: (each.topic, each.partition)):
        owner = owners.get(place)
        rows.append(
            GroupPartition(
                place.topic,
                place.partition,
                commits.get(place),
                snapshot.starts.get(place),
                snapshot.ends.get(place),
                lag(snapshot.ends.get(place), commits.get(place)),
                snapshot.rates.get(TopicPartition(*place), 0.0),
                owner.member_id if owner is not None else None,
                owner.client_id if owner is not None else None,
                owner.host if owner is not None else None,
                *judged.get(place, ()),
            )
        )
    return rows


HOURS_MAX = 24
GAP_ROUNDS = 3  # missing rounds that are drawn as a gap: the console was down


class GroupHistory(msgspec.Struct, frozen=True):
    """Columns, oldest first: wall time in ms, lag in records and in ms, records per second; null: unknown."""

    at_ms: list[int]
    lag: list[float | None]
    lag_ms: list[float | None]
    rate: list[float | None]


async def show_history(call: Call) -> GroupHistory:
    group = find_group(call)
    hours = max(1, call.int_query("hours", 1, HOURS_MAX))
    points = await call.console.recorder.group(call.parameters["cluster"], group.group_id, hours)
    gap_ms = GAP_ROUNDS * (FINE_MS if hours <= 1 else COARSE_MS)
    rows: list[tuple[float | None, ...]] = []
    for at_ms, point in points:
        if rows and at_ms - (rows[-1][0] or 0) > gap_ms:
            rows.append((at_ms - 1, None, None, None))  # interrupts the plotted line
        rows.append((at_ms, *(None if math.isnan(number) else round(number, 3) for number in point)))
    columns = [list(column) for column in zip(*rows, strict=True)] if rows else [[], [], [], []]
    return msgspec.convert(dict(zip(GroupHistory.__struct_fields__, columns, strict=True)), GroupHistory)


PARTITIONS_MAX = 20_000
NO_OFFSETS = "name topics with 1 to {0} partitions: the group has no offsets of its own"
NEEDS_NUMBER = frozenset({TO_OFFSET, SHIFT_BY, TO_DATETIME, BY_DURATION})
EACH = "each"  # one offset per partition


class Place(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A partition and an offset; None: no commit."""

    topic: str
    partition: int
    offset: int | None = None


class PlanBody(msgspec.Struct, forbid_unknown_fields=True):
    """A scenario of kafka-consumer-groups.sh. `number` is an offset (to-offset), a shift (shift-by), a time in ms since
    1970 (to-datetime) or a duration in ms (by-duration). `topics` as in `orders` or `orders:0,2`; empty: all with
    commits of the group. The scenario `each` uses `offsets`.
    """

    scenario: Literal[
        "to-earliest", "to-latest", "to-current", "to-offset", "shift-by", "to-datetime", "by-duration", "each"
    ]
    number: int | None = None
    topics: list[str] = []
    offsets: list[Place] = []


class PlanRow(msgspec.Struct, frozen=True):
    """`wanted`: the requested offset, if outside the log; `is_late`: there is no record after the requested time."""

    topic: str
    partition: int
    before: int | None
    after: int
    wanted: int | None = None
    is_late: bool = False


class PlanAnswer(msgspec.Struct, frozen=True):
    rows: list[PlanRow]


class ResetBody(msgspec.Struct, forbid_unknown_fields=True):
    """The unchanged rows of a plan: if the group has committed since, nothing is changed."""

    rows: list[PlanRow]


async def plan_reset(call: Call) -> PlanAnswer:
    body: PlanBody = call.body
    group_id = call.parameters["group"]
    now_ms = call.console.clock.now_ms()
    for topic in {*(word.partition(":")[0] for word in body.topics), *(each.topic for each in body.offsets)}:
        call.require_role(Role.VIEWER, topic)
    if body.scenario in NEEDS_NUMBER and body.number is None:
        raise bad_request("{0} requires a number", body.scenario)

    def work_out(client: Client) -> PlanAnswer:
        committed = {place: item.offset for place, item in committed_offsets(client, group_id).items()}
        seen = [place for place in committed if call.sees(place.topic)]
        places = named_partitions(client, body.topics) if body.topics else seen
        if body.scenario == EACH:
            places = [TopicPartition(each.topic, each.partition) for each in body.offsets]
        if not places or len(places) > PARTITIONS_MAX:
            raise bad_request(NO_OFFSETS, PARTITIONS_MAX)
        found = OffsetResetter(client, _scenario(body, group_id, now_ms)).plan(group_id, places)
        return PlanAnswer(_plan_rows(found, committed))

    return await call.cluster.query(work_out)


async def reset_offsets(call: Call) -> PlanAnswer:
    body: ResetBody = call.body
    group_id = call.parameters["group"]
    before = [Place(row.topic, row.partition, row.before) for row in body.rows]
    after = [Place(row.topic, row.partition, row.after) for row in body.rows]
    call.audit(group_id, before, after)
    if not 0 < len(body.rows) <= PARTITIONS_MAX or any(row.after < 0 for row in body.rows):
        raise bad_request("send the rows of a plan")
    for topic in {row.topic for row in body.rows}:
        call.require_role(Role.VIEWER, topic)

    def commit(client: Client) -> None:
        committed = {place: item.offset for place, item in committed_offsets(client, group_id).items()}
        for row in body.rows:
            if committed.get(TopicPartition(row.topic, row.partition)) != row.before:
                words = "the group has committed in {0} since the plan was made: make a new plan"
                raise conflict("CHANGED_MEANWHILE", words, f"{row.topic}-{row.partition}")
        commit_offsets(client, group_id, {TopicPartition(row.topic, row.partition): row.after for row in body.rows})

    await call.cluster.change(commit, refresh=(Part.COMMITS,))
    return PlanAnswer(body.rows)


async def delete_topic_offsets(call: Call) -> None:
    """Delete the committed offsets of one topic."""
    group, topic = find_group(call), call.parameters["topic"]
    committed = call.snapshot.commits.get(group.group_id, {})
    before = [Place(*place, offset) for place, offset in committed.items() if place.topic == topic]
    call.audit(group.group_id, before)

    def drop(client: Client) -> None:
        places = [place for place in committed_offsets(client, group.group_id) if place.topic == topic]
        for refused in delete_offsets(client, group.group_id, places).values():
            if refused is not None:
                raise refused

    await call.cluster.change(drop, refresh=(Part.COMMITS, Part.GROUPS))


def _scenario(body: PlanBody, group_id: str, now_ms: int) -> Scenario:
    number = body.number or 0
    if body.scenario == EACH:
        offsets = {TopicPartition(each.topic, each.partition): each.offset or 0 for each in body.offsets}
        return Scenario(FROM_FILE, plans={group_id: offsets})
    if body.scenario == BY_DURATION:
        return Scenario(BY_DURATION, now_ms - number)
    return Scenario(body.scenario, number)


def _plan_rows(found: ResetPlan, committed: dict[TopicPartition, int]) -> list[PlanRow]:
    late = set(found.without_record)
    return [
        PlanRow(
            place.topic,
            place.partition,
            committed.get(place),
            offset,
            found.out_of_range.get(place),
            place in late,
        )
        for place, offset in sorted(found.offsets.items())
    ]
