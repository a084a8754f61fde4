"""Leaders and replicas, steered: plans, runs, what is under way, cancellation; elections of preferred leaders."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from random import SystemRandom
from typing import NamedTuple

import msgspec

from ottla.base.errors import Error, KafkaError
from ottla.base.names import TopicPartition
from ottla.client.admin import Admin, Topic
from ottla.client.client import Client
from ottla.client.elections import Election, elect_leaders
from ottla.client.errors import RefusedError
from ottla.client.reassignments import Reassignment, alter_reassignments, list_reassignments
from ottla.console.api.call import Call
from ottla.console.api.errors import ApiError, bad_request, conflict, not_found
from ottla.console.clusters.snapshot import Part
from ottla.console.people.rights import Role
from ottla.console.steering import planning, runs
from ottla.console.steering.planning import PlanAnswer, PlanBody
from ottla.console.steering.runner import not_preferred
from ottla.console.steering.runs import Place, PlanRow, Refused, Run
from ottla.operations.reassignment.plan import Plan
from ottla.operations.reassignment.progress import MoveProgress, look
from ottla.operations.reassignment.steps import prepare, replicas_of
from ottla.operations.reassignment.throttles import clear_throttles
from ottla.protocol.messages.elections import ElectLeadersRequest
from ottla.protocol.messages.reassignments import ListPartitionReassignmentsRequest

AT_ONCE_MAX = 1_000
WORDS_MAX = 3
TOO_OLD = "this needs Kafka 2.4 or later on all brokers"


class MoveRow(msgspec.Struct, frozen=True):
    """A partition that moves: who comes, who goes, and how much of it has been copied."""

    topic: str
    partition: int
    target: list[int]
    adding: list[int]
    removing: list[int]
    done_bytes: int
    total_bytes: int


class RunRow(msgspec.Struct, frozen=True):
    """A run in numbers of partitions; `ended_ms` None: it is under way."""

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
    """`unsupported` is why nothing can be moved here; `hidden` moves are of topics that the caller does not see."""

    moves: list[MoveRow]
    run: RunRow | None
    unsupported: str | None
    hidden: int


class RunBody(msgspec.Struct, forbid_unknown_fields=True):
    """`before` is what the caller has seen: if it is another by now, nothing moves (409)."""

    rows: list[PlanRow]
    throttle: int | None = None
    at_once: int = planning.AT_ONCE


class Cancellation(msgspec.Struct, forbid_unknown_fields=True):
    """None: all that is under way, and the waves that would come."""

    partitions: list[Place] | None = None


class Led(msgspec.Struct, frozen=True):
    topic: str
    partition: int
    leader: int
    preferred: int


class LedList(msgspec.Struct, frozen=True):
    """Partitions that are not led by their first replica."""

    partitions: list[Led]


class ElectionBody(msgspec.Struct, forbid_unknown_fields=True):
    """None: all topics that the caller may change."""

    topics: list[str] | None = None


class Elected(msgspec.Struct, frozen=True):
    elected: int
    refused: list[Refused]


class _Seen(NamedTuple):
    moves: dict[TopicPartition, Reassignment]
    copied: dict[TopicPartition, MoveProgress]
    is_supported: bool


# ---- plans


def plan(call: Call) -> PlanAnswer:
    body: PlanBody = call.body
    _check_at_once(body.at_once)
    if body.replication_factor is not None and body.replication_factor < 1:
        raise bad_request("the replication factor is at least 1")
    names = body.topics or sorted({row.topic for row in body.rows}) or list(call.snapshot.topics)
    is_all = not body.topics and not body.rows
    topics = _topics(call, Role.VIEWER, names, is_all=is_all)
    try:
        return planning.make(call.snapshot, body, topics, SystemRandom())
    except KafkaError as problem:
        raise ApiError(409, problem.error.name, problem.message or problem.error.name) from None


async def begin_run(call: Call) -> MoveList:
    """Check it now; then it goes on in the background, whoever looks."""
    body: RunBody = call.body
    name = call.parameters["cluster"]
    _check_at_once(body.at_once)
    if body.throttle is not None and body.throttle < 1:
        raise bad_request("a throttle is at least one byte a second")
    for topic in {row.topic for row in body.rows}:
        call.require(Role.ADMIN, topic)
    rows = [row for row in body.rows if row.before != row.after]
    if not rows:
        raise ApiError(409, "NOTHING_TO_MOVE", "nothing has to be moved: all replicas are where the plan wants them")
    call.note(", ".join(sorted({row.topic for row in rows})), *planning.before_and_after(rows))
    repeated = len({row.place for row in rows}) < len(rows)
    wanted = Plan({row.place: row.after for row in rows}, {}, tuple(row.place for row in rows) if repeated else ())
    _check_no_run(call)
    start = await call.cluster.ask(_prepare, wanted)
    if other := runs.changed(rows, start):
        words = "; ".join(other[:WORDS_MAX]) + (f" and {len(other) - WORDS_MAX} more" if len(other) > WORDS_MAX else "")
        raise conflict("CHANGED_MEANWHILE", "{0}. Look again and then decide", words)
    _check_no_run(call)
    caller = call.caller
    now_ms = call.console.clock.now_ms()
    run = Run(caller.person, caller.address, now_ms, rows, body.throttle, body.at_once)
    await call.console.runner.begin(name, run)
    call.cluster.changes += 1
    return MoveList([], _run_row(run, call.snapshot.topics, ()), None, 0)


def _prepare(client: Client, wanted: Plan) -> dict[TopicPartition, list[int]]:
    client.metadata = None  # who is alive now, not when it was asked last
    _check_supported(client, ListPartitionReassignmentsRequest)
    under_way = list_reassignments(client)
    if under_way:
        places = ", ".join(map(str, sorted(under_way)[:WORDS_MAX]))
        words = "{0} partitions move already ({1}): wait for them, or cancel them"
        raise conflict("REASSIGNMENT_IN_PROGRESS", words, len(under_way), places)
    return prepare(client, wanted).now


# ---- what is under way


async def list_moves(call: Call) -> MoveList:
    seen = await call.cluster.ask_seldom(_look)
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
    chosen = None if body.partitions is None else {item.place for item in body.partitions}
    runner, name = call.console.runner, call.parameters["cluster"]
    run = runner.current(name)
    for topic in {place.topic for place in chosen or ()} | set(
        run.topics if run is not None and chosen is None else ()
    ):
        call.require(Role.ADMIN, topic)
    if chosen is None:
        await runner.cancel(name)

    def end(client: Client) -> dict[TopicPartition, Reassignment]:
        client.metadata = None
        under_way = list_reassignments(client)
        wanted = {place: move for place, move in under_way.items() if chosen is None or place in chosen}
        for topic in {place.topic for place in wanted}:
            call.require(Role.ADMIN, topic)
        if missing := (chosen or set()) - set(wanted):
            raise conflict("CHANGED_MEANWHILE", "{0} does not move any more", min(missing))
        for place, problem in alter_reassignments(client, dict.fromkeys(wanted)).items() if wanted else ():
            if problem.error is not Error.NO_REASSIGNMENT_IN_PROGRESS:
                raise RefusedError(f"{place}: {problem}", problem.error, problem.said)
        if run is None and len(wanted) == len(under_way) and wanted:  # a run takes its throttle away by itself
            clear_throttles(client, {place.topic for place in wanted})
        return wanted

    ended = await call.cluster.change(end, hurries=(Part.METADATA,))
    if not ended and run is None:
        raise ApiError(409, "NO_REASSIGNMENT_IN_PROGRESS", "nothing moves any more")
    call.note(
        ", ".join(sorted({place.topic for place in ended})) or "waves that would have come",
        {str(place): {"target": move.target} for place, move in ended.items()},
        "cancelled",
    )


def _look(client: Client) -> _Seen:
    if not client.supports(ListPartitionReassignmentsRequest):
        return _Seen({}, {}, is_supported=False)
    client.metadata = None
    moves = list_reassignments(client)
    return _Seen(moves, look(client, moves) if moves else {}, is_supported=True)


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
    """By what the cluster says now, not by what the page has shown."""
    body: ElectionBody = call.body
    names = body.topics if body.topics is not None else list(call.snapshot.topics)
    topics = {topic.name for topic in _topics(call, Role.OPERATOR, names, is_all=body.topics is None)}
    before: dict[str, int] = {}

    def vote(client: Client) -> dict[TopicPartition, RefusedError | None]:
        _check_supported(client, ElectLeadersRequest)
        found = [topic for topic in Admin(client).topics() if topic.name in topics]
        waiting = not_preferred(found)
        if not waiting:
            words = "every partition is led by its first replica already: somebody else was faster, or the cluster was"
            raise ApiError(409, "ELECTION_NOT_NEEDED", words)
        leaders = {TopicPartition(topic.name, item.number): item.leader for topic in found for item in topic.partitions}
        before.update({str(place): leaders[place] for place in waiting})
        return elect_leaders(client, Election.PREFERRED, waiting)

    results = await call.cluster.change(vote, hurries=(Part.METADATA,))
    after = {str(place): "preferred" if problem is None else str(problem) for place, problem in results.items()}
    call.note(", ".join(sorted({place.topic for place in results})), before, after)
    problems = {place: problem for place, problem in results.items() if problem is not None}
    refused = [
        Refused(*place, str(problem))
        for place, problem in sorted(problems.items())
        if problem.error is not Error.ELECTION_NOT_NEEDED
    ]
    return Elected(sum(problem is None for problem in results.values()), refused)


# ---- helpers


def _topics(call: Call, role: Role, names: Sequence[str], *, is_all: bool) -> list[Topic]:
    """Topics of these names; of all: those for which the caller has the role."""
    found = []
    for name in dict.fromkeys(names):
        if name not in call.snapshot.topics:
            raise not_found("there is no topic {0}", name)
        try:
            call.require(role, name)
        except ApiError:
            if not is_all:
                raise
            continue
        found.append(call.snapshot.topics[name])
    return found


def _check_at_once(number: int) -> None:
    if not 0 < number <= AT_ONCE_MAX:
        raise bad_request("copies at once are 1 to {0}", AT_ONCE_MAX)


def _check_no_run(call: Call) -> None:
    run = call.console.runner.current(call.parameters["cluster"])
    if run is not None:
        words = "{0} is moving {1} partitions: wait until that is done, or cancel it"
        raise conflict("RUN_UNDER_WAY", words, run.person, len(run.rows))


def _check_supported(client: Client, request: type) -> None:
    if not client.supports(request):
        raise ApiError(409, "UNSUPPORTED_VERSION", TOO_OLD)


def _run_row(run: Run, topics: Mapping[str, Topic], moving: Collection[TopicPartition]) -> RunRow:
    rows = replicas_of([topics[name] for name in run.topics if name in topics])
    now = {
        place: row for place, row in rows.items() if place not in moving
    }  # a replica that comes is named before it is there
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
        run.moved if run.ended_ms is not None else runs.moved(run, now),
        run.elected,
        run.refused,
        run.still_throttled,
    )
