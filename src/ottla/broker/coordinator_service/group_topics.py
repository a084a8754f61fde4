"""Topics for groups: a view of the metadata image, and regular expressions over topic names.

Patterns are checked and matched in a worker thread, and each name is matched once. RE2 releases the GIL while it
matches, not while it compiles: patterns are compiled one at a time, and their size is limited
(base/regular_expressions.py). Matches are cached: when topics are created, only the new names are matched.

Rules:
1. Memory is bounded for any input: a few compiled patterns, and WEIGHT_MAX bytes of cached matches.
2. One thread at a time works for all patterns, in turns.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from concurrent.futures import Executor
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from uuid import UUID

from ottla.base import tasks
from ottla.base.errors import Error, KafkaError
from ottla.base.regular_expressions import CLIENT, AsciiPattern, PatternError, SizeLimits, compile_pattern
from ottla.broker.offload import TimeSlice, chunks, in_slices, run_in_worker
from ottla.controller.image import MetadataImage, TopicImage
from ottla.groups.consumer_group import TopicInfo
from ottla.groups.group_coordinator import GroupCoordinator
from ottla.groups.topic_regexes import RegexResolution

if TYPE_CHECKING:
    from ottla.coordination.runtime import CoordinatorRuntime
    from ottla.coordination.shard import CoordinatorContext


SMALL_PATTERN_LIMITS: Final = SizeLimits(
    256, 50, 50, 50_000, CLIENT.memory_bytes
)  # checked in a tenth of a millisecond
CACHED_CHECKS_MAX: Final = 4_096  # cached checks
CHECKED_CHARACTERS_MAX: Final = 4 << 20
COMPILED_MAX: Final = 8  # checked patterns that will soon be matched
CONCURRENT_MATCHES_MAX: Final = 2  # patterns with states of up to 8 MB each
CACHED_BYTES_MAX: Final = 8 << 20  # bytes of cached matches
MATCHED_NAMES: Final = 2_000  # names matched per worker job: a few milliseconds
NAME_LOG_FACTOR_MAX: Final = 2  # maximum length of the name log, relative to the number of topics

CHUNK_NAMES: Final = 1_000  # topics and patterns that are written at a time: a few milliseconds
CHUNK_PATTERNS: Final = 50


class _Matches(NamedTuple):
    """The matches of a pattern among the first `seen` names of the log."""

    names: tuple[str, ...]
    seen: int


class TopicPatterns:
    """Matches of patterns among the names of all topics."""

    def __init__(self, workers: Executor) -> None:
        self._workers = workers
        self._turn = asyncio.Lock()
        self._slots = asyncio.Semaphore(CONCURRENT_MATCHES_MAX)
        self._problems: OrderedDict[str, str | None] = OrderedDict()
        self._checked_characters = 0
        self._compiled: OrderedDict[str, AsciiPattern] = OrderedDict()
        self._matches: OrderedDict[str, _Matches] = OrderedDict()
        self._cached_bytes = 0
        self._name_log: list[str] = []  # topic names in the order of their arrival, including deleted ones
        self._logged_names: set[str] = set()
        self._logged_topics: Mapping[str, object] | None = None  # the topics whose names are all in the log

    # ---- validation

    def is_checked(self, pattern: str) -> bool:
        """Return whether the pattern is checked. Small patterns are checked at once, which is faster than a thread."""
        if pattern not in self._problems and len(pattern) <= SMALL_PATTERN_LIMITS.length:
            compiled = _compiled(pattern, SMALL_PATTERN_LIMITS)
            if isinstance(compiled, AsciiPattern):
                self._cache_check(pattern, compiled)
        return pattern in self._problems

    async def check(self, pattern: str) -> None:
        """Compute the result of problem_of() without blocking the loop."""
        async with self._turn:
            if not self.is_checked(pattern):
                self._cache_check(pattern, await run_in_worker(self._workers, _compiled, pattern))

    def problem_of(self, pattern: str) -> str | None:
        """Return Kafka's message for an invalid pattern, or None."""
        if pattern not in self._problems:  # evicted meanwhile
            self._cache_check(pattern, _compiled(pattern))
        return self._problems[pattern]

    def _cache_check(self, pattern: str, compiled: AsciiPattern | str) -> None:
        self._problems[pattern] = compiled if isinstance(compiled, str) else None
        self._checked_characters += len(pattern)
        while len(self._problems) > CACHED_CHECKS_MAX or self._checked_characters > CHECKED_CHARACTERS_MAX:
            self._checked_characters -= len(self._problems.popitem(last=False)[0])
        if isinstance(compiled, AsciiPattern):
            self._compiled[pattern] = compiled
            if len(self._compiled) > COMPILED_MAX:
                self._compiled.popitem(last=False)

    # ---- matching

    async def match_topics(self, pattern: str, topics: Mapping[str, object]) -> frozenset[str]:
        """Return the topics whose whole name matches. `topics` belongs to one image and never changes."""
        async with self._slots:
            await self._append_new_names(topics)
            log, found = self._name_log, self._matches.get(pattern, _Matches((), 0))
            names, seen = found.names, found.seen
            compiled = await self._compile(pattern) if seen < len(log) else None
            while seen < len(log) and compiled is not None:
                piece = log[seen : seen + MATCHED_NAMES]
                async with self._turn:
                    names += await run_in_worker(self._workers, _matching, compiled, piece)
                seen += len(piece)
            if log is self._name_log:  # otherwise it was restarted, and `seen` refers to another log
                self._cache_matches(pattern, _Matches(names, seen))
            return await run_in_worker(self._workers, _intersection, names, topics)

    async def match_texts(self, pattern: str, texts: Sequence[str]) -> frozenset[str]:
        """Match texts that are not topics, without caching. Raises PatternError."""
        async with self._turn:
            compiled = await run_in_worker(self._workers, compile_pattern, pattern)
        found: list[str] = []
        for piece in chunks(texts, MATCHED_NAMES):
            async with self._turn:
                found += await run_in_worker(self._workers, _fully_matching, compiled, piece)
        return frozenset(found)

    async def _compile(self, pattern: str) -> AsciiPattern | None:
        compiled = self._compiled.pop(pattern, None)
        if compiled is not None:
            return compiled
        async with self._turn:
            again = await run_in_worker(self._workers, _compiled, pattern)
        return again if isinstance(again, AsciiPattern) else None  # accepted by another version

    async def _append_new_names(self, topics: Mapping[str, object]) -> None:
        """Append new names to the log."""
        async with self._turn:
            if topics is self._logged_topics:
                return
            if len(self._name_log) > NAME_LOG_FACTOR_MAX * len(topics) + MATCHED_NAMES:  # most of them are deleted
                self._name_log, self._logged_names, self._cached_bytes = [], set(), 0
                self._matches.clear()
            new = await run_in_worker(self._workers, _missing, topics, self._logged_names)
            self._name_log += new
            self._logged_names.update(new)
            self._logged_topics = topics

    def _cache_matches(self, pattern: str, found: _Matches) -> None:
        former = self._matches.pop(pattern, None)
        self._matches[pattern] = found
        self._cached_bytes += _cached_size(pattern, found) - (
            _cached_size(pattern, former) if former is not None else 0
        )
        while self._cached_bytes > CACHED_BYTES_MAX:
            self._cached_bytes -= _cached_size(*self._matches.popitem(last=False))

    def __repr__(self) -> str:
        return f"<TopicPatterns {len(self._matches)} patterns over {len(self._name_log)} names>"


def _compiled(pattern: str, limits: SizeLimits = CLIENT) -> AsciiPattern | str:
    """Return the compiled pattern, or the reason why it is invalid."""
    try:
        return AsciiPattern(pattern, limits)
    except PatternError as problem:
        return problem.kafka_message


def _matching(compiled: AsciiPattern, names: Iterable[str]) -> tuple[str, ...]:
    return tuple(name for name in names if compiled.matches(name))


def _fully_matching(compiled: Any, texts: Iterable[str]) -> list[str]:
    return [text for text in texts if compiled.fullmatch(text) is not None]


def _missing(topics: Iterable[str], known: Container[str]) -> list[str]:
    return [name for name in topics if name not in known]


def _intersection(names: Iterable[str], topics: Mapping[str, object]) -> frozenset[str]:
    return frozenset(name for name in names if name in topics)


def _cached_size(pattern: str, found: _Matches) -> int:
    return len(pattern) + 8 * len(found.names) + 256


class TopicCatalog:
    """The topics of one metadata image, with a generation that is unique on this broker.

    `sees` filters the topics that the client may describe; its patterns match no others.
    """

    def __init__(
        self,
        image: MetadataImage,
        generation: int,
        new_topics_generation: int,
        sees: Callable[[str], bool] | None = None,
    ) -> None:
        self.topics: Mapping[str, TopicImage] = image.topics
        self._by_id = image.topics_by_id
        self.is_visible = sees
        self.generation = generation
        self.new_topics_generation = new_topics_generation

    def topic(self, name: str) -> TopicInfo | None:
        return _topic_info(self.topics.get(name))

    def topic_by_id(self, topic_id: UUID) -> TopicInfo | None:
        return _topic_info(self._by_id.get(topic_id))


class RegexResolver:
    """Resolves the regular expressions of group subscriptions in the background."""

    def __init__(self, patterns: TopicPatterns) -> None:
        self._patterns = patterns
        self._running: set[asyncio.Task[None]] = set()

    def start(self, runtime: CoordinatorRuntime[GroupCoordinator], shard: CoordinatorContext[GroupCoordinator]) -> None:
        """Start the resolutions that a decision requested."""
        for resolution in shard.machine.consumer.regexes.take_due():
            work = self._resolve(runtime, shard, resolution)
            task = tasks.spawn(work, f"topics of the expressions of {resolution.group_id}")
            self._running.add(task)
            task.add_done_callback(self._running.discard)

    def close(self) -> None:
        for task in self._running:
            task.cancel()

    async def _resolve(
        self,
        runtime: CoordinatorRuntime[GroupCoordinator],
        shard: CoordinatorContext[GroupCoordinator],
        resolution: RegexResolution,
    ) -> None:
        patterns, catalog = shard.machine.consumer.regexes, resolution.catalog
        assert isinstance(catalog, TopicCatalog)
        try:
            found: dict[str, frozenset[str]] = {}
            count = 0
            for pattern in sorted(resolution.patterns):
                found[pattern] = await self._filter_visible(
                    await self._patterns.match_topics(pattern, catalog.topics), catalog
                )
                count += len(found[pattern])
                if count >= CHUNK_NAMES or len(found) >= CHUNK_PATTERNS:
                    self._write(runtime, shard, resolution, found)
                    found, count = {}, 0
            if found:
                self._write(runtime, shard, resolution, found)
        finally:
            patterns.on_ended(resolution, runtime.now_ms())

    async def _filter_visible(self, names: frozenset[str], catalog: TopicCatalog) -> frozenset[str]:
        sees = catalog.is_visible
        if sees is None:
            return names
        return frozenset([name async for name in in_slices(names, TimeSlice()) if sees(name)])

    def _write(
        self,
        runtime: CoordinatorRuntime[GroupCoordinator],
        shard: CoordinatorContext[GroupCoordinator],
        resolution: RegexResolution,
        found: dict[str, frozenset[str]],
    ) -> None:
        if shard.is_current_leader:
            shard.flush()  # earlier decisions must be visible
            runtime.execute(shard, shard.machine.consumer.regexes.on_found(resolution, found))

    def validate(self, pattern: str) -> None:
        """Check the pattern. Raises KafkaError(INVALID_REGULAR_EXPRESSION)."""
        problem = self._patterns.problem_of(pattern)
        if problem is not None:
            sentence = f"SubscribedTopicRegex `{pattern}` is not a valid regular expression: {problem}."
            raise KafkaError(Error.INVALID_REGULAR_EXPRESSION, sentence)


def _topic_info(topic: TopicImage | None) -> TopicInfo | None:
    return None if topic is None else TopicInfo(topic.name, topic.topic_id, len(topic.partitions))
