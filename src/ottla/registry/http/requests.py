"""A request as the handlers see it: names from the path, parameters and body; and their responses."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import parse_qsl

import msgspec

from ottla.registry import errors
from ottla.registry.access import CanRead, reads_everything
from ottla.registry.errors import RegistryError
from ottla.registry.http.bodies import read_draft
from ottla.registry.records import VERSION_MAX
from ottla.registry.registry import Registry
from ottla.registry.subjects.new_schemas import NewSchema, invalid_schema_error, reference_not_found
from ottla.registry.subjects.schema import normalize, within
from ottla.registry.subjects.settings import resolve_alias

PARAMETERS_MAX: Final = 50
LATEST: Final = -1


@dataclass(frozen=True, slots=True)
class Call:
    """A request; `context` is that of the path, as `:.test:`, or ""."""

    registry: Registry
    names: Mapping[str, str]
    parameters: Mapping[str, str]
    body: bytes
    accepts_unknown_properties: bool
    context: str = ""
    can_read: CanRead = reads_everything  # whether the user may read a subject

    @property
    def subject(self) -> str:
        """The subject in the path; an alias is replaced by its target."""
        return resolve_alias(self.registry.state, self.named_subject)

    @property
    def named_subject(self) -> str:
        """The subject exactly as named in the path."""
        return self.in_context(self.names["subject"])

    @property
    def setting_subject(self) -> str | None:
        """The target of a setting: a subject, a context, or None for global."""
        return (self.in_context(self.names["subject"]) if "subject" in self.names else normalize(self.context)) or None

    @property
    def parameter_subject(self) -> str:
        """The subject parameter of a lookup by ID, which selects the context."""
        given = self.in_context(self.parameters.get("subject", ""))
        return resolve_alias(self.registry.state, given) if given else ""

    @property
    def prefix(self) -> str:
        """The prefix of the subjects to list."""
        given = self.parameters.get("subjectPrefix")
        if self.context:
            return (given or "") if (given or "").startswith(":") else f"{self.context}{given or ''}"
        return ":*:" if given is None else given

    def in_context(self, subject: str) -> str:
        if not self.context:
            return normalize(subject)
        return within(self.context, subject) if subject else normalize(self.context)

    def flag(self, name: str) -> bool:
        return self.parameters.get(name, "").lower() == "true"

    def number(self, name: str, default: int) -> int:
        """A numeric parameter; Jersey answers others with 404."""
        return read_number(self.parameters[name]) if name in self.parameters else default

    def page(self, found: list[Any], default_limit: int = -1) -> list[Any]:
        offset, limit = self.number("offset", 0), self.number("limit", default_limit)
        if limit <= 0:
            limit = default_limit
        first = max(offset, 0)
        return found[first : first + limit] if limit > 0 else found[first:]

    def draft(self) -> NewSchema:
        """The schema in the body. References to subjects that the user may not read do not exist."""
        draft = read_draft(self.body)
        for item in draft.references:
            if not self.can_read(within(self.subject, item.subject)):
                raise invalid_schema_error(self.subject, draft, reference_not_found(item).message)
        return draft

    def version(self) -> int:
        return read_version(self.names["version"])


Handler = Callable[[Call], Awaitable[object]]


def read_parameters(query: bytes) -> dict[str, str]:
    """The first value of each name counts."""
    try:
        pairs = parse_qsl(query.decode("ascii", "replace"), keep_blank_values=True, max_num_fields=PARAMETERS_MAX)
    except ValueError:
        raise RegistryError(400, f"The request has more than {PARAMETERS_MAX} parameters") from None
    found: dict[str, str] = {}
    for name, value in pairs:
        found.setdefault(name, value)
    return found


def read_number(text: str) -> int:
    """A 32-bit number."""
    digits = text[1:] if text[:1] in ("-", "+") else text
    if digits.isascii() and digits.isdecimal() and len(digits) <= 10 and -(2**31) <= int(text) <= VERSION_MAX:
        return int(text)
    raise not_found()


def read_version(text: str) -> int:
    if text == "latest":
        return LATEST
    try:
        number = read_number(text)
    except RegistryError:
        raise errors.invalid_version(text) from None
    if number != LATEST and number < 1:
        raise errors.invalid_version(text)
    return number


def not_found() -> RegistryError:
    return RegistryError(404, "HTTP 404 Not Found")


def encode(body: object) -> bytes:
    return body if isinstance(body, bytes) else msgspec.json.encode(body)
