"""kafka-python instead of librdkafka, for logins that librdkafka lacks: tokens, and Kerberos in confluent-kafka's
packages.

The clients are created from settings with librdkafka's names, and have confluent_kafka's interface:
1. Only the methods that our tools call exist, with the names and errors of confluent_kafka.
2. Callbacks run inside poll() and flush(), in the caller's thread, as librdkafka's do.
3. A group commits stored offsets (store_offsets), not fetched ones.

Logins use our own implementation (security/sasl): it reads the keytab and the ticket cache from the settings, not from
the process environment.
"""

from __future__ import annotations

import queue
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

from ottla.security.client_protocol import TOKEN_PROPERTY, security_protocol

if TYPE_CHECKING:
    from ottla.security.sasl.client_authenticator import ClientLogin

GSSAPI: Final = "GSSAPI"
MISSING: Final = (
    "Kerberos needs the packages kafka-python and gssapi, because confluent-kafka is built without Kerberos: pip "
    "install 'ottla[kerberos]'"
)
MISSING_FOR_TOKENS: Final = (
    "a delegation token needs the package kafka-python, because librdkafka does not support them: pip install "
    "kafka-python"
)
RENAMED: Final = {
    "compression.codec": "compression_type",
    "delivery.timeout.ms": "delivery_timeout_ms",
    "fetch.wait.max.ms": "fetch_max_wait_ms",
    "message.max.bytes": "max_request_size",
    "message.timeout.ms": "delivery_timeout_ms",
}
# Handled here, handled by kafka-python in its own way, or without effect there.
LEFT_OUT: Final = frozenset(
    {
        "delivery.report.only.error",
        "enable.auto.commit",
        "enable.auto.offset.store",
        "enable.partition.eof",
        "error_cb",
        "fetch.queue.backoff.ms",
        "log_level",
        "on_delivery",
        "partitioner",
        "queue.buffering.max.kbytes",
        "queue.buffering.max.messages",
    }
)


class KafkaPythonError(Exception):
    """The settings cannot be used with kafka-python: one sentence."""


def wants_kerberos(settings: Mapping[str, Any]) -> bool:
    """Whether these settings, in Java's names or librdkafka's, use Kerberos."""
    texts = {name: value for name, value in settings.items() if isinstance(value, str)}
    mechanism = texts.get("sasl.mechanism") or texts.get("sasl.mechanisms") or GSSAPI
    return security_protocol(texts).startswith("SASL_") and mechanism.strip().upper() == GSSAPI


def wants_token(settings: Mapping[str, Any]) -> bool:
    """Whether these settings use a delegation token."""
    return settings.get(TOKEN_PROPERTY) == "true"


def has_kerberos(library: Any) -> bool:
    """Whether this build of librdkafka supports Kerberos: custom builds may."""
    try:
        library.Producer({"security.protocol": "SASL_PLAINTEXT", "sasl.mechanisms": GSSAPI, "log_level": 0})
    except library.KafkaException:
        return False
    return True


def make_client(kind: str, library: Any, settings: Mapping[str, Any], on_unknown: Callable[[str], None]) -> Any:
    """A "Producer" or "Consumer" with the errors of `library`, confluent_kafka. Raises KafkaPythonError, JaasError."""
    from ottla.security.client_tls import client_tls_context  # noqa: PLC0415 (most tools need no login)
    from ottla.security.sasl.client_authenticator import make_login  # noqa: PLC0415
    from ottla.security.tls import TlsError  # noqa: PLC0415

    try:
        import kafka  # noqa: PLC0415 (only needed for these logins)
        from kafka.net.sasl import register_sasl_mechanism  # noqa: PLC0415
    except ImportError:
        raise KafkaPythonError(MISSING_FOR_TOKENS if wants_token(settings) else MISSING) from None
    mechanism = GSSAPI
    if wants_token(settings):
        mechanism = (settings.get("sasl.mechanism") or settings.get("sasl.mechanisms") or "").strip().upper()
    register_sasl_mechanism(mechanism, _mechanism, overwrite=True)
    inner = kafka.KafkaProducer if kind == "Producer" else kafka.KafkaConsumer
    words = translated(settings, inner.DEFAULT_CONFIG, on_unknown)
    texts = {key: value for key, value in settings.items() if isinstance(value, str)}
    try:
        if (tls := client_tls_context(texts)) is not None:
            words["ssl_context"] = tls
    except TlsError as problem:
        raise KafkaPythonError(str(problem)) from None
    words |= {"sasl_mechanism": mechanism, "sasl_kerberos_name": make_login(mechanism, texts)}
    if kind == "Consumer":
        words["enable_auto_commit"] = False  # commits stored offsets, not fetched ones
    elif "delivery_timeout_ms" in words:  # kafka-python refuses a request time-out longer than the delivery time-out
        times = {**inner.DEFAULT_CONFIG, **words}
        room_ms = times["delivery_timeout_ms"] - times["linger_ms"]
        words["request_timeout_ms"] = max(1, min(times["request_timeout_ms"], room_ms))
    try:
        if kind == "Producer":
            return Producer(library, inner(**words), settings.get("on_delivery"))
        return Consumer(library, inner(**words))
    except (AssertionError, ValueError, kafka.errors.KafkaError) as problem:
        raise KafkaPythonError(f"invalid settings for kafka-python: {problem}") from None


def translated(
    settings: Mapping[str, Any], known: Mapping[str, Any], on_unknown: Callable[[str], None]
) -> dict[str, Any]:
    """librdkafka's settings under kafka-python's names, with values of the types in `known`."""
    found: dict[str, Any] = {}
    for name, value in settings.items():
        word = RENAMED.get(name, name.replace(".", "_"))
        if name in LEFT_OUT or name.startswith(("sasl.", "ssl.")):
            continue
        if word in known:
            found[word] = _typed(word, value, known[word])
        else:
            on_unknown(name)
    return found


def _typed(word: str, value: Any, default: Any) -> Any:
    text = str(value).strip()
    if word == "acks":
        return "all" if text in ("all", "-1") else int(text)
    if word == "compression_type":
        return None if text == "none" else text
    if isinstance(default, bool):
        return text.lower() == "true"
    if isinstance(default, (int, float)):
        try:
            return int(text)
        except ValueError:
            raise KafkaPythonError(f"{word.replace('_', '.')}={text} is not a number") from None
    return text


# ---- the login


def _mechanism(**config: Any) -> Any:
    """Our mechanism for clients made here; kafka-python's own for all other clients of this process."""
    from ottla.security.sasl.client_authenticator import ClientLogin  # noqa: PLC0415

    login = config.get("sasl_kerberos_name")
    if isinstance(login, ClientLogin):
        return Mechanism(login, config["host"])
    if config["sasl_mechanism"] != GSSAPI:
        from kafka.net.sasl.scram import SaslMechanismScram  # noqa: PLC0415

        return SaslMechanismScram(**config)
    from kafka.net.sasl.gssapi import SaslMechanismGSSAPI  # noqa: PLC0415

    return SaslMechanismGSSAPI(**config)


class Mechanism:
    """Our SASL exchange behind kafka-python's interface."""

    def __init__(self, login: ClientLogin, host: str) -> None:
        self._name = login.mechanism
        self._exchange = login.make(host)
        self._next = self._exchange.first()

    def auth_bytes(self) -> bytes:
        return self._next

    def receive(self, auth_bytes: bytes) -> None:
        self._next = self._exchange.step(bytes(auth_bytes))

    def is_done(self) -> bool:
        return self._exchange.is_done

    def is_authenticated(self) -> bool:
        return self._exchange.is_done

    def auth_details(self) -> str:
        return f"Authenticated via SASL / {self._name}"


# ---- clients with confluent_kafka's interface
EARLIEST: Final = -2  # librdkafka's numbers for the start and end of a partition
LATEST: Final = -1
COMMIT_SECONDS: Final = 5.0
COMMIT_MS_MAX: Final = 10_000
POSITION_MS: Final = 1_000
START_MS: Final = 2_000
BATCH_MAX: Final = 500
WAITING_MAX: Final = 100_000


class Producer:
    """The part of confluent_kafka's Producer that our tools use."""

    def __init__(self, library: Any, inner: Any, on_delivery: Callable[[Any, Any], None] | None = None) -> None:
        """`on_delivery` is called for records without a callback of their own."""
        self._library = library
        self._inner = inner
        self._on_delivery = on_delivery or _ignore_delivery
        self._waiting = 0
        self._events: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()

    def produce(
        self,
        topic: str,
        value: bytes | None = None,
        key: bytes | None = None,
        partition: int | None = None,
        on_delivery: Callable[[Any, Any], None] | None = None,
        timestamp: int = 0,
        headers: Iterable[tuple[str, bytes]] | None = None,
    ) -> None:
        if self._waiting >= WAITING_MAX:
            raise BufferError("too many undelivered records")
        chosen = None if partition is None or partition < 0 else partition
        place = {"partition": chosen, "timestamp_ms": timestamp or None, "headers": list(headers or [])}
        from kafka.errors import KafkaError  # noqa: PLC0415

        try:
            future = self._inner.send(topic, value, key, **place)
        except (AssertionError, TypeError, ValueError, KafkaError) as problem:
            raise self._library.KafkaException(self._error(problem)) from None
        self._waiting += 1
        tell = on_delivery or self._on_delivery
        future.add_callback(lambda _: self._events.put(lambda: tell(None, None)))
        future.add_errback(lambda problem: self._events.put(lambda: tell(self._error(problem), None)))

    def produce_batch(self, topic: str, messages: list[dict[str, Any]], partition: int = -1) -> int:
        """The number of accepted messages; the others have an `_error`."""
        taken = 0
        for message in messages:
            try:
                self.produce(topic, message.get("value"), message.get("key"), message.get("partition", partition))
                taken += 1
            except BufferError:
                message["_error"] = self._library.KafkaError(self._library.KafkaError._QUEUE_FULL)
            except self._library.KafkaException as problem:
                message["_error"] = problem.args[0]
        return taken

    def poll(self, seconds: float = 0) -> int:
        """Calls delivery callbacks; waits for the first delivery if there is none."""
        count = 0
        while True:
            try:
                event = self._events.get(block=count == 0 and seconds > 0, timeout=seconds or None)
            except queue.Empty:
                return count
            count += 1
            self._waiting -= 1
            event()

    def flush(self, seconds: float = 1e9) -> int:
        """The number of undelivered messages at the time-out."""
        deadline = time.monotonic() + seconds
        if self._waiting:
            from kafka.errors import KafkaError  # noqa: PLC0415

            with suppress(KafkaError):  # records that time out are counted below
                self._inner.flush(timeout=seconds)
        while self._waiting:
            left = deadline - time.monotonic()
            if not self.poll(max(left, 0.0)) and left <= 0:
                break
        return self._waiting

    def list_topics(self, *_: object, **__: object) -> None:
        """Makes librdkafka fetch metadata early; kafka-python does so by itself."""

    def __len__(self) -> int:
        return self._waiting

    def __repr__(self) -> str:
        return f"<Producer of kafka-python, {self._waiting} waiting>"

    def _error(self, problem: Exception) -> Any:
        return library_error(self._library, problem)


class Consumer:
    """The part of confluent_kafka's Consumer that our tools use."""

    def __init__(self, library: Any, inner: Any) -> None:
        self._library = library
        self._inner = inner
        self._items: deque[Item] = deque()
        self._reported_ends: dict[Any, int] = {}
        self._stored: dict[Any, Any] = {}
        self._commit_at = time.monotonic() + COMMIT_SECONDS

    def subscribe(self, topics: list[str]) -> None:
        if any(topic.startswith("^") for topic in topics):
            self._inner.subscribe(pattern="|".join(topics))
        else:
            self._inner.subscribe(topics)

    def incremental_assign(self, partitions: Iterable[Any]) -> None:
        from kafka import TopicPartition  # noqa: PLC0415

        new = {TopicPartition(each.topic, each.partition): each.offset for each in partitions}
        self._inner.assign([*self._inner.assignment(), *new])
        for place, offset in new.items():
            if offset == EARLIEST:
                self._inner.seek_to_beginning(place)
            elif offset == LATEST:
                self._inner.seek_to_end(place)
            else:
                self._inner.seek(place, offset)

    def poll(self, seconds: float = 0) -> Item | None:
        if not self._items:
            self._fetch(seconds)
        return self._items.popleft() if self._items else None

    def consume(self, count: int = 1, seconds: float = 0) -> list[Item]:
        if not self._items:
            self._fetch(seconds)
        return [self._items.popleft() for _ in range(min(count, len(self._items)))]

    def store_offsets(self, offsets: Iterable[Any]) -> None:
        from kafka import TopicPartition  # noqa: PLC0415
        from kafka.structs import OffsetAndMetadata  # noqa: PLC0415

        for each in offsets:
            self._stored[TopicPartition(each.topic, each.partition)] = OffsetAndMetadata(each.offset, "", -1)
        if time.monotonic() >= self._commit_at:
            self._commit_at = time.monotonic() + COMMIT_SECONDS
            self._inner.commit_async(dict(self._stored))
            self._stored.clear()

    def list_topics(self, *_: object, **__: object) -> None:
        """Makes librdkafka fetch metadata early; kafka-python does so by itself."""

    def close(self) -> None:
        from kafka.errors import KafkaError  # noqa: PLC0415

        if self._stored:
            with suppress(KafkaError):  # as librdkafka: uncommitted records are read again
                self._inner.commit(dict(self._stored), timeout_ms=COMMIT_MS_MAX)
        self._inner.close(autocommit=False)

    def __repr__(self) -> str:
        return f"<Consumer of kafka-python, {len(self._items)} items>"

    def _fetch(self, seconds: float) -> None:
        from kafka.errors import KafkaError  # noqa: PLC0415

        wait_ms = int(seconds * 1000)
        # With a short time-out, poll() may abandon the join of a group again and again.
        if wait_ms and not self._places():
            wait_ms = max(wait_ms, START_MS)
        try:
            for records in self._inner.poll(timeout_ms=wait_ms, max_records=BATCH_MAX).values():
                self._items.extend(Item(record) for record in records)
            self._note_ends()
        except KafkaError as problem:
            self._items.append(Item(None, library_error(self._library, problem)))

    def _note_ends(self) -> None:
        """Each partition end is reported once, after the records before it."""
        places = self._places()
        ends = self._inner.end_offsets(places) if places and self._is_committed_only else {}
        for place in places:
            end = ends.get(place, self._inner.highwater(place))
            if self._reported_ends.get(place) != end and self._inner.position(place, timeout_ms=POSITION_MS) == end:
                self._reported_ends[place] = end
                self._items.append(Item(place, self._library.KafkaError(self._library.KafkaError._PARTITION_EOF)))

    def _places(self) -> list[Any]:
        """The partitions whose state has come from a broker."""
        return [place for place in self._inner.assignment() if self._inner.highwater(place) is not None]

    @property
    def _is_committed_only(self) -> bool:
        """Whether the end is the last stable offset, which only the broker knows."""
        return bool(self._inner.config["isolation_level"] == "read_committed")


class Item:
    """A record of kafka-python, or an event, as confluent_kafka's Message."""

    def __init__(self, record: Any, error: Any = None) -> None:
        self._record = record
        self._error = error

    def error(self) -> Any:
        return self._error

    def topic(self) -> str:
        return str(self._record.topic)

    def partition(self) -> int:
        return int(self._record.partition)

    def offset(self) -> int:
        return int(self._record.offset)

    def timestamp(self) -> tuple[int, int]:
        """librdkafka's timestamp types begin with 1."""
        return int(self._record.timestamp_type) + 1, int(self._record.timestamp)

    def key(self) -> bytes | None:
        key: bytes | None = self._record.key
        return key

    def value(self) -> bytes | None:
        value: bytes | None = self._record.value
        return value

    def headers(self) -> list[tuple[str, bytes]]:
        return list(self._record.headers)

    def __repr__(self) -> str:
        return f"<Item {self._error or self._record}>"


def library_error(library: Any, problem: Exception) -> Any:
    """librdkafka's error for one of kafka-python, with the same number if the protocol has one."""
    number = getattr(problem, "errno", None)
    known = isinstance(number, int) and number > 0
    return library.KafkaError(number if known else library.KafkaError._FAIL, str(problem))


def _ignore_delivery(*_: object) -> None:
    """The default callback, which does nothing."""
