"""Reads `__consumer_offsets` from its beginning and follows it. Blocking: for a thread of its own.

Rules:
1. No group, nothing committed: the monitor leaves no trace in the cluster, and reads everything anew when it is started
   again, down to what compaction has left.
2. Offsets that a transaction commits count when it is committed. Until the oldest open transaction of a partition has
   ended, what stands behind it there is not read either.
3. The past has been read when every partition was read to where it ended at the start. The library tells when it has
   come to an end, but not while new records keep coming: so offsets are compared, too. A partition that cannot be read,
   because it has no leader for instance, is waited for no longer than SETTLE_MS.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Any, Final

from ottla.base.clock import Clock
from ottla.client.errors import ClientError
from ottla.client.java_properties import make_without_unknown, translate
from ottla.client.kafka_python import KafkaPythonError, has_kerberos, make, wants_kerberos, wants_token
from ottla.monitor.group_changes import TOPIC, Change, read_change
from ottla.security.jaas import JaasError

logger = logging.getLogger(__name__)

POLL_SECONDS: Final = 0.2
BATCH_MAX: Final = 1_000
SETTLE_MS: Final = 30_000
BEGINNING: Final = -2  # librdkafka's number for the start of a partition
SETTINGS: Final[Mapping[str, Any]] = {
    "auto.offset.reset": "earliest",
    "enable.auto.commit": "false",
    "fetch.wait.max.ms": "1000",  # a request a second for each broker; what is new is answered at once all the same
    "enable.auto.offset.store": "false",
    "enable.partition.eof": "true",
    "fetch.queue.backoff.ms": "50",
    "group.id": "ottla-monitor",  # the library wants one; nobody joins it
    "isolation.level": "read_committed",
    "log_level": 2,
    "queued.max.messages.kbytes": "8192",
    "queued.min.messages": "5000",
}
MISSING: Final = "the monitor needs the package confluent-kafka: pip install 'ottla[console]'"


class CommitReader:
    """A consumer of all partitions of the topic."""

    def __init__(self, make_consumer: Callable[[], Any], clock: Clock) -> None:
        self._make_consumer = make_consumer
        self._clock = clock
        self._consumer: Any = None
        self._partitions = 0
        self._unread: dict[int, int | None] = {}  # the partitions of which a past is left, and where that ends
        self._settle_until_ms = 0
        self.trouble = ""
        self.is_refused = False  # this login may not read commits (any more): those that are known say nothing

    def is_new(self, partitions: int) -> bool:
        """Whether there are partitions that are not followed yet."""
        return partitions > self._partitions

    def follow(self, partitions: int, ends: Mapping[int, int]) -> None:
        """Read that many partitions, more than before if the topic has grown; `ends` is where they end now."""
        if self._consumer is None:
            self._consumer = self._make_consumer()
        new = range(self._partitions, partitions)
        from confluent_kafka import TopicPartition as Place  # noqa: PLC0415 (loaded where it is needed)

        self._consumer.incremental_assign([Place(TOPIC, number, BEGINNING) for number in new])
        self._unread |= {number: ends.get(number) for number in new if ends.get(number) != 0}
        self._partitions = partitions
        self._settle_until_ms = self._clock.monotonic_ms() + SETTLE_MS

    @property
    def has_read_past(self) -> bool:
        """Whether all that was there at the start has been read."""
        if self._unread and self._clock.monotonic_ms() >= self._settle_until_ms:
            logger.warning("%d partitions of %s could not be read: %s", len(self._unread), TOPIC, self.trouble)
            self._unread.clear()
        return not self._unread

    def read(self) -> list[Change]:
        """What has come, after waiting for it for a moment."""
        first = self._consumer.poll(POLL_SECONDS)
        if first is None:
            return []
        found: list[Change] = []
        for item in (first, *self._consumer.consume(BATCH_MAX, 0)):
            error = item.error()
            if error is not None:
                self._note(item, error)
                continue
            self.is_refused = False
            if self._unread:
                self._note_place(item.partition(), item.offset())
            change = read_change(item.key(), item.value(), item.offset())
            if change is not None:
                found.append(change)
        return found

    def close(self) -> None:
        """Forget the place: who follows again begins anew."""
        if self._consumer is not None:
            self._consumer.close()
            self._consumer = None
        self._partitions = 0
        self._unread.clear()

    def _note_place(self, partition: int, offset: int) -> None:
        end = self._unread.get(partition)
        if end is not None and offset >= end - 1:
            del self._unread[partition]

    def _note(self, item: Any, error: Any) -> None:
        if error.name() == "_PARTITION_EOF":
            self._unread.pop(item.partition(), None)
            self.is_refused = False
            return
        self.is_refused = self.is_refused or error.name() == "TOPIC_AUTHORIZATION_FAILED"
        if error.str() != self.trouble:
            self.trouble = error.str()
            logger.warning("%s: %s; trying again", TOPIC, self.trouble)

    def __repr__(self) -> str:
        return f"<CommitReader {self._partitions} partitions, {len(self._unread)} of them not read yet>"


def open_consumer(bootstrap: str, properties: Mapping[str, str]) -> Any:
    """A consumer of librdkafka, or of kafka-python for logins that it lacks. Raises ClientError."""
    try:
        import confluent_kafka as library  # noqa: PLC0415 (40 ms)
    except ImportError:
        raise ClientError(MISSING) from None
    settings = {**SETTINGS, **translate(properties), "bootstrap.servers": bootstrap, "error_cb": _note_error}
    settings |= {name: SETTINGS[name] for name in ("enable.auto.commit", "isolation.level", "enable.partition.eof")}
    settings["logger"] = logging.getLogger("ottla.monitor.librdkafka")
    try:
        if wants_token(settings) or (wants_kerberos(settings) and not has_kerberos(library)):
            settings.pop("logger")
            return make("Consumer", library, settings, _note_unknown)
        return make_without_unknown(library.Consumer, settings, library.KafkaException, _note_unknown)
    except library.KafkaException as problem:
        raise ClientError(f"the client cannot be configured like this: {problem.args[0].str()}") from None
    except (KafkaPythonError, JaasError) as problem:
        raise ClientError(str(problem)) from None


def _note_error(error: Any) -> None:
    logger.debug("librdkafka: %s", error.str())


def _note_unknown(name: str) -> None:
    logger.debug("the property %s is not known to the consumer", name)
