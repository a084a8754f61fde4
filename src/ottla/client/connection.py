"""One connection to one broker, and version negotiation.

A connection has one request at a time, each followed by its response.
Rules:
1. Every socket error becomes a ClientError; then the connection is closed and must not be used again. The same holds
   for TLS errors, such as an untrusted certificate.
2. A response may have up to RESPONSE_BYTES_MAX, but beyond FIRST_BYTES_MAX memory grows only with received bytes.
"""

from __future__ import annotations

import socket
import ssl
from collections.abc import Callable, Mapping
from typing import TypeVar

from ottla import __version__
from ottla.base.errors import Error
from ottla.base.tls_problems import describe_tls_error
from ottla.client.addresses import Address
from ottla.client.errors import ClientError, raise_for_error
from ottla.protocol.codec import ProtocolError, decode, decode_response, encode
from ottla.protocol.headers import decode_response_header, encode_request_header
from ottla.protocol.messages.cluster import ApiVersionsRequest, ApiVersionsResponse
from ottla.protocol.schema import Layout, layout_of

RESPONSE_BYTES_MAX = 256 * 1024 * 1024
FIRST_BYTES_MAX = 16 * 1024 * 1024  # the most that is allocated for an announced length

R = TypeVar("R")
T = TypeVar("T")


class Connection:
    """A connected socket and its correlation ids."""

    def __init__(self, address: Address, client_id: str, timeout_ms: int, tls: ssl.SSLContext | None = None) -> None:
        self.address = address
        self.client_id = client_id
        self.correlation_id = 0
        self.versions: dict[int, tuple[int, int]] = {}  # the version ranges of the broker, by API key
        self.good_until_ms: int | None = None  # when the login must be renewed; None: never
        self.is_secure = tls is not None
        self.socket = _connect(address, timeout_ms)
        if tls is not None:
            self.socket = _tls_handshake(address, self.socket, tls)

    def call(self, request: object, response: type[R], version: int, timeout_ms: int) -> R:
        """Send `request` in the given version and decode the response."""
        body = self.exchange(request, version, timeout_ms)
        try:
            return decode_response(response, version, body)[0]
        except ProtocolError as problem:
            self.close()
            raise ClientError(f"{self.address} sent an invalid response: {problem}") from None

    def exchange(self, request: object, version: int, timeout_ms: int) -> memoryview:
        """Send `request` and return the encoded body of the response."""
        self.send(request, version, timeout_ms)
        return self.receive(type(request), version, timeout_ms)

    def send(self, request: object, version: int, timeout_ms: int) -> None:
        """Send `request` without waiting; the broker works on it until receive()."""
        key = layout_of(type(request)).api_key
        assert key is not None, "parts of messages are not sent"
        self.correlation_id += 1
        try:
            header = encode_request_header(key, version, self.correlation_id, self.client_id)
            body = encode(request, version)
        except (ProtocolError, UnicodeError) as problem:
            raise ClientError(f"this cannot be sent: {problem}", Error.INVALID_REQUEST) from None
        frame = b"".join(((len(header) + len(body)).to_bytes(4, "big"), header, body))
        self._run_socket_call(lambda: self.socket.sendall(frame), timeout_ms)

    def receive(self, request: type, version: int, timeout_ms: int) -> memoryview:
        """The body of the response to the last sent request, which had this type and version."""
        key = layout_of(request).api_key
        assert key is not None, "parts of messages are not sent"
        return self._body(self._run_socket_call(self._receive_frame, timeout_ms), key, version)

    def _run_socket_call(self, step: Callable[[], T], timeout_ms: int) -> T:
        """Run a socket operation; its errors become ClientErrors."""
        self.socket.settimeout(timeout_ms / 1000)
        try:
            return step()
        except TimeoutError:
            self.close()
            seconds = timeout_ms / 1000
            raise ClientError(f"{self.address} did not answer within {seconds:g} s", Error.REQUEST_TIMED_OUT) from None
        except OSError as problem:
            self.close()
            raise self._lost(describe_tls_error(problem)) from None

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


def _tls_handshake(address: Address, connected: socket.socket, tls: ssl.SSLContext) -> socket.socket:
    """TLS handshake on a connected socket, within its time-out; not retried, because it would fail again."""
    try:
        return tls.wrap_socket(connected, server_hostname=address.host)
    except TimeoutError:
        cause = "no answer in time. Is it a listener over TLS?"
    except ssl.SSLEOFError:
        cause = "it closed the connection. Is it a listener over TLS, and does it want a certificate?"
    except (OSError, ValueError) as problem:  # ValueError: a host name that cannot be in a certificate
        cause = describe_tls_error(problem)
    connected.close()
    raise ClientError(f"no TLS with {address}: {cause}")


def unreachable(address: object, cause: str) -> ClientError:
    return ClientError(
        f"cannot reach {address}: {cause}. Is the broker running? Start one with: ottla up", Error.BROKER_NOT_AVAILABLE
    )


def not_kafka(address: Address) -> ClientError:
    return ClientError(f"{address} does not speak Kafka's protocol: is it the right port?")


# ---- version negotiation: the highest version that both sides support (ApiVersions, KIP-35 and KIP-511)
def best_version(ours: Layout, offered: Mapping[int, tuple[int, int]]) -> int | None:
    """The highest version in both ranges, or None if they do not overlap."""
    if ours.api_key is None or ours.api_key not in offered:
        return None
    low, high = offered[ours.api_key]
    best = min(high, ours.max_version)
    return best if best >= max(low, ours.min_version) else None


def offered_versions(connection: Connection, timeout_ms: int) -> dict[int, tuple[int, int]]:
    """Ask a broker for its version ranges, by API key."""
    version = layout_of(ApiVersionsRequest).max_version
    answer = _ask(connection, version, timeout_ms)
    if answer.error_code == Error.UNSUPPORTED_VERSION:
        # The broker is older than this client: its error response has its range; version 0 is always supported.
        ranges = {item.api_key: (item.min_version, item.max_version) for item in answer.api_keys}
        version = best_version(layout_of(ApiVersionsRequest), ranges) or 0
        answer = _ask(connection, version, timeout_ms)
    raise_for_error(answer.error_code)
    return {item.api_key: (item.min_version, item.max_version) for item in answer.api_keys}


def _ask(connection: Connection, version: int, timeout_ms: int) -> ApiVersionsResponse:
    request = ApiVersionsRequest(client_software_name="ottla", client_software_version=__version__)
    body = connection.exchange(request, version, timeout_ms)
    # A broker that does not support the version answers in version 0.
    refused = bytes(body[:2]) == int(Error.UNSUPPORTED_VERSION).to_bytes(2, "big")
    try:
        return decode(ApiVersionsResponse, 0 if refused else version, body)[0]
    except ProtocolError:
        raise not_kafka(connection.address) from None
