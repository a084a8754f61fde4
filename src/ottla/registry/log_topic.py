"""The topic that holds the schemas: made, or found to be one that keeps them. Blocking: for a thread.

A topic of several partitions has no order, and one that deletes old records loses schemas: neither is used.
"""

from __future__ import annotations

from typing import Final
from uuid import UUID

from ottla.base.errors import Error
from ottla.base.names import TopicPartition
from ottla.client.admin import Admin
from ottla.client.client import Client
from ottla.client.errors import ClientError
from ottla.client.offsets import EARLIEST, LATEST, READ_COMMITTED, list_offsets

REPLICATION_FACTOR: Final = 3
POLICY: Final = "cleanup.policy"
COMPACT: Final = "compact"


class LogError(Exception):
    """The topic cannot be used; str() is one line for a person."""


def prepare_topic(client: Client, topic: str, replication_factor: int) -> UUID:
    """Make the topic if it is not there; returns its id. Raises LogError or ClientError."""
    admin = Admin(client)
    found = admin.topics([topic])
    if not found:
        copies = max(1, min(replication_factor, len(admin.live_brokers())))
        try:
            admin.create_topic(topic, partitions=1, replication_factor=copies, configs={POLICY: COMPACT})
        except ClientError as problem:
            if problem.error is not Error.TOPIC_ALREADY_EXISTS:  # another registry was faster
                raise
        found = [admin.topic(topic, needs_leaders=True)]
    if len(found[0].partitions) != 1:
        raise LogError(
            f"the topic {topic} has {len(found[0].partitions)} partitions, and the order of schemas needs exactly one: "
            "name another topic with kafkastore.topic, or make it anew"
        )
    configs = {item.name: item.value for item in admin.topic_configs([topic])[topic]}
    policy = configs.get(POLICY) or ""
    if policy.replace(" ", "") != COMPACT:
        raise LogError(
            f"the topic {topic} has {POLICY}={policy}, which would delete schemas: set it to {COMPACT} with "
            f"ottla configs set --topic {topic} {POLICY}={COMPACT}"
        )
    return found[0].topic_id


def bounds(client: Client, topic: str) -> tuple[int, int]:
    """Where the topic begins and ends; raises ClientError."""
    partition = TopicPartition(topic, 0)
    found = []
    for time in (EARLIEST, LATEST):
        offsets, failures = list_offsets(client, [partition], time, READ_COMMITTED)
        for problem in failures.values():
            raise problem
        found.append(offsets[partition].offset)
    return found[0], found[1]
