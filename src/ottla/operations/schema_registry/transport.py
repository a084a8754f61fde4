"""One request to a registry and its answer: no redirects, no proxies of the environment, bounded in size and time.

Of several nodes the one that answered last is asked first; one that cannot be reached is followed by the next.
"""

from __future__ import annotations

import http.client
import json
import socket
import time
from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import SplitResult, urlencode

from ottla.operations.schema_registry.addresses import RegistryAddress, checked_address
from ottla.operations.schema_registry.errors import RegistryError, UnreachableError

TIMEOUT_S = 5.0
ANSWER_BYTES_MAX = 4 << 20
CHUNK_BYTES = 64 << 10
MEDIA_TYPE = "application/vnd.schemaregistry.v1+json"
NOT_OF_ONE_SCHEMA = (401, 403, 407, 429)  # refusals that every other question would get as well


class Transport:
    """Used by several threads at once: every request has its own connection."""

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

    def ask(self, method: str, path: str, body: Any = None, query: Mapping[str, str] | None = None) -> Any:
        """The answer as JSON. Raises RegistryError, UnreachableError."""
        status, data = self._ask_nodes(method, f"{path}?{urlencode(query)}" if query else path, body)
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
        if not 400 <= status < 500 or status in NOT_OF_ONE_SCHEMA:
            raise UnreachableError(f"the registry {url} answers {status}{words}")
        code = answer.get("error_code") if isinstance(answer, dict) else None
        if status == 404 and not said:
            raise RegistryError(f"the registry {url} does not know {path}", status)
        raise RegistryError(str(said) if said else f"the registry {url} answers {status}", _number(code, status))

    def _ask_nodes(self, method: str, path: str, body: Any) -> tuple[int, bytes]:
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
        place = checked_address(host, port, self.address.is_inside_allowed)
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
