"""Schemas are requested once, only from allowed addresses, and failures are sentences."""

from __future__ import annotations

import http.server
import json
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from ottla.operations.schema_registry.client import RegistryClient
from ottla.operations.schema_registry.client_config import (
    RegistryAddress,
    address_of,
    checked_address,
    without_registry,
)
from ottla.operations.schema_registry.errors import RegistryError, SchemaError
from ottla.operations.schema_registry.serdes import MISSING_S, RETRY_AFTER_S, SchemaDecoder

ADDRESS = {"type": "record", "name": "Address", "namespace": "shop", "fields": [{"name": "city", "type": "string"}]}
ORDER = {"type": "record", "name": "Order", "fields": [{"name": "to", "type": "shop.Address"}]}
ANSWERS: dict[str, Any] = {
    "/schemas/ids/1": {"schema": '"string"'},
    "/schemas/ids/2": {
        "schema": json.dumps(ORDER),
        "references": [{"name": "shop.Address", "subject": "a/b", "version": 3}],
    },
    "/subjects/a%2Fb/versions/3?deleted=true": {"schema": json.dumps(ADDRESS)},
    "/schemas/ids/3": {"schemaType": "JSON", "schema": "{}"},
    "/schemas/ids/4": {"schemaType": "XML", "schema": "<x/>"},
    "/schemas/ids/5": ["no registry"],
}


class Server:
    """A server that records its requests."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        outer = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                outer.asked.append(self.path)
                answer = ANSWERS.get(self.path)
                body = b"x" * (5 << 20) if self.path.endswith("/6") else json.dumps(answer).encode()
                self.send_response(
                    301 if self.path.endswith("/7") else 404 if answer is None and b"x" not in body else 200
                )
                self.send_header("Location", "/schemas/ids/1")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: Any) -> None:
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"
        self.thread = threading.Thread(target=self.server.serve_forever, args=(0.01,))


@pytest.fixture
def server() -> Iterator[Server]:
    server = Server()
    server.thread.start()
    yield server
    server.server.shutdown()
    server.thread.join()
    server.server.server_close()


def registry(server: Server, now: list[float]) -> SchemaDecoder:
    return SchemaDecoder(RegistryAddress(server.url, is_internal_allowed=True), monotonic=lambda: now[0])


def test_schemas_are_asked_for_once(server: Server) -> None:
    pytest.importorskip("fastavro")
    known = registry(server, [0.0])
    assert known.decode(1, b"\x06abc") == ("avro", "abc")
    assert known.decode(1, b"\x02x") == ("avro", "x")
    assert known.decode(2, b"\x08Rome") == ("avro", {"to": {"city": "Rome"}})
    assert known.decode(3, b"[1]") == ("json schema", [1])
    assert server.asked == [
        "/schemas/ids/1",
        "/schemas/ids/2",
        "/subjects/a%2Fb/versions/3?deleted=true",
        "/schemas/ids/3",
    ]
    with pytest.raises(SchemaError, match="the bytes do not fit schema 1"):
        known.decode(1, b"\x06a")
    with pytest.raises(SchemaError, match="1 bytes follow"):
        known.decode(1, b"\x02xy")
    with pytest.raises(SchemaError, match="unknown type 'XML'"):
        known.decode(4, b"")


def test_what_is_missing_is_not_asked_for_again_and_again(server: Server) -> None:
    now = [0.0]
    known = registry(server, now)
    for _ in range(3):
        with pytest.raises(SchemaError, match="does not know /schemas/ids/99"):
            known.decode(99, b"")
    assert server.asked == ["/schemas/ids/99"]
    now[0] = MISSING_S
    with pytest.raises(SchemaError):
        known.decode(99, b"")
    assert len(server.asked) == 2


@pytest.mark.parametrize(("number", "words"), [(5, "does not answer as a schema"), (6, "too much"), (7, "answers 301")])
def test_a_registry_that_fails_is_left_alone_for_a_while(server: Server, number: int, words: str) -> None:
    now = [0.0]
    known = registry(server, now)
    with pytest.raises(SchemaError, match=words):
        known.decode(number, b"")
    with pytest.raises(SchemaError, match=words):
        known.decode(1, b"\x02x")
    assert len(server.asked) == 1, "no other schema is requested, and redirects are not followed"
    now[0] = RETRY_AFTER_S
    assert known.decode(1, b"\x02x") == ("avro", "x")


def test_addresses_inside_only_if_allowed(server: Server) -> None:
    for host in (
        "127.0.0.1",
        "10.1.2.3",
        "169.254.169.254",
        "::1",
        "::ffff:127.0.0.1",
        "localhost",
        "0.0.0.0",
        "2002:7f00:1::",
        "224.0.0.1",
    ):
        with pytest.raises(SchemaError, match="an internal address"):
            checked_address(host, 80, False)
    assert checked_address("127.0.0.1", 80, True) == ("127.0.0.1", 80)
    with pytest.raises(SchemaError, match="an internal address"):
        SchemaDecoder(RegistryAddress(server.url)).decode(1, b"")
    assert server.asked == []


def test_addresses_that_are_none() -> None:
    for url in ("", "registry:8081", "file:///etc/passwd", "ftp://registry"):
        with pytest.raises(SchemaError, match="write http://host:8081"):
            SchemaDecoder(RegistryAddress(url))


def test_of_several_nodes_the_next_is_asked_and_remembered(server: Server) -> None:
    address = RegistryAddress(f"http://127.0.0.1:9,{server.url}", is_internal_allowed=True)
    client = RegistryClient(address)
    assert client.draft(1).text == '"string"'
    assert client.transport.nodes[0].geturl() == server.url
    with pytest.raises(RegistryError, match="does not know"):
        client.draft(99)
    assert len(server.asked) == 2, "an answer is an answer, and no reason to ask the next node"


def test_addresses_out_of_properties() -> None:
    assert address_of({}) is None
    found = address_of({"schema.registry.url": "http://r:1", "basic.auth.user.info": "me:a:b", "ssl.ca.location": "x"})
    assert found is not None
    assert (found.user, found.password, found.ca_file) == ("me", "a:b", None), "x is for the brokers"
    assert found.authorization() == "Basic bWU6YTpi"
    assert "a:b" not in repr(found)
    token = address_of({"bearer.auth.token": "t", "schema.registry.ssl.ca.location": "nothing.pem"}, "https://r")
    assert token is not None
    assert token.authorization() == "Bearer t"
    with pytest.raises(SchemaError, match="certificates for the registry cannot be read"):
        token.tls()
    for text in ("", " , ", "r:8081", "http://", "http://me:pw@r", "http://r:99999", "file:///etc/passwd"):
        with pytest.raises(SchemaError):
            RegistryAddress(text).nodes()
    assert without_registry({"acks": "1", "schema.registry.url": "x", "basic.auth.user.info": "y"}) == {"acks": "1"}
