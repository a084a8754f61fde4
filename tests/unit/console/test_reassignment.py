"""Steps of runs from the state of the cluster, plans from a snapshot, and checks before anything moves."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any
from uuid import UUID

import pytest
from msgspec.structs import replace
from tests.unit.console.test_api import ConsoleFixture as ConsolePlace
from tests.unit.console.test_api import FakeCluster, FixedClock
from tests.unit.console.test_api import run as run_console

from ottla.base.errors import Error
from ottla.base.names import TopicPartition
from ottla.base.passwords import hash_password
from ottla.client.admin import Partition, Topic
from ottla.client.configs import Config, Source
from ottla.client.errors import BrokerError, ClientError
from ottla.client.reassignments import Reassignment
from ottla.console.auth.rights import Grant
from ottla.console.clusters.snapshot import Broker, LogDir, Snapshot
from ottla.console.reassignment import plans
from ottla.console.reassignment.plans import PlanBody, Replicas
from ottla.console.reassignment.runner import ReassignmentRunner, RoundResult
from ottla.console.reassignment.runs import Place, PlanRow, Refused, Run, count_moved, describe_changes
from ottla.console.store import DATABASE_FILE, Person, Store, Tables
from ottla.operations.reassignment.executor import Round, next_round
from ottla.operations.reassignment.plan import PlanError

ROOT = "/api/clusters/default"
ONE, TWO = TopicPartition("orders", 0), TopicPartition("orders", 1)
RUN = Run("vera", "127.0.0.1", 5, [PlanRow("orders", 0, [1], [2]), PlanRow("orders", 1, [1], [2])], 1000, 1)


def snapshot(**changes: Any) -> Snapshot:
    topics = {
        "orders": Topic("orders", UUID(int=1), False, [Partition(0, 1, [1], [1]), Partition(1, 1, [1], [1])]),
        "even": Topic("even", UUID(int=2), False, [Partition(0, 1, [1], [1]), Partition(1, 2, [2], [2])]),
    }
    brokers = {number: Broker(number, "a", 9092, None) for number in (1, 2)}
    return Snapshot(topics=topics, brokers=brokers, sizes={ONE: 100, TWO: 50}, **changes)


def make(body: PlanBody, known: Snapshot | None = None, *names: str) -> plans.PlanAnswer:
    known = known or snapshot()
    return plans.plan_reassignment(known, body, [known.topics[name] for name in names or known.topics], Random(1))


# ---- what a run does next


MOVING = {ONE: Reassignment([1, 2], [2], [1])}


def next_step(run: Run, moves: dict[TopicPartition, Reassignment], now: dict[TopicPartition, list[int]]) -> Round:
    return next_round(run.task, run.requested, moves, now)


def test_a_run_moves_a_few_partitions_at_a_time_and_then_ends() -> None:
    now = {ONE: [1], TWO: [1]}
    first = next_step(RUN, {}, now)
    assert (first.started, first.waiting) == ({ONE: [2]}, 1)
    begun = replace(RUN, begun=[Place("orders", 0)])
    waiting = next_step(begun, MOVING, now)
    assert (waiting.started, waiting.is_last) == ({}, False)
    assert next_step(begun, {}, {ONE: [2], TWO: [1]}).started == {TWO: [2]}
    done = {ONE: [2], TWO: [2]}
    assert next_step(replace(begun, begun=[Place("orders", 0), Place("orders", 1)]), {}, done).is_last
    assert count_moved(RUN, done) == 2


def test_a_console_that_starts_anew_goes_on_with_what_is_left() -> None:
    """A console killed between the request to the cluster and the next write to the store."""
    waiting = next_step(RUN, MOVING, {ONE: [1, 2], TWO: [1]})
    assert (waiting.started, waiting.is_last) == ({}, False)
    assert next_step(RUN, {}, {ONE: [2], TWO: [1]}).started == {TWO: [2]}


@pytest.mark.parametrize(
    "run",
    [
        replace(RUN, is_cancelled=True),
        replace(RUN, begun=[Place("orders", 0), Place("orders", 1)]),  # these moves were cancelled from outside
        replace(RUN, refused=[Refused("orders", 0, "no"), Refused("orders", 1, "no")]),
    ],
)
def test_nothing_is_asked_for_twice_nor_after_a_cancellation(run: Run) -> None:
    assert next_step(run, {}, {ONE: [1], TWO: [1]}).is_last
    waiting = next_step(run, MOVING, {ONE: [1], TWO: [1]})
    assert (waiting.started, waiting.is_last) == ({}, False), "the throttle stays as long as it moves"


def test_a_topic_that_is_deleted_meanwhile_ends_its_run() -> None:
    assert next_step(RUN, {}, {}).is_last
    assert count_moved(RUN, {}) == 0


def test_changed_partitions_are_described() -> None:
    assert describe_changes(RUN.rows, {ONE: [1], TWO: [1]}) == []
    assert describe_changes(RUN.rows, {ONE: [3]}) == ["orders-0 is on 3, no longer on 1", "orders-1 no longer exists"]


# ---- plans


def test_a_plan_shows_before_after_and_bytes_and_leaves_alone_what_fits() -> None:
    answer = make(PlanBody("spread", brokers=[1, 2]))
    assert answer.partitions == 4
    (row,) = answer.rows
    assert (row.topic, row.before, row.after) == ("orders", [1], [2])
    assert row.bytes == answer.bytes == {0: 100, 1: 50}[row.partition]
    assert (answer.leaders, answer.copies_most, answer.waves, answer.full, answer.unknown) == (1, 1, 1, [], 0)
    assert make(PlanBody("spread", brokers=[1, 2]), None, "even").rows == []
    more = make(PlanBody("spread", brokers=[1, 2], replication_factor=2), None, "orders")
    assert all(sorted(row.after) == [1, 2] for row in more.rows)
    assert more.bytes == 150


def test_a_broker_is_drained_or_filled_and_full_disks_are_reported() -> None:
    full = snapshot(folders={2: (LogDir("/d", None, 1, 1, 1_000, 120),)})
    answer = make(PlanBody("drain", brokers=[1], at_once=1), full, "orders")
    assert [(row.after, row.bytes) for row in answer.rows] == [([2], 100), ([2], 50)]
    assert (answer.full, answer.waves) == ([2], 2)
    assert len(make(PlanBody("fill", brokers=[2]), None, "orders").rows) == 1


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (PlanBody("spread"), "select brokers"),
        (PlanBody("spread", brokers=[1, 1]), "twice"),
        (PlanBody("spread", brokers=[9]), "Unknown broker id 9"),
        (PlanBody("fill", brokers=[9]), "Unknown broker id 9"),
        (PlanBody("manual"), "cannot be empty"),
        (PlanBody("manual", rows=[Replicas("orders", 0, [])]), "cannot be empty"),
        (PlanBody("manual", rows=[Replicas("orders", 0, [1, 1])]), "duplicate entries"),
        (PlanBody("manual", rows=[Replicas("orders", 0, [9])]), "Unknown broker id 9"),
        (PlanBody("manual", rows=[Replicas("orders", 7, [1])]), "Unable to find partition: orders-7"),
        (
            PlanBody("manual", rows=[Replicas("orders", 0, [1]), Replicas("orders", 0, [2])]),
            "duplicate topic partitions",
        ),
    ],
)
def test_plans_that_make_no_sense_are_refused(body: PlanBody, words: str) -> None:
    with pytest.raises(PlanError, match=words):
        make(body)


def test_racks_are_left_aside_when_some_brokers_have_none() -> None:
    known = snapshot()
    brokers = {1: Broker(1, "a", 9092, "r1"), 2: Broker(2, "b", 9092, None)}
    mixed = Snapshot(topics=known.topics, brokers=brokers)
    answer = make(PlanBody("spread", brokers=[1, 2]), mixed, "orders")
    assert answer.ignores_racks
    assert answer.unknown == 1


# ---- kept, and asked for


def test_runs_are_kept_in_the_store(tmp_path: Path) -> None:
    store = Store(tmp_path / DATABASE_FILE)
    store.run_sync(Tables.put_run, "default", RUN)
    ended = replace(RUN, ended_ms=9)
    store.run_sync(Tables.put_run, "other", ended)
    store.close()
    store = Store(tmp_path / DATABASE_FILE)
    runner = ReassignmentRunner(store, FixedClock(), {})
    runner.runs = store.run_sync(Tables.runs)
    store.close()
    assert runner.runs == {"default": RUN, "other": ended}
    assert runner.current("default") == RUN
    assert runner.current("other") is None


class RoundCluster(FakeCluster):
    """Returns one answer per round, or raises it."""

    def __init__(self, answers: list[Exception | RoundResult]) -> None:
        super().__init__()
        self.answers = answers
        self.reader = self
        self.cached_answers: dict[str, object] = {}
        self.changes: Any = 0

    def refresh(self, *_parts: object) -> None:
        pass

    async def query(self, *_question: object) -> RoundResult:
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer


FORBIDDEN = BrokerError("not allowed", Error.CLUSTER_AUTHORIZATION_FAILED, None)
SLOWED = replace(RUN, throttled=[1, 2])


@pytest.mark.parametrize(
    ("run", "answers", "ended"),
    [
        (RUN, [ClientError("gone"), RoundResult(RUN), RoundResult(replace(RUN, moved=2), True)], {"moved": 2}),
        (RUN, [FORBIDDEN, RoundResult(RUN, True)], {"is_cancelled": True, "problem": "not allowed"}),
        (
            SLOWED,
            [
                FORBIDDEN,
                FORBIDDEN,
                ClientError("gone"),
                RoundResult(SLOWED),
            ],  # the last two: throttles, when all is over
            {"is_cancelled": True, "problem": "not allowed"},
        ),
    ],
)
def test_a_run_is_driven_to_its_end_whatever_the_cluster_says(
    tmp_path: Path, run: Run, answers: list[Exception | RoundResult], ended: dict[str, Any]
) -> None:
    place = ConsolePlace(tmp_path)
    runner = place.console.runner
    place.console.clusters["default"] = RoundCluster(answers)  # type: ignore[assignment]

    async def drive() -> None:
        await runner.start("default", run)
        await runner.tasks["default"]
        assert answers == []
        assert runner.runs["default"] == replace(run, ended_ms=FixedClock().now_ms(), **ended)
        assert await place.store.run(Tables.runs) == runner.runs
        ((_, entry),) = await place.store.run(Tables.audit, 10)
        assert (entry.person, entry.action) == ("vera", "end of Run Partition Assignments")

    run_console(place, drive)


class AnsweringCluster(FakeCluster):
    """Returns the same answer to each query."""

    def __init__(self, answer: object) -> None:
        super().__init__()
        self.answer = answer

    async def query(self, question: Callable[..., object], *arguments: object) -> object:
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer

    query_cached = query


ROWS = [{"topic": "orders", "partition": 0, "before": [1, 2], "after": [2, 1]}]


@pytest.mark.parametrize(
    ("body", "now", "status", "code"),
    [
        ({"rows": []}, {}, 409, "NOTHING_TO_MOVE"),
        ({"rows": [ROWS[0] | {"after": [1, 2]}]}, {}, 409, "NOTHING_TO_MOVE"),
        ({"rows": ROWS, "throttle": 0}, {}, 400, "BAD_REQUEST"),
        ({"rows": ROWS, "at_once": 0}, {}, 400, "BAD_REQUEST"),
        ({"rows": ROWS}, {ONE: [3, 2]}, 409, "CHANGED_MEANWHILE"),
        ({"rows": ROWS}, PlanError("Unknown broker id 9"), 409, "NOT_POSSIBLE"),
        ({"rows": ROWS}, ClientError("not reachable"), 503, "UNREACHABLE"),
    ],
)
def test_a_run_is_checked_before_anything_moves(
    tmp_path: Path, body: object, now: object, status: int, code: str
) -> None:
    place = ConsolePlace(tmp_path)
    place.console.clusters["default"] = AnsweringCluster(now)  # type: ignore[assignment]

    async def ask() -> None:
        told, answer, _ = await place.ask("POST", f"{ROOT}/reassignments", body)
        assert (told, answer["error"]) == (status, code)
        assert place.console.runner.runs == {}

    run_console(place, ask)


def test_a_second_run_is_refused_while_the_first_one_runs(tmp_path: Path) -> None:
    place = ConsolePlace(tmp_path)
    place.console.clusters["default"] = AnsweringCluster({ONE: [1, 2]})  # type: ignore[assignment]
    place.console.runner.runs["default"] = RUN

    async def ask() -> None:
        status, answer, _ = await place.ask("POST", f"{ROOT}/reassignments", {"rows": ROWS})
        assert (status, answer["error"]) == (409, "RUN_UNDER_WAY")
        assert "vera is moving 2 partitions" in answer["message"]

    run_console(place, ask)


def test_operators_elect_and_only_admins_move(tmp_path: Path) -> None:
    grants = [Grant("operator", "default", "o*")]
    people = (Person("olga", hash_password("secret-word"), grants),)
    place = ConsolePlace(tmp_path, needs_sign_in=True, people=people)
    basic = "Basic b2xnYTpzZWNyZXQtd29yZA=="

    async def ask() -> None:
        status, answer, _ = await place.ask("POST", f"{ROOT}/reassignments", {"rows": ROWS}, authorization=basic)
        assert status == 403
        body = {"topics": ["payments"]}
        status, answer, _ = await place.ask("POST", f"{ROOT}/elections", body, authorization=basic)
        assert (status, answer["error"]) == (403, "FORBIDDEN")
        assert place.cluster.changes == []

    run_console(place, ask)


def test_settings_of_brokers_are_changed_and_secrets_are_not_noted(tmp_path: Path) -> None:
    configs = [
        Config("log.cleaner.threads", "1", Source.DEFAULT_CONFIG, False),
        Config("ssl.keystore.password", None, Source.DYNAMIC_BROKER_CONFIG, True),
    ]
    place = ConsolePlace(tmp_path)
    cluster = AnsweringCluster(configs)
    place.console.clusters["default"] = cluster  # type: ignore[assignment]

    async def ask() -> None:
        path = f"{ROOT}/brokers/1/settings"
        late = {"set": {"log.cleaner.threads": "3"}, "expected": {"log.cleaner.threads": "2"}}
        status, answer, _ = await place.ask("PATCH", path, late)
        assert (status, answer["error"]) == (409, "CHANGED_MEANWHILE")
        assert cluster.changes == []
        body = {"set": {"log.cleaner.threads": "3", "ssl.keystore.password": "hunter2"}}
        status, _, _ = await place.ask("PATCH", path, body)
        assert status == 200
        assert len(cluster.changes) == 1
        entries = await place.store.run(Tables.audit, 10)
        assert "hunter2" not in str(entries)
        assert entries[0][1].target == "broker 1"
        assert '"log.cleaner.threads":"3"' in str(entries[0][1].after)

    run_console(place, ask)
