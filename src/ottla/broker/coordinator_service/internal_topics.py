"""Creation of internal topics: of the coordinators at the first client, as in Kafka, and of the audit trail."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

from ottla.base.broker_settings import BrokerSettings
from ottla.base.errors import Error, KafkaError
from ottla.base.logs import LogLimiter
from ottla.base.names import AUDIT_TOPIC
from ottla.broker.node import Node
from ottla.controller.decisions.topic_changes import NewTopic, TopicResult

logger = logging.getLogger(__name__)

OFFSETS_TOPIC: Final = "__consumer_offsets"
TRANSACTIONS_TOPIC: Final = "__transaction_state"
APPLY_TIMEOUT_MS: Final = 5_000  # a request must be answered although a disk hangs
WARNING_INTERVAL_SECONDS: Final = 10.0  # between two warnings about the same topic


class InternalTopicCreator:
    """Creates each topic once for all concurrent callers."""

    def __init__(
        self,
        node: Node,
        create: Callable[[Sequence[NewTopic]], Awaitable[list[TopicResult]]],
        settled: Callable[..., Awaitable[None]],
        is_standalone: bool,
    ) -> None:
        self.wait_until_applied = settled
        self._node = node
        self._create = create
        self._is_standalone = is_standalone
        self._creating = asyncio.Lock()
        self._log_limiter = LogLimiter(WARNING_INTERVAL_SECONDS)

    async def ensure(self, wanted: NewTopic) -> None:
        """Create the topic if it is missing. On return it exists and, usually, its partitions have their roles here."""
        async with self._creating:
            if wanted.name not in self._node.image.topics:
                await self._create_topic(wanted)
        await self.wait_until_applied(APPLY_TIMEOUT_MS)

    async def _create_topic(self, wanted: NewTopic) -> None:
        require_brokers(wanted, len(self._node.image.brokers), self._log_limiter)
        try:
            results = await self._create([wanted])
        except KafkaError as error:  # no controller at the moment: clients of a coordinator do not know this error
            raise KafkaError(Error.COORDINATOR_NOT_AVAILABLE, error.message) from None
        if results[0].error not in (Error.NONE, Error.TOPIC_ALREADY_EXISTS):
            raise KafkaError(Error.COORDINATOR_NOT_AVAILABLE, results[0].message)

    def offsets(self) -> NewTopic:
        return offsets_topic(self._node.settings, self._replicas_max())

    def transactions(self) -> NewTopic:
        return transactions_topic(self._node.settings, self._replicas_max())

    def audit(self) -> NewTopic:
        return audit_topic(self._node.settings, self._replicas_max())

    def _replicas_max(self) -> int | None:
        """Return the maximum replication factor, or None. A standalone broker is a whole cluster. In a cluster, too few
        brokers are temporary, and a topic created then would keep too few replicas.
        """
        return 1 if self._is_standalone else None


def offsets_topic(settings: BrokerSettings, replicas_max: int | None = None) -> NewTopic:
    return internal_topic(
        OFFSETS_TOPIC,
        settings.offsets_topic_num_partitions,
        at_most(settings.offsets_topic_replication_factor, replicas_max),
        {"segment.bytes": str(settings.offsets_topic_segment_bytes), "compression.type": "producer"},
    )


def transactions_topic(settings: BrokerSettings, replicas_max: int | None = None) -> NewTopic:
    return internal_topic(
        TRANSACTIONS_TOPIC,
        settings.transaction_state_log_num_partitions,
        at_most(settings.transaction_state_log_replication_factor, replicas_max),
        {
            "segment.bytes": str(settings.transaction_state_log_segment_bytes),
            "compression.type": "uncompressed",
            "min.insync.replicas": str(at_most(settings.transaction_state_log_min_isr, replicas_max)),
            "unclean.leader.election.enable": "false",
        },
    )


def audit_topic(settings: BrokerSettings, replicas_max: int | None = None) -> NewTopic:
    """Return the audit topic, with retention by time and without compaction."""
    return NewTopic(
        AUDIT_TOPIC,
        partition_count=settings.ottla_audit_topic_num_partitions,
        replication_factor=at_most(settings.ottla_audit_topic_replication_factor, replicas_max),
        configs=(("cleanup.policy", "delete"), ("retention.ms", str(settings.ottla_audit_topic_retention_ms))),
    )


def internal_topic(name: str, partitions: int, replicas: int, configs: dict[str, str]) -> NewTopic:
    return NewTopic(
        name,
        partition_count=partitions,
        replication_factor=replicas,
        configs=(("cleanup.policy", "compact"), *configs.items()),
    )


def require_brokers(wanted: NewTopic, alive: int, log_limiter: LogLimiter) -> None:
    """Wait for more brokers while a cluster starts; clients retry."""
    if wanted.replication_factor > alive:
        log = logger.warning if log_limiter.is_due(time.monotonic(), wanted.name) else logger.debug
        log(
            "%s cannot be created yet: %d brokers are alive, but it needs %d replicas. Start more brokers, or set "
            "its replication factor lower (offsets.topic.replication.factor, transaction.state.log.replication.factor, "
            "ottla.audit.topic.replication.factor)",
            wanted.name,
            alive,
            wanted.replication_factor,
        )
        raise KafkaError(Error.COORDINATOR_NOT_AVAILABLE)


def at_most(number: int, maximum: int | None) -> int:
    return number if maximum is None else min(number, maximum)
