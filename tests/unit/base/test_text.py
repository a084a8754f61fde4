"""Columns that stay under one another whatever is written in them."""

from __future__ import annotations

import logging

import pytest

from ottla.base.names import TopicPartition
from ottla.base.text import column_widths, format_count, pad, row_text, truncate, width_of
from ottla.cli.cluster.replica_moves import _print_outcome
from ottla.controller.self_balancing.heal_state import HealJournal
from ottla.controller.self_balancing.healer import log_cleanup
from ottla.controller.self_balancing.journals import ReplicaMove
from ottla.controller.self_balancing.move_steps import CleanupResult
from ottla.operations.reassignment.journal import Journal as MoveJournal
from ottla.operations.reassignment.move_command import Outcome


@pytest.mark.parametrize(
    ("text", "width"), [("", 0), ("abc", 3), ("ä…", 2), ("机", 2), ("🎉x", 3), ("e\u0301", 1), ("ﾊ", 1)]
)
def test_widths(text: str, width: int) -> None:
    assert width_of(text) == width
    assert pad(text, 5) == text + " " * (5 - width)


def test_rows_stand_under_one_another() -> None:
    table = [["机机机", "a"], ["chair", "bb"], ["", "b"]]
    assert column_widths(table) == [6, 2]
    rows = [row_text(cells, [6, 2]) for cells in (["机机机", "a"], ["chair", "b"])]
    assert rows == ["机机机  a", "chair   b"]


def test_what_does_not_fit_is_cut_at_a_character() -> None:
    assert truncate("机机机", 6) == "机机机"
    assert truncate("机机机", 5) == "机机…"
    assert truncate("机机机", 4) == "机…"
    assert truncate("abcd", 3) == "ab…"


A0 = TopicPartition("a", 0)


def test_one_is_one() -> None:
    assert format_count(1, "move") == "1 move"
    assert format_count(0, "move") == "0 moves"
    assert format_count(1, "move", "has") == "1 move has"
    assert format_count(2, "partition", "is") == "2 partitions are"


def test_healing_reports_one_move(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    move = ReplicaMove(A0, (1,), (2,))
    log_cleanup(CleanupResult(HealJournal(), (move,), (move,)))
    assert "healing: 1 move has ended, a-0 from 1 to 2" in caplog.text
    assert "healing: 1 move is cancelled, a-0 from 1 to 2" in caplog.text


def test_commands_name_one_partition(capsys: pytest.CaptureFixture[str]) -> None:
    journal = MoveJournal("add 2", "id", 5, {A0: [1]}, {A0: [2]}, None, 5)
    assert _print_outcome(journal, Outcome(0, 0, {}, [A0], [])) == 1
    told = capsys.readouterr()
    assert "1 partition is not where it should be, because another client cancelled the moves: a-0" in told.err
    assert told.out == "0 of 1 partition is where it should be.\n"
