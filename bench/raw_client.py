"""The measuring client: one blocking connection for frames, and the few admin calls that loads need."""

import socket
import ssl
import struct
import time
import uuid
from types import TracebackType
from typing import NamedTuple, Self

from bench import wire
from bench.batches import batch_of
from bench.errors import BenchError

# Transient errors of a new topic: unknown topic or partition, leader not available, not leader.
ERRORS_OF_A_FRESH_TOPIC = frozenset((3, 5, 6))
TOPIC_READY_SECONDS_MAX = 120.0
ANSWER_SECONDS_MAX = 120.0
TOPIC_CONFIGS = {"file.delete.delay.ms": "1000"}  # the space of a measured topic is free again soon


class Target(NamedTuple):
    """The broker under test."""

    host: str
    port: int
    pid: int
    authority: str = ""  # the file of the certificate that signs the broker's: the connection is encrypted
    user: str = ""
    password: str = ""
    ports: tuple[int, ...] = ()  # of a cluster on this host: where the leader of each partition of the topic listens

    def of_partition(self, partition: int) -> "Target":
        """Where this partition is served."""
        return self._replace(port=self.ports[partition]) if self.ports else self

    @property
    def bootstrap(self) -> str:
        return f"{self.host}:{self.port}"

    @property
    def client_settings(self) -> dict[str, str]:
        """The connection settings of librdkafka."""
        settings = {"bootstrap.servers": self.bootstrap}
        if self.authority:
            settings |= {"security.protocol": "SASL_SSL" if self.user else "SSL", "ssl.ca.location": self.authority}
        if self.user:
            settings |= {"sasl.mechanism": "SCRAM-SHA-256", "sasl.username": self.user, "sasl.password": self.password}
        return settings


class Connection:
    """A blocking connection with a timeout of ANSWER_SECONDS_MAX."""

    def __init__(self, target: Target, timeout_s: float = ANSWER_SECONDS_MAX) -> None:
        self.socket = socket.create_connection((target.host, target.port), timeout_s)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        # The kernel enforces the timeout: Python's own would cost a poll() per receive.
        self.socket.settimeout(None)
        seconds = struct.pack("ll", int(timeout_s), int(timeout_s % 1 * 1e6))
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, seconds)
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, seconds)
        self._receive_flags = socket.MSG_WAITALL
        if target.authority:
            self._receive_flags = 0  # there are none over TLS
            self.socket = ssl.create_default_context(cafile=target.authority).wrap_socket(
                self.socket, server_hostname=target.host
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<Connection {self.socket.fileno()}>"

    def close(self) -> None:
        self.socket.close()

    def send(self, request: bytes) -> None:
        self.socket.sendall(request)

    def call(self, request: bytes) -> bytearray:
        """Sends a request and returns its answer without the size."""
        self.socket.sendall(request)
        return self.receive()

    def receive(self) -> bytearray:
        return self.receive_exactly(int.from_bytes(self.receive_exactly(4), "big"))

    def receive_exactly(self, count: int) -> bytearray:
        buffer = bytearray(count)
        self.receive_into(memoryview(buffer))
        return buffer

    def receive_into(self, view: memoryview) -> None:
        """Fills the view."""
        while view:
            try:
                received = self.socket.recv_into(view, len(view), self._receive_flags)
            except BlockingIOError:
                raise TimeoutError("the broker does not answer") from None
            if not received:
                raise ConnectionError("the broker closed the connection")
            view = view[received:]

    def produce(self, request: bytes, topic: str) -> bytearray:
        """Sends a prepared Produce request; an error code in its answer is an exception."""
        answer = self.call(request)
        check_produced(answer, topic)
        return answer

    def produce_first(self, request: bytes, topic: str) -> bytearray:
        """Like produce(), but retries while a partition has no leader yet."""
        end = time.monotonic() + TOPIC_READY_SECONDS_MAX
        while True:
            answer = self.call(request)
            error = produce_error(answer, topic)
            if error not in ERRORS_OF_A_FRESH_TOPIC or time.monotonic() > end:
                check_produced(answer, topic)
                return answer
            time.sleep(0.01)


def produce_error(answer: bytearray, topic: str) -> int:
    return int(wire.PRODUCE_ANSWER_ERROR.unpack_from(answer, wire.produce_error_position(topic))[0])


def check_produced(answer: bytearray, topic: str) -> None:
    if error := produce_error(answer, topic):
        raise BenchError(f"Produce to {topic} was answered with error {error}")


def metadata_is_answered(target: Target) -> bool:
    """Whether the broker's Metadata answer contains itself; False while nothing listens."""
    try:
        with Connection(target, 5) as connection:
            brokers, _ = wire.read_metadata(connection.call(wire.metadata_request([])))
            return brokers > 0
    except OSError:
        return False


def new_topic_name(purpose: str) -> str:
    return f"bench-{purpose}-{uuid.uuid4().hex[:6]}"


def create_topic(target: Target, purpose: str, partitions: int) -> str:
    """Creates a topic, waits until all its partitions have leaders and returns its name."""
    name = new_topic_name(purpose)
    create_topics(target, {name: partitions})
    return name


def create_topics(target: Target, topics: dict[str, int], configs: dict[str, str] | None = None) -> None:
    with Connection(target) as connection:
        answer = connection.call(wire.create_topics_request(topics, TOPIC_CONFIGS | (configs or {})))
        errors = {name: error for name, error in wire.read_create_topics(answer).items() if error}
        if errors:
            raise BenchError(f"CreateTopics was answered with errors {errors}")
        _wait_for_leaders(connection, topics)


def delete_topics(target: Target, *topics: str) -> None:
    """Delete topics; errors are ignored, because the data folder is removed in the end."""
    with Connection(target) as connection:
        connection.call(wire.delete_topics_request(list(topics)))


def produce_one(target: Target, topic: str, value: bytes) -> None:
    with Connection(target) as connection:
        connection.produce_first(wire.produce_request(topic, 0, batch_of([value]).data), topic)


def _wait_for_leaders(connection: Connection, topics: dict[str, int]) -> None:
    request = wire.metadata_request(list(topics))
    end = time.monotonic() + TOPIC_READY_SECONDS_MAX
    while time.monotonic() < end:
        _, partitions = wire.read_metadata(connection.call(request))
        if sum(partition.leader >= 0 for partition in partitions) == sum(topics.values()):
            return
        time.sleep(0.02)
    raise BenchError(f"{len(topics)} new topics have no leaders after {TOPIC_READY_SECONDS_MAX:.0f} s")
