"""What can only be a mistake of ours is noticed before it counts."""

from __future__ import annotations

from pathlib import Path

import pytest

from ottla.base.errors import Error
from ottla.replication.leading import Leading, Offsets
from ottla.replication.role import Role
from unit.replication.stand import TOPIC_ID, Stand

ROLE = Role(1, 5, (1, 2), (1, 2, 3), partition_epoch=7)


def leading() -> Leading:
    return Leading(1, ROLE, 0, 10_000, 0)


def test_nobody_has_more_than_its_leader() -> None:
    led = leading()
    with pytest.raises(AssertionError, match="has 11 of 10"):
        led.note_fetch(led.followers[2], -1, 11, 0, 10, 0)


def test_a_replica_that_is_none_is_not_noted() -> None:
    led = leading()
    stranger = leading().followers[2]
    with pytest.raises(AssertionError, match="is none of"):
        led.note_fetch(stranger, -1, 5, 0, 10, 0)


def test_a_leader_never_proposes_to_do_without_itself() -> None:
    led = Leading(9, ROLE, 0, 10_000, 0)
    with pytest.raises(AssertionError, match="leaves itself out"):
        led.propose(TOPIC_ID, "t", 0, -1, Offsets(10, 0), 20_000)
    assert led.pending is None


def test_an_older_state_of_the_partition_is_not_taken() -> None:
    led = leading()
    led.note_fetch(led.followers[3], -1, 10, 0, 10, 0)
    proposal = led.propose(TOPIC_ID, "t", 0, -1, Offsets(10, 0), 0)
    assert proposal is not None
    assert not led.take_answer(proposal, Error.NONE, 5, (1, 2, 3), 6)
    assert led.isr == (1, 2)
    assert led.maximal_isr == {1, 2, 3}


def test_nothing_is_committed_that_is_not_there(tmp_path: Path) -> None:
    stand = Stand(tmp_path, 2)
    partition = stand.elect(1)
    stand.append(1, b"a")
    with pytest.raises(AssertionError, match="cannot have committed 2, it ends at 1"):
        partition._set_high_watermark(2)
    assert partition.high_watermark == 0
    partition.high_watermark = 2
    with pytest.raises(AssertionError, match="has committed more than it has"):
        partition.read(0, 1000, True, False)
    stand.close()
