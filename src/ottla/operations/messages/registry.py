"""A schema registry with Confluent's API: fetches schemas by number, once, and decodes what was written with them.

Rules:
1. No redirects, no proxies of the environment, `http` and `https` only. Addresses inside (private, loopback) only if
   that is allowed, and it is the checked address that is connected to, not what the name means a moment later.
2. Answers are bounded in size and time; what was found is kept, and a registry that does not answer is left alone for
   a while, so that a search over millions of messages does not wait for it millions of times.
3. Whatever goes wrong is a SchemaError.
"""

from __future__ import annotations

import base64
import http.client
import json
import socket
import ssl
import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from typing import Any, NamedTuple
from urllib.parse import quote, urlsplit

from ottla.operations.messages.decoding import SchemaError
from ottla.operations.public_addresses import is_public

TIMEOUT_S = 5.0
ANSWER_BYTES_MAX = 4 << 20
SCHEMAS_MAX = 1000
REFERENCES_MAX = 100
REST_S = 10.0  # how long a registry that failed is left alone
MISSING_S = 30.0  # how long a schema that is not there is not asked for again
AVRO, JSON_SCHEMA, PROTOBUF = "avro", "json schema", "protobuf"
KINDS = {"AVRO": AVRO, "JSON": JSON_SCHEMA, "PROTOBUF": PROTOBUF}

Decode = Callable[[bytes], Any]


class Schema(NamedTuple):
    """One schema as the registry tells it; references are (name, text), in the order in which they are needed."""

    kind: str
    text: str
    references: tuple[tuple[str, str], ...] = ()


class RegistryAddress(NamedTuple):
    """Where a registry is, checked."""

    url: str
    user: str | None = None
    password: str | None = None
    is_inside_allowed: bool = False


class Registry:
    """Used by several threads at once."""

    def __init__(
        self,
        address: RegistryAddress,
        make_decoder: Callable[[Schema], Decode] | None = None,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        from ottla.operations.messages.schema_decoders import make_decoder as usual  # noqa: PLC0415 (needs fastavro)

        self.address = address
        try:
            self.parts = urlsplit(address.url)
        except ValueError:
            raise SchemaError(f"{address.url!r} is no address of a registry: write http://host:8081") from None
        if "@" in self.parts.netloc:  # it would be shown wherever the address is
            raise SchemaError("the login of a registry stands in basic.auth.user.info, not in its address")
        if self.parts.scheme not in ("http", "https") or not self.parts.hostname:
            raise SchemaError(f"{address.url!r} is no address of a registry: write http://host:8081")
        self._make_decoder = make_decoder or usual
        self._monotonic = monotonic
        self._known: OrderedDict[int, tuple[str, Decode]] = OrderedDict()
        self._missing: dict[int, tuple[float, str]] = {}  # until when, and why
        self._resting: tuple[float, str] = (float("-inf"), "")
        self._lock = threading.Lock()

    def decode(self, schema_id: int, data: bytes) -> tuple[str, Any]:
        """What bytes that were written with a schema say. Raises SchemaError."""
        kind, decode = self._decoder(schema_id)
        try:
            return kind, decode(data)
        except SchemaError:
            raise
        except Exception as problem:  # noqa: BLE001 (what a decoder raises for strange bytes is anything)
            words = f"{type(problem).__name__}: {problem}"[:200]
            raise SchemaError(f"the bytes do not fit schema {schema_id}: {words}") from None

    def _decoder(self, schema_id: int) -> tuple[str, Decode]:
        with self._lock:
            found = self._known.get(schema_id)
            if found is not None:
                self._known.move_to_end(schema_id)
                return found
            now = self._monotonic()
            for until, why in (self._missing.get(schema_id, (now, "")), self._resting):
                if now < until:
                    raise SchemaError(why)
            try:
                schema = self._fetch(schema_id)
                found = (schema.kind, self._make_decoder(schema))
            except _UnreachableError as problem:
                self._resting = (now + REST_S, str(problem))
                raise
            except SchemaError as problem:
                if len(self._missing) >= SCHEMAS_MAX:
                    self._missing.clear()
                self._missing[schema_id] = (now + MISSING_S, str(problem))
                raise
            self._known[schema_id] = found
            if len(self._known) > SCHEMAS_MAX:
                self._known.popitem(last=False)
            return found

    def _fetch(self, schema_id: int) -> Schema:
        answer = self._get(f"/schemas/ids/{schema_id}")
        kind = KINDS.get(str(answer.get("schemaType", "AVRO")))
        if kind is None or not isinstance(answer.get("schema"), str):
            raise SchemaError(f"schema {schema_id} is of the unknown type {answer.get('schemaType')!r}")
        references: dict[str, str] = {}
        self._collect(answer, references)
        return Schema(kind, answer["schema"], tuple(references.items()))

    def _collect(self, answer: dict[str, Any], found: dict[str, str], depth: int = 0) -> None:
        """What a schema refers to, deepest first."""
        for reference in answer.get("references") or ():
            name = str(reference.get("name"))
            if name in found:
                continue
            if len(found) >= REFERENCES_MAX or depth > REFERENCES_MAX:
                raise SchemaError(f"the schema refers to more than {REFERENCES_MAX} others")
            subject, version = quote(str(reference.get("subject")), safe=""), int(reference.get("version", -1))
            inner = self._get(f"/subjects/{subject}/versions/{version}")
            self._collect(inner, found, depth + 1)
            found[name] = str(inner.get("schema"))

    def _get(self, path: str) -> dict[str, Any]:
        status, body = self._request(f"{self.parts.path.rstrip('/')}{path}")
        if status == 404:
            raise SchemaError(f"the registry {self.address.url} does not know {path}")
        if status != 200:
            raise _UnreachableError(f"the registry {self.address.url} answers {status}")
        try:
            answer = json.loads(body)
        except (ValueError, RecursionError):
            answer = None
        if not isinstance(answer, dict):
            raise _UnreachableError(f"{self.address.url} does not answer as a schema registry does")
        return answer

    def _request(self, path: str) -> tuple[int, bytes]:
        deadline = self._monotonic() + TIMEOUT_S
        try:
            connection = _connection(self.parts.scheme, str(self.parts.hostname), self.parts.port, self.address)
            try:
                connection.request("GET", path, headers=self._headers())
                response = connection.getresponse()
                body = b""
                while chunk := response.read1(64 << 10):
                    body += chunk
                    if len(body) > ANSWER_BYTES_MAX or self._monotonic() > deadline:
                        raise _UnreachableError(f"the registry {self.address.url} sends too much or too slowly")
                return response.status, body
            finally:
                connection.close()
        except (OSError, http.client.HTTPException, ValueError) as problem:
            words = getattr(problem, "strerror", None) or str(problem) or type(problem).__name__
            raise _UnreachableError(f"the registry {self.address.url} cannot be reached: {words.lower()}") from None

    def _headers(self) -> dict[str, str]:
        headers = {"Accept": "application/vnd.schemaregistry.v1+json, application/json", "Connection": "close"}
        if self.address.user is not None:
            login = f"{self.address.user}:{self.address.password or ''}".encode()
            headers["Authorization"] = f"Basic {base64.b64encode(login).decode()}"
        return headers

    def __repr__(self) -> str:
        return f"<Registry {self.address.url} schemas={len(self._known)}>"


class _UnreachableError(SchemaError):
    """The registry as a whole, not one schema."""


def _connection(scheme: str, host: str, port: int | None, address: RegistryAddress) -> http.client.HTTPConnection:
    port = port or (443 if scheme == "https" else 80)
    place = checked_address(host, port, address.is_inside_allowed)
    if scheme == "https":
        connection: http.client.HTTPConnection = http.client.HTTPSConnection(host, port, timeout=TIMEOUT_S)
        plain = socket.create_connection(place, TIMEOUT_S)
        connection.sock = ssl.create_default_context().wrap_socket(plain, server_hostname=host)
    else:
        connection = http.client.HTTPConnection(host, port, timeout=TIMEOUT_S)
        connection.sock = socket.create_connection(place, TIMEOUT_S)
    return connection


def checked_address(host: str, port: int, is_inside_allowed: bool) -> tuple[str, int]:
    """The address that a name means, if it may be talked to. Raises SchemaError, OSError."""
    found = [str(item[4][0]) for item in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)]
    if not found:
        raise SchemaError(f"{host} has no address")
    for text in found:
        if not is_inside_allowed and not is_public(text):
            raise SchemaError(f"{host} is {text}, an address inside: allow such registries first")
    return found[0], port
