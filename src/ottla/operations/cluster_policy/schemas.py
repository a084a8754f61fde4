"""Compares the schemas of a file with those of a registry, and registers the differences.

Rules:
1. The schema in the file must be the newest version of its subject. A registry only appends versions: an older version
   cannot become the newest again.
2. The registry decides about compatibility, with the level that the subject will have.
3. A schema is registered after the schemas that it references.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Final, NamedTuple, TypeVar

from ottla.operations.cluster_policy.cluster_state import SCHEMAS, SubjectState
from ottla.operations.cluster_policy.security_plan import ADD, CHANGE, NOT_POSSIBLE, NOTHING, REMOVE, Row, Step
from ottla.operations.schema_registry.client import RegistryClient, is_missing
from ottla.operations.schema_registry.errors import RegistryError, SchemaError
from ottla.operations.schema_registry.schemas import TYPES, UnregisteredSchema


class KnownSubject(NamedTuple):
    """The registry's state of a subject, and its verdict on the schema in the file."""

    state: SubjectState
    version: int  # of the newest schema
    matching: int | None = None  # the version with the same schema as the file
    problems: tuple[str, ...] = ()  # incompatibilities of the file's schema at the current level


class SchemaChange(NamedTuple):
    """A subject to create, delete, extend by a version, or change in its level."""

    mark: str
    subject: str
    before: SubjectState | None
    after: SubjectState | None
    version: int = 0  # the newest version before the change
    is_new_version: bool = False

    @property
    def level(self) -> str | None:
        """The compatibility level to set; None if it stays."""
        after = self.after.compatibility if self.after is not None else None
        return None if self.before is not None and self.before.compatibility == after else after

    def row(self) -> Row:
        before, after = [], []
        if self.is_new_version or self.mark != CHANGE:
            before.append(f"version {self.version}" if self.version else NOTHING)
            after.append(_draft_text(self.after.draft) if self.after is not None else NOTHING)
        if self.level is not None:
            before.append((self.before.compatibility if self.before is not None else None) or NOTHING)
            after.append(self.level)
        return self.mark, "schema", self.subject, _joined(before), _joined(after)


class SchemaPlan(NamedTuple):
    """Changes in the order of execution."""

    changes: list[SchemaChange]
    refusals: list[tuple[Row, str]]
    unmanaged: dict[str, int]


NO_SCHEMAS = SchemaPlan([], [], {})


def plan_schemas(
    wanted: Mapping[str, SubjectState], found: Mapping[str, KnownSubject], subjects: list[str], *, prunes: bool
) -> SchemaPlan:
    """Plan the changes. `found` holds the wanted subjects of the registry, `subjects` all of them."""
    changes: list[SchemaChange] = []
    refusals: list[tuple[Row, str]] = []
    for subject in _reference_order(wanted):
        state, known = wanted[subject], found.get(subject)
        if known is None:
            changes.append(SchemaChange(ADD, subject, None, state, is_new_version=state.draft is not None))
            continue
        is_other = state.draft is not None and known.matching != known.version
        why = _why_not(subject, known, is_other)
        level = known.state.compatibility if state.compatibility is None else state.compatibility
        change = SchemaChange(
            CHANGE, subject, known.state, state._replace(compatibility=level), known.version, is_other
        )
        if why and (known.matching is not None or change.level is None):
            refusals.append(((NOT_POSSIBLE, *change.row()[1:]), why))
        elif is_other or change.level is not None:
            changes.append(change)
    extra = [subject for subject in sorted(subjects) if subject not in wanted]
    if prunes:
        changes += [SchemaChange(REMOVE, subject, None, None) for subject in extra]
        extra = []
    return SchemaPlan(changes, refusals, {SCHEMAS: len(extra)} if extra else {})


def _why_not(subject: str, known: KnownSubject, is_other: bool) -> str:
    if not is_other:
        return ""
    if known.matching is not None:
        return (
            f"version {known.matching} of {subject} is the schema of the file, and version {known.version} the newest: "
            "a registry cannot revert. Put the newest schema into the file, or delete the newer versions "
            f"(ottla schemas delete {subject} --version {known.version})"
        )
    if known.problems:
        level = known.state.compatibility or "the registry's"
        return f"the schema of {subject} does not fit version {known.version} (level: {level}): {known.problems[0]}"
    return ""


def _reference_order(wanted: Mapping[str, SubjectState]) -> list[str]:
    """The subjects, each after the ones it references; the registry rejects cycles."""
    done: dict[str, None] = {}
    for start in wanted:
        stack = [start]
        seen = {start}
        while stack:
            draft = wanted[stack[-1]].draft
            names = [each.subject for each in (draft.references if draft is not None else ())]
            waiting = next((name for name in names if name in wanted and name not in done and name not in seen), None)
            if waiting is None:
                done[stack.pop()] = None
            else:
                seen.add(waiting)
                stack.append(waiting)
    return list(done)


def _draft_text(draft: UnregisteredSchema | None) -> str:
    return NOTHING if draft is None else f"{TYPES[draft.kind].lower()} schema"


def _joined(words: list[str]) -> str:
    return ", ".join(word for word in words if word)


REQUESTS_AT_ONCE: Final = 8  # subjects are read one request each, so latency dominates
ALL_CONTEXTS: Final = ":*:"
UNPROCESSABLE: Final = 422  # error codes 422xx

T = TypeVar("T")


def read_subjects(registry: RegistryClient) -> Mapping[str, SubjectState]:
    """The newest schema of each subject, for an export."""

    def state(subject: str) -> SubjectState:
        return SubjectState(registry.version(subject).draft, subject_level(registry, subject))

    return dict(_for_each(registry.subjects(ALL_CONTEXTS), state))


def make_schema_plan(registry: RegistryClient, wanted: Mapping[str, SubjectState], *, prunes: bool) -> SchemaPlan:
    subjects = registry.subjects(ALL_CONTEXTS)
    known = set(subjects)

    def look(subject: str) -> KnownSubject | None:
        return _known(registry, subject, wanted, subject in known)

    found = {subject: each for subject, each in _for_each(wanted, look) if each is not None}
    return plan_schemas(wanted, found, subjects, prunes=prunes)


def schema_steps(registry: RegistryClient, changes: Iterable[SchemaChange]) -> tuple[list[Step], list[Step]]:
    """Steps that register schemas, and steps that delete subjects."""
    coming, going = [], {}
    for change in changes:
        if change.mark == REMOVE:
            going[change.subject] = change.row()
        else:
            coming.append(Step([change.row()], _registration(registry, change)))
    return coming, [Step(list(going.values()), lambda: _remove(registry, going))] if going else []


def subject_level(registry: RegistryClient, subject: str) -> str | None:
    """The compatibility level set on the subject itself."""
    try:
        found = registry.config(subject, or_global=False)
    except RegistryError as problem:
        if not is_missing(problem):
            raise
        return None
    level = found.get("compatibilityLevel")
    return None if level is None else str(level)


def _known(
    registry: RegistryClient, subject: str, wanted: Mapping[str, SubjectState], exists: bool
) -> KnownSubject | None:
    level, draft = subject_level(registry, subject), wanted[subject].draft
    if not exists:
        return None if level is None else KnownSubject(SubjectState(None, level), 0)
    newest = registry.version(subject)
    state = SubjectState(newest.draft, level)
    if draft is None or newest.draft[:3] == draft[:3]:
        return KnownSubject(state, newest.version, newest.version)
    matching = _matching(registry, subject, draft)
    # A schema that references another schema of this file can be checked only after that one is registered.
    waits = any(reference.subject in wanted for reference in draft.references)
    problems: tuple[str, ...] = ()
    if matching is None and not waits:
        verdict = registry.check(subject, draft)
        problems = () if verdict.is_compatible else verdict.messages or ("it is incompatible",)
    return KnownSubject(state, newest.version, matching, problems)


def _matching(registry: RegistryClient, subject: str, draft: UnregisteredSchema) -> int | None:
    """The version with this schema; the registry compares the meaning, not the text."""
    try:
        return registry.lookup(subject, draft).version
    except RegistryError as problem:
        # An unreadable schema, or one with missing references, matches no version; registering it reports the reason.
        if not is_missing(problem) and problem.code // 100 != UNPROCESSABLE:
            raise
        return None


def _registration(registry: RegistryClient, change: SchemaChange) -> Callable[[], None]:
    def run() -> None:
        assert change.after is not None
        if change.level is not None:
            registry.set_config({"compatibility": change.level}, change.subject)
        if change.is_new_version and change.after.draft is not None:
            try:
                registry.register(change.subject, change.after.draft)
            except SchemaError:
                _restore_level(registry, change)
                raise

    return run


def _restore_level(registry: RegistryClient, change: SchemaChange) -> None:
    """Restore the level if its schema was rejected."""
    if change.level is None:
        return
    before = change.before.compatibility if change.before is not None else None
    if before is None:
        registry.delete_config(change.subject)
    else:
        registry.set_config({"compatibility": before}, change.subject)


def _remove(registry: RegistryClient, rows: Mapping[str, Row]) -> dict[Row, Exception]:
    """Delete subjects. A referenced subject is rejected until its referrers are deleted, so retry while any succeed."""
    refused: dict[str, Exception] = {}
    left = list(rows)
    while left:
        refused = {}
        for subject in left:
            try:
                registry.delete_subject(subject)
            except RegistryError as problem:
                refused[subject] = problem
        if len(refused) == len(left):
            break
        left = list(refused)
    return {rows[subject]: problem for subject, problem in refused.items()}


def _for_each(names: Iterable[str], ask: Callable[[str], T]) -> list[tuple[str, T]]:
    listed = list(names)
    with ThreadPoolExecutor(REQUESTS_AT_ONCE) as threads:
        return list(zip(listed, threads.map(ask, listed), strict=True))
