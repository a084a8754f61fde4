"""Every API that this broker serves. What is not in this table is not announced, and closes the connection."""

from __future__ import annotations

from typing import Any

from ottla.broker.dispatch import Handler
from ottla.broker.handlers import (
    alter_configs,
    api_versions,
    create_partitions,
    create_topics,
    delete_topics,
    describe_cluster,
    describe_configs,
    describe_topic_partitions,
    fetch,
    find_coordinator,
    incremental_alter_configs,
    init_producer_id,
    list_offsets,
    metadata,
    offset_for_leader_epoch,
    produce,
)

HANDLERS: dict[int, Handler | Any] = {
    0: produce.handle,
    1: fetch.handle,
    2: list_offsets.handle,
    3: metadata.handle,
    10: find_coordinator.handle,
    18: api_versions.handle,
    19: create_topics.handle,
    20: delete_topics.handle,
    22: init_producer_id.handle,
    23: offset_for_leader_epoch.handle,
    32: describe_configs.handle,
    33: alter_configs.handle,
    37: create_partitions.handle,
    44: incremental_alter_configs.handle,
    60: describe_cluster.handle,
    75: describe_topic_partitions.handle,
}
