"""A letter: a record that a pipeline could not use, as it was, with headers behind its own that say what became of it.

    ottla.pipeline  ottla.step  ottla.reason  ottla.topic  ottla.partition  ottla.offset  ottla.timestamp

Rules:
1. The headers of a letter are the last ones: a letter of a letter has two sets, and the last one counts.
2. Sent again, a record is what it was: key, value and headers without that last set.
3. Reasons name what was wrong with one record; to count them, what differs from record to record is left out.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple

from ottla.operations.messages.walking import Record

PREFIX = "ottla."
TOLD = ("pipeline", "step", "reason", "topic", "partition", "offset", "timestamp")  # in this order
TOLD_NAMES = tuple(f"{PREFIX}{name}" for name in TOLD)
REASON_CHARACTERS_MAX = 200
DETAIL = "…"
# Texts in quotes (also those that were cut off), times, numbers: what differs.
_DETAILS = re.compile(
    r"""
    "(?:[^"\\]|\\.)*(?:"|$) | (?<!\w)'(?:[^'\\]|\\.)*(?:'(?!\w)|$)
    | \d{4}-\d\d-\d\d(?:[T\ ][\d:.]+(?:Z|[+-]\d\d:?\d\d)?)? | (?<![\w.])-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?(?![\w.])
    """,
    re.VERBOSE,
)


class Source(NamedTuple):
    """The record that a letter was made of."""

    topic: str
    partition: int
    offset: int


class Letter(NamedTuple):
    """`record` is the letter as it lies in its topic; no source: its headers do not tell one."""

    record: Record
    pipeline: str
    step: str
    reason: str
    source: Source | None

    @property
    def kind(self) -> str:
        return kind_of(self.reason)

    @property
    def original(self) -> Record:
        """Key, value and headers of the source record."""
        return self.record._replace(headers=list(self.record.headers)[: -len(TOLD)])


def read_letter(record: Record) -> Letter | None:
    """None if this record is no letter."""
    headers = list(record.headers)[-len(TOLD) :]
    if tuple(name for name, _ in headers) != TOLD_NAMES:
        return None
    told = {name: (value or b"").decode("utf-8", "replace") for name, value in headers}
    return Letter(record, told["ottla.pipeline"], told["ottla.step"], told["ottla.reason"], _source(told))


def kind_of(reason: str) -> str:
    """What letters with the same trouble have in common."""
    return _DETAILS.sub(DETAIL, reason[:2_000])[:REASON_CHARACTERS_MAX]


def _source(told: Mapping[str, str]) -> Source | None:
    topic, partition, offset = (told[f"{PREFIX}{name}"] for name in ("topic", "partition", "offset"))
    if not topic or not _is_number(partition) or not _is_number(offset):
        return None
    return Source(topic, int(partition), int(offset))


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdecimal() and len(text) <= 19
