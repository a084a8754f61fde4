"""One request as the handlers see it: names out of its path, parameters, body; and the answers that it can get."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple
from urllib.parse import parse_qsl

import msgspec

from ottla.registry import errors
from ottla.registry.access import Sees, sees_everything
from ottla.registry.errors import RegistryError
from ottla.registry.http.bodies import read_draft
from ottla.registry.records import VERSION_MAX
from ottla.registry.registry import Registry
from ottla.registry.subjects.drafts import Draft, no_reference, refused
from ottla.registry.subjects.names import normalize, within
from ottla.registry.subjects.settings import aliased

PARAMETERS_MAX: Final = 50
LATEST: Final = -1


class Answer(NamedTuple):
    """`body` is sent as it is, anything else as JSON."""

    body: object
    status: int = 200


@dataclass(frozen=True, slots=True)
class Call:
    """A request; `context` is that of the path, as `:.test:`, empty for none."""

    registry: Registry
    names: Mapping[str, str]
    parameters: Mapping[str, str]
    body: bytes
    is_more: bool
    context: str = ""
    sees: Sees = sees_everything  # whether the one who asks may read a subject

    @property
    def subject(self) -> str:
        """The subject that the path names; an alias is the subject that it stands for."""
        return aliased(self.registry.state, self.named_subject)

    @property
    def named_subject(self) -> str:
        """The subject exactly as it was named."""
        return self.placed(self.names["subject"])

    @property
    def setting_subject(self) -> str | None:
        """Whom a setting is for: a subject, a context, or everything."""
        return (self.placed(self.names["subject"]) if "subject" in self.names else normalize(self.context)) or None

    @property
    def parameter_subject(self) -> str:
        """The subject of a question about an id: it says in which context the id is meant."""
        given = self.placed(self.parameters.get("subject", ""))
        return aliased(self.registry.state, given) if given else ""

    @property
    def prefix(self) -> str:
        """Which subjects are listed."""
        given = self.parameters.get("subjectPrefix")
        if self.context:
            return (given or "") if (given or "").startswith(":") else f"{self.context}{given or ''}"
        return ":*:" if given is None else given

    def placed(self, subject: str) -> str:
        if not self.context:
            return normalize(subject)
        return within(self.context, subject) if subject else normalize(self.context)

    def flag(self, name: str) -> bool:
        return self.parameters.get(name, "").lower() == "true"

    def number(self, name: str, default: int) -> int:
        """A parameter that is a number; Jersey answers others with 404."""
        return read_number(self.parameters[name]) if name in self.parameters else default

    def page(self, found: list[Any], default_limit: int = -1) -> list[Any]:
        offset, limit = self.number("offset", 0), self.number("limit", default_limit)
        if limit <= 0:
            limit = default_limit
        first = max(offset, 0)
        return found[first : first + limit] if limit > 0 else found[first:]

    def draft(self) -> Draft:
        """The schema of the body. What somebody may not read is not there for his references either."""
        draft = read_draft(self.body)
        for item in draft.references:
            if not self.sees(within(self.subject, item.subject)):
                raise refused(self.subject, draft, no_reference(item).message)
        return draft

    def version(self) -> int:
        return read_version(self.names["version"])


Handler = Callable[[Call], Awaitable[object]]


def read_parameters(query: bytes) -> dict[str, str]:
    """The first of each name counts."""
    try:
        pairs = parse_qsl(query.decode("ascii", "replace"), keep_blank_values=True, max_num_fields=PARAMETERS_MAX)
    except ValueError:
        raise RegistryError(400, f"The request has more than {PARAMETERS_MAX} parameters") from None
    found: dict[str, str] = {}
    for name, value in pairs:
        found.setdefault(name, value)
    return found


def read_number(text: str) -> int:
    """A number of 32 bits."""
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
