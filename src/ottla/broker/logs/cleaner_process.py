"""The process that cleans logs, as the broker sees it: started with a job, gone when it is not needed.

Rule: the loop never waits for it. Jobs are written by a worker thread, replies come in when they are there.
"""

from __future__ import annotations

import asyncio
import logging
import os
import subprocess
import sys
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from typing import Final

from ottla.storage.cleaning.job import CleanedGroup, CleanFailure, CleanJob, CleanReport, decode_reply

logger = logging.getLogger(__name__)

COMMAND: Final = (sys.executable, "-m", "ottla.storage.cleaning.process")
READ_BYTES: Final = 1 << 16
STALLED_SECONDS_MAX: Final = 120.0  # a process that makes no progress tells so at least every second
ENDED: Final = b""


class CleanerDiedError(Exception):
    """The process ended, or had to be ended, before it was done."""

    def __init__(self, message: str, *, is_our_doing: bool = False, is_stalled: bool = False) -> None:
        super().__init__(message)
        self.is_our_doing = is_our_doing
        self.is_stalled = is_stalled  # it would never have ended


class CleanerProcess:
    """One process at a time, for one job at a time."""

    def __init__(self, workers: ThreadPoolExecutor) -> None:
        self._workers = workers
        self._process: subprocess.Popen[bytes] | None = None
        self._lines: asyncio.Queue[bytes] = asyncio.Queue()
        self._received = bytearray()
        self._is_killed = False
        self._is_patient = False  # the process has given up its share of the processor

    @property
    def pid(self) -> int:
        return self._process.pid if self._process is not None else -1

    async def run(self, job: CleanJob) -> AsyncIterator[CleanedGroup | CleanReport | CleanFailure]:
        """Everything that is done, piece by piece; the report or the failure comes last. CleanerDiedError instead."""
        await self._ensure_started(job)
        self._is_patient = job.is_patient
        await self._send(job.encode())
        while True:
            try:
                async with asyncio.timeout(STALLED_SECONDS_MAX):  # wait_for() of Python 3.11 may swallow a cancellation
                    line = await self._lines.get()
            except TimeoutError:
                problem = f"it made no progress for {STALLED_SECONDS_MAX:.0f} s"
                raise CleanerDiedError(problem, is_stalled=True) from None
            if line == ENDED:
                is_our_doing = self._is_killed
                raise CleanerDiedError(f"it ended with code {await self.end()}", is_our_doing=is_our_doing)
            reply = decode_reply(line)
            if isinstance(reply, int):
                continue
            yield reply
            if not isinstance(reply, CleanedGroup):
                return

    def kill(self) -> None:
        """Begin to end the process; whoever runs a job hears of it."""
        if self._process is not None:
            self._is_killed = True
            self._process.kill()

    async def end(self) -> int:
        """End the process and wait until it is gone, even from a disk that does not answer; its exit code."""
        process, self._process = self._process, None
        if process is None:
            return 0
        process.kill()
        assert process.stdin is not None
        assert process.stdout is not None
        loop = asyncio.get_running_loop()
        loop.remove_reader(process.stdout.fileno())
        process.stdin.close()
        process.stdout.close()
        return await loop.run_in_executor(self._workers, process.wait)

    async def _ensure_started(self, job: CleanJob) -> None:
        fits = job.is_patient or not self._is_patient
        if fits and self._process is not None and self._process.poll() is None and self._lines.empty():
            return
        await self.end()
        self._lines = asyncio.Queue()
        self._received.clear()
        self._is_killed = False
        self._process = subprocess.Popen(COMMAND, stdin=subprocess.PIPE, stdout=subprocess.PIPE)  # noqa: S603 - our own
        assert self._process.stdout is not None
        descriptor = self._process.stdout.fileno()
        os.set_blocking(descriptor, False)
        asyncio.get_running_loop().add_reader(descriptor, self._read, descriptor)
        logger.info("started the cleaner as process %d", self._process.pid)

    async def _send(self, data: bytes) -> None:
        assert self._process is not None
        assert self._process.stdin is not None
        descriptor = self._process.stdin.fileno()
        try:
            await asyncio.get_running_loop().run_in_executor(self._workers, _write_whole, descriptor, data)
        except OSError as error:
            raise CleanerDiedError(f"it takes no job: {error}") from None

    def _read(self, descriptor: int) -> None:
        try:
            chunk = os.read(descriptor, READ_BYTES)
        except BlockingIOError:
            return
        if not chunk:
            asyncio.get_running_loop().remove_reader(descriptor)
            self._lines.put_nowait(ENDED)
            if self._process is not None:
                self._process.poll()  # idle processes end by themselves; no trace of them shall stay
            return
        self._received += chunk
        *lines, rest = bytes(self._received).split(b"\n")
        self._received = bytearray(rest)
        for line in lines:
            self._lines.put_nowait(line)

    def __repr__(self) -> str:
        return f"<CleanerProcess {self.pid}>"


def _write_whole(descriptor: int, data: bytes) -> None:
    while data:
        data = data[os.write(descriptor, data) :]
