"""What a query waits for, with a simulated clock."""

from __future__ import annotations

from datetime import UTC, datetime

from ottla.pipelines.running.waiting import Waiting

OFFSETS, READING, IDLE = "Getting offsets from source@1", "Processing new data", "Waiting for data to arrive"


def test_a_broker_is_away_when_spark_waits_for_it_and_it_takes_no_connection() -> None:
    asked: list[bool] = []
    answers = [False, False, True]

    def is_reachable() -> bool:
        asked.append(True)
        return answers.pop(0)

    waiting = Waiting(is_reachable)
    assert waiting.look(OFFSETS, 3, 10.0) == ""
    assert waiting.look(OFFSETS, 3, 11.9) == ""
    assert not asked
    assert waiting.look(OFFSETS, 3, 12.0) == "broker away for 2 s"
    assert waiting.look(OFFSETS, 3, 13.0) == "broker away for 3 s"
    assert len(asked) == 1
    assert waiting.look(OFFSETS, 3, 14.0) == "broker away for 4 s"
    assert waiting.look(OFFSETS, 3, 16.0) == ""  # it is back
    assert waiting.look(IDLE, 3, 16.1) == ""


def test_a_large_batch_is_no_broker_that_is_away() -> None:
    waiting = Waiting(lambda: True)
    assert [waiting.look(READING, 3, float(second)) for second in range(100)] == [""] * 100


def test_it_is_away_since_it_was_last_seen() -> None:
    answers = [True, True, False, False, True]
    waiting = Waiting(lambda: answers.pop(0))
    assert [waiting.look(READING, 3, second) for second in (0.0, 2.0, 4.0)] == ["", "", ""]
    assert waiting.look(READING, 3, 6.0) == "broker away for 2 s"
    assert waiting.away_since_s == 4.0
    assert waiting.look(OFFSETS, 4, 7.0) == "broker away for 3 s"  # all records had been read before it went away
    assert waiting.look(OFFSETS, 4, 8.0) == "broker away for 4 s"
    assert waiting.look(OFFSETS, 4, 10.0) == ""
    assert waiting.away_since_s is None


def test_loss_and_return_of_the_broker_are_reported_once() -> None:
    answers = [False, False, True]
    waiting = Waiting(lambda: answers.pop(0))
    noon = datetime(2026, 1, 31, 12, tzinfo=UTC)
    told = [waiting.news(READING, 3, second, noon) for second in (0.0, 1.0, 3.0, 4.0, 5.0, 7.0, 8.0)]
    assert told == ["", "", "broker away since 11:59:57 UTC, waiting", "", "", "broker back after 7 s", ""]


def test_before_the_first_batch_it_waits_for_spark() -> None:
    waiting = Waiting(lambda: True)
    assert waiting.look("Initializing sources", 0, 0.0) == "waiting for Spark"
    assert waiting.look(READING, 0, 1.0) == "waiting for Spark"
    assert waiting.look(IDLE, 0, 2.0) == ""
    assert waiting.look(READING, 1, 3.0) == ""
