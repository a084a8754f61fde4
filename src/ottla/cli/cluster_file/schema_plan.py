"""Schemas that a file wants and a registry lacks. Pure: what the registry said comes in as values.

Rules:
1. The schema of the file is to be the newest version of its subject. A registry only goes on: what it has as an older
   version cannot be made the newest one again.
2. Whether a schema fits those before it is the registry's verdict, by the level that the subject will have.
3. A schema comes after those that it refers to.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from ottla.cli.cluster_file.model import SCHEMAS, SubjectState
from ottla.cli.security.plan import ADD, CHANGE, NOT_POSSIBLE, NOTHING, REMOVE
from ottla.cli.security.steps import Row
from ottla.operations.schema_registry.schemas import TYPES, Draft


class KnownSubject(NamedTuple):
    """What a registry says about a subject, and about the schema that the file has for it."""

    state: SubjectState
    version: int  # of the newest schema
    matching: int | None = None  # the version that has the file's schema
    problems: tuple[str, ...] = ()  # why the file's schema does not fit, by the level that holds now


class SchemaChange(NamedTuple):
    """A subject that comes, goes, gets a version or another level."""

    mark: str
    subject: str
    before: SubjectState | None
    after: SubjectState | None
    version: int = 0  # the newest one until now
    is_new_version: bool = False

    @property
    def level(self) -> str | None:
        """The level that is to be set; None if it stays."""
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
    """In the order in which it must be done."""

    changes: list[SchemaChange]
    refusals: list[tuple[Row, str]]
    left: dict[str, int]


NO_SCHEMAS = SchemaPlan([], [], {})


def plan_schemas(
    wanted: Mapping[str, SubjectState], found: Mapping[str, KnownSubject], subjects: list[str], *, prunes: bool
) -> SchemaPlan:
    """`found` are those that the file wants and the registry has, `subjects` all that it has."""
    changes: list[SchemaChange] = []
    refusals: list[tuple[Row, str]] = []
    for subject in _ordered(wanted):
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
            "a registry does not go back. Put the newest schema into the file, or delete the versions behind it "
            f"(ottla schemas delete {subject} --version {known.version})"
        )
    if known.problems:
        level = known.state.compatibility or "the registry's"
        return f"the schema of {subject} does not fit version {known.version} (level: {level}): {known.problems[0]}"
    return ""


def _ordered(wanted: Mapping[str, SubjectState]) -> list[str]:
    """Each behind those that it refers to; circles are for the registry to refuse."""
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


def _draft_text(draft: Draft | None) -> str:
    return NOTHING if draft is None else f"{TYPES[draft.kind].lower()} schema"


def _joined(words: list[str]) -> str:
    return ", ".join(word for word in words if word)
