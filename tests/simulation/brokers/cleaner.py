"""In place of the process that cleans logs: the same work, done as a thread's."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

from ottla.broker.log_manager.log_cleaner import CleanerDiedError
from ottla.storage.cleaning.cleaner import CleanerRun
from ottla.storage.cleaning.job import CleanedGroup, CleanFailure, CleanJob, CleanReport, decode_job
from ottla.storage.cleaning.policies import load_policies
from ottla.storage.cleaning.process import DISK, FILES_MISSING


class InlineCleaner:
    """What broker/log_manager/log_cleaner.py asks of a CleanerProcess."""

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
        replies.append(CleanerRun(job, load_policies(job), lambda _: None).run(replies.append))
    except FileNotFoundError as missing:
        replies.append(CleanFailure(kind=FILES_MISSING, message=str(missing)))
    except OSError as problem:
        replies.append(CleanFailure(kind=DISK, message=str(problem)))
    return replies
