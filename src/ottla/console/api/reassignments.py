"""Reassignments: plans, runs, moves in progress, cancellation; and elections of preferred leaders."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from random import SystemRandom
from typing import NamedTuple

import msgspec

from ottla.base.errors import Error, KafkaError
from ottla.base.names import TopicPartition
from ottla.client.admin import Admin, Topic
from ottla.client.client import Client
from ottla.client.errors import BrokerError
from ottla.client.reassignments import Election, Reassignment, alter_reassignments, elect_leaders, list_reassignments
from ottla.console.api.call import Call
from ottla.console.api.errors import ApiError, bad_request, conflict, not_found
from ottla.console.auth.rights import Role
from ottla.console.clusters.snapshot import Part
from ottla.console.reassignment import plans, runs
from ottla.console.reassignment.plans import PlanAnswer, PlanBody
from ottla.console.reassignment.runner import not_led_by_preferred_replica
from ottla.console.reassignment.runs import Place, PlanRow, Refused, Run
from ottla.operations.reassignment.moves import MoveProgress, describe_progress, prepare, replicas_of
from ottla.operations.reassignment.plan import Plan
from ottla.operations.reassignment.throttles import clear_throttles
from ottla.protocol.messages.reassignments import ElectLeadersRequest, ListPartitionReassignmentsRequest

AT_ONCE_MAX = 1_000
EXAMPLES_MAX = 3
TOO_OLD = "this needs Kafka 2.4 or later on all brokers"


class MoveRow(msgspec.Struct, frozen=True):
    """A moving partition: added and removed replicas, and the copied bytes."""

    topic: str
    partition: int
    target: list[int]
    adding: list[int]
    removing: list[int]
    done_bytes: int
    total_bytes: int


class RunRow(msgspec.Struct, frozen=True):
    """A run, in numbers of partitions; `ended_ms` None: in progress."""

    person: str
    started_ms: int
    ended_ms: int | None
    throttle: int | None
    at_once: int
    is_cancelled: bool
    problem: str | None
    partitions: int
    begun: int
    moved: int
    elected: int
    refused: list[Refused]
    still_throttled: list[int]


class MoveList(msgspec.Struct, frozen=True):
    """`unsupported`: why moves are not possible; `hidden`: moves of topics that the caller may not see."""

    moves: list[MoveRow]
    run: RunRow | None
    unsupported: str | None
    hidden: int


class RunBody(msgspec.Struct, forbid_unknown_fields=True):
    """`before` in each row: the replicas that the caller has seen; if they differ, nothing moves (409)."""

    rows: list[PlanRow]
    throttle: int | None = None
    at_once: int = plans.COPIES_AT_ONCE


class Cancellation(msgspec.Struct, forbid_unknown_fields=True):
    """None: all moves in progress, and the remaining waves."""

    partitions: list[Place] | None = None


class Led(msgspec.Struct, frozen=True):
    topic: str
    partition: int
    leader: int
    preferred: int


class LedList(msgspec.Struct, frozen=True):
    """Partitions that are not led by their preferred (first) replica."""

    partitions: list[Led]


class ElectionBody(msgspec.Struct, forbid_unknown_fields=True):
    """None: all topics that the caller may operate."""

    topics: list[str] | None = None


class Elected(msgspec.Struct, frozen=True):
    elected: int
    refused: list[Refused]


class _CurrentMoves(NamedTuple):
    moves: dict[TopicPartition, Reassignment]
    copied: dict[TopicPartition, MoveProgress]
    is_supported: bool


# ---- plans


def plan(call: Call) -> PlanAnswer:
    body: PlanBody = call.body
    _check_at_once(body.at_once)
    if body.replication_factor is not None and body.replication_factor < 1:
        raise bad_request("the replication factor must be at least 1")
    names = body.topics or sorted({row.topic for row in body.rows}) or list(call.snapshot.topics)
    is_all = not body.topics and not body.rows
    topics = _topics(call, Role.VIEWER, names, is_all=is_all)
    try:
        return plans.plan_reassignment(call.snapshot, body, topics, SystemRandom())
    except KafkaError as problem:
        raise ApiError(409, problem.error.name, problem.message or problem.error.name) from None


async def start_run(call: Call) -> MoveList:
    """Check the plan now, then execute it in the background."""
    body: RunBody = call.body
    name = call.parameters["cluster"]
    _check_at_once(body.at_once)
    if body.throttle is not None and body.throttle < 1:
        raise bad_request("a throttle must be at least one byte per second")
    for topic in {row.topic for row in body.rows}:
        call.require_role(Role.ADMIN, topic)
    rows = [row for row in body.rows if row.before != row.after]
    if not rows:
        raise ApiError(409, "NOTHING_TO_MOVE", "no moves are needed: all replicas are already placed as planned")
    call.audit(", ".join(sorted({row.topic for row in rows})), *plans.audit_values(rows))
    repeated = len({row.topic_partition for row in rows}) < len(rows)
    wanted = Plan(
        {row.topic_partition: row.after for row in rows},
        {},
        tuple(row.topic_partition for row in rows) if repeated else (),
    )
    _check_no_run(call)
    start = await call.cluster.query(_prepare_run, wanted)
    if other := runs.describe_changes(rows, start):
        words = "; ".join(other[:EXAMPLES_MAX]) + (
            f" and {len(other) - EXAMPLES_MAX} more" if len(other) > EXAMPLES_MAX else ""
        )
        raise conflict("CHANGED_MEANWHILE", "{0}: make a new plan", words)
    _check_no_run(call)
    caller = call.caller
    now_ms = call.console.clock.now_ms()
    run = Run(caller.person, caller.address, now_ms, rows, body.throttle, body.at_once)
    await call.console.runner.start(name, run)
    call.cluster.changes += 1
    return MoveList([], _run_row(run, call.snapshot.topics, ()), None, 0)


def _prepare_run(client: Client, wanted: Plan) -> dict[TopicPartition, list[int]]:
    client.metadata = None  # the live brokers of now, not of the last request
    _check_supported(client, ListPartitionReassignmentsRequest)
    under_way = list_reassignments(client)
    if under_way:
        places = ", ".join(map(str, sorted(under_way)[:EXAMPLES_MAX]))
        words = "{0} partitions are already moving ({1}): wait for them, or cancel them"
        raise conflict("REASSIGNMENT_IN_PROGRESS", words, len(under_way), places)
    return prepare(client, wanted).now


# ---- moves in progress


async def list_moves(call: Call) -> MoveList:
    seen = await call.cluster.query_cached(_read_moves)
    run = call.console.runner.runs.get(call.parameters["cluster"])
    if run is not None and not all(call.sees(topic) for topic in run.topics):
        run = None
    visible = {place: move for place, move in seen.moves.items() if call.sees(place.topic)}
    return MoveList(
        [
            MoveRow(
                *place,
                move.target,
                sorted(move.adding),
                sorted(move.removing),
                seen.copied[place].done_bytes,
                seen.copied[place].total_bytes,
            )
            for place, move in sorted(visible.items())
        ],
        _run_row(run, call.snapshot.topics, seen.moves) if run is not None else None,
        None if seen.is_supported else TOO_OLD,
        len(seen.moves) - len(visible),
    )


async def cancel(call: Call) -> None:
    body: Cancellation = call.body
    chosen = None if body.partitions is None else {item.topic_partition for item in body.partitions}
    runner, name = call.console.runner, call.parameters["cluster"]
    run = runner.current(name)
    for topic in {place.topic for place in chosen or ()} | set(
        run.topics if run is not None and chosen is None else ()
    ):
        call.require_role(Role.ADMIN, topic)
    if chosen is None:
        await runner.cancel(name)

    def end(client: Client) -> dict[TopicPartition, Reassignment]:
        client.metadata = None
        under_way = list_reassignments(client)
        wanted = {place: move for place, move in under_way.items() if chosen is None or place in chosen}
        for topic in {place.topic for place in wanted}:
            call.require_role(Role.ADMIN, topic)
        if missing := (chosen or set()) - set(wanted):
            raise conflict("CHANGED_MEANWHILE", "{0} is no longer moving", min(missing))
        for place, problem in alter_reassignments(client, dict.fromkeys(wanted)).items() if wanted else ():
            if problem.error is not Error.NO_REASSIGNMENT_IN_PROGRESS:
                raise BrokerError(f"{place}: {problem}", problem.error, problem.broker_message)
        if run is None and len(wanted) == len(under_way) and wanted:  # a run removes its own throttle
            clear_throttles(client, {place.topic for place in wanted})
        return wanted

    ended = await call.cluster.change(end, refresh=(Part.METADATA,))
    if not ended and run is None:
        raise ApiError(409, "NO_REASSIGNMENT_IN_PROGRESS", "no move is in progress")
    call.audit(
        ", ".join(sorted({place.topic for place in ended})) or "remaining waves",
        {str(place): {"target": move.target} for place, move in ended.items()},
        "cancelled",
    )


def _read_moves(client: Client) -> _CurrentMoves:
    if not client.supports(ListPartitionReassignmentsRequest):
        return _CurrentMoves({}, {}, is_supported=False)
    client.metadata = None
    moves = list_reassignments(client)
    return _CurrentMoves(moves, describe_progress(client, moves) if moves else {}, is_supported=True)


# ---- elections


def list_not_preferred(call: Call) -> LedList:
    topics = [topic for topic in call.snapshot.topics.values() if call.sees(topic.name)]
    return LedList(
        [
            Led(topic.name, partition.number, partition.leader, partition.replicas[0])
            for topic in topics
            for partition in topic.partitions
            if partition.leader >= 0 and partition.replicas and partition.replicas[0] != partition.leader
        ]
    )


async def elect(call: Call) -> Elected:
    """Elect by the current state of the cluster, not by the snapshot."""
    body: ElectionBody = call.body
    names = body.topics if body.topics is not None else list(call.snapshot.topics)
    topics = {topic.name for topic in _topics(call, Role.OPERATOR, names, is_all=body.topics is None)}
    before: dict[str, int] = {}

    def vote(client: Client) -> dict[TopicPartition, BrokerError | None]:
        _check_supported(client, ElectLeadersRequest)
        found = [topic for topic in Admin(client).topics() if topic.name in topics]
        waiting = not_led_by_preferred_replica(found)
        if not waiting:
            words = "every partition is already led by its preferred replica"
            raise ApiError(409, "ELECTION_NOT_NEEDED", words)
        leaders = {TopicPartition(topic.name, item.number): item.leader for topic in found for item in topic.partitions}
        before.update({str(place): leaders[place] for place in waiting})
        return elect_leaders(client, Election.PREFERRED, waiting)

    results = await call.cluster.change(vote, refresh=(Part.METADATA,))
    after = {str(place): "preferred" if problem is None else str(problem) for place, problem in results.items()}
    problems = {place: problem for place, problem in results.items() if problem is not None}
    refused = [
        Refused(*place, str(problem))
        for place, problem in sorted(problems.items())
        if problem.error is not Error.ELECTION_NOT_NEEDED
    ]
    words = f"REFUSED: {refused[0].reason}" if refused and len(refused) == len(results) else ""
    call.audit(", ".join(sorted({place.topic for place in results})), before, after, words)
    return Elected(sum(problem is None for problem in results.values()), refused)


# ---- helpers


def _topics(call: Call, role: Role, names: Sequence[str], *, is_all: bool) -> list[Topic]:
    """The topics with these names; with `is_all`, topics without the role are skipped."""
    found = []
    for name in dict.fromkeys(names):
        if name not in call.snapshot.topics:
            raise not_found("there is no topic {0}", name)
        try:
            call.require_role(role, name)
        except ApiError:
            if not is_all:
                raise
            continue
        found.append(call.snapshot.topics[name])
    return found


def _check_at_once(number: int) -> None:
    if not 0 < number <= AT_ONCE_MAX:
        raise bad_request("the number of concurrent copies must be 1 to {0}", AT_ONCE_MAX)


def _check_no_run(call: Call) -> None:
    run = call.console.runner.current(call.parameters["cluster"])
    if run is not None:
        words = "{0} is moving {1} partitions: wait until the move is done, or cancel it"
        raise conflict("RUN_UNDER_WAY", words, run.person, len(run.rows))


def _check_supported(client: Client, request: type) -> None:
    if not client.supports(request):
        raise ApiError(409, "UNSUPPORTED_VERSION", TOO_OLD)


def _run_row(run: Run, topics: Mapping[str, Topic], moving: Collection[TopicPartition]) -> RunRow:
    rows = replicas_of([topics[name] for name in run.topics if name in topics])
    now = {
        place: row for place, row in rows.items() if place not in moving
    }  # the metadata list a new replica before it is copied
    return RunRow(
        run.person,
        run.started_ms,
        run.ended_ms,
        run.throttle,
        run.at_once,
        run.is_cancelled,
        run.problem,
        len(run.rows),
        len(run.begun),
        run.moved if run.ended_ms is not None else runs.count_moved(run, now),
        run.elected,
        run.refused,
        run.still_throttled,
    )
