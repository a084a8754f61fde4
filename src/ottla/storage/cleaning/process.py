"""The cleaner process: `python -m ottla.storage.cleaning.process`, started by the broker on demand.

It runs with low priority, for large jobs with SCHED_IDLE. It takes one job at a time from standard input, and ends
after an idle period or when the broker ends. Its failure never affects logs: only the broker moves cleaned segments
into place.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import select
import signal
import sys
import time
from typing import Final

from ottla.base.errors import Error, KafkaError
from ottla.storage.cleaning.cleaner import CleanerRun
from ottla.storage.cleaning.job import (
    CORRUPT,
    DISK,
    FILES_MISSING,
    POLICY_FAILED,
    STARVED,
    CleanedGroup,
    CleanFailure,
    CleanJob,
    CleanReport,
    decode_job,
    encode_reply,
)
from ottla.storage.cleaning.policies import PolicyError, load_policies

IDLE_SECONDS_MAX: Final = 30.0
NICENESS: Final = 15
CHECK_BYTES: Final = 1 << 20
PROGRESS_SECONDS: Final = 1.0
SLEEP_SECONDS_MAX: Final = 0.2
STARVATION_CHECK_SECONDS: Final = 10.0
PROCESSOR_SHARE_MIN: Final = 0.1
PR_SET_PDEATHSIG: Final = 1


class CancelledError(Exception):
    """The broker has ended, or has cancelled the job."""


class StarvedError(Exception):
    """The process gets too little CPU time: the broker must start one with a higher priority."""


class ProcessThrottle:
    """Limits the rate of bytes, reports progress, and detects that the broker has ended.

    A process with SCHED_IDLE ends if it gets no CPU time for too long.
    """

    def __init__(
        self, input_descriptor: int, output_descriptor: int, bytes_per_second: float, uses_sched_idle: bool = False
    ) -> None:
        self._input = input_descriptor
        self._output = output_descriptor
        self._bytes_per_second = max(bytes_per_second, 1.0)
        self._started = self._reported = time.monotonic()
        self._bytes = 0
        self._unchecked = 0
        self._uses_sched_idle = uses_sched_idle
        self._checked_at = self._started  # time of the last check of the CPU time
        self._busy_seconds = time.process_time()
        self._asleep_seconds = 0.0
        # A low rate needs more frequent checks.
        self._check_bytes = min(CHECK_BYTES, self._bytes_per_second * SLEEP_SECONDS_MAX)

    def add(self, count: int) -> None:
        self._unchecked += count + 64  # a minimum for every batch, so that every loop is checked
        if self._unchecked >= self._check_bytes:
            self._unchecked = 0
            self._check()
        self._bytes += count

    def _check(self) -> None:
        while True:
            if has_input(self._input, 0):
                raise CancelledError
            now = time.monotonic()
            if now - self._reported >= PROGRESS_SECONDS:
                self._reported = now
                os.write(self._output, encode_reply(self._bytes))
            if self._uses_sched_idle and now - self._checked_at >= STARVATION_CHECK_SECONDS:
                self._require_processor_time(now)
            ahead = self._bytes / self._bytes_per_second - (now - self._started)
            if ahead <= 0.001:
                return
            time.sleep(min(ahead, SLEEP_SECONDS_MAX))
            self._asleep_seconds += min(ahead, SLEEP_SECONDS_MAX)

    def _require_processor_time(self, now: float) -> None:
        busy_seconds = time.process_time()
        share = (busy_seconds - self._busy_seconds) / max(now - self._checked_at - self._asleep_seconds, 0.001)
        if share < PROCESSOR_SHARE_MIN and self._asleep_seconds < STARVATION_CHECK_SECONDS / 2:
            raise StarvedError
        self._checked_at = now
        self._busy_seconds = busy_seconds
        self._asleep_seconds = 0.0


def main() -> int:
    set_parent_death_signal()
    os.nice(NICENESS)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the broker, which ends this process itself
    output = os.dup(1)
    os.dup2(2, 1)  # output of a custom policy must not mix with the replies
    with contextlib.suppress(CancelledError, BrokenPipeError):
        serve(0, output)
    return 0


def serve(input_descriptor: int, output_descriptor: int) -> None:
    received = bytearray()
    while True:
        if not has_input(input_descriptor, IDLE_SECONDS_MAX):
            return
        chunk = os.read(input_descriptor, 1 << 16)
        if not chunk:
            return
        received += chunk
        if received.endswith(b"\n"):
            job = decode_job(bytes(received))
            received.clear()
            reply = run_job(job, input_descriptor, output_descriptor)
            write_all(output_descriptor, encode_reply(reply))


def run_job(job: CleanJob, input_descriptor: int, output_descriptor: int) -> CleanReport | CleanFailure:
    pacer = ProcessThrottle(input_descriptor, output_descriptor, job.bytes_per_second, job.uses_sched_idle)
    if job.uses_sched_idle and hasattr(os, "SCHED_IDLE"):
        os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))

    def report(group: CleanedGroup) -> None:
        write_all(output_descriptor, encode_reply(group))

    try:
        return CleanerRun(job, load_policies(job), pacer.add).run(report)
    except StarvedError:
        return CleanFailure(kind=STARVED, message="the machine is too busy")
    except PolicyError as failed_policy:
        return CleanFailure(kind=POLICY_FAILED, message=str(failed_policy))
    except FileNotFoundError as missing:
        return CleanFailure(kind=FILES_MISSING, message=str(missing))
    except OSError as failed_disk:
        return CleanFailure(kind=DISK, message=str(failed_disk))
    except KafkaError as bad_log:
        kind = DISK if bad_log.error == Error.KAFKA_STORAGE_ERROR else CORRUPT
        return CleanFailure(kind=kind, message=str(bad_log))


def write_all(descriptor: int, data: bytes) -> None:
    while data:
        data = data[os.write(descriptor, data) :]


def set_parent_death_signal() -> None:
    """Make the kernel kill this process when the broker ends (Linux only)."""
    if sys.platform == "linux":
        with contextlib.suppress(OSError, AttributeError):
            ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def has_input(descriptor: int, seconds: float) -> bool:
    """Return whether input or its end is available. poll() supports descriptors above 1,023, select() does not."""
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    return bool(poll.poll(seconds * 1000))


if __name__ == "__main__":
    sys.exit(main())
