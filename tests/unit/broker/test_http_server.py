"""The metrics HTTP server: refusals and sliced responses. No sockets: a fed reader and a list."""

import asyncio
from collections.abc import Iterator
from http import HTTPStatus

import pytest
from tests import virtual_time

from ottla.broker.metrics_endpoint import http_server
from ottla.broker.metrics_endpoint.endpoint import OPEN_PATHS, Routes
from ottla.broker.metrics_endpoint.http_server import (
    BadRequestError,
    BasicAuthentication,
    HttpRequest,
    HttpResponse,
    HttpServer,
)
from ottla.metrics.beans import Source, gauge
from ottla.metrics.prometheus import Family, Sample


class FakeWriter:
    """Collects bytes; drain() can block for ever."""

    def __init__(self) -> None:
        self.data = b""
        self.is_closed = False
        self.drains = 0

    def write(self, data: bytes) -> None:
        self.data += data

    async def drain(self) -> None:
        self.drains += 1

    def close(self) -> None:
        self.is_closed = True


class FakeNumbers:
    """One bean, one family."""

    sources = (
        Source("kafka.server", "KafkaServer", lambda: iter((gauge("kafka.server", "KafkaServer", "BrokerState", 3),))),
    )
    state = (True, "ok")

    def families(self) -> list[Family]:
        return [Family("ottla_info", "gauge", "What runs here.", [Sample((), 1)])]

    def readiness(self) -> tuple[bool, str]:
        return self.state


def exchange(sent: bytes, host: str = "127.0.0.1", handler=None, login=None) -> bytes:
    """All responses of the server to these bytes, until it closes the connection or the bytes end."""

    async def run() -> bytes:
        reader = asyncio.StreamReader(limit=http_server.HEAD_BYTES_MAX)
        reader.feed_data(sent)
        reader.feed_eof()
        writer = FakeWriter()
        server = HttpServer(host, handler or Routes(FakeNumbers()), login, OPEN_PATHS)
        await server._serve(reader, writer)  # type: ignore[arg-type]
        assert writer.is_closed
        return writer.data

    return virtual_time.run(run())


def get(path: str, *headers: str, method: str = "GET", version: str = "HTTP/1.1", body: bytes = b"") -> bytes:
    lines = [f"{method} {path} {version}", *(headers or ("Host: localhost",))]
    return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1") + body


def status(answer: bytes) -> int:
    return int(answer.split(b" ")[1])


def test_metrics_are_prometheus_text_in_chunks() -> None:
    answer = exchange(get("/metrics"))
    assert status(answer) == 200
    assert b"Content-Type: text/plain; version=0.0.4" in answer
    assert b"kafka_server_kafkaserver_brokerstate 3\n" in answer
    assert b"ottla_info 1\n" in answer
    assert answer.endswith(b"\r\n0\r\n\r\n")


def test_several_requests_share_a_connection() -> None:
    answer = exchange(get("/healthz") + get("/readyz") + get("/healthz", "Host: localhost", "Connection: close"))
    assert answer.count(b"HTTP/1.1 200 OK") == 3


def test_an_old_client_gets_no_chunks_and_one_answer() -> None:
    answer = exchange(get("/healthz", version="HTTP/1.0") * 2)
    assert answer.endswith(b"\r\n\r\nok\n")
    assert answer.count(b"200 OK") == 1


def test_head_has_no_body() -> None:
    assert exchange(get("/healthz", method="HEAD")).endswith(b"\r\n\r\n")


def test_the_status_reports_readiness() -> None:
    numbers = FakeNumbers()
    numbers.state = (False, "starting")
    assert status(exchange(get("/readyz"), handler=Routes(numbers))) == 503


@pytest.mark.parametrize(
    ("sent", "expected"),
    [
        (get("/gone"), 404),
        (get("/../../etc/passwd"), 404),
        (get("/..%2f..%2fetc/passwd"), 404),
        (get("/%2e%2e/metrics"), 404),
        (get("//metrics"), 404),
        (get("/metrics\\..\\x"), 404),
        (get("/metrics", method="POST"), 405),
        (get("/metrics", method="DELETE"), 405),
        (get("/metrics", method="TRACE"), 405),
        (get("http://evil/metrics"), 400),
        (get("/metrics", version="HTTP/3"), 400),
        (b"nonsense\r\n\r\n", 400),
        (get("/metrics", "X: 1"), 400),
        (get("/metrics", "Host: localhost", "Host: localhost"), 400),
        (get("/metrics", "Host: localhost", "no colon"), 400),
        (get("/metrics", "Host: localhost", "Content-Length: -1"), 400),
        (get("/metrics", "Host: localhost", "Content-Length: 1e9"), 400),
        (get("/metrics", "Host: localhost", "Content-Length: 1", "Content-Length: 2"), 400),
        (get("/metrics", "Host: localhost", "Content-Length: 5", "Transfer-Encoding: chunked"), 400),
        (get("/jolokia", "Host: localhost", f"Content-Length: {100 << 30}", method="POST"), 413),
        (get("/metrics", "Host: localhost", "X: " + "y" * 2_000_000), 431),
        (get("/metrics", "Host: localhost", *(f"X{n}: 1" for n in range(200))), 431),
        (get("/metrics", "Host: evil.example"), 421),
        (get("/metrics", "Host: 127.0.0.1.evil.example:9404"), 421),
        (get("/jolokia", "Host: localhost", "Content-Length: 1", method="POST", body=b"{"), 400),
    ],
    ids=range(25),
)
def test_bad_requests_get_a_reason_and_are_disconnected(sent: bytes, expected: int) -> None:
    answer = exchange(sent + get("/healthz"))
    assert status(answer) == expected
    assert b"Connection: close" in answer
    assert answer.count(b"HTTP/1.1 ") == 1
    assert b"Traceback" not in answer


@pytest.mark.parametrize("name", ["localhost", "localhost:9404", "127.0.0.1:9404", "[::1]:9404", "10.1.2.3"])
def test_local_host_names_and_addresses_are_accepted(name: str) -> None:
    assert status(exchange(get("/healthz", f"Host: {name}"))) == 200


def test_without_loopback_any_host_name_is_accepted() -> None:
    assert status(exchange(get("/healthz", "Host: broker-1.example"), host="0.0.0.0")) == 200


def test_jolokia_requests_use_get_and_post() -> None:
    path = "/jolokia/read/kafka.server:type=KafkaServer,name=BrokerState/Value"
    assert b'"value":3' in exchange(get(path))
    body = b'{"type":"read","mbean":"kafka.server:type=KafkaServer,name=BrokerState","attribute":"Value"}'
    assert b'"value":3' in exchange(
        get("/jolokia/", "Host: localhost", f"Content-Length: {len(body)}", method="POST", body=body)
    )


def test_a_client_that_stops_sending_is_disconnected() -> None:
    async def run() -> bytes:
        reader = asyncio.StreamReader()
        reader.feed_data(b"GET /metr")
        writer = FakeWriter()
        await HttpServer("127.0.0.1", Routes(FakeNumbers()))._serve(reader, writer)  # type: ignore[arg-type]
        return writer.data

    assert status(virtual_time.run(run())) == 408


def test_a_client_without_a_request_is_disconnected() -> None:
    async def run() -> bool:
        writer = FakeWriter()
        await HttpServer("127.0.0.1", Routes(FakeNumbers()))._serve(asyncio.StreamReader(), writer)  # type: ignore[arg-type]
        return writer.is_closed

    assert virtual_time.run(run())


def test_a_client_that_does_not_read_is_disconnected() -> None:
    class Stuck(FakeWriter):
        async def drain(self) -> None:
            await asyncio.sleep(http_server.SEND_SECONDS_MAX + 1)

    async def run() -> bool:
        reader = asyncio.StreamReader()
        reader.feed_data(get("/metrics"))
        writer = Stuck()
        await HttpServer("127.0.0.1", Routes(FakeNumbers()))._serve(reader, writer)  # type: ignore[arg-type]
        return writer.is_closed

    assert virtual_time.run(run())


def test_a_long_response_yields_to_the_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_server, "SLICE_SECONDS", 0.0)
    turns = 0

    def pieces() -> Iterator[str]:
        for _ in range(50):
            yield "x" * 1000

    async def run() -> int:
        nonlocal turns

        async def count() -> None:
            nonlocal turns
            while True:
                turns += 1
                await asyncio.sleep(0)

        other = asyncio.get_running_loop().create_task(count())
        await http_server._send_pieces(FakeWriter(), pieces(), is_chunked=True)  # type: ignore[arg-type]
        other.cancel()
        return turns

    assert virtual_time.run(run()) >= 40


def test_an_error_of_the_handler_reaches_the_client() -> None:
    def refuse(request: HttpRequest) -> HttpResponse:
        raise BadRequestError(HTTPStatus.METHOD_NOT_ALLOWED, "no", Allow="GET")

    answer = exchange(get("/x"), handler=refuse)
    assert status(answer) == 405
    assert b"Allow: GET\r\n" in answer


@pytest.mark.parametrize(
    ("header", "expected"),
    [
        ("", 401),
        ("Authorization: Basic cmVhZGVyOnNlY3JldA==", 200),  # reader:secret
        ("Authorization: basic  cmVhZGVyOnNlY3JldA==", 200),
        ("Authorization: Basic cmVhZGVyOndyb25n", 401),
        ("Authorization: Bearer cmVhZGVyOnNlY3JldA==", 401),
        ("Authorization: Basic", 401),
        ("Authorization: Basic \xff\xfe", 401),
    ],
)
def test_a_password_is_required(header: str, expected: int) -> None:
    headers = ("Host: localhost", header) if header else ("Host: localhost",)
    answer = exchange(get("/metrics", *headers), login=BasicAuthentication("reader", "secret"))
    assert status(answer) == expected
    assert (b'WWW-Authenticate: Basic realm="ottla metrics"' in answer) is (expected == 401)


def test_health_checks_need_no_password() -> None:
    for path in ("/healthz", "/readyz"):
        assert status(exchange(get(path), login=BasicAuthentication("reader", "secret"))) == 200
