"""Consumer groups: states, members, how far behind they are; reset and delete."""

from __future__ import annotations

import asyncio

import msgspec

from ottla.base.names import TopicPartition
from ottla.client.client import Client
from ottla.client.errors import ClientError, RefusedError
from ottla.client.groups import delete_groups
from ottla.console.api.call import NAMES_MAX, Call
from ottla.console.api.errors import bad_request, not_found, of_cluster
from ottla.console.api.topics import Outcome, Outcomes
from ottla.console.clusters.snapshot import Group, Part, Snapshot, lag
from ottla.console.clusters.watching import Verdict, Watched
from ottla.console.people.rights import Role


class GroupRow(msgspec.Struct, frozen=True):
    """A group in the list; `lag` None: nothing committed, or not read yet."""

    group: str
    state: str
    type: str
    protocol_type: str
    members: int
    topics: int
    lag: int | None
    rate: float
    verdict: str | None = None  # OK, WARN or ERR; None: there is none
    lag_ms: int | None = None  # in time: how old the first record is that is not committed
    is_lag_older: bool = False  # at least that old


class Verdicts(msgspec.Struct, frozen=True):
    """Whether there are verdicts, when they were true, and why there are none."""

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
    """`hidden` partitions are of topics that the caller does not see; the group's own figures count them."""

    group: GroupRow
    assignor: str
    coordinator: int | None
    members: list[GroupMember]
    partitions: list[GroupPartition]
    verdicts: Verdicts
    hidden: int = 0


async def list_groups(call: Call) -> GroupList:
    call.cluster.watch.want()
    return await asyncio.to_thread(_list_groups, call)


async def show_group(call: Call) -> GroupAnswer:
    call.cluster.watch.want()
    return await asyncio.to_thread(_show_group, call)


def _list_groups(call: Call) -> GroupList:
    snapshot, seen = call.snapshot, call.cluster.watch.seen
    groups = [group for group in snapshot.groups.values() if call.sees(group.group_id)]
    rows = [group_row(snapshot, group, seen.groups.get(group.group_id)) for group in groups]
    return GroupList(rows, _verdicts(seen))


def _show_group(call: Call) -> GroupAnswer:
    snapshot, group, seen = call.snapshot, group_of(call), call.cluster.watch.seen
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


def _verdicts(seen: Watched) -> Verdicts:
    return Verdicts(seen.is_ready, seen.at_ms, seen.problem)


async def delete_several(call: Call) -> Outcomes:
    names: list[str] = call.body.names
    if not 0 < len(names) <= NAMES_MAX:
        raise bad_request("name 1 to {0} groups", NAMES_MAX)
    for name in names:
        call.require(Role.OPERATOR, name)
    before = {
        name: group_row(call.snapshot, call.snapshot.groups[name]) for name in names if name in call.snapshot.groups
    }
    answers = await call.cluster.change(delete_groups, names, hurries=(Part.GROUPS, Part.COMMITS))
    results = []
    for name in names:
        refused = answers.get(name)
        told = of_cluster(refused) if isinstance(refused, ClientError) else None
        results.append(Outcome(name, told.code, told.message) if told is not None else Outcome(name))
        call.note(f"group {name}", before.get(name), {"error": told.message} if told is not None else "done")
    return Outcomes(results)


async def delete_group(call: Call) -> None:
    group = group_of(call)
    call.note(group.group_id, before=group_partitions(call.snapshot, group))

    def delete(client: Client) -> None:
        refused = delete_groups(client, [group.group_id])[group.group_id]
        if isinstance(refused, RefusedError):
            raise refused

    await call.cluster.change(delete, hurries=(Part.GROUPS, Part.COMMITS))


def group_of(call: Call) -> Group:
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
        len(group.members),
        len(topics),
        sum(known) if known else None,
        snapshot.consume_rates.get(group.group_id, 0.0),
        *(verdict[:3] if verdict is not None else ()),
    )


def group_partitions(snapshot: Snapshot, group: Group, verdict: Verdict | None = None) -> list[GroupPartition]:
    """What its members read and what it has committed, in the order of names."""
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
