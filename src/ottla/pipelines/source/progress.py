"""Progress shown to others: the place of a query committed as a consumer group, so that lag tools see it.

The group has no members. It must not be one that consumers use: the broker refuses the commit while it has members.
"""

from __future__ import annotations

from collections.abc import Mapping

from ottla.base.names import TopicPartition
from ottla.client.client import Client
from ottla.client.groups import commit_offsets
from ottla.client.login_settings import login_of
from ottla.pipelines.source.cluster import CLIENT_ID
from ottla.pipelines.source.options import is_without_tls

TIMEOUT_MS = 10_000


def commit_progress(
    bootstrap: str,
    group: str,
    offsets: Mapping[str, Mapping[int, int]],
    properties: Mapping[str, str] | None = None,
) -> None:
    """Commit {topic: {partition: offset}} for a group without members; raises ClientError.

    `properties` are those of a Kafka client: with a security.protocol of TLS, confluent-kafka commits.
    """
    wanted = {
        TopicPartition(topic, int(partition)): offset
        for topic, partitions in offsets.items()
        for partition, offset in partitions.items()
    }
    if not wanted:
        return
    if not is_without_tls(properties or {}):
        from ottla.pipelines.source.confluent import commit  # noqa: PLC0415 (a library that few need here)

        commit({**(properties or {}), "bootstrap.servers": bootstrap}, group, wanted)
        return
    login = login_of(properties or {})
    with Client(bootstrap, client_id=CLIENT_ID, timeout_ms=TIMEOUT_MS, login=login) as client:
        commit_offsets(client, group, wanted)
