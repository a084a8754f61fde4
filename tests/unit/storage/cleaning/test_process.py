"""The cleaner process: jobs in, replies out, rate limit, and its end."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.unit.storage.clean_stand import NOW_MS, contents, job_for, new_log, put, put_in_place

from ottla.storage.cleaning.job import (
    CORRUPT,
    FILES_MISSING,
    POLICY_FAILED,
    CleanedGroup,
    CleanFailure,
    CleanReport,
    decode_reply,
)
from ottla.storage.cleaning.process import CancelledError, ProcessThrottle, StarvedError, run_job, serve
from ottla.storage.log import Log


class Pipes:
    """Both ends of the cleaner's input and output."""

    def __init__(self) -> None:
        self.input, self.sends = os.pipe()
        self.receives, self.output = os.pipe()
        os.set_blocking(self.receives, False)

    def replies(self) -> list[int | CleanedGroup | CleanReport | CleanFailure]:
        return [decode_reply(line) for line in os.read(self.receives, 1 << 16).splitlines()]

    def close(self) -> None:
        for descriptor in (self.input, self.sends, self.receives, self.output):
            try:
                os.close(descriptor)
            except OSError:
                continue


@pytest.fixture
def pipes() -> Iterator[Pipes]:
    made = Pipes()
    yield made
    made.close()


@pytest.fixture
def log(tmp_path: Path) -> Log:
    log = new_log(tmp_path / "log")
    for number in range(10):
        put(log, (b"%d" % (number % 2), b"%d" % number))
    log.roll(NOW_MS)
    return log


def test_a_job_is_done_and_the_process_ends_with_its_input(pipes: Pipes, log: Log) -> None:
    os.write(pipes.sends, job_for(log).encode())
    os.close(pipes.sends)
    serve(pipes.input, pipes.output)

    group, report = pipes.replies()
    assert isinstance(group, CleanedGroup)
    assert isinstance(report, CleanReport)
    assert report.records_kept == 2
    put_in_place(log, [group])
    assert contents(log) == [(8, b"0", b"8"), (9, b"1", b"9")]


def test_a_damaged_log_is_a_failure_that_names_the_place(pipes: Pipes, log: Log) -> None:
    path = Path(log.directory) / f"{0:020d}.log"
    path.write_bytes(path.read_bytes()[:-1] + b"?")

    failure = run_job(job_for(log), pipes.input, pipes.output)

    assert isinstance(failure, CleanFailure)
    assert failure.kind == CORRUPT
    assert str(path) in failure.message


def test_missing_files_are_distinguished_from_damage(pipes: Pipes, log: Log) -> None:
    job = job_for(log)
    log.segments[0].rename_to_deleted()

    failure = run_job(job, pipes.input, pipes.output)

    assert isinstance(failure, CleanFailure)
    assert failure.kind == FILES_MISSING


def test_an_unknown_policy_is_named(pipes: Pipes, log: Log) -> None:
    failure = run_job(job_for(log, policies=["no-such-policy"]), pipes.input, pipes.output)

    assert failure == CleanFailure(
        kind=POLICY_FAILED, message="no installed package offers the clean-up policy no-such-policy"
    )


def test_the_work_ends_when_the_broker_is_gone(pipes: Pipes, log: Log) -> None:
    os.close(pipes.sends)

    with pytest.raises(CancelledError):
        run_job(job_for(log, bytes_per_second=1.0), pipes.input, pipes.output)


class FakeTime:
    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.now = 0.0
        patch.setattr(time, "monotonic", lambda: self.now)
        patch.setattr(time, "sleep", self.sleep)

    def sleep(self, seconds: float) -> None:
        self.now += seconds


@pytest.mark.parametrize("rate", [1_000, 1_000_000, 100_000_000])
def test_no_more_bytes_a_second_are_read_and_written_than_allowed(
    pipes: Pipes, monkeypatch: pytest.MonkeyPatch, rate: int
) -> None:
    clock = FakeTime(monkeypatch)
    pacer = ProcessThrottle(pipes.input, pipes.output, rate)
    total = 0
    while total < rate * 5:
        pacer.add(rate // 50)
        total += rate // 50

    assert clock.now == pytest.approx(5.0, abs=0.3)
    assert pipes.replies()[0] == pytest.approx(rate, rel=0.3)


def test_without_a_limit_there_is_no_wait(pipes: Pipes, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = FakeTime(monkeypatch)
    pacer = ProcessThrottle(pipes.input, pipes.output, 1.7976931348623157e308)
    for _ in range(1000):
        pacer.add(1 << 20)

    assert clock.now == 0.0


@pytest.mark.parametrize(("share", "is_starved"), [(0.05, True), (0.5, False)])
def test_a_sched_idle_process_gives_up_when_it_gets_no_cpu_time(
    pipes: Pipes, monkeypatch: pytest.MonkeyPatch, share: float, is_starved: bool
) -> None:
    clock = FakeTime(monkeypatch)
    monkeypatch.setattr(time, "process_time", lambda: clock.now * share)

    def work(is_patient: bool) -> None:
        pacer = ProcessThrottle(pipes.input, pipes.output, 1e12, is_patient)
        for _ in range(30):
            clock.now += 1.0
            pacer.add(1 << 20)

    work(is_patient=False)
    if is_starved:
        with pytest.raises(StarvedError):
            work(is_patient=True)
    else:
        work(is_patient=True)


def test_a_process_that_is_slowed_down_on_purpose_is_not_starved(pipes: Pipes, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = FakeTime(monkeypatch)
    monkeypatch.setattr(time, "process_time", lambda: clock.now * 0.001)
    pacer = ProcessThrottle(pipes.input, pipes.output, 1000.0, uses_sched_idle=True)
    for _ in range(100):
        pacer.add(1000)

    assert clock.now > 50
