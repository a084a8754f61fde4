"""A registry with Confluent's API, question by question. Every failure is a SchemaError, with a code if it has one."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, NamedTuple
from urllib.parse import quote

from ottla.operations.schema_registry.addresses import RegistryAddress
from ottla.operations.schema_registry.errors import RegistryError, SchemaError, UnreachableError
from ottla.operations.schema_registry.framing import SchemaName
from ottla.operations.schema_registry.schemas import (
    Draft,
    Reference,
    Registered,
    Schema,
    read_draft,
    read_registered,
)
from ottla.operations.schema_registry.transport import Transport

REFERENCES_MAX = 100
LATEST = "latest"
INCOMPATIBLE, SUBJECT_NOT_FOUND, VERSION_NOT_FOUND, SCHEMA_NOT_FOUND = 409, 40401, 40402, 40403


class Verdict(NamedTuple):
    """Whether a schema may follow those that are there, and why not."""

    is_compatible: bool
    messages: tuple[str, ...]


class RegistryClient:
    """Used by several threads at once."""

    def __init__(self, address: RegistryAddress, monotonic: Callable[[], float] = time.monotonic) -> None:
        self.address = address
        self.transport = Transport(address, monotonic)

    # schemas

    def draft(self, name: SchemaName) -> Draft:
        """A schema by its id or GUID."""
        kind = "ids" if isinstance(name, int) else "guids"
        return read_draft(self._object("GET", f"/schemas/{kind}/{quote(str(name), safe='')}"))

    def schema(self, name: SchemaName) -> Schema:
        """With all that it refers to."""
        return self.whole(self.draft(name))

    def whole(self, draft: Draft) -> Schema:
        """A draft with the texts of all that it refers to, deepest first."""
        found: dict[str, str] = {}
        self._collect(draft.references, found, 0)
        return Schema(draft.kind, draft.text, tuple(found.items()))

    def _collect(self, references: tuple[Reference, ...], found: dict[str, str], depth: int) -> None:
        for reference in references:
            if reference.name in found:
                continue
            if len(found) >= REFERENCES_MAX or depth > REFERENCES_MAX:
                raise SchemaError(f"the schema refers to more than {REFERENCES_MAX} others")
            version = reference.version if reference.version > 0 else LATEST
            # Another schema may still need a version that was deleted, and is told it.
            path = f"{_subject(reference.subject)}/versions/{version}"
            inner = read_draft(self._object("GET", path, query={"deleted": "true"}))
            self._collect(inner.references, found, depth + 1)
            found[reference.name] = inner.text

    # subjects

    def subjects(self, prefix: str | None = None, *, deleted: bool = False) -> list[str]:
        """All of them; in all contexts with the prefix `:*:`."""
        query = ({} if prefix is None else {"subjectPrefix": prefix}) | ({"deleted": "true"} if deleted else {})
        return [str(each) for each in self._list("GET", "/subjects", query=query)]

    def versions(self, subject: str, *, deleted: bool = False) -> list[int]:
        query = {"deleted": "true"} if deleted else {}
        return [int(each) for each in self._list("GET", f"{_subject(subject)}/versions", query=query)]

    def version(self, subject: str, version: int | str = LATEST, *, deleted: bool = False) -> Registered:
        query = {"deleted": "true"} if deleted else {}
        return read_registered(self._object("GET", f"{_subject(subject)}/versions/{version}", query=query))

    def register(
        self,
        subject: str,
        draft: Draft,
        *,
        normalize: bool = False,
        schema_id: int | None = None,
        version: int | None = None,
    ) -> int:
        """The id of the schema, new or not. `schema_id` and `version` are for subjects in mode IMPORT."""
        body = draft.body()
        if schema_id is not None:
            body["id"] = schema_id
        if version is not None:
            body["version"] = version
        query = {"normalize": "true"} if normalize else {}
        return int(self._object("POST", f"{_subject(subject)}/versions", body, query)["id"])

    def lookup(self, subject: str, draft: Draft, *, normalize: bool = False, deleted: bool = False) -> Registered:
        """The version of a subject that has this schema."""
        query = ({"normalize": "true"} if normalize else {}) | ({"deleted": "true"} if deleted else {})
        return read_registered(self._object("POST", _subject(subject), draft.body(), query))

    def check(self, subject: str, draft: Draft, version: int | str | None = None) -> Verdict:
        """Against one version, or by the subject's level against those that it asks for."""
        path = f"/compatibility{_subject(subject)}/versions"
        query = {"verbose": "true"}
        answer = self._object("POST", path if version is None else f"{path}/{version}", draft.body(), query)
        messages = tuple(str(each) for each in answer.get("messages") or ())
        return Verdict(answer.get("is_compatible") is True, messages)

    def delete_subject(self, subject: str, *, permanent: bool = False) -> list[int]:
        query = {"permanent": "true"} if permanent else {}
        return [int(each) for each in self._list("DELETE", _subject(subject), query=query)]

    def delete_version(self, subject: str, version: int | str, *, permanent: bool = False) -> int:
        query = {"permanent": "true"} if permanent else {}
        return int(self.transport.ask("DELETE", f"{_subject(subject)}/versions/{version}", query=query))

    # config and mode

    def config(self, subject: str | None = None, *, or_global: bool = True) -> dict[str, Any]:
        query = {"defaultToGlobal": "true"} if or_global and subject is not None else {}
        return self._object("GET", _settings("config", subject), query=query)

    def set_config(self, settings: dict[str, Any], subject: str | None = None) -> dict[str, Any]:
        return self._object("PUT", _settings("config", subject), settings)

    def delete_config(self, subject: str | None = None) -> dict[str, Any]:
        return self._object("DELETE", _settings("config", subject))

    def mode(self, subject: str | None = None, *, or_global: bool = True) -> str:
        query = {"defaultToGlobal": "true"} if or_global and subject is not None else {}
        return str(self._object("GET", _settings("mode", subject), query=query).get("mode"))

    def set_mode(self, mode: str, subject: str | None = None, *, force: bool = False) -> None:
        self._object("PUT", _settings("mode", subject), {"mode": mode}, {"force": "true"} if force else {})

    def delete_mode(self, subject: str) -> None:
        self._object("DELETE", _settings("mode", subject))

    def _object(self, method: str, path: str, body: Any = None, query: dict[str, str] | None = None) -> dict[str, Any]:
        answer = self.transport.ask(method, path, body, query)
        if not isinstance(answer, dict):
            raise UnreachableError(f"{self.address.url} does not answer as a schema registry does")
        return answer

    def _list(self, method: str, path: str, query: dict[str, str] | None = None) -> list[Any]:
        answer = self.transport.ask(method, path, None, query)
        if not isinstance(answer, list):
            raise UnreachableError(f"{self.address.url} does not answer as a schema registry does")
        return answer

    def __repr__(self) -> str:
        return f"<RegistryClient {self.address.url}>"


def is_missing(problem: SchemaError) -> bool:
    """Whether the registry says that there is no such thing, and not that something is wrong."""
    return isinstance(problem, RegistryError) and problem.code // 100 in (4, 404)


def _subject(subject: str) -> str:
    return f"/subjects/{quote(subject, safe='')}"


def _settings(kind: str, subject: str | None) -> str:
    return f"/{kind}" if subject is None else f"/{kind}/{quote(subject, safe='')}"
