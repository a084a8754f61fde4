"""Reads `__consumer_offsets` from its beginning and follows it. Blocking.

Rules:
1. It joins no group and commits nothing: the monitor leaves no trace in the cluster, and reads the compacted topic
   again after a restart.
2. Offsets committed in a transaction count once it is committed. Records after the oldest open transaction of a
   partition are not read before it has ended.
3. Old commits are read once every partition was read up to its end offset at the start. librdkafka reports the end of a
   partition, but not while new records keep coming, so offsets are compared, too. A partition that cannot be read, for
   instance without a leader, delays this by at most SETTLE_MS.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Any, Final

from ottla.base.clock import Clock
from ottla.client.errors import ClientError
from ottla.client.kafka_python import KafkaPythonError, has_kerberos, make_client, wants_kerberos, wants_token
from ottla.client.librdkafka_properties import make_without_unknown, translate
from ottla.monitor.group_changes import TOPIC, Change, read_change
from ottla.security.jaas import JaasError

logger = logging.getLogger(__name__)

POLL_SECONDS: Final = 0.2
BATCH_MAX: Final = 1_000
OLD_COMMITS_TIMEOUT_MS: Final = 30_000
BEGINNING: Final = -2  # librdkafka's constant for the start of a partition
SETTINGS: Final[Mapping[str, Any]] = {
    "auto.offset.reset": "earliest",
    "enable.auto.commit": "false",
    "fetch.wait.max.ms": "1000",  # one request a second per broker; new records are returned at once anyway
    "enable.auto.offset.store": "false",
    "enable.partition.eof": "true",
    "fetch.queue.backoff.ms": "50",
    "group.id": "ottla-monitor",  # required by librdkafka, never joined
    "isolation.level": "read_committed",
    "log_level": 2,
    "queued.max.messages.kbytes": "8192",
    "queued.min.messages": "5000",
}
MISSING: Final = "the monitor needs the package confluent-kafka: pip install 'ottla[console]'"


class OffsetsReader:
    """A consumer of all partitions of the topic."""

    def __init__(self, make_consumer: Callable[[], Any], clock: Clock) -> None:
        self._make_consumer = make_consumer
        self._clock = clock
        self._consumer: Any = None
        self._partitions = 0
        self._unread: dict[int, int | None] = {}  # partitions with old commits, and their end offsets
        self._settle_until_ms = 0
        self.last_error = ""
        self.is_unauthorized = False  # this login may not read commits, so known ones are outdated

    def has_new_partitions(self, partitions: int) -> bool:
        """Whether there are partitions that are not assigned yet."""
        return partitions > self._partitions

    def follow(self, partitions: int, ends: Mapping[int, int]) -> None:
        """Assign this many partitions, more than before if the topic has grown; `ends` are their end offsets."""
        if self._consumer is None:
            self._consumer = self._make_consumer()
        new = range(self._partitions, partitions)
        from confluent_kafka import TopicPartition as Place  # noqa: PLC0415 (loaded where it is needed)

        self._consumer.incremental_assign([Place(TOPIC, number, BEGINNING) for number in new])
        self._unread |= {number: ends.get(number) for number in new if ends.get(number) != 0}
        self._partitions = partitions
        self._settle_until_ms = self._clock.monotonic_ms() + OLD_COMMITS_TIMEOUT_MS

    @property
    def has_read_old_commits(self) -> bool:
        """Whether all commits from before the start have been read."""
        if self._unread and self._clock.monotonic_ms() >= self._settle_until_ms:
            logger.warning("%d partitions of %s could not be read: %s", len(self._unread), TOPIC, self.last_error)
            self._unread.clear()
        return not self._unread

    def read(self) -> list[Change]:
        """Wait a moment for records, and return their changes."""
        first = self._consumer.poll(POLL_SECONDS)
        if first is None:
            return []
        found: list[Change] = []
        for item in (first, *self._consumer.consume(BATCH_MAX, 0)):
            error = item.error()
            if error is not None:
                self._handle_error(item, error)
                continue
            self.is_unauthorized = False
            if self._unread:
                self._mark_read(item.partition(), item.offset())
            change = read_change(item.key(), item.value(), item.offset())
            if change is not None:
                found.append(change)
        return found

    def close(self) -> None:
        """Close the consumer; a later `follow` starts from the beginning."""
        if self._consumer is not None:
            self._consumer.close()
            self._consumer = None
        self._partitions = 0
        self._unread.clear()

    def _mark_read(self, partition: int, offset: int) -> None:
        end = self._unread.get(partition)
        if end is not None and offset >= end - 1:
            del self._unread[partition]

    def _handle_error(self, item: Any, error: Any) -> None:
        if error.name() == "_PARTITION_EOF":
            self._unread.pop(item.partition(), None)
            self.is_unauthorized = False
            return
        self.is_unauthorized = self.is_unauthorized or error.name() == "TOPIC_AUTHORIZATION_FAILED"
        if error.str() != self.last_error:
            self.last_error = error.str()
            logger.warning("%s: %s; trying again", TOPIC, self.last_error)

    def __repr__(self) -> str:
        return f"<OffsetsReader {self._partitions} partitions, {len(self._unread)} of them not read yet>"


def open_consumer(bootstrap: str, properties: Mapping[str, str]) -> Any:
    """A librdkafka consumer, or kafka-python's for logins that librdkafka lacks. Raises ClientError."""
    try:
        import confluent_kafka as library  # noqa: PLC0415 (40 ms)
    except ImportError:
        raise ClientError(MISSING) from None
    settings = {**SETTINGS, **translate(properties), "bootstrap.servers": bootstrap, "error_cb": _log_librdkafka_error}
    settings |= {name: SETTINGS[name] for name in ("enable.auto.commit", "isolation.level", "enable.partition.eof")}
    settings["logger"] = logging.getLogger("ottla.monitor.librdkafka")
    try:
        if wants_token(settings) or (wants_kerberos(settings) and not has_kerberos(library)):
            settings.pop("logger")
            return make_client("Consumer", library, settings, _note_unknown)
        return make_without_unknown(library.Consumer, settings, library.KafkaException, _note_unknown)
    except library.KafkaException as problem:
        raise ClientError(f"invalid client configuration: {problem.args[0].str()}") from None
    except (KafkaPythonError, JaasError) as problem:
        raise ClientError(str(problem)) from None


def _log_librdkafka_error(error: Any) -> None:
    logger.debug("librdkafka: %s", error.str())


def _note_unknown(name: str) -> None:
    logger.debug("the consumer does not know the property %s", name)
