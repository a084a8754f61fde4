"""Decisions that are written in pieces."""

from __future__ import annotations

from ottla.coordination.machine import PIECE_RECORDS, Record, Reply, in_pieces


def test_many_records_are_several_decisions_and_the_last_one_answers() -> None:
    records = [Record(b"%d" % number, None) for number in range(2 * PIECE_RECORDS + 1)]
    decisions = in_pieces(records, [Reply("somebody", "done")])
    assert [len(decision.records) for decision in decisions] == [PIECE_RECORDS, PIECE_RECORDS, 1]
    assert [record for decision in decisions for record in decision.records] == records
    assert [decision.replies for decision in decisions] == [[], [], [Reply("somebody", "done")]]


def test_an_answer_without_records_is_given_all_the_same() -> None:
    assert [decision.replies for decision in in_pieces([], [Reply("somebody", "no")])] == [[Reply("somebody", "no")]]
