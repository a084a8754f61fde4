"""The cleaner on a disk that is full: fewer and fewer tries, one message."""

from ottla.broker.logs.cleaner_backoff import WAIT_MS_MAX, CleanerBackoff


def test_each_failure_in_a_row_doubles_the_wait_up_to_a_minute() -> None:
    backoff = CleanerBackoff()
    now_ms = 5_000
    waits = []
    for _ in range(9):
        backoff.note_failure("/a", now_ms)
        started = now_ms
        while not backoff.may_try("/a", now_ms):
            now_ms += 500
        waits.append(now_ms - started)
    assert waits[:4] == [1_000, 2_000, 4_000, 8_000]
    assert waits[-1] == WAIT_MS_MAX


def test_only_the_first_failure_is_told_until_a_success() -> None:
    backoff = CleanerBackoff()
    assert backoff.note_failure("/a", 0)
    assert not backoff.note_failure("/a", 2_000)
    backoff.note_success("/a")
    assert backoff.may_try("/a", 0)
    assert backoff.note_failure("/a", 3_000)


def test_another_folder_goes_on() -> None:
    backoff = CleanerBackoff()
    backoff.note_failure("/a", 0)
    assert backoff.may_try("/b", 0)
