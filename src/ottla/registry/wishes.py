"""What clients want changed, one class a wish; `Registry.change` grants it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from ottla.registry.subjects.drafts import Draft


class Register(NamedTuple):
    """The answer is the Schema, and whether more was written than was brought."""

    subject: str
    draft: Draft
    is_normalized: bool = False


class DeleteVersion(NamedTuple):
    subject: str
    version: int
    is_permanent: bool


class DeleteSubject(NamedTuple):
    subject: str
    is_permanent: bool


class SetConfig(NamedTuple):
    subject: str | None
    changes: Mapping[str, Any]


class DeleteConfig(NamedTuple):
    subject: str | None


class SetMode(NamedTuple):
    subject: str | None
    mode: str
    is_forced: bool


class DeleteMode(NamedTuple):
    subject: str | None


Wish = Register | DeleteVersion | DeleteSubject | SetConfig | DeleteConfig | SetMode | DeleteMode
