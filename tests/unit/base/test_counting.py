"""Numbers of things in sentences."""

import logging

import pytest

from ottla.base.counting import counted
from ottla.base.names import TopicPartition
from ottla.cli.cluster.moving import _tell
from ottla.controller.cluster.healing import tell_tidied
from ottla.controller.decisions.healing.journal import Journal
from ottla.controller.decisions.healing.steps import Tidied
from ottla.controller.decisions.journals import HealMove
from ottla.operations.reassignment.carrying import Outcome
from ottla.operations.reassignment.journal import Journal as MoveJournal

A0 = TopicPartition("a", 0)


def test_one_is_one() -> None:
    assert counted(1, "move") == "1 move"
    assert counted(0, "move") == "0 moves"
    assert counted(1, "move", "has") == "1 move has"
    assert counted(2, "partition", "is") == "2 partitions are"


def test_healing_tells_of_one_move(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    move = HealMove(A0, (1,), (2,))
    tell_tidied(Tidied(Journal(), (move,), (move,)))
    assert "healing: 1 move has ended, a-0 from 1 to 2" in caplog.text
    assert "healing: 1 move is cancelled, a-0 from 1 to 2" in caplog.text


def test_commands_tell_of_one_partition(capsys: pytest.CaptureFixture[str]) -> None:
    journal = MoveJournal("add 2", "id", 5, {A0: [1]}, {A0: [2]}, None, 5)
    assert _tell(journal, Outcome(0, 0, {}, [A0], [])) == 1
    told = capsys.readouterr()
    assert "1 partition is not where it should be, somebody has ended that: a-0" in told.err
    assert told.out == "0 of 1 partition is where it should be.\n"
