"""What somebody was refused, as lines of `kafka.authorizer.logger`, in Kafka's words.

Rule: bounded. The same denial is told once in a while, and only so many of them in a second: a client that tries for
ever, or tries every name, fills no disk. What was left out is counted and told with the next line.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterable, Iterator
from typing import Final, NamedTuple

from ottla.base.log_limiter import LogLimiter
from ottla.base.logs import AUTHORIZER
from ottla.base.security import (
    RESOURCE_TYPES_BY_WORD,
    Operation,
    PatternType,
    ResourceType,
    word_of,
)

REPEAT_MS: Final = 60_000  # between two lines about the same denial
LINES_PER_SECOND_MAX: Final = 100
SUBJECTS_MAX: Final = 10_000  # denials that are remembered
NAME_LENGTH_MAX: Final = 300  # of a resource in a line

DENIED: Final = "is Denied"
WOULD_BE_DENIED: Final = "would be Denied"  # Kafka has no such lines: it knows no permissive mode

logger = logging.getLogger(AUTHORIZER)


class Denial(NamedTuple):
    """What somebody was refused, or would have been."""

    principal: str
    host: str
    operation: Operation
    resource_type: ResourceType
    name: str
    api: str  # its name, as in "Fetch"
    rule: str  # the one that decides


class DenialLog:
    """Writes them; `now_ms` is any clock that only goes forward."""

    def __init__(self, now_ms: Callable[[], int], *, is_permissive: bool) -> None:
        self._now_ms = now_ms
        self._word = WOULD_BE_DENIED if is_permissive else DENIED
        self._limiter = LogLimiter(REPEAT_MS)
        self._subjects = 0
        self._second = -1
        self._lines = 0
        self.left_out = 0

    def write(self, denial: Denial) -> None:
        now_ms = self._now_ms()
        if now_ms // 1000 != self._second:
            self._second, self._lines = now_ms // 1000, 0
        if self._lines >= LINES_PER_SECOND_MAX:
            self.left_out += 1
            return
        if self._subjects >= SUBJECTS_MAX:
            self._limiter, self._subjects = LogLimiter(REPEAT_MS), 0
        line = line_of(denial, self._word)
        if not self._limiter.is_due(now_ms, line):
            self.left_out += 1
            return
        self._subjects += 1
        self._lines += 1
        if self.left_out:
            logger.info("%d denials before this one are not told, most of them as others before", self.left_out)
            self.left_out = 0
        logger.info("%s", line)

    def __repr__(self) -> str:
        return f"<DenialLog {self._subjects} remembered, {self.left_out} left out>"


def line_of(denial: Denial, word: str = DENIED) -> str:
    name = denial.name if len(denial.name) <= NAME_LENGTH_MAX else f"{denial.name[:NAME_LENGTH_MAX]}..."
    return (
        f"Principal = {denial.principal} {word} operation = {denial.operation.name} from host = {denial.host} "
        f"on resource = {word_of(denial.resource_type)}:{PatternType.LITERAL.name}:{escaped(name)} "
        f"for request = {denial.api} with resourceRefCount = 1 based on rule {denial.rule}"
    )


def escaped(name: str) -> str:
    """A name that would break the line, or look like another one, is written as Python would."""
    return name if name.isprintable() else name.encode("unicode_escape").decode()


_LINE: Final = re.compile(
    r"Principal = (?P<principal>.+?) (?P<word>is Denied|would be Denied) operation = (?P<operation>[A-Z_]+) "
    r"from host = (?P<host>\S*) on resource = (?P<type>[A-Za-z]+):LITERAL:(?P<name>.*) "
    r"for request = (?P<api>\w+) with resourceRefCount = \d+ based on rule (?P<rule>.*)"
)


def read_denials(lines: Iterable[str], *, word: str = WOULD_BE_DENIED) -> Iterator[Denial]:
    """The denials that a log file tells of; other lines are passed over."""
    for line in lines:
        found = _LINE.search(line)
        if found is None or found["word"] != word or found["operation"] not in Operation.__members__:
            continue
        resource_type = RESOURCE_TYPES_BY_WORD.get(found["type"])
        if resource_type is not None:
            operation = Operation[found["operation"]]
            yield Denial(
                found["principal"], found["host"], operation, resource_type, found["name"], found["api"], found["rule"]
            )
