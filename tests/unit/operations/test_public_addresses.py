"""Addresses supplied by users: an internal address is never called, also not by a name for one."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from ottla.operations.public_addresses import InternalAddressError, check_public, connect_public, is_public
from ottla.security.oauth.token_source import make_source
from ottla.security.sasl.exchange import LoginError

PROPERTIES = {
    "sasl.oauthbearer.client.credentials.client.id": "me",
    "sasl.oauthbearer.client.credentials.client.secret": "hidden",
}


class Endpoint(BaseHTTPRequestHandler):
    """Issues tokens and counts the requests."""

    asked = 0

    def do_POST(self) -> None:
        Endpoint.asked += 1
        self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b'{"access_token": "a.b.c", "expires_in": 60}')

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def port() -> Iterator[int]:
    Endpoint.asked = 0
    with HTTPServer(("127.0.0.1", 0), Endpoint) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield server.server_port
        server.shutdown()
        thread.join()


@pytest.mark.parametrize(
    "text", ["127.0.0.1", "10.1.2.3", "169.254.169.254", "::1", "::ffff:10.0.0.1", "64:ff9b::10.0.0.1", "fe80::1%eth0"]
)
def test_internal_addresses_in_any_notation(text: str) -> None:
    assert not is_public(text)
    with pytest.raises(InternalAddressError):
        check_public(text, 80)


def test_an_internal_token_endpoint_is_not_called(port: int) -> None:
    properties = {**PROPERTIES, "sasl.oauthbearer.token.endpoint.url": f"http://localhost:{port}/token"}
    with pytest.raises(LoginError, match="an internal address"):
        make_source({}, properties, connect=connect_public).token()
    assert Endpoint.asked == 0
    assert make_source({}, properties).token() == "a.b.c"
    assert make_source({}, properties, connect=socket.create_connection).token() == "a.b.c"
    assert Endpoint.asked == 2


def test_a_name_is_looked_up_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A second resolution could return another address."""
    called: list[tuple[str, int]] = []

    def look_up(host: str, port: int, **_: object) -> list[tuple[object, ...]]:
        assert host == "issuer.example"
        return [(2, 1, 6, "", ("93.184.216.34", port))]

    monkeypatch.setattr(socket, "getaddrinfo", look_up)
    monkeypatch.setattr(socket, "create_connection", lambda address, *_: called.append(address))
    connect_public(("issuer.example", 443), 5.0)
    assert called == [("93.184.216.34", 443)]
