"""In place of the process that cleans logs: the same work, done as a thread's."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

from ottla.broker.logs.cleaner_process import CleanerDiedError
from ottla.storage.cleaning.job import CleanedGroup, CleanFailure, CleanJob, CleanReport, decode_job
from ottla.storage.cleaning.log import CleaningRound
from ottla.storage.cleaning.policies import load_policies
from ottla.storage.cleaning.process import DISK, GONE


class InlineCleaner:
    """What broker/logs/cleaning.py asks of a CleanerProcess."""

    pid = -1

    def __init__(self, workers: Any) -> None:
        self._is_killed = False

    async def run(self, job: CleanJob) -> AsyncIterator[CleanedGroup | CleanReport | CleanFailure]:
        self._is_killed = False
        done = await asyncio.get_running_loop().run_in_executor(None, clean, decode_job(job.encode()))
        for reply in done:
            if self._is_killed:
                raise CleanerDiedError("it was ended", is_our_doing=True)
            yield reply

    def kill(self) -> None:
        self._is_killed = True

    async def end(self) -> int:
        return 0


def clean(job: CleanJob) -> list[CleanedGroup | CleanReport | CleanFailure]:
    replies: list[CleanedGroup | CleanReport | CleanFailure] = []
    try:
        replies.append(CleaningRound(job, load_policies(job), lambda _: None).run(replies.append))
    except FileNotFoundError as missing:
        replies.append(CleanFailure(kind=GONE, message=str(missing)))
    except OSError as problem:
        replies.append(CleanFailure(kind=DISK, message=str(problem)))
    return replies
