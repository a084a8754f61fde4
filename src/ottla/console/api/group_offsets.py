"""Where a group goes on reading: a plan first, which changes nothing; then exactly that, unless the group has moved."""

from __future__ import annotations

from typing import Literal

import msgspec

from ottla.base.names import TopicPartition
from ottla.client.client import Client
from ottla.client.groups import commit_offsets, committed_offsets, delete_offsets
from ottla.console.api.call import Call
from ottla.console.api.errors import bad_request, conflict
from ottla.console.api.groups import group_of
from ottla.console.clusters.snapshot import Part
from ottla.console.people.rights import Role
from ottla.operations.resets import (
    BY_DURATION,
    FROM_FILE,
    SHIFT_BY,
    TO_DATETIME,
    TO_OFFSET,
    ResetPlan,
    Resetter,
    Scenario,
    named_partitions,
)

PARTITIONS_MAX = 20_000
NO_OFFSETS = "name topics with 1 to {0} partitions: the group has no offsets of its own"
NEEDS_NUMBER = frozenset({TO_OFFSET, SHIFT_BY, TO_DATETIME, BY_DURATION})
EACH = "each"  # an offset for each partition, as from a file


class Place(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A partition and an offset; None: nothing committed."""

    topic: str
    partition: int
    offset: int | None = None


class PlanBody(msgspec.Struct, forbid_unknown_fields=True):
    """A scenario of kafka-consumer-groups.sh. `number` is an offset (to-offset), a shift (shift-by), a time in ms since
    1970 (to-datetime) or how many ms ago (by-duration). `topics` as in `orders` or `orders:0,2`; none: all that the
    group has committed. With the scenario `each` the offsets stand in `offsets`.
    """

    scenario: Literal[
        "to-earliest", "to-latest", "to-current", "to-offset", "shift-by", "to-datetime", "by-duration", "each"
    ]
    number: int | None = None
    topics: list[str] = []
    offsets: list[Place] = []


class PlanRow(msgspec.Struct, frozen=True):
    """`wanted` is what was asked for, where that lies outside of the log; `is_late`: no record is that late."""

    topic: str
    partition: int
    before: int | None
    after: int
    wanted: int | None = None
    is_late: bool = False


class PlanAnswer(msgspec.Struct, frozen=True):
    rows: list[PlanRow]


class ResetBody(msgspec.Struct, forbid_unknown_fields=True):
    """The rows of a plan, as they came: if the group has committed something else meanwhile, nothing is changed."""

    rows: list[PlanRow]


async def plan(call: Call) -> PlanAnswer:
    body: PlanBody = call.body
    group_id = call.parameters["group"]
    now_ms = call.console.clock.now_ms()
    for topic in {*(word.partition(":")[0] for word in body.topics), *(each.topic for each in body.offsets)}:
        call.require(Role.VIEWER, topic)
    if body.scenario in NEEDS_NUMBER and body.number is None:
        raise bad_request("{0} needs a number", body.scenario)

    def work_out(client: Client) -> PlanAnswer:
        committed = {place: item.offset for place, item in committed_offsets(client, group_id).items()}
        seen = [place for place in committed if call.sees(place.topic)]
        places = named_partitions(client, body.topics) if body.topics else seen
        if body.scenario == EACH:
            places = [TopicPartition(each.topic, each.partition) for each in body.offsets]
        if not places or len(places) > PARTITIONS_MAX:
            raise bad_request(NO_OFFSETS, PARTITIONS_MAX)
        found = Resetter(client, _scenario(body, group_id, now_ms)).plan(group_id, places)
        return PlanAnswer(_rows(found, committed))

    return await call.cluster.ask(work_out)


async def reset(call: Call) -> PlanAnswer:
    body: ResetBody = call.body
    group_id = call.parameters["group"]
    before = [Place(row.topic, row.partition, row.before) for row in body.rows]
    after = [Place(row.topic, row.partition, row.after) for row in body.rows]
    call.note(group_id, before, after)
    if not 0 < len(body.rows) <= PARTITIONS_MAX or any(row.after < 0 for row in body.rows):
        raise bad_request("send the rows of a plan")
    for topic in {row.topic for row in body.rows}:
        call.require(Role.VIEWER, topic)

    def commit(client: Client) -> None:
        committed = {place: item.offset for place, item in committed_offsets(client, group_id).items()}
        for row in body.rows:
            if committed.get(TopicPartition(row.topic, row.partition)) != row.before:
                words = "the group has moved in {0} since this was planned: look at a new plan"
                raise conflict("CHANGED_MEANWHILE", words, f"{row.topic}-{row.partition}")
        commit_offsets(client, group_id, {TopicPartition(row.topic, row.partition): row.after for row in body.rows})

    await call.cluster.change(commit, hurries=(Part.COMMITS,))
    return PlanAnswer(body.rows)


async def forget(call: Call) -> None:
    """Forget what the group has committed for one topic."""
    group, topic = group_of(call), call.parameters["topic"]
    committed = call.snapshot.commits.get(group.group_id, {})
    before = [Place(*place, offset) for place, offset in committed.items() if place.topic == topic]
    call.note(group.group_id, before)

    def drop(client: Client) -> None:
        places = [place for place in committed_offsets(client, group.group_id) if place.topic == topic]
        for refused in delete_offsets(client, group.group_id, places).values():
            if refused is not None:
                raise refused

    await call.cluster.change(drop, hurries=(Part.COMMITS, Part.GROUPS))


def _scenario(body: PlanBody, group_id: str, now_ms: int) -> Scenario:
    number = body.number or 0
    if body.scenario == EACH:
        offsets = {TopicPartition(each.topic, each.partition): each.offset or 0 for each in body.offsets}
        return Scenario(FROM_FILE, plans={group_id: offsets})
    if body.scenario == BY_DURATION:
        return Scenario(BY_DURATION, now_ms - number)
    return Scenario(body.scenario, number)


def _rows(found: ResetPlan, committed: dict[TopicPartition, int]) -> list[PlanRow]:
    late = set(found.late)
    return [
        PlanRow(
            place.topic,
            place.partition,
            committed.get(place),
            offset,
            found.outside.get(place),
            place in late,
        )
        for place, offset in sorted(found.offsets.items())
    ]
