"""The registry: what stands in the topic, and the one way to change it.

Rules:
1. Every change goes through `change`: it is decided for the state as it is, written, and answered when this node has
   read it back. Changes are decided and written one at a time; schemas are read and compared before that.
2. A schema that was judged by versions or settings that have changed meanwhile is judged again.
3. Before the first change, and after one of which nobody knows whether it was written, this node takes over the topic:
   what an earlier one may still send is refused by the broker from then on, and what it has sent is read first. Who is
   refused himself has changed nothing, and begins anew if he still leads.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Sequence
from typing import Any, Final, NamedTuple

from ottla.base.tasks import ask
from ottla.client.errors import ClientError
from ottla.registry import errors
from ottla.registry.candidates import GROUP
from ottla.registry.descriptors import Descriptors
from ottla.registry.formats import InvalidSchemaError, Parsed
from ottla.registry.formats.compatibility import check
from ottla.registry.leadership import Alone, Leadership
from ottla.registry.log import SchemaLog
from ottla.registry.log_writer import FencedError, TooLargeError, UnsureError
from ottla.registry.parsing import SchemaParser
from ottla.registry.subjects import decisions
from ottla.registry.subjects.decisions import Basis, Decision, basis_of
from ottla.registry.subjects.drafts import Draft, draft_of, has_defaults, populated, refused, resolve
from ottla.registry.subjects.schema import Schema
from ottla.registry.subjects.settings import DEFAULT_LEVEL, IMPORT, LEVEL, Config
from ottla.registry.subjects.state import State
from ottla.registry.wishes import (
    DeleteConfig,
    DeleteMode,
    DeleteSubject,
    DeleteVersion,
    Register,
    SetConfig,
    SetMode,
    Wish,
)

TRIES_MAX: Final = 10
TAKE_OVERS_MAX: Final = 5
CHANGE_SECONDS_MAX: Final = 60.0
CATCH_UP_SECONDS_MAX: Final = 3.0


class Registered(NamedTuple):
    """A version that is there now, and whether it took something over that was not in the request."""

    schema: Schema
    is_more: bool


class Registry:
    """One node."""

    def __init__(
        self,
        log: SchemaLog,
        state: State,
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
        self.leadership: Leadership = leadership or Alone()
        self.parser = SchemaParser()
        self.descriptors = Descriptors(self.parser)
        self._writing = asyncio.Lock()
        self._term = -1  # of the leadership in which the topic was taken over
        self._read_term = -1  # in which what others wrote before was read

    def __repr__(self) -> str:
        return f"<Registry {self.log} {self.state}>"

    async def open(self) -> None:
        """Read all that is there; raises LogError or ClientError."""
        end = await self.log.open()
        await self._until_failure(self.log.reached(end - 1))

    async def close(self) -> None:
        self.parser.close()
        await self.log.close()

    @property
    def cluster_id(self) -> str:
        return self.log.cluster_id

    async def catch_up(self) -> bool:
        """Read what others may have been answered for; False: the cluster is away."""
        if self.has_read_all:
            return True
        term = self.leadership.term if self.leadership.is_leader else None
        await asyncio.sleep(0)  # whoever wants an answer at once learns here that he has to wait
        try:
            async with asyncio.timeout(CATCH_UP_SECONDS_MAX):
                await self._until_failure(self.log.catch_up())
        except (ClientError, errors.RegistryError, TimeoutError):
            return False
        if term is not None:
            self._read_term = term
        return True

    @property
    def has_read_all(self) -> bool:
        """Whether nobody was answered for what this node has not read: it leads, and has read since it does."""
        return self.leadership.is_leader and self._read_term == self.leadership.term

    # Changing

    async def take_over(self) -> None:
        """Shut out who wrote before, and read to the end of what he wrote."""
        async with self._writing:
            await self._take_over()

    async def change(self, wish: Wish) -> Any:
        """Grant a wish, or raise RegistryError."""
        for _ in range(TAKE_OVERS_MAX):
            try:
                if isinstance(wish, Register):
                    return await self._register(wish)
                async with self._writing:
                    await self._take_over_if_needed()
                    return await self._commit(self._decide(wish))
            except FencedError:
                continue  # nothing was written, and what the other one wrote counts now
        raise errors.store_failed("Other registries take over again and again: is there an election?")

    def _decide(self, wish: Wish) -> Decision:
        state = self.state
        match wish:
            case DeleteVersion(subject, version, is_permanent):
                return decisions.delete_version(state, subject, version, is_permanent=is_permanent)
            case DeleteSubject(subject, is_permanent):
                return decisions.delete_subject(state, subject, is_permanent=is_permanent)
            case SetConfig(name, changes):
                return decisions.set_config(state, name, changes)
            case DeleteConfig(name):
                return decisions.delete_config(state, name, self.default_level)
        if not self.has_mode_changes:
            raise errors.not_permitted("Mode changes are not allowed")
        match wish:
            case SetMode(name, mode, is_forced):
                return decisions.set_mode(state, name, mode, is_forced=is_forced)
            case DeleteMode(name):
                return decisions.delete_mode(state, name)
        raise AssertionError(wish)

    async def _register(self, wish: Register) -> Registered:
        for _ in range(TRIES_MAX):
            basis = basis_of(self.state, wish.subject, self.default_level)
            if wish.draft.version == 0 and not has_defaults(basis.config):
                found = await self._find_registered(wish)
                if found is not None and wish.draft.number in (-1, found.id):
                    return Registered(found, False)
            decisions.check_register_mode(wish.subject, basis.mode, wish.draft)
            draft = wish.draft
            if basis.mode != IMPORT:
                previous = next(reversed(basis.alive), None)
                draft = populated(draft, previous, basis.config, basis.next_version)
            is_new = draft.number < 0  # what is brought with its id was accepted elsewhere
            draft, parsed = await self.read(wish.subject, draft, is_normalized=wish.is_normalized, is_new=is_new)
            problems = await self._problems(draft, parsed, basis)
            async with self._writing:
                await self._take_over_if_needed()
                if basis != basis_of(self.state, wish.subject, self.default_level):
                    continue
                decision = decisions.register(self.state, wish.subject, draft, basis, problems)
                schema = await self._commit(decision)
            return Registered(schema, _is_more(wish.draft, draft))
        raise errors.timed_out("Register operation timed out")

    async def _find_registered(self, wish: Register) -> Schema | None:
        """The version that holds this schema already; one that is too bad for a new one may have been good once."""
        if wish.draft.is_empty:
            return None
        try:
            stored, _ = await self.read(wish.subject, wish.draft, is_normalized=wish.is_normalized, is_new=True)
        except errors.RegistryError:
            return await self.find(wish.subject, wish.draft, is_normalized=wish.is_normalized)
        return decisions.find(self.state, wish.subject, stored)

    async def _problems(self, draft: Draft, parsed: Parsed, basis: Basis) -> list[str]:
        if basis.mode == IMPORT or any(item.digest == draft.digest for item in basis.alive):
            return []
        return await self.incompatibilities(draft, parsed, basis.alive, basis.config)

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
        """Write, and wait until it was read back."""
        if not decision.records:
            return decision.answer
        try:
            offset = await self.log.write(decision.records)
            async with asyncio.timeout(CHANGE_SECONDS_MAX):
                await self._until_failure(self.log.reached(offset))
        except TooLargeError:
            raise errors.schema_too_large() from None
        except (UnsureError, TimeoutError) as problem:
            self.log.writer.step_down()
            raise errors.timed_out(f"Write to the Kafka store timed out: {problem}") from None
        return decision.answer

    async def _until_failure(self, work: Awaitable[None]) -> None:
        """Wait for what the log's reader brings, unless it has ended."""
        assert self.log.failure is not None
        waiting = ask(work, "reading back")
        either: list[asyncio.Future[Any]] = [waiting, self.log.failure]
        await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        if not waiting.done():
            waiting.cancel()
            raise errors.store_failed(f"Error from the backend Kafka store: {self.log.failure.result()}")
        await waiting

    # Reading

    async def read(
        self, subject: str, draft: Draft, *, is_normalized: bool, is_new: bool = False
    ) -> tuple[Draft, Parsed]:
        """The draft as it would be stored, and its schema; raises RegistryError."""
        if draft.is_empty:
            raise errors.invalid_schema("Empty schema")
        try:
            resolved = resolve(self.state, subject, draft.references)
        except errors.RegistryError as problem:
            raise refused(subject, draft, problem.message) from None
        try:
            parsed = await self.parser.parse(draft.kind, draft.text, resolved.texts, is_new=is_new)
            text = parsed.normalized() if is_normalized else parsed.text
        except InvalidSchemaError as problem:
            raise refused(subject, draft, str(problem)) from None
        return draft._replace(text=text, references=resolved.references), parsed

    async def find(
        self, subject: str, draft: Draft, *, is_normalized: bool, with_deleted: bool = False
    ) -> Schema | None:
        """The version that holds this schema."""
        if draft.is_empty:
            return None
        stored, _ = await self.read(subject, draft, is_normalized=is_normalized)
        return decisions.find(self.state, subject, stored, with_deleted=with_deleted)

    async def incompatibilities(
        self, draft: Draft, parsed: Parsed, earlier: Sequence[Schema], config: Config
    ) -> list[str]:
        """Why the schema does not fit the versions before it, oldest first; nothing: it does."""
        level: str = config[LEVEL]
        if level == "NONE":
            return []
        if group := config.get("compatibilityGroup"):
            wanted = _property(draft.metadata, group)
            earlier = [item for item in earlier if _property(item.metadata, group) == wanted]
        if not level.endswith("_TRANSITIVE"):
            earlier = earlier[-1:]
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
        """A schema of Protobuf as a compiled file, in base64."""
        resolved = resolve(self.state, schema.subject, schema.references)
        return await self.descriptors.serialized(schema.text, resolved.texts)

    async def _stored(self, schema: Schema) -> Parsed:
        """A version that was accepted before."""
        try:
            _, parsed = await self.read(schema.subject, draft_of(schema), is_normalized=False)
        except errors.RegistryError as problem:
            raise errors.invalid_schema(
                f"Version {schema.version} of subject {schema.subject} cannot be read: {problem.message}"
            ) from None
        return parsed


def _is_more(asked: Draft, stored: Draft) -> bool:
    return asked.is_empty or stored.metadata is not None or stored.rule_set is not None


def _property(metadata: Any, name: str) -> Any:
    return ((metadata or {}).get("properties") or {}).get(name)


def _boolean(value: object) -> str:
    return "true" if value else "false"
