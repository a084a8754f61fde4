"""The log of denied requests: lines of `kafka.authorizer.logger` in Kafka's format.

The log volume is bounded. The same denial is logged at intervals, and lines per second are limited, so a client that
retries forever does not fill a disk. Suppressed denials are counted, and reported with the next line.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterable, Iterator
from typing import Final, NamedTuple

from ottla.base.logs import AUTHORIZER, LogLimiter
from ottla.base.security import (
    RESOURCE_TYPES_BY_NAME,
    Operation,
    PatternType,
    ResourceType,
    pascal_name,
)

REPEAT_MS: Final = 60_000  # between two lines about the same denial
LINES_PER_SECOND_MAX: Final = 100
REMEMBERED_DENIALS_MAX: Final = 10_000  # tracked denials
NAME_LENGTH_MAX: Final = 300  # of a resource name in a line

DENIED: Final = "is Denied"
WOULD_BE_DENIED: Final = "would be Denied"  # Kafka has no such lines, because it has no permissive mode

logger = logging.getLogger(AUTHORIZER)


class Denial(NamedTuple):
    """A request that was denied, or would have been."""

    principal: str
    host: str
    operation: Operation
    resource_type: ResourceType
    name: str
    api: str  # API name, such as "Fetch"
    rule: str = ""  # the deciding rule


class DenialLog:
    """Writes denials; `now_ms` is a monotonic clock."""

    def __init__(self, now_ms: Callable[[], int], *, is_permissive: bool) -> None:
        self._now_ms = now_ms
        self._word = WOULD_BE_DENIED if is_permissive else DENIED
        self._limiter = LogLimiter(REPEAT_MS)
        self._subjects = 0
        self._second = -1
        self._lines = 0
        self.suppressed_count = 0

    def is_due(self, denial: Denial) -> bool:
        """Return whether to log this denial, independent of the rule, which is only looked up afterwards."""
        now_ms = self._now_ms()
        if now_ms // 1000 != self._second:
            self._second, self._lines = now_ms // 1000, 0
        if self._lines >= LINES_PER_SECOND_MAX:
            self.suppressed_count += 1
            return False
        if self._subjects >= REMEMBERED_DENIALS_MAX:
            self._limiter, self._subjects = LogLimiter(REPEAT_MS), 0
        if not self._limiter.is_due(now_ms, line_of(denial)):
            self.suppressed_count += 1
            return False
        self._subjects += 1
        self._lines += 1
        return True

    def write(self, denial: Denial) -> None:
        if self.suppressed_count:
            logger.info("%d denials before this one were not logged, most of them repetitions", self.suppressed_count)
            self.suppressed_count = 0
        logger.info("%s", line_of(denial, self._word))

    def __repr__(self) -> str:
        return f"<DenialLog {self._subjects} remembered, {self.suppressed_count} suppressed>"


def line_of(denial: Denial, word: str = DENIED) -> str:
    name = denial.name if len(denial.name) <= NAME_LENGTH_MAX else f"{denial.name[:NAME_LENGTH_MAX]}..."
    return (
        f"Principal = {denial.principal} {word} operation = {denial.operation.name} from host = {denial.host} "
        f"on resource = {pascal_name(denial.resource_type)}:{PatternType.LITERAL.name}:{escaped(name)} "
        f"for request = {denial.api} with resourceRefCount = 1 based on rule {denial.rule}"
    )


def escaped(name: str) -> str:
    """Return a name with escaped control characters, so that it cannot forge a line."""
    return name if name.isprintable() else name.encode("unicode_escape").decode()


_LINE: Final = re.compile(
    r"Principal = (?P<principal>.+?) (?P<word>is Denied|would be Denied) operation = (?P<operation>[A-Z_]+) "
    r"from host = (?P<host>\S*) on resource = (?P<type>[A-Za-z]+):LITERAL:(?P<name>.*) "
    r"for request = (?P<api>\w+) with resourceRefCount = \d+ based on rule (?P<rule>.*)"
)


def read_denials(lines: Iterable[str], *, word: str = WOULD_BE_DENIED) -> Iterator[Denial]:
    """Yield the denials in the lines of a log file; other lines are ignored."""
    for line in lines:
        found = _LINE.search(line)
        if found is None or found["word"] != word or found["operation"] not in Operation.__members__:
            continue
        resource_type = RESOURCE_TYPES_BY_NAME.get(found["type"])
        if resource_type is not None:
            operation = Operation[found["operation"]]
            yield Denial(
                found["principal"], found["host"], operation, resource_type, found["name"], found["api"], found["rule"]
            )
