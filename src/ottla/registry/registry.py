"""The registry: its state, and the single path for changes.

Rules:
1. Every change goes through `execute` or `register`: it is decided on the current state, written, and answered once
   this node has read it back. Changes are decided and written one at a time; schemas are parsed and compared before
   that.
2. If versions or settings have changed since a schema was checked, it is checked again.
3. Before the first change, and after one with an unknown outcome, this node takes over the topic: late writes of
   earlier leaders are rejected by the broker from then on, and what they wrote is read first. A fenced node has changed
   nothing, and retries if it is still the leader.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import Any, Concatenate, Final, NamedTuple, ParamSpec, TypeVar

from ottla.base.tasks import spawn_awaited
from ottla.client.errors import ClientError
from ottla.registry import errors
from ottla.registry.election_protocol import GROUP, Leadership, SingleNode
from ottla.registry.formats import InvalidSchemaError, ParsedSchema
from ottla.registry.formats.compatibility import check, compared_versions
from ottla.registry.kafka_store import FencedError, KafkaStore, TooLargeError, UnknownOutcomeError
from ottla.registry.schema_cache import Descriptors, SchemaParser
from ottla.registry.subjects import decisions
from ottla.registry.subjects.decisions import CheckedState, Decision, checked_state
from ottla.registry.subjects.new_schemas import (
    NewSchema,
    draft_of,
    has_defaults,
    invalid_schema_error,
    resolve,
    with_defaults,
)
from ottla.registry.subjects.schema import Schema
from ottla.registry.subjects.settings import DEFAULT_LEVEL, IMPORT, LEVEL, Config
from ottla.registry.subjects.state import RegistryState

T = TypeVar("T")
P = ParamSpec("P")

TRIES_MAX: Final = 10
FENCING_RETRIES_MAX: Final = 5
CHANGE_SECONDS_MAX: Final = 60.0
CATCH_UP_SECONDS_MAX: Final = 3.0


class Registered(NamedTuple):
    """The registered version, and whether it has parts that were not in the request."""

    schema: Schema
    has_defaults: bool


class Registry:
    """The registry of one node."""

    def __init__(
        self,
        log: KafkaStore,
        state: RegistryState,
        *,
        default_level: str = DEFAULT_LEVEL,
        has_mode_changes: bool = True,
        group: str = GROUP,
        leadership: Leadership | None = None,
    ) -> None:
        self.log = log
        self.state = state
        self.default_level = default_level
        self.has_mode_changes = has_mode_changes
        self.group = group
        self.leadership: Leadership = leadership or SingleNode()
        self.parser = SchemaParser()
        self.descriptors = Descriptors(self.parser)
        self._writing = asyncio.Lock()
        self._term = -1  # the leadership term in which the topic was taken over
        self._read_term = -1  # the term in which earlier writes were read

    def __repr__(self) -> str:
        return f"<Registry {self.log} {self.state}>"

    async def open(self) -> None:
        """Read the whole topic. Raises KafkaStoreError or ClientError."""
        end = await self.log.open()
        await self._wait_or_fail(self.log.wait_for_offset(end - 1))

    async def close(self) -> None:
        self.parser.close()
        await self.log.close()

    @property
    def cluster_id(self) -> str:
        return self.log.cluster_id

    async def catch_up(self) -> bool:
        """Read what other nodes may have acknowledged; False if the cluster does not answer."""
        if self.is_current:
            return True
        term = self.leadership.term if self.leadership.is_leader else None
        await asyncio.sleep(0)  # fails the fast path, which cannot wait
        try:
            async with asyncio.timeout(CATCH_UP_SECONDS_MAX):
                await self._wait_or_fail(self.log.catch_up())
        except (ClientError, errors.RegistryError, TimeoutError):
            return False
        if term is not None:
            self._read_term = term
        return True

    @property
    def is_current(self) -> bool:
        """Whether the state has every acknowledged write: this node leads, and has read the topic since."""
        return self.leadership.is_leader and self._read_term == self.leadership.term

    # ---- changes

    async def take_over(self) -> None:
        """Fence earlier writers, and read everything they wrote."""
        async with self._writing:
            await self._take_over()

    async def execute(
        self, decide: Callable[Concatenate[RegistryState, P], Decision], *arguments: P.args, **named: P.kwargs
    ) -> Any:
        """Make the change that a function of `subjects/decisions.py` decides. Raises RegistryError."""

        async def attempt() -> Any:
            async with self._writing:
                await self._take_over_if_needed()
                return await self._commit(decide(self.state, *arguments, **named))

        return await self._retry_when_fenced(attempt)

    async def register(self, subject: str, draft: NewSchema, *, is_normalized: bool) -> Registered:
        """Raises RegistryError."""
        return await self._retry_when_fenced(lambda: self._register(subject, draft, is_normalized))

    async def _retry_when_fenced(self, attempt: Callable[[], Awaitable[T]]) -> T:
        for _ in range(FENCING_RETRIES_MAX):
            with suppress(FencedError):  # nothing was written; retry on the other node's changes
                return await attempt()
        raise errors.store_failed("Other registries take over repeatedly: is there an election?")

    async def _register(self, subject: str, asked: NewSchema, is_normalized: bool) -> Registered:
        for _ in range(TRIES_MAX):
            basis = checked_state(self.state, subject, self.default_level)
            if asked.version == 0 and not has_defaults(basis.config):
                found = await self._find_registered(subject, asked, is_normalized)
                if found is not None and asked.schema_id in (-1, found.id):
                    return Registered(found, False)
            decisions.check_register_mode(subject, basis.mode, asked)
            draft = asked
            if basis.mode != IMPORT:
                previous = next(reversed(basis.live_versions), None)
                draft = with_defaults(draft, previous, basis.config, basis.next_version)
            is_new = draft.schema_id < 0  # a schema imported with its ID was accepted elsewhere
            draft, parsed = await self.read(subject, draft, is_normalized=is_normalized, is_new=is_new)
            problems = await self._problems(draft, parsed, basis)
            async with self._writing:
                await self._take_over_if_needed()
                if basis != checked_state(self.state, subject, self.default_level):
                    continue
                decision = decisions.register(self.state, subject, draft, basis, problems)
                schema = await self._commit(decision)
            return Registered(schema, _has_defaults(asked, draft))
        raise errors.timed_out("Register operation timed out")

    async def _find_registered(self, subject: str, draft: NewSchema, is_normalized: bool) -> Schema | None:
        """The version with this schema; one that is no longer valid as new may have been registered before."""
        if draft.is_empty:
            return None
        try:
            stored, _ = await self.read(subject, draft, is_normalized=is_normalized, is_new=True)
        except errors.RegistryError:
            return await self.find(subject, draft, is_normalized=is_normalized)
        return decisions.find_schema(self.state, subject, stored)

    async def _problems(self, draft: NewSchema, parsed: ParsedSchema, basis: CheckedState) -> list[str]:
        if basis.mode == IMPORT or any(item.digest == draft.digest for item in basis.live_versions):
            return []
        return await self.incompatibilities(draft, parsed, basis.live_versions, basis.config)

    async def _take_over_if_needed(self) -> None:
        if not self.leadership.is_leader:
            raise errors.no_leader()
        if not self.log.writer.has_taken_over or self._term != self.leadership.term:
            await self._take_over()

    async def _take_over(self) -> None:
        self._term = self.leadership.term
        try:
            await self.log.take_over()
        except ClientError as problem:
            raise errors.store_failed(f"Error while taking over the Kafka store: {problem}") from None
        await self._commit(Decision([self.state.noop()], None))
        self._read_term = self._term

    async def _commit(self, decision: Decision) -> Any:
        """Write the records, and wait until they are read back."""
        if not decision.records:
            return decision.answer
        try:
            offset = await self.log.write(decision.records)
            async with asyncio.timeout(CHANGE_SECONDS_MAX):
                await self._wait_or_fail(self.log.wait_for_offset(offset))
        except TooLargeError:
            raise errors.schema_too_large() from None
        except (UnknownOutcomeError, TimeoutError) as problem:
            self.log.writer.step_down()
            raise errors.timed_out(f"Write to the Kafka store timed out: {problem}") from None
        return decision.answer

    async def _wait_or_fail(self, work: Awaitable[None]) -> None:
        """Wait for the log reader, unless it fails."""
        assert self.log.failure is not None
        waiting = spawn_awaited(work, "reading back")
        either: list[asyncio.Future[Any]] = [waiting, self.log.failure]
        await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        if not waiting.done():
            waiting.cancel()
            raise errors.store_failed(f"Error from the backend Kafka store: {self.log.failure.result()}")
        await waiting

    # ---- queries

    async def read(
        self, subject: str, draft: NewSchema, *, is_normalized: bool, is_new: bool = False
    ) -> tuple[NewSchema, ParsedSchema]:
        """The schema as it would be stored, and its parsed form. Raises RegistryError."""
        if draft.is_empty:
            raise errors.invalid_schema("Empty schema")
        try:
            resolved = resolve(self.state, subject, draft.references)
        except errors.RegistryError as problem:
            raise invalid_schema_error(subject, draft, problem.message) from None
        try:
            parsed = await self.parser.parse(draft.kind, draft.text, resolved.texts, is_new=is_new)
            text = parsed.normalized() if is_normalized else parsed.text
        except InvalidSchemaError as problem:
            raise invalid_schema_error(subject, draft, str(problem)) from None
        return draft._replace(text=text, references=resolved.references), parsed

    async def find(
        self, subject: str, draft: NewSchema, *, is_normalized: bool, with_deleted: bool = False
    ) -> Schema | None:
        """The version with this schema."""
        if draft.is_empty:
            return None
        stored, _ = await self.read(subject, draft, is_normalized=is_normalized)
        return decisions.find_schema(self.state, subject, stored, with_deleted=with_deleted)

    async def incompatibilities(
        self, draft: NewSchema, parsed: ParsedSchema, earlier: Sequence[Schema], config: Config
    ) -> list[str]:
        """Why the schema is not compatible with earlier versions (oldest first); empty if it is."""
        level: str = config[LEVEL]
        if group := config.get("compatibilityGroup"):
            wanted = _property(draft.metadata, group)
            earlier = [item for item in earlier if _property(item.metadata, group) == wanted]
        earlier = compared_versions(level, earlier)
        if not earlier:
            return []
        old = [await self._stored(schema) for schema in earlier]
        versions = [schema.version for schema in earlier]
        try:
            problems = await self.parser.in_thread(lambda: check(level, parsed, old, versions))
        except InvalidSchemaError as problem:
            raise errors.invalid_schema(str(problem)) from None
        if problems:
            problems.append(f"{{validateFields: '{_boolean(config.get('validateFields'))}', compatibility: '{level}'}}")
        return problems

    async def serialized(self, schema: Schema) -> str:
        """A Protobuf schema as a compiled file in base64."""
        resolved = resolve(self.state, schema.subject, schema.references)
        return await self.descriptors.serialized(schema.text, resolved.texts)

    async def _stored(self, schema: Schema) -> ParsedSchema:
        """A previously accepted version."""
        try:
            _, parsed = await self.read(schema.subject, draft_of(schema), is_normalized=False)
        except errors.RegistryError as problem:
            raise errors.invalid_schema(
                f"Version {schema.version} of subject {schema.subject} cannot be read: {problem.message}"
            ) from None
        return parsed


def _has_defaults(asked: NewSchema, stored: NewSchema) -> bool:
    return asked.is_empty or stored.metadata is not None or stored.rule_set is not None


def _property(metadata: Any, name: str) -> Any:
    return ((metadata or {}).get("properties") or {}).get(name)


def _boolean(value: object) -> str:
    return "true" if value else "false"
