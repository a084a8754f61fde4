"""Every API that this broker serves. What is not in this table is not announced, and closes the connection."""

from __future__ import annotations

from typing import Any

from ottla.broker.dispatch import Handler
from ottla.broker.handlers import (
    alter_configs,
    alter_replica_log_dirs,
    api_versions,
    create_partitions,
    create_topics,
    delete_records,
    delete_topics,
    describe_cluster,
    describe_configs,
    describe_log_dirs,
    describe_producers,
    describe_quorum,
    describe_topic_partitions,
    fetch,
    find_coordinator,
    get_telemetry_subscriptions,
    incremental_alter_configs,
    init_producer_id,
    list_config_resources,
    list_offsets,
    metadata,
    offset_for_leader_epoch,
    produce,
    push_telemetry,
    unregister_broker,
    update_features,
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
    21: delete_records.handle,
    22: init_producer_id.handle,
    23: offset_for_leader_epoch.handle,
    32: describe_configs.handle,
    33: alter_configs.handle,
    34: alter_replica_log_dirs.handle,
    35: describe_log_dirs.handle,
    37: create_partitions.handle,
    44: incremental_alter_configs.handle,
    55: describe_quorum.handle,
    57: update_features.handle,
    60: describe_cluster.handle,
    61: describe_producers.handle,
    64: unregister_broker.handle,
    71: get_telemetry_subscriptions.handle,
    72: push_telemetry.handle,
    74: list_config_resources.handle,
    75: describe_topic_partitions.handle,
}
