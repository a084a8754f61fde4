"""One connection to one broker: requests go out one at a time, each waits for its own answer.

Rules:
1. Whatever the socket does wrong comes out as ClientError; after one the connection is closed and must not be used.
   Over TLS it is the same: a certificate that is not trusted is such a thing.
2. A response may be as long as it likes up to RESPONSE_BYTES_MAX, but past FIRST_BYTES_MAX memory
   grows only with bytes that really came.
"""

from __future__ import annotations

import socket
import ssl
from collections.abc import Callable
from typing import TypeVar

from ottla.base.errors import Error
from ottla.base.tls_problems import tls_problem
from ottla.client.addresses import Address
from ottla.client.errors import ClientError
from ottla.protocol.codec import ProtocolError, decode_answer, encode
from ottla.protocol.headers import decode_response_header, encode_request_header
from ottla.protocol.schema import layout_of

RESPONSE_BYTES_MAX = 256 * 1024 * 1024
FIRST_BYTES_MAX = 16 * 1024 * 1024  # set aside on the word of a length alone

R = TypeVar("R")
T = TypeVar("T")


class Connection:
    """A connected socket and the counter of its requests."""

    def __init__(self, address: Address, client_id: str, timeout_ms: int, tls: ssl.SSLContext | None = None) -> None:
        self.address = address
        self.client_id = client_id
        self.correlation_id = 0
        self.versions: dict[int, tuple[int, int]] = {}  # what the broker offers, by API key
        self.good_until_ms: int | None = None  # its login must be renewed then; None: never
        self.is_secure = tls is not None
        self.socket = _connect(address, timeout_ms)
        if tls is not None:
            self.socket = _shake_hands(address, self.socket, tls)

    def call(self, request: object, response: type[R], version: int, timeout_ms: int) -> R:
        """Send `request` in the given version and decode the answer to it."""
        body = self.exchange(request, version, timeout_ms)
        try:
            return decode_answer(response, version, body)[0]
        except ProtocolError as problem:
            self.close()
            raise ClientError(f"{self.address} sent an answer that makes no sense: {problem}") from None

    def exchange(self, request: object, version: int, timeout_ms: int) -> memoryview:
        """Send `request` and return the answer's body, still encoded."""
        self.send(request, version, timeout_ms)
        return self.receive(type(request), version, timeout_ms)

    def send(self, request: object, version: int, timeout_ms: int) -> None:
        """Send `request` and leave its answer for receive(): the broker works on it in the meantime."""
        key = layout_of(type(request)).api_key
        assert key is not None, "parts of messages are not sent"
        self.correlation_id += 1
        try:
            header = encode_request_header(key, version, self.correlation_id, self.client_id)
            body = encode(request, version)
        except (ProtocolError, UnicodeError) as problem:
            raise ClientError(f"this cannot be sent: {problem}", Error.INVALID_REQUEST) from None
        frame = b"".join(((len(header) + len(body)).to_bytes(4, "big"), header, body))
        self._talk(lambda: self.socket.sendall(frame), timeout_ms)

    def receive(self, request: type, version: int, timeout_ms: int) -> memoryview:
        """The body of the answer to the request that was sent last, which was of this type and version."""
        key = layout_of(request).api_key
        assert key is not None, "parts of messages are not sent"
        return self._body(self._talk(self._receive_frame, timeout_ms), key, version)

    def _talk(self, step: Callable[[], T], timeout_ms: int) -> T:
        """Do something with the socket; whatever goes wrong with it comes out as ClientError."""
        self.socket.settimeout(timeout_ms / 1000)
        try:
            return step()
        except TimeoutError:
            self.close()
            seconds = timeout_ms / 1000
            raise ClientError(f"{self.address} did not answer within {seconds:g} s", Error.REQUEST_TIMED_OUT) from None
        except OSError as problem:
            self.close()
            raise self._lost(tls_problem(problem)) from None

    def _lost(self, cause: str) -> ClientError:
        hint = "" if self.is_secure else " Is it a Kafka listener without TLS or login?"
        return ClientError(
            f"lost the connection to {self.address}: {cause[:1].lower()}{cause[1:]}.{hint}", Error.NETWORK_EXCEPTION
        )

    def _body(self, frame: memoryview, key: int, version: int) -> memoryview:
        try:
            correlation_id, position = decode_response_header(key, version, frame)
        except ProtocolError:
            correlation_id, position = -1, 0
        if correlation_id != self.correlation_id:
            self.close()
            raise not_kafka(self.address)
        return frame[position:]

    def _receive_frame(self) -> memoryview:
        length = int.from_bytes(self._receive(4), "big", signed=True)
        if not 4 <= length <= RESPONSE_BYTES_MAX:
            self.close()
            raise not_kafka(self.address)
        return memoryview(self._receive(length))

    def _receive(self, length: int) -> bytearray:
        received = bytearray(min(length, FIRST_BYTES_MAX))
        filled = 0
        while filled < length:
            if filled == len(received):
                received += bytes(min(filled, length - filled))
            with memoryview(received) as room:
                count = self.socket.recv_into(room[filled:])
            if not count:
                self.close()
                raise self._lost("it closed the connection")
            filled += count
        return received

    def close(self) -> None:
        self.socket.close()

    def __repr__(self) -> str:
        state = "closed" if self.socket.fileno() < 0 else "open"
        return f"<Connection {self.address} {state} requests={self.correlation_id}>"


def _connect(address: Address, timeout_ms: int) -> socket.socket:
    try:
        connected = socket.create_connection(address, timeout_ms / 1000)
    except TimeoutError:
        raise unreachable(address, f"no answer within {timeout_ms / 1000:g} s") from None
    except (socket.gaierror, UnicodeError):
        raise unreachable(address, f"the host name {address.host} is not known") from None
    except OSError as problem:
        raise unreachable(address, (problem.strerror or str(problem)).lower()) from None
    connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return connected


def _shake_hands(address: Address, connected: socket.socket, tls: ssl.SSLContext) -> socket.socket:
    """TLS on a connected socket, with its time-out; not tried again, since it would fail again."""
    try:
        return tls.wrap_socket(connected, server_hostname=address.host)
    except TimeoutError:
        cause = "no answer in time. Is it a listener over TLS?"
    except ssl.SSLEOFError:
        cause = "it closed the connection. Is it a listener over TLS, and does it want a certificate?"
    except (OSError, ValueError) as problem:  # ValueError: a host name that cannot stand in a certificate
        cause = tls_problem(problem)
    connected.close()
    raise ClientError(f"no TLS with {address}: {cause}")


def unreachable(address: object, cause: str) -> ClientError:
    return ClientError(
        f"cannot reach {address}: {cause}. Is the broker running? Start one with: ottla up", Error.BROKER_NOT_AVAILABLE
    )


def not_kafka(address: Address) -> ClientError:
    return ClientError(f"{address} does not speak Kafka's protocol: is it the right port?")
