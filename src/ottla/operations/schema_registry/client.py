"""REST client of a Confluent-compatible schema registry. Every failure is a SchemaError, with the registry's code if
any.

Requests follow no redirects, use no proxies from the environment, and are bounded in size and time. Of several nodes
the last one that answered is tried first; if it cannot be reached, the next one is tried.
"""

from __future__ import annotations

import http.client
import json
import socket
import time
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple
from urllib.parse import SplitResult, quote, urlencode

from ottla.operations.schema_registry.client_config import RegistryAddress, checked_address
from ottla.operations.schema_registry.errors import RegistryError, SchemaError, UnreachableError
from ottla.operations.schema_registry.framing import SchemaName
from ottla.operations.schema_registry.schemas import (
    Reference,
    RegisteredSchema,
    Schema,
    UnregisteredSchema,
    read_draft,
    read_registered,
)

TIMEOUT_S = 5.0
ANSWER_BYTES_MAX = 4 << 20
CHUNK_BYTES = 64 << 10
MEDIA_TYPE = "application/vnd.schemaregistry.v1+json"
GENERAL_STATUSES = (401, 403, 407, 429)  # statuses that do not depend on the requested schema


class Transport:
    """Sends HTTP requests. Thread-safe: every request has its own connection."""

    def __init__(
        self,
        address: RegistryAddress,
        monotonic: Callable[[], float] = time.monotonic,
        timeout_s: float = TIMEOUT_S,
        answer_bytes_max: int = ANSWER_BYTES_MAX,
    ) -> None:
        self.address = address
        self.nodes = address.nodes()
        self._monotonic = monotonic
        self._timeout_s = timeout_s
        self._answer_bytes_max = answer_bytes_max

    def request(self, method: str, path: str, body: Any = None, query: Mapping[str, str] | None = None) -> Any:
        """The response as JSON. Raises RegistryError, UnreachableError."""
        status, data = self._request_any_node(method, f"{path}?{urlencode(query)}" if query else path, body)
        try:
            answer = json.loads(data)
        except (ValueError, RecursionError):
            answer = None
        url = self.address.url
        if 200 <= status < 300:
            if answer is None:
                raise UnreachableError(f"{url} does not answer as a schema registry does")
            return answer
        said = answer.get("message") if isinstance(answer, dict) else None
        words = f": {said!s:.500}" if said else ""
        if not 400 <= status < 500 or status in GENERAL_STATUSES:
            raise UnreachableError(f"the registry {url} answers {status}{words}")
        code = answer.get("error_code") if isinstance(answer, dict) else None
        if status == 404 and not said:
            raise RegistryError(f"the registry {url} does not know {path}", status)
        raise RegistryError(str(said) if said else f"the registry {url} answers {status}", _number(code, status))

    def _request_any_node(self, method: str, path: str, body: Any) -> tuple[int, bytes]:
        data = None if body is None else json.dumps(body).encode()
        last = len(self.nodes) - 1
        for number, node in enumerate(list(self.nodes)):
            try:
                answer = self._request(node, method, path, data)
            except UnreachableError:
                if number == last:
                    raise
                continue
            if number:
                self.nodes = [node, *(each for each in self.nodes if each is not node)]
            return answer
        raise AssertionError("an address has at least one node")

    def _request(self, node: SplitResult, method: str, path: str, body: bytes | None) -> tuple[int, bytes]:
        deadline = self._monotonic() + self._timeout_s
        try:
            connection = self._connection(node)
            try:
                connection.request(method, node.path.rstrip("/") + path, body=body, headers=self._headers(body))
                response = connection.getresponse()
                found = b""
                while chunk := response.read1(CHUNK_BYTES):
                    found += chunk
                    if len(found) > self._answer_bytes_max or self._monotonic() > deadline:
                        raise UnreachableError(f"the registry {node.geturl()} sends too much or too slowly")
                return response.status, found
            finally:
                connection.close()
        except (OSError, http.client.HTTPException, ValueError) as problem:
            words = getattr(problem, "strerror", None) or str(problem) or type(problem).__name__
            raise UnreachableError(f"the registry {node.geturl()} cannot be reached: {words.lower()}") from None

    def _connection(self, node: SplitResult) -> http.client.HTTPConnection:
        host, is_tls = str(node.hostname), node.scheme == "https"
        port = node.port or (443 if is_tls else 80)
        place = checked_address(host, port, self.address.is_internal_allowed)
        connection = http.client.HTTPConnection(host, port, timeout=self._timeout_s)
        plain = socket.create_connection(place, self._timeout_s)
        if is_tls:
            try:
                plain = self.address.tls().wrap_socket(plain, server_hostname=host)
            except BaseException:
                plain.close()
                raise
        connection.sock = plain
        return connection

    def _headers(self, body: bytes | None) -> dict[str, str]:
        headers = {"Accept": f"{MEDIA_TYPE}, application/json", "Connection": "close"}
        if body is not None:
            headers["Content-Type"] = MEDIA_TYPE
        authorization = self.address.authorization()
        if authorization is not None:
            headers["Authorization"] = authorization
        return headers

    def __repr__(self) -> str:
        return f"<Transport {self.address.url}>"


def _number(code: Any, otherwise: int) -> int:
    return code if isinstance(code, int) else otherwise


REFERENCES_MAX = 100
LATEST = "latest"
INCOMPATIBLE, SUBJECT_NOT_FOUND, VERSION_NOT_FOUND, SCHEMA_NOT_FOUND = 409, 40401, 40402, 40403


class CompatibilityResult(NamedTuple):
    """The result of a compatibility check, with the reasons."""

    is_compatible: bool
    messages: tuple[str, ...]


class RegistryClient:
    """The REST calls. Thread-safe."""

    def __init__(self, address: RegistryAddress, monotonic: Callable[[], float] = time.monotonic) -> None:
        self.address = address
        self.transport = Transport(address, monotonic)

    # schemas

    def draft(self, name: SchemaName) -> UnregisteredSchema:
        """A schema by ID or GUID."""
        kind = "ids" if isinstance(name, int) else "guids"
        return read_draft(self._object("GET", f"/schemas/{kind}/{quote(str(name), safe='')}"))

    def schema(self, name: SchemaName) -> Schema:
        """A schema by ID or GUID, with all its references."""
        return self.with_references(self.draft(name))

    def with_references(self, draft: UnregisteredSchema) -> Schema:
        """The schema with the texts of all its references, deepest first."""
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
            # A deleted version may still be referenced; the registry returns it.
            path = f"{_subject(reference.subject)}/versions/{version}"
            inner = read_draft(self._object("GET", path, query={"deleted": "true"}))
            self._collect(inner.references, found, depth + 1)
            found[reference.name] = inner.text

    # subjects

    def subjects(self, prefix: str | None = None, *, deleted: bool = False) -> list[str]:
        """All subjects; with the prefix `:*:` those of all contexts."""
        query = ({} if prefix is None else {"subjectPrefix": prefix}) | ({"deleted": "true"} if deleted else {})
        return [str(each) for each in self._list("GET", "/subjects", query=query)]

    def versions(self, subject: str, *, deleted: bool = False) -> list[int]:
        query = {"deleted": "true"} if deleted else {}
        return [int(each) for each in self._list("GET", f"{_subject(subject)}/versions", query=query)]

    def version(self, subject: str, version: int | str = LATEST, *, deleted: bool = False) -> RegisteredSchema:
        query = {"deleted": "true"} if deleted else {}
        return read_registered(self._object("GET", f"{_subject(subject)}/versions/{version}", query=query))

    def register(
        self,
        subject: str,
        draft: UnregisteredSchema,
        *,
        normalize: bool = False,
        schema_id: int | None = None,
        version: int | None = None,
    ) -> int:
        """Register a schema; returns its ID, whether it is new or not. `schema_id` and `version`
        require mode IMPORT.
        """
        body = draft.body()
        if schema_id is not None:
            body["id"] = schema_id
        if version is not None:
            body["version"] = version
        query = {"normalize": "true"} if normalize else {}
        return int(self._object("POST", f"{_subject(subject)}/versions", body, query)["id"])

    def lookup(
        self, subject: str, draft: UnregisteredSchema, *, normalize: bool = False, deleted: bool = False
    ) -> RegisteredSchema:
        """The version of a subject with this schema."""
        query = ({"normalize": "true"} if normalize else {}) | ({"deleted": "true"} if deleted else {})
        return read_registered(self._object("POST", _subject(subject), draft.body(), query))

    def check(self, subject: str, draft: UnregisteredSchema, version: int | str | None = None) -> CompatibilityResult:
        """Check against one version, or against those that the subject's compatibility level requires."""
        path = f"/compatibility{_subject(subject)}/versions"
        query = {"verbose": "true"}
        answer = self._object("POST", path if version is None else f"{path}/{version}", draft.body(), query)
        messages = tuple(str(each) for each in answer.get("messages") or ())
        return CompatibilityResult(answer.get("is_compatible") is True, messages)

    def delete_subject(self, subject: str, *, permanent: bool = False) -> list[int]:
        query = {"permanent": "true"} if permanent else {}
        return [int(each) for each in self._list("DELETE", _subject(subject), query=query)]

    def delete_version(self, subject: str, version: int | str, *, permanent: bool = False) -> int:
        query = {"permanent": "true"} if permanent else {}
        return int(self.transport.request("DELETE", f"{_subject(subject)}/versions/{version}", query=query))

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
        answer = self.transport.request(method, path, body, query)
        if not isinstance(answer, dict):
            raise UnreachableError(f"{self.address.url} does not answer as a schema registry does")
        return answer

    def _list(self, method: str, path: str, query: dict[str, str] | None = None) -> list[Any]:
        answer = self.transport.request(method, path, None, query)
        if not isinstance(answer, list):
            raise UnreachableError(f"{self.address.url} does not answer as a schema registry does")
        return answer

    def __repr__(self) -> str:
        return f"<RegistryClient {self.address.url}>"


def is_missing(problem: SchemaError) -> bool:
    """Whether the registry reports that something does not exist."""
    return isinstance(problem, RegistryError) and problem.code // 100 in (4, 404)


def _subject(subject: str) -> str:
    return f"/subjects/{quote(subject, safe='')}"


def _settings(kind: str, subject: str | None) -> str:
    return f"/{kind}" if subject is None else f"/{kind}/{quote(subject, safe='')}"
