"""The schemas of a file and those of a registry: read, judged by the registry, registered."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Final, TypeVar

from ottla.cli.cluster_file.model import SubjectState
from ottla.cli.cluster_file.schema_plan import KnownSubject, SchemaChange, SchemaPlan, plan_schemas
from ottla.cli.security.plan import REMOVE
from ottla.cli.security.steps import Row, Step
from ottla.operations.schema_registry.client import RegistryClient, is_missing
from ottla.operations.schema_registry.errors import RegistryError, SchemaError
from ottla.operations.schema_registry.schemas import Draft

AT_ONCE: Final = 8  # subjects are asked for one by one, which is mostly waiting
ALL_CONTEXTS: Final = ":*:"
NOT_READABLE: Final = 422  # hundreds of such codes

T = TypeVar("T")


def read_subjects(registry: RegistryClient) -> Mapping[str, SubjectState]:
    """The newest schema of every subject, for an export."""

    def state(subject: str) -> SubjectState:
        return SubjectState(registry.version(subject).draft, own_level(registry, subject))

    return dict(_each(registry.subjects(ALL_CONTEXTS), state))


def make_schema_plan(registry: RegistryClient, wanted: Mapping[str, SubjectState], *, prunes: bool) -> SchemaPlan:
    subjects = registry.subjects(ALL_CONTEXTS)
    known = set(subjects)

    def look(subject: str) -> KnownSubject | None:
        return _known(registry, subject, wanted, subject in known)

    found = {subject: each for subject, each in _each(wanted, look) if each is not None}
    return plan_schemas(wanted, found, subjects, prunes=prunes)


def schema_steps(registry: RegistryClient, changes: Iterable[SchemaChange]) -> tuple[list[Step], list[Step]]:
    """What comes, and what goes."""
    coming, going = [], {}
    for change in changes:
        if change.mark == REMOVE:
            going[change.subject] = change.row()
        else:
            coming.append(Step([change.row()], _registration(registry, change)))
    return coming, [Step(list(going.values()), lambda: _remove(registry, going))] if going else []


def own_level(registry: RegistryClient, subject: str) -> str | None:
    """The level of compatibility that is set for just this subject."""
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
    level, draft = own_level(registry, subject), wanted[subject].draft
    if not exists:
        return None if level is None else KnownSubject(SubjectState(None, level), 0)
    newest = registry.version(subject)
    state = SubjectState(newest.draft, level)
    if draft is None or newest.draft[:3] == draft[:3]:
        return KnownSubject(state, newest.version, newest.version)
    matching = _matching(registry, subject, draft)
    # What refers to schemas of this very file can be judged only when those are there.
    waits = any(reference.subject in wanted for reference in draft.references)
    problems: tuple[str, ...] = ()
    if matching is None and not waits:
        verdict = registry.check(subject, draft)
        problems = () if verdict.is_compatible else verdict.messages or ("it is incompatible",)
    return KnownSubject(state, newest.version, matching, problems)


def _matching(registry: RegistryClient, subject: str, draft: Draft) -> int | None:
    """The version that has this schema; the registry compares what it means, not how it is written."""
    try:
        return registry.lookup(subject, draft).version
    except RegistryError as problem:
        # A schema that it cannot read, or whose references it lacks, is none that it has; registering it will tell.
        if not is_missing(problem) and problem.code // 100 != NOT_READABLE:
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
                _put_back(registry, change)
                raise

    return run


def _put_back(registry: RegistryClient, change: SchemaChange) -> None:
    """A level without its schema is half of what was asked for."""
    if change.level is None:
        return
    before = change.before.compatibility if change.before is not None else None
    if before is None:
        registry.delete_config(change.subject)
    else:
        registry.set_config({"compatibility": before}, change.subject)


def _remove(registry: RegistryClient, rows: Mapping[str, Row]) -> dict[Row, Exception]:
    """What others refer to is refused until those are gone, so the rest is tried again as long as something goes."""
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


def _each(names: Iterable[str], ask: Callable[[str], T]) -> list[tuple[str, T]]:
    listed = list(names)
    with ThreadPoolExecutor(AT_ONCE) as threads:
        return list(zip(listed, threads.map(ask, listed), strict=True))
