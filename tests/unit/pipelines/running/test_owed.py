"""Work after a batch is retried until it is done, or given up with a reason, with a simulated clock."""

from __future__ import annotations

from ottla.pipelines.running.owed import PATIENCE_S, PAUSE_S, PAUSE_S_MAX, Owed


def test_it_is_tried_again_with_longer_and_longer_pauses_and_without_end() -> None:
    owed = Owed()
    assert not owed.is_due(0.0)
    owed.add()
    assert owed.is_due(0.0)
    now_s, pauses = 0.0, []
    for _ in range(20):
        owed.fail(now_s, "away")
        before_s = now_s
        while not owed.is_due(now_s):
            now_s += PAUSE_S / 2
        pauses.append(now_s - before_s)
    assert pauses[:3] == [PAUSE_S, 2 * PAUSE_S, 4 * PAUSE_S]
    assert max(pauses) == PAUSE_S_MAX
    assert owed.problem == "away"
    owed.settle()
    assert (owed.problem, owed.is_due(now_s)) == ("", False)
    owed.add()
    assert owed.is_due(now_s)


def test_a_query_that_has_ended_is_waited_for_as_long_as_patience_lasts() -> None:
    owed = Owed(is_owed=True)
    owed.end(100.0, is_hurried=False)
    owed.fail(100.0, "away")
    owed.end(130.0, is_hurried=False)  # passed with every poll
    assert owed.is_waited_for(100.0 + PATIENCE_S - 0.1)
    assert not owed.is_waited_for(100.0 + PATIENCE_S)
    owed.settle()
    assert not owed.is_waited_for(100.0)


def test_a_stopped_query_gets_one_immediate_attempt() -> None:
    owed = Owed(is_owed=True)
    owed.fail(100.0, "away")
    owed.end(100.1, is_hurried=True)
    assert owed.is_waited_for(100.1)
    assert owed.is_due(100.1)
    owed.fail(100.2, "away")
    assert not owed.is_waited_for(100.2)
