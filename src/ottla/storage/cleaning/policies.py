"""Custom clean-up policies: functions of other packages that decide which records stay.

    def newest_thousand(record: Record, log: CleanedLog) -> bool:
        return record.offset >= log.end_offset - 1000

    [project.entry-points."ottla.cleanup_policies"]
    newest-thousand = "my_package:newest_thousand"

A policy is called for each cleaned record, in the cleaner process. It cannot affect the broker. If it fails, the log
stays as it is.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from ottla.base.topic_settings import ENTRY_POINT_GROUP
from ottla.protocol.records import Record
from ottla.storage.cleaning.job import CleanJob
from ottla.storage.cleaning.records import Policy


class CleanedLog(NamedTuple):
    """The log of a record, as policies see it."""

    topic: str
    partition: int
    log_start_offset: int
    end_offset: int  # the offset that the next record gets
    now_ms: int


CustomPolicy = Callable[[Record, CleanedLog], bool]
"""True keeps the record."""


class PolicyError(Exception):
    """A policy that does not exist, cannot be loaded, or has failed."""


def load_policies(job: CleanJob) -> Policy | None:
    """Return all custom policies of a job as one function: a record stays if all of them keep it."""
    if not job.policies:
        return None
    named = [(name, load_policy(name)) for name in job.policies]
    log = CleanedLog(job.topic, job.partition, job.log_start_offset, job.end_offset, job.now_ms)

    def keeps(record: Record) -> bool:
        for name, policy in named:
            try:
                is_kept = policy(record, log)
            except Exception as error:  # user code: any exception ends only this cleaning
                raise PolicyError(f"the clean-up policy {name} failed at offset {record.offset}: {error!r}") from error
            if not is_kept:
                return False
        return True

    return keeps


def load_policy(name: str) -> CustomPolicy:
    from importlib.metadata import entry_points  # noqa: PLC0415 (slow to import, and the broker reads this file too)

    for entry in entry_points(group=ENTRY_POINT_GROUP, name=name):
        try:
            policy: object = entry.load()
        except Exception as error:  # user code may raise anything on import
            raise PolicyError(f"the clean-up policy {name} cannot be loaded: {error!r}") from error
        if not callable(policy):
            raise PolicyError(f"the clean-up policy {name} is not callable: {policy!r}")
        return policy
    raise PolicyError(f"no installed package offers the clean-up policy {name}")
