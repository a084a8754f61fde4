"""A connection over a scripted socket."""

from __future__ import annotations

import socket
from collections.abc import Callable

import pytest

from ottla.base.errors import Error
from ottla.client.addresses import Address
from ottla.client.connection import Connection, best_version, offered_versions
from ottla.client.errors import ClientError
from ottla.protocol.headers import encode_response_frame
from ottla.protocol.messages.cluster import ApiVersion, ApiVersionsResponse
from ottla.protocol.messages.metadata import MetadataRequest, MetadataResponse, MetadataResponseBroker
from ottla.protocol.schema import Layout

ADDRESS = Address("broker", 9092)
TIMEOUT_MS = 1000


class ScriptedSocket:
    """Returns given bytes and records what was sent."""

    def __init__(self, answer: bytes = b"", problem: OSError | None = None) -> None:
        self.answer = answer
        self.problem = problem
        self.sent = b""
        self.is_open = True

    def settimeout(self, _seconds: float) -> None: ...

    def setsockopt(self, *_: int) -> None: ...

    def sendall(self, data: bytes) -> None:
        self.sent += data

    def recv_into(self, room: memoryview) -> int:
        if self.problem is not None:
            raise self.problem
        count = min(len(room), len(self.answer), 7)
        room[:count], self.answer = self.answer[:count], self.answer[count:]
        return count

    def fileno(self) -> int:
        return 3 if self.is_open else -1

    def close(self) -> None:
        self.is_open = False


def framed(body: bytes) -> bytes:
    return len(body).to_bytes(4, "big") + body


def response(key: int, version: int, correlation_id: int, message: object) -> bytes:
    return bytes(encode_response_frame(key, version, correlation_id, message))


@pytest.fixture
def connect(monkeypatch: pytest.MonkeyPatch) -> Callable[[ScriptedSocket], Connection]:
    def make(scripted: ScriptedSocket) -> Connection:
        monkeypatch.setattr(socket, "create_connection", lambda *_: scripted)
        return Connection(ADDRESS, "test", TIMEOUT_MS)

    return make


Connect = Callable[[ScriptedSocket], Connection]


def test_a_request_gets_its_answer_in_whatever_pieces_it_comes(connect: Connect) -> None:
    answer = MetadataResponse(brokers=[MetadataResponseBroker(node_id=1, host="broker", port=9092)], controller_id=1)
    scripted = ScriptedSocket(response(3, 12, 1, answer))
    connection = connect(scripted)
    got = connection.call(MetadataRequest(topics=[]), MetadataResponse, 12, TIMEOUT_MS)
    assert got == answer
    assert scripted.sent[4:8] == b"\x00\x03\x00\x0c"
    assert repr(connection) == "<Connection broker:9092 open requests=1>"


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (b"", "lost the connection"),
        (b"\x00\x00", "lost the connection"),
        (framed(b"\x00\x00\x00\x01")[:6], "lost the connection"),
        (b"HTTP/1.1 400 Bad Request\r\n", "does not speak Kafka's protocol"),
        (b"\xff\xff\xff\xff", "does not speak Kafka's protocol"),
        (framed(b"\x00\x00\x00\x63\x00"), "does not speak Kafka's protocol"),
        (framed(b"\x00\x00\x00\x01\x00\xff\xff\xff\xff\xff"), "invalid response"),
    ],
)
def test_nonsense_is_one_sentence_and_closes_the_connection(connect: Connect, answer: bytes, words: str) -> None:
    scripted = ScriptedSocket(answer)
    connection = connect(scripted)
    with pytest.raises(ClientError, match=words):
        connection.call(MetadataRequest(topics=[]), MetadataResponse, 12, TIMEOUT_MS)
    assert not scripted.is_open


def test_silence_is_a_time_out(connect: Connect) -> None:
    connection = connect(ScriptedSocket(problem=TimeoutError()))
    with pytest.raises(ClientError, match=r"did not answer within 1 s") as caught:
        connection.call(MetadataRequest(topics=[]), MetadataResponse, 12, TIMEOUT_MS)
    assert caught.value.error is Error.REQUEST_TIMED_OUT


@pytest.mark.parametrize(
    ("problem", "words"),
    [
        (ConnectionRefusedError(111, "Connection refused"), "cannot reach broker:9092: connection refused"),
        (TimeoutError(), "no answer within 1 s"),
        (socket.gaierror(-2, "Name or service not known"), "the host name broker is not known"),
    ],
)
def test_an_unreachable_broker_has_a_hint_how_to_start_one(
    monkeypatch: pytest.MonkeyPatch, problem: OSError, words: str
) -> None:
    def refuse(*_: object) -> socket.socket:
        raise problem

    monkeypatch.setattr(socket, "create_connection", refuse)
    with pytest.raises(ClientError, match=words) as caught:
        Connection(ADDRESS, "test", TIMEOUT_MS)
    assert str(caught.value).endswith("Is the broker running? Start one with: ottla up")


def test_an_older_broker_is_asked_again_in_a_version_it_knows(connect: Connect) -> None:
    ranges = [ApiVersion(api_key=18, min_version=0, max_version=2), ApiVersion(api_key=3, min_version=0, max_version=8)]
    refused = response(18, 0, 1, ApiVersionsResponse(error_code=Error.UNSUPPORTED_VERSION, api_keys=ranges))
    answered = response(18, 2, 2, ApiVersionsResponse(api_keys=ranges))
    assert offered_versions(connect(ScriptedSocket(refused + answered)), TIMEOUT_MS) == {18: (0, 2), 3: (0, 8)}


@pytest.mark.parametrize(
    ("ours", "theirs", "expected"),
    [
        ((0, 12), (0, 13), 12),
        ((0, 13), (0, 12), 12),
        ((4, 13), (0, 5), 5),
        ((4, 13), (0, 3), None),
        ((0, 2), (3, 9), None),
    ],
)
def test_the_highest_version_that_both_know_is_used(
    ours: tuple[int, int], theirs: tuple[int, int], expected: int | None
) -> None:
    assert best_version(Layout(3, *ours, 9), {3: theirs}) == expected


def test_an_api_that_the_broker_does_not_have_has_no_version() -> None:
    assert best_version(Layout(75, 0, 0, 0), {3: (0, 12)}) is None
