"""Journals of commands that move replicas, their next moves, and traffic from two samples."""

from pathlib import Path

import pytest

from ottla.base.names import TopicPartition
from ottla.client.reassignments import Reassignment
from ottla.operations.metric_readings import Reading, Sample
from ottla.operations.reassignment.cluster_model import BYTES_OUT, ClusterSample, bytes_in, bytes_out
from ottla.operations.reassignment.executor import MoveTask, StuckMoves, next_moves, next_round, seconds_to_copy
from ottla.operations.reassignment.journal import Journal, JournalError, journal_path, read_journal, write_journal

A0, A1, A2, B0 = TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("a", 2), TopicPartition("b", 0)
JOURNAL = Journal(
    "add 4", "id", 5, {A0: [1, 2], B0: [1]}, {A0: [4, 2], B0: [4]}, 1000, 5, (B0,), (1, 4), is_ended=False
)


# ---- the journal


def test_a_journal_is_read_as_it_was_written(tmp_path: Path) -> None:
    path = journal_path(tmp_path, "../x/é")
    assert path.parent == tmp_path, "a cluster's id leads nowhere else"
    assert read_journal(path) is None
    write_journal(path, JOURNAL)
    assert read_journal(path) == JOURNAL
    write_journal(path, JOURNAL._replace(throttle=None, is_ended=True, is_rollback=True))
    found = read_journal(path)
    assert found is not None
    assert (found.throttle, found.is_ended, found.command_text) == (None, True, "ottla cluster add 4 --rollback")
    assert [file.name for file in tmp_path.iterdir()] == [path.name], "nothing else is left"


@pytest.mark.parametrize(
    "text", ["", "5", "{}", '{"version": 2}', '{"version": 1, "partitions": [5]}', '{"version": 1}']
)
def test_a_damaged_journal_is_named(tmp_path: Path, text: str) -> None:
    path = tmp_path / "id.json"
    path.write_text(text)
    with pytest.raises(JournalError, match="move it away to start over") as caught:
        read_journal(path)
    assert str(path) in str(caught.value)


def test_the_way_back_names_what_is_not_as_it_was() -> None:
    back = JOURNAL.rollback({A0: [4, 2], B0: [1]}, 9)
    assert (back.before, back.after) == ({A0: [4, 2]}, {A0: [1, 2]})
    assert (back.is_rollback, back.started_ms) == (True, 9)
    assert JOURNAL.rollback({B0: [4]}, 9).after == {B0: [1]}, "a is deleted by now"


# ---- what is begun next


def test_no_broker_makes_or_serves_more_than_so_many_copies() -> None:
    now = {A0: [1, 2], A1: [1, 2], A2: [2, 1], B0: [3, 1]}
    wanted = {A0: [1, 4], A1: [1, 4], A2: [2, 3], B0: [1, 3]}
    assert set(next_moves(wanted, (), {}, now, 1)) == {A0, A2, B0}, "4 makes one copy, and 1 serves one"
    assert set(next_moves(wanted, (A1,), {}, now, 1)) == {A1, A2, B0}, "what is urgent comes first"
    assert set(next_moves(wanted, (), {}, now, 2)) == set(wanted)
    moves = {TopicPartition("c", 0): Reassignment([1, 2, 4], [4], [2])}
    assert set(next_moves(wanted, (), moves, now, 1)) == {A2, B0}, "1 and 4 are busy"


def test_moves_without_copies_do_not_wait() -> None:
    now = {A0: [1, 2], A1: [1, 2], B0: [1]}
    assert next_moves({A0: [2, 1], A1: [2, 1]}, (), {}, now, 1) == {A0: [2, 1], A1: [2, 1]}, "only another order"
    busy = {TopicPartition("c", 0): Reassignment([1, 2, 4], [4], [2])}
    assert next_moves({A0: [2, 1], B0: [4]}, (), busy, now, 1) == {A0: [2, 1]}


def test_all_moves_of_a_large_plan_start_in_the_end_a_few_at_a_time() -> None:
    now = {TopicPartition("a", number): [1 + number % 3, 1 + (number + 1) % 3] for number in range(30)}
    task = MoveTask({name: [4, row[1]] for name, row in now.items()}, at_once=2)
    done: set[TopicPartition] = set()
    while True:
        found = next_round(task, done, {}, now)
        if found.is_last:
            break
        assert len(found.started) == 2, "broker 4 takes two at a time"
        done |= found.started.keys()
        now |= found.started
    assert (done, now) == (set(task.after), dict(task.after))


def test_a_move_to_other_replicas_is_corrected_once() -> None:
    task, astray = MoveTask({A0: [4, 2]}), {A0: Reassignment([1, 2, 3], [3], [1])}
    assert next_round(task, (), astray, {A0: [1, 2]}).started == {A0: [4, 2]}
    asked = next_round(task, {A0}, astray, {A0: [1, 2]})
    assert (asked.started, asked.is_last) == ({}, False), "another client has changed it since"
    assert next_round(task, (), {A0: Reassignment([1, 2, 4], [4], [1])}, {A0: [1, 2]}).waiting == 0


def test_an_oversized_move_starts_when_nothing_else_moves() -> None:
    wanted, now = {A0: [1, 2, 3]}, {A0: [1]}
    assert next_moves(wanted, (), {}, now, 1) == wanted
    assert next_moves(wanted, (), {B0: Reassignment([4, 5], [5], [])}, now, 1) == {}


def test_the_time_is_that_of_the_busiest_broker() -> None:
    now = {A0: [1, 2], A1: [1, 2], B0: [2, 1]}
    wanted = {A0: [1, 4], A1: [1, 4], B0: [1, 2]}
    assert seconds_to_copy(wanted, now, {A0: 1000, A1: 3000, B0: 9000}, 100) == 40.0
    assert seconds_to_copy(wanted, now, {A0: 1000}, None) is None


# ---- traffic


def test_what_is_written_follows_from_the_offsets() -> None:
    before = ClusterSample(10.0, {A0: 1000, A1: 1000, B0: 0}, {A0: 0, A1: 0, B0: 0}, {A0: 100, A1: 100, B0: 0})
    now = ClusterSample(
        20.0, {A0: 2000, A1: 600, A2: 5, B0: 0}, {A0: 0, A1: 140, A2: 0, B0: 0}, {A0: 200, A1: 200, A2: 9, B0: 0}
    )
    assert bytes_in(before, now) == {A0: 100.0, A1: 100.0, B0: 0.0}, "A1 has lost a segment meanwhile; A2 is new"


def test_what_is_read_is_shared_out_among_the_partitions_of_a_leader() -> None:
    def reading(taken_s: float, value: float) -> Reading:
        return Reading({BYTES_OUT: [Sample({"topic": "a"}, value), Sample({}, 9e9)]}, taken_s)

    readings = {1: (reading(10.0, 500.0), reading(20.0, 4500.0))}
    leaders = {A0: 1, A1: 1, A2: 2, B0: 1}
    found = bytes_out(leaders, {A0: 300.0, A1: 100.0}, readings)
    assert found == {A0: 300.0, A1: 100.0, B0: 0.0}, "the leader of A2 was not read, so its rate is unknown"


def test_a_move_without_a_leader_is_reported_once_and_after_a_while() -> None:
    stuck = StuckMoves()
    assert stuck.update([A0, A1], 0) == [], "a leader change alone is not reported"
    assert stuck.update([A0], 5_000) == []
    assert stuck.update([A0, A1], 10_000) == [A0], "A1 had one in between"
    assert stuck.update([A0, A1], 19_999) == []
    assert stuck.update([A0, A1], 20_000) == [A1]
    assert stuck.update([A0, A1], 90_000) == []
