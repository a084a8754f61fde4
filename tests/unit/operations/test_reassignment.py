"""Reassignment plans: parsing, generation, throttles, progress, and messages."""

import json
import sys
from collections import Counter
from collections.abc import Callable, Mapping
from io import StringIO
from pathlib import Path
from random import Random
from typing import cast
from uuid import UUID

import pytest

from ottla.base.errors import KafkaError
from ottla.base.names import TopicPartition
from ottla.base.placement.moves import plan_drain, plan_factor, plan_fill
from ottla.cli.commands import elect
from ottla.cli.kafka.reassign_partitions import folder_line, is_moving, move_line, partition_line
from ottla.cli.reports.reassignment_progress import bar
from ottla.cli.terminal import EXIT_FAILED, EXIT_USAGE, UsageError
from ottla.client.admin import Admin, Partition, Topic
from ottla.client.log_dirs import TopicPartitionReplica
from ottla.client.reassignments import Reassignment
from ottla.operations.reassignment.generated_plans import PlanGoal, generate_plan, is_balanced, make_plan
from ottla.operations.reassignment.moves import (
    LogDirState,
    MoveProgress,
    ReassignmentState,
    bytes_to_copy,
    check_brokers,
    check_known,
    move_progress,
    progress,
    replicas_of,
    with_target_replicas,
)
from ottla.operations.reassignment.plan import (
    ElectionFileError,
    Plan,
    PlanError,
    check_plan,
    parse_brokers,
    parse_partitions,
    parse_plan,
    parse_topics,
    plan_text,
)
from ottla.operations.reassignment.throttles import Throttles, throttle_settings

A0, A1, B0 = TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("b", 0)


def topic(name: str, *rows: list[int]) -> Topic:
    return Topic(name, UUID(int=1), False, [Partition(number, row[0], row, row) for number, row in enumerate(rows)])


# ---- files


def test_a_plan_is_read_and_written() -> None:
    text = (
        '{"version":1,"partitions":[{"topic":"a","partition":1,"replicas":[2,3],"log_dirs":["any","/d"]},'
        '{"topic":"a","partition":0,"replicas":[1]}]}'
    )
    plan = parse_plan(text)
    assert plan == Plan({A0: [1], A1: [2, 3]}, {TopicPartitionReplica(A1, 3): "/d"})
    assert (plan.brokers, plan.topics) == ({1, 2, 3}, ["a"])
    assert json.loads(plan_text(plan.replicas, plan.folders)) == {
        "version": 1,
        "partitions": [
            {"topic": "a", "partition": 0, "replicas": [1], "log_dirs": ["any"]},
            {"topic": "a", "partition": 1, "replicas": [2, 3], "log_dirs": ["any", "/d"]},
        ],
    }


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([], "Partition reassignment list cannot be empty"),
        ([("a", 0, [])], "Partition replica list cannot be empty"),
        (
            [("a", 0, [1]), ("a", 0, [2])],
            "Partition reassignment contains duplicate topic partitions: a-0",
        ),
        (
            [("a", 0, [1, 1])],
            "Partition replica lists may not contain duplicate entries: a-0 contains multiple entries for 1",
        ),
    ],
)
def test_plans_that_make_no_sense(rows: list[tuple[str, int, list[int]]], message: str) -> None:
    partitions = [{"topic": name, "partition": number, "replicas": row} for name, number, row in rows]
    with pytest.raises(PlanError) as caught:
        check_plan(parse_plan(json.dumps({"version": 1, "partitions": partitions})))
    assert str(caught.value) == message


@pytest.mark.parametrize("text", ["", "nonsense", "[]", '{"partitions": [5]}', '{"partitions": [{"topic": "a"}]}'])
def test_files_that_are_no_plans(text: str) -> None:
    with pytest.raises(PlanError):
        parse_plan(text)


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ('{"partitions": 5}', '"partitions" must be a list, not 5'),
        ('{"partitions": [5]}', '5 instead of an object with the field "topic"'),
        ('{"partitions": [{"topic": "a"}]}', 'the field "partition" is missing in {"topic": "a"}'),
        (
            '{"partitions": [{"topic": "a", "partition": 0, "replicas": ["a"]}]}',
            '"replicas" must be whole numbers, not "a"',
        ),
        (
            '{"partitions": [{"topic": "a", "partition": 0, "replicas": [1.5]}]}',
            '"replicas" must be whole numbers, not 1.5',
        ),
        (
            '{"partitions": [{"topic": "a", "partition": true, "replicas": [1]}]}',
            '"partition" must be whole numbers, not true',
        ),
        (
            '{"partitions": [{"topic": "a", "partition": 0, "replicas": [1], "log_dirs": 3}]}',
            '"log_dirs" must be a list, not 3',
        ),
    ],
)
def test_errors_in_a_plan_are_explained(text: str, what: str) -> None:
    with pytest.raises(PlanError) as caught:
        parse_plan(text)
    assert str(caught.value) == f"the plan cannot be read: {what}"


def test_a_plan_without_partitions_is_empty_as_with_kafka() -> None:
    assert parse_plan('{"version": 1}') == Plan({}, {})


def test_unknown_brokers() -> None:
    check_known([1, 3], [1, 2, 3])
    with pytest.raises(PlanError, match=r"^Unknown broker id 99$"):
        check_known([99, 1], [1, 2])


class Brokers:
    """Brokers 1 and 2 live; 3 is dead, but holds a replica."""

    def live_brokers(self) -> list[int]:
        return [1, 2]

    def topics(self) -> list[Topic]:
        return [topic("a", [1, 3])]


def test_a_dead_broker_can_be_drained_but_no_unknown_one() -> None:
    def drain(*brokers: int) -> dict[TopicPartition, list[int]]:
        topics, racks = [topic("a", [1, 3])], dict.fromkeys((1, 2))
        return generate_plan(PlanGoal("drain", brokers), topics, racks, Random(1), holders=[4])

    assert drain(3) == {TopicPartition("a", 0): [1, 2]}
    assert drain(4) == {}, "it holds replicas of other topics"
    with pytest.raises(PlanError, match=r"^Unknown broker id 99$"):
        drain(99)
    with pytest.raises(PlanError, match=r"^Unknown broker id 3$"):
        check_brokers(cast("Admin", Brokers()), [3])


def test_each_goal_names_the_brokers_and_only_changes_are_planned() -> None:
    topics, racks = [topic("a", [1, 2], [2, 1]), topic("b", [1], [1])], dict.fromkeys((1, 2, 3))
    spread = generate_plan(PlanGoal("spread", (1, 2)), topics, racks, Random(1))
    assert {name.topic for name in spread} == {"b"}, "a is spread well already"
    assert {len(row) for row in spread.values()} == {1}
    filled = generate_plan(PlanGoal("fill", (3,)), topics, racks, Random(1))
    assert filled
    assert all(3 in row for row in filled.values())
    assert generate_plan(PlanGoal("factor", replication_factor=1), topics, racks, Random(1)) == {
        TopicPartition("a", 0): [1],
        TopicPartition("a", 1): [2],
    }
    with pytest.raises(PlanError, match="twice"):
        generate_plan(PlanGoal("spread", (1, 1)), topics, racks, Random(1))


def test_lists_of_topics_and_brokers() -> None:
    assert parse_topics('{"topics": [{"topic": "a"}, {"topic": "b"}]}') == ["a", "b"]
    for text in ("nonsense", "[]", '{"version": 2}', '{"topics": [{"topic": "a"}, {"topic": "a"}]}'):
        with pytest.raises(PlanError):
            parse_topics(text)
    assert parse_brokers("3,1") == [3, 1]
    for text in ("", "1,x", "1,1"):
        with pytest.raises(PlanError):
            parse_brokers(text)


def test_lists_of_partitions_to_elect_in() -> None:
    assert parse_partitions('{"partitions": [{"topic": "a", "partition": 1}]}') == [A1]
    for text in ("", "{}", '{"partitions": [{"topic": "a"}]}', '{"partitions": 5}'):
        with pytest.raises(ElectionFileError):
            parse_partitions(text)
    with pytest.raises(ElectionFileError, match='the field "partition" is missing in'):
        parse_partitions('{"partitions": [{"topic": "a"}]}')
    with pytest.raises(ElectionFileError, match=r"^Replica election data is empty$"):
        parse_partitions("{nonsense")  # Kafka's words, which Kafka's tool keeps


# ---- elections


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{nonsense", "is not valid JSON: Expecting property name"),
        ("", "is not valid JSON: Expecting value"),
        ("[]", 'is missing "partitions" field'),
        ('{"partitions": [{"topic": "a", "partition": "x"}]}', '"partition" must be whole numbers, not "x"'),
    ],
)
def test_a_file_of_partitions_that_cannot_be_read_is_explained(tmp_path: Path, content: str, message: str) -> None:
    path = tmp_path / "partitions.json"
    path.write_text(content)
    with pytest.raises(ElectionFileError) as caught:
        elect.run(["--path-to-json-file", str(path)])
    assert message in str(caught.value)


class ReachedError(Exception):
    """The command would continue now."""


@pytest.fixture
def answer_prompt(monkeypatch: pytest.MonkeyPatch) -> Callable[[str | None], None]:
    """The answer at the terminal; None: not a terminal."""

    def connect(_options: object) -> None:
        raise ReachedError

    def answer(text: str | None) -> None:
        monkeypatch.setattr(elect, "client_of", connect)
        monkeypatch.setattr(elect, "is_terminal", lambda _stream: text is not None)
        monkeypatch.setattr(sys, "stdin", StringIO(text))

    return answer


def test_an_unclean_election_without_a_terminal_needs_consent(answer_prompt: Callable[[str | None], None]) -> None:
    answer_prompt(None)
    with pytest.raises(UsageError, match="--yes") as caught:
        elect.run(["--election-type", "unclean"])
    assert caught.value.code == EXIT_USAGE
    for arguments in (["--election-type", "unclean", "--yes"], ["--election-type", "preferred"], []):
        with pytest.raises(ReachedError):
            elect.run(arguments)


def test_an_unclean_election_at_a_terminal_is_asked_for(answer_prompt: Callable[[str | None], None]) -> None:
    answer_prompt("n\n")
    assert elect.run(["--election-type", "unclean"]) == EXIT_FAILED
    answer_prompt("y\n")
    with pytest.raises(ReachedError):
        elect.run(["--election-type", "unclean"])


# ---- plans that are made


def test_topics_are_spread_over_brokers_and_racks() -> None:
    racks = {1: "x", 2: "x", 3: "y", 4: "y"}
    plan = make_plan([topic("a", *[[1, 2]] * 8)], [1, 2, 3, 4], racks, Random(5))
    assert set(Counter(row[0] for row in plan.values()).values()) == {2}
    assert all({racks[broker] for broker in row} == {"x", "y"} for row in plan.values())
    with pytest.raises(PlanError):
        make_plan([topic("a", [1, 2])], [1, 2, 3], {1: "x", 2: None, 3: "x"}, Random(5))
    with pytest.raises(KafkaError):
        make_plan([topic("a", [1, 2])], [1], {}, Random(5))


def test_a_topic_that_fits_is_left_where_it_is() -> None:
    assert is_balanced(topic("a", [1, 2], [2, 3], [3, 1]), [1, 2, 3], 2)
    assert not is_balanced(topic("a", [1, 2], [2, 3], [3, 1]), [1, 2, 3], 3), "too few replicas"
    assert not is_balanced(topic("a", [1, 2], [2, 3], [3, 1]), [1, 2], 2), "a broker that it should not lie on"
    assert not is_balanced(topic("a", [1, 2], [1, 2], [1, 2]), [1, 2, 3], 2), "a broker that has nothing of it"
    assert not is_balanced(topic("a", [1, 2], [1, 3], [3, 2]), [1, 2, 3], 2), "a broker that leads too much of it"
    plan = make_plan([topic("a", [1, 2], [1, 2], [1, 2])], [1, 2, 3], {}, Random(5), 3)
    assert is_balanced(topic("a", *plan.values()), [1, 2, 3], 3)
    assert {frozenset(row) for row in plan.values()} == {frozenset({1, 2, 3})}


def test_what_a_plan_copies() -> None:
    a, b, c = (TopicPartition("a", number) for number in range(3))
    now = {a: [1, 2], b: [1, 2], c: [1]}
    sizes = {TopicPartitionReplica(a, 1): 100, TopicPartitionReplica(a, 2): 70}
    assert bytes_to_copy({a: [3, 4], b: [1, 3], c: [1]}, now, sizes) == {a: 200, b: None, c: 0}


ROWS = {TopicPartition("a", number): [1 + number % 3, 1 + (number + 1) % 3] for number in range(12)}


def test_a_new_broker_gets_its_share_and_nothing_else_moves() -> None:
    plan = plan_fill(ROWS, [4], [1, 2, 3, 4], {})
    after = {name: plan.get(name, row) for name, row in ROWS.items()}
    assert Counter(broker for row in after.values() for broker in row)[4] == 6
    assert Counter(row[0] for row in after.values())[4] == 3
    moved = sum(len(set(row) - set(ROWS[name])) for name, row in plan.items())
    assert moved == 6, "no more than the new broker's share"
    assert all(len(set(row)) == 2 for row in after.values())
    assert plan_fill(after, [4], [1, 2, 3, 4], {}) == {}, "a second time nothing is left to do"


def rows_of(replicas: int, **partitions: int) -> dict[TopicPartition, list[int]]:
    """Topics spread over brokers 1 to 3."""
    return {
        TopicPartition(name, number): [1 + (number + place) % 3 for place in range(replicas)]
        for name, count in partitions.items()
        for number in range(count)
    }


def held(rows: Mapping[TopicPartition, list[int]], broker: int, *, is_first: bool) -> Counter[str]:
    return Counter(name.topic for name, row in rows.items() if broker in (row[:1] if is_first else row))


@pytest.mark.parametrize("replicas", [1, 2, 3])
def test_a_new_broker_gets_its_share_of_every_topic(replicas: int) -> None:
    rows = rows_of(replicas, __consumer_offsets=48, __transaction_state=48, clicks=12, orders=8)
    plan = plan_fill(rows, [4], [1, 2, 3, 4], {})
    after = rows | plan
    leads = {"__consumer_offsets": 12, "__transaction_state": 12, "clicks": 3, "orders": 2}
    assert held(after, 4, is_first=True) == leads
    assert held(after, 4, is_first=False) == {name: count * replicas for name, count in leads.items()}
    assert all(len(set(row)) == replicas for row in after.values())
    assert plan == plan_fill(dict(reversed(rows.items())), [4], [4, 3, 2, 1], {}), "the same plan each time"


def test_what_is_left_over_comes_from_topics_of_users() -> None:
    rows = rows_of(1, __consumer_offsets=5, a=1, b=1, c=1)
    plan = plan_fill(rows, [4], [1, 2, 3, 4], {})
    assert [name.topic for name in plan] == ["__consumer_offsets", "a"]
    assert [name.topic for name in plan_fill(rows_of(1, __consumer_offsets=3, a=3), [4], [1, 2, 3, 4], {})] == ["a"]


# ---- other numbers of replicas


def test_more_replicas_are_spread_and_existing_ones_stay() -> None:
    rows = {TopicPartition("a", number): [1] for number in range(6)}
    plan = plan_factor(rows, 3, [1, 2, 3, 4], {})
    assert list(plan) == list(rows)
    assert all(row[0] == 1 and len(set(row)) == 3 for row in plan.values())
    assert Counter(broker for row in plan.values() for broker in row[1:]) == {2: 4, 3: 4, 4: 4}
    assert plan_factor(plan, 3, [1, 2, 3, 4], {}) == {}


def test_more_replicas_go_to_other_racks() -> None:
    racks = {1: "x", 2: "x", 3: "y", 4: "y", 5: "z"}
    assert plan_factor({A0: [1]}, 3, racks, racks) == {A0: [1, 3, 5]}
    crowded = {A0: [1, 2, 3], A1: [5], B0: [5]}
    assert plan_factor(crowded, 4, racks, racks)[A0] == [1, 2, 3, 5], "a rack without any, although broker 4 has less"
    assert plan_factor({A0: [1, 2, 3, 5]}, 5, racks, racks) == {A0: [1, 2, 3, 5, 4]}
    uneven = {1: "x", 2: "x", 3: "y", 4: "x", 5: "y"}
    assert plan_factor({A0: [1, 2, 3]}, 4, uneven, uneven) == {A0: [1, 2, 3, 5]}, "the rack with fewer of them"


def test_fewer_replicas_are_the_first_ones() -> None:
    assert plan_factor({A0: [3, 1, 2], A1: [2], B0: [2, 3]}, 2, [1, 2, 3], {}) == {A0: [3, 1], A1: [2, 1]}


def test_a_dead_replica_is_kept_and_more_replicas_than_brokers_are_refused() -> None:
    assert plan_factor({A0: [9, 1]}, 3, [1, 2, 3], {}) == {A0: [9, 1, 2]}
    with pytest.raises(KafkaError) as caught:
        plan_factor({A0: [1]}, 3, [1, 2], {})
    assert caught.value.message == "Replication factor: 3 larger than available brokers: 2."


def test_a_broker_that_goes_leaves_nothing_behind() -> None:
    plan = plan_drain(ROWS, [3], [1, 2, 3, 4], {})
    after = {name: plan.get(name, row) for name, row in ROWS.items()}
    assert all(3 not in row and len(set(row)) == 2 for row in after.values())
    assert all(name in plan for name, row in ROWS.items() if 3 in row)
    pairs = [pair for name, row in plan.items() for pair in zip(ROWS[name], row, strict=True)]
    assert all(old == new for old, new in pairs if old != 3), "remaining replicas keep their positions"
    counts = Counter(broker for row in after.values() for broker in row)
    assert max(counts.values()) - min(counts.values()) <= 1


def test_racks_are_kept_when_a_broker_goes() -> None:
    racks = {1: "x", 2: "y", 3: "y", 4: "x", 5: "y"}
    assert plan_drain({A0: [1, 3]}, [3], racks, racks) == {A0: [1, 2]}


def test_a_broker_without_a_replacement_cannot_be_drained() -> None:
    with pytest.raises(KafkaError) as caught:
        plan_drain({A0: [1, 2]}, [2], [1, 2], {})
    assert "only 1 broker is left" in str(caught.value.message)
    with pytest.raises(
        KafkaError, match="no broker would be left to hold a-0: leave at least one broker out, or add one"
    ):
        plan_drain({A0: [1, 2]}, [1, 2], [1, 2], {})


def test_plans_begin_where_moves_under_way_will_end() -> None:
    moves = {A0: Reassignment([4, 2, 1], [4], [1]), B0: Reassignment([5, 6], [5], [6])}
    topics = with_target_replicas([topic("a", [4, 2, 1], [1, 2])], moves)
    rows = replicas_of(topics)
    assert rows == {A0: [4, 2], A1: [1, 2]}, "a replica being removed does not count, and b was not requested"
    assert plan_drain(rows, [4], [1, 2, 3, 4], {}) == {A0: [3, 2]}, "as many replicas as it is to have"
    assert plan_factor(rows, 2, [1, 2, 3, 4], {}) == {}, "nothing is to be shortened"
    assert is_balanced(topics[0], [1, 2, 4], 2)


# ---- throttles and progress


def test_throttled_brokers_and_replicas() -> None:
    found = throttle_settings({}, {A0: [2, 3], A1: [1]}, {A0: [1, 2], A1: [1, 2]})
    assert found == Throttles([1, 2, 3], {"a": "0:1,0:2,1:1,1:2"}, {"a": "0:3"})


def test_moves_under_way_are_slowed_down_with_the_others() -> None:
    under_way = {B0: Reassignment([3, 1], [3], [])}
    found = throttle_settings(under_way, {A0: [2]}, {A0: [1]})
    assert found == Throttles([1, 2, 3], {"a": "0:1", "b": "0:1"}, {"a": "0:2", "b": "0:3"})
    again = throttle_settings(under_way, {B0: [3, 1]}, {B0: [3, 1]})
    assert again.followers == {"b": "0:3"}, "what it copies to is still no source"


def test_how_far_moves_are() -> None:
    moves = {A0: Reassignment([2, 3, 1], [2, 3], [1]), A1: Reassignment([1], [], [])}
    sizes = {TopicPartitionReplica(A0, 1): 100, TopicPartitionReplica(A0, 2): 50, TopicPartitionReplica(A0, 3): 120}
    found = move_progress(moves, sizes)
    assert found == {A0: MoveProgress(200, 150), A1: MoveProgress(0, 0)}
    assert (found[A0].share, found[A1].share) == (0.75, 1.0)
    assert bar(0.75).endswith("]  75 %")


def test_states_of_a_plan() -> None:
    plan = Plan({A0: [1], A1: [2], B0: [3]}, {})
    states = progress(plan, {A1: Reassignment([2, 1], [2], [1])}, {A0: [1], A1: [2, 1]})
    assert states == {A0: ReassignmentState.DONE, A1: ReassignmentState.UNDER_WAY, B0: ReassignmentState.NOT_ASKED}
    assert partition_line(B0, ReassignmentState.NOT_ASKED, [1, 2], [3]) == (
        "There is no active reassignment of partition b-0, but replica set is 1,2 rather than 3."
    )


def test_lines_about_moves_and_folders() -> None:
    assert move_line(A0, Reassignment([3, 2, 1], [3, 2], [1])) == "a-0: replicas: 3,2,1. adding: 2,3. removing: 1."
    replica = TopicPartitionReplica(A0, 1)
    lines = {
        LogDirState("/x", None): "Partition a-0 on broker 1 is not being moved from log dir /x to /y.",
        LogDirState("/y", None): "Reassignment of replica a-0-1 completed successfully.",
        LogDirState("/x", "/y"): "Reassignment of replica a-0-1 is still in progress.",
        LogDirState("/x", "/z"): "Partition a-0 on broker 1 is being moved to log dir /z instead of /y.",
        LogDirState(None, None): (
            "Partition a-0 is not found in any live log dir on broker 1. There is likely an offline log directory on "
            "the broker."
        ),
    }
    assert {state: folder_line(replica, state, "/y") for state in lines} == lines
    assert [is_moving(state) for state in lines] == [False, False, True, True, True]
