"""A small wire client: connects to brokers, negotiates versions, routes each request to the right broker, and retries.

    with Client("127.0.0.1:9092") as client:
        answer = client.call(MetadataRequest(topics=[]), MetadataResponse)

Rules:
1. Every call has one deadline: `timeout_ms` from its start, retries and waits included.
2. A broker that refuses connections is retried for `connect_retry_ms`, so that a tool that starts together with its
   broker works.
3. The client is for administration; applications produce and consume through confluent-kafka.
"""

from __future__ import annotations

import re
import ssl
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Self, TypeVar

from ottla.base.clock import Clock, SystemClock
from ottla.base.errors import Error
from ottla.base.listeners import PROTOCOLS
from ottla.client.addresses import Address, parse_bootstrap
from ottla.client.connection import Connection, best_version, offered_versions
from ottla.client.errors import BadPropertyError, BrokerError, ClientError
from ottla.protocol.messages.metadata import MetadataRequest, MetadataResponse
from ottla.protocol.schema import layout_of
from ottla.security.client_protocol import security_protocol

if TYPE_CHECKING:
    from socket import socket
    from ssl import SSLContext

    from ottla.security.sasl.client_authenticator import ClientLogin

TIMEOUT_MS = 30_000
CONNECT_TIMEOUT_MS = 10_000
CONNECT_RETRY_MS = 1_000
BACKOFF_MS = 100
BACKOFF_MS_MAX = 1_000
NO_CONTROLLER_TEXT = "the cluster has no controller: its ZooKeeper may be down, see ottla doctor"
LIFETIME_SHARE = 0.85  # of a login's lifetime, after which a connection is replaced
LOST_CONNECTIONS_MAX = 3  # a listener that always closes the connection expects another protocol, such as TLS

R = TypeVar("R")
T = TypeVar("T")
Check = Callable[[R], None]


class Client:
    """A few connections to one cluster, opened when needed. Not thread-safe."""

    def __init__(
        self,
        bootstrap: str,
        *,
        client_id: str = "ottla",
        timeout_ms: int = TIMEOUT_MS,
        connect_retry_ms: int = CONNECT_RETRY_MS,
        login: ClientLogin | None = None,
        tls: ssl.SSLContext | None = None,
        clock: Clock | None = None,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self.bootstrap = parse_bootstrap(bootstrap)
        self.client_id = client_id
        self.timeout_ms = timeout_ms
        self.connect_retry_ms = connect_retry_ms
        self.login = login  # None: the listeners need none
        self.tls = tls  # None: the listeners are plaintext
        self.clock = clock or SystemClock()
        self.sleep = sleep
        self.connections: dict[Address, Connection] = {}
        self.metadata: MetadataResponse | None = None  # brokers and controller; discarded after a failure
        self.requests = 0  # sent so far, for callers that limit them

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def call(self, request: object, response: type[R], check: Check[R] | None = None) -> R:
        """Send to any broker. `check` raises ClientError for an error in the response; some errors are retried."""
        return self._call(self._any_broker, request, response, check)

    def call_controller(self, request: object, response: type[R], check: Check[R] | None = None) -> R:
        """Send to the controller, which handles changes of topics and other metadata."""
        return self._call(self._controller, request, response, check)

    def call_broker(
        self,
        broker_id: int,
        request: object,
        response: type[R],
        check: Check[R] | None = None,
        version_max: int | None = None,
    ) -> R:
        """Send to one broker, at most in version `version_max`."""
        return self._call(lambda: self._broker(broker_id), request, response, check, version_max)

    def connection_to(self, broker_id: int) -> Connection:
        """The connection to one broker, for callers that pipeline requests."""
        return self._broker(broker_id)

    def _call(
        self,
        find: Callable[[], Connection],
        request: object,
        response: type[R],
        check: Check[R] | None,
        version_max: int | None = None,
    ) -> R:
        def attempt() -> R:
            answer = self._send(find(), request, response, version_max)
            if check is not None:
                check(answer)
            return answer

        return self.retry(attempt)

    def retry(self, attempt: Callable[[], T]) -> T:
        """Run `attempt` until it succeeds, fails for good, or times out; each retry has fresh metadata."""
        deadline_ms = self.clock.monotonic_ms() + self.timeout_ms
        backoff_ms = BACKOFF_MS
        losses_left = LOST_CONNECTIONS_MAX
        while True:
            try:
                return attempt()
            except ClientError as problem:
                losses_left -= problem.error is Error.NETWORK_EXCEPTION
                is_late = self.clock.monotonic_ms() + backoff_ms > deadline_ms
                if not problem.is_retriable or is_late or not losses_left:
                    raise
            self.metadata = None
            self.sleep(backoff_ms / 1000)
            backoff_ms = min(2 * backoff_ms, BACKOFF_MS_MAX)

    def supports(self, request: type) -> bool:
        """Whether the cluster and this client share a version of the API of this request."""
        return self.version_of(request) >= 0

    def version_of(self, request: type) -> int:
        """The version in which this request is sent to the cluster, -1 if none."""
        version = best_version(layout_of(request), self._any_broker().versions)
        return -1 if version is None else version

    def cluster(self) -> MetadataResponse:
        """The brokers and the controller, from a cached response."""
        if self.metadata is None:
            request = MetadataRequest(topics=[], allow_auto_topic_creation=False)
            self.metadata = self._send(self._any_broker(), request, MetadataResponse)
        return self.metadata

    def close(self) -> None:
        for connection in self.connections.values():
            connection.close()
        self.connections.clear()

    def _send(self, connection: Connection, request: object, response: type[R], version_max: int | None = None) -> R:
        layout = layout_of(type(request))
        version = best_version(layout, connection.versions)
        if version is not None and version_max is not None:
            version = min(version, version_max)
        if version is None:
            name = type(request).__name__.removesuffix("Request")
            raise BrokerError(
                f"the broker {connection.address} does not offer {name} in a version that this tool knows",
                Error.UNSUPPORTED_VERSION,
                f"The node does not support {re.sub('(?<!^)(?=[A-Z])', '_', name).upper()}",
            )
        self.requests += 1
        try:
            return connection.call(request, response, version, self.timeout_ms)
        except ClientError:
            self.connections.pop(connection.address, None)
            raise

    def _any_broker(self) -> Connection:
        for address in self.bootstrap:
            connection = self._open_connection_to(address)
            if connection is not None:
                return connection
        deadline_ms = self.clock.monotonic_ms() + self.connect_retry_ms
        while True:
            problems: list[ClientError] = []
            for address in self.bootstrap:
                try:
                    return self._connect(address)
                except ClientError as problem:
                    problems.append(problem)
            if self.clock.monotonic_ms() >= deadline_ms or not any(_is_temporary(problem) for problem in problems):
                raise problems[0]
            self.sleep(BACKOFF_MS / 1000)

    def _controller(self) -> Connection:
        controller_id = self.cluster().controller_id
        if controller_id < 0:
            raise ClientError(NO_CONTROLLER_TEXT, Error.NOT_CONTROLLER)
        return self._broker(controller_id)

    def _broker(self, broker_id: int) -> Connection:
        for broker in self.cluster().brokers:
            if broker.node_id == broker_id:
                address = Address(broker.host, broker.port)
                try:
                    return self._open_connection_to(address) or self._connect(address)
                except ClientError as problem:
                    if len(self.cluster().brokers) > 1 and problem.error is Error.BROKER_NOT_AVAILABLE:
                        # It has just died: fresh metadata will name the broker that takes over.
                        raise ClientError(str(problem), Error.LEADER_NOT_AVAILABLE) from None
                    raise
        raise ClientError(f"broker {broker_id} is not in the cluster", Error.BROKER_NOT_AVAILABLE)

    def _connect(self, address: Address) -> Connection:
        self.connections[address] = connection = self.open_connection(address)
        return connection

    def open_connection(self, address: Address) -> Connection:
        """A separate connection, logged in; the caller closes it."""
        connection = Connection(address, self.client_id, min(CONNECT_TIMEOUT_MS, self.timeout_ms), self.tls)
        try:
            connection.versions = offered_versions(connection, self.timeout_ms)
            if self.login is not None:
                self._log_in(connection, self.login)
        except ClientError:
            connection.close()
            raise
        return connection

    def _log_in(self, connection: Connection, login: ClientLogin) -> None:
        from ottla.client.login import log_in  # noqa: PLC0415 (most tools need none)

        lifetime_ms = log_in(connection, login, self.timeout_ms)
        if lifetime_ms > 0:
            connection.good_until_ms = self.clock.monotonic_ms() + int(lifetime_ms * LIFETIME_SHARE)

    def _open_connection_to(self, address: Address) -> Connection | None:
        """The open connection to an address, or None if there is none or its login is about to expire."""
        connection = self.connections.get(address)
        until_ms = connection.good_until_ms if connection is not None else None
        if connection is None or until_ms is None or self.clock.monotonic_ms() < until_ms:
            return connection
        self.connections.pop(address).close()
        return None

    def __repr__(self) -> str:
        return f"<Client {','.join(map(str, self.bootstrap))} connections={len(self.connections)}>"


def _is_temporary(problem: ClientError) -> bool:
    return problem.error in (Error.BROKER_NOT_AVAILABLE, Error.NETWORK_EXCEPTION)


# ---- from properties
def open_client(
    bootstrap: str,
    properties: Mapping[str, str],
    client_id: str = "ottla",
    *,
    timeout_ms: int = TIMEOUT_MS,
    connect_retry_ms: int = CONNECT_RETRY_MS,
    token_connect: Callable[..., socket] | None = None,
) -> Client:
    """A client from the properties of a Kafka client: Java's names, or librdkafka's for TLS and logins.

    `client_id` is the default if the properties have none; `token_connect` opens connections to identity providers, as
    socket.create_connection does. Raises BadPropertyError.
    """
    protocol = security_protocol(properties)
    if protocol not in PROTOCOLS:
        raise BadPropertyError(f"security.protocol={protocol} is not known: it is one of {', '.join(PROTOCOLS)}")
    tls, login = (None, None) if protocol == "PLAINTEXT" else _security(properties, token_connect)
    return Client(
        bootstrap,
        client_id=properties.get("client.id", client_id),
        timeout_ms=timeout_ms,
        connect_retry_ms=connect_retry_ms,
        tls=tls,
        login=login,
    )


def _security(
    properties: Mapping[str, str], connect: Callable[..., socket] | None
) -> tuple[SSLContext | None, ClientLogin | None]:
    from ottla.base.setting_types import BadValueError  # noqa: PLC0415 (most tools need none of this)
    from ottla.security.client_tls import client_tls_context  # noqa: PLC0415
    from ottla.security.jaas import JaasError  # noqa: PLC0415
    from ottla.security.sasl.client_authenticator import client_login  # noqa: PLC0415
    from ottla.security.tls import TlsError  # noqa: PLC0415

    try:
        return client_tls_context(properties), client_login(properties, connect)
    except (TlsError, BadValueError, JaasError) as problem:
        raise BadPropertyError(str(problem)) from None
