"""Progress shown to others: the place of a query committed as a consumer group, so that lag tools see it.

The group has no members. It must not be one that consumers use: the broker refuses the commit while it has members.
"""

from __future__ import annotations

from collections.abc import Mapping

from ottla.base.names import TopicPartition
from ottla.client.groups import commit_offsets
from ottla.client.opening import open_client
from ottla.pipelines.source.cluster import CLIENT_ID

TIMEOUT_MS = 10_000


def commit_progress(
    bootstrap: str,
    group: str,
    offsets: Mapping[str, Mapping[int, int]],
    properties: Mapping[str, str] | None = None,
) -> None:
    """Commit {topic: {partition: offset}} for a group without members; raises ClientError.

    `properties` are those of a Kafka client: how to connect and to log in.
    """
    wanted = {
        TopicPartition(topic, int(partition)): offset
        for topic, partitions in offsets.items()
        for partition, offset in partitions.items()
    }
    if not wanted:
        return
    with open_client(bootstrap, properties or {}, CLIENT_ID, timeout_ms=TIMEOUT_MS) as client:
        commit_offsets(client, group, wanted)
