"""A line that would repeat all the time is written once in a while."""

from ottla.base.log_limiter import LogLimiter


def test_the_first_is_written_and_the_next_after_a_pause() -> None:
    log_limiter = LogLimiter(10)
    assert [log_limiter.is_due(now) for now in (0, 1, 9.9, 10, 11, 20, 35)] == [
        True,
        False,
        False,
        True,
        False,
        True,
        True,
    ]


def test_each_subject_has_a_time_of_its_own() -> None:
    log_limiter = LogLimiter(10)
    assert log_limiter.is_due(5, "a")
    assert log_limiter.is_due(6, "b")
    assert not log_limiter.is_due(7, "a")
    assert log_limiter.is_due(15, "a")
    assert not log_limiter.is_due(15, "b")
