"""Keys for groups, producer ids and transactions."""

from __future__ import annotations

from ottla.base.setting_types import INT_MAX, one_of, one_of_any_case
from ottla.base.settings import CLUSTER_WIDE, Boolean, Int, Items, Long, Settings, Short, Text


class GroupKeys(Settings):
    """Consumer groups and their committed offsets."""

    group_consumer_assignment_interval_ms = Int(
        1000,
        at_least=0,
        mode=CLUSTER_WIDE,
        note="Minimum time between two assignments of a group of the new protocol.",
    )
    group_consumer_assignors = Items(
        ("uniform", "range"),
        may_be_empty=False,
        note="Server-side assignors in order of preference.",
    )
    group_consumer_heartbeat_interval_ms = Int(
        5000, at_least=1, note="Heartbeat interval for members of the new protocol."
    )
    group_consumer_max_assignment_interval_ms = Int(
        15_000, at_least=0, note="Maximum assignment interval that a group may set."
    )
    group_consumer_max_heartbeat_interval_ms = Int(
        15_000, at_least=1, note="Maximum heartbeat interval that a group may set."
    )
    group_consumer_max_session_timeout_ms = Int(
        60_000, at_least=1, note="Maximum session timeout that a group may set."
    )
    group_consumer_max_size = Int(
        INT_MAX, at_least=1, note="Maximum number of members of one group of the new protocol."
    )
    group_consumer_migration_policy = Text(
        "bidirectional",
        check=one_of_any_case("DISABLED", "DOWNGRADE", "UPGRADE", "BIDIRECTIONAL"),
        note="Whether running groups may change between the classic and the new protocol.",
    )
    group_consumer_min_assignment_interval_ms = Int(
        0, at_least=0, note="Minimum assignment interval that a group may set."
    )
    group_consumer_min_heartbeat_interval_ms = Int(
        5000, at_least=1, note="Minimum heartbeat interval that a group may set."
    )
    group_consumer_min_session_timeout_ms = Int(
        45_000, at_least=1, note="Minimum session timeout that a group may set."
    )
    group_consumer_regex_refresh_interval_ms = Int(
        600_000,
        at_least=10_000,
        is_internal=True,
        note="Maximum time between two evaluations of a group's patterns.",
    )
    group_consumer_session_timeout_ms = Int(
        45_000,
        at_least=1,
        note="Time without a heartbeat after which a member of the new protocol is removed.",
    )
    group_coordinator_rebalance_protocols = Items(
        ("classic", "consumer", "streams"),
        check=one_of("consumer", "classic", "share", "streams"),
        may_be_empty=False,
        note="Supported group protocols.",
    )
    group_initial_rebalance_delay_ms = Int(
        3000, note="Time a new group waits for more members before its first assignment."
    )
    group_max_session_timeout_ms = Int(1_800_000, note="Maximum session timeout that a consumer may request.")
    group_max_size = Int(INT_MAX, at_least=1, note="Maximum number of members of one classic group.")
    group_min_session_timeout_ms = Int(6000, note="Minimum session timeout that a consumer may request.")
    offset_metadata_max_bytes = Int(
        4096, note="Maximum size of the metadata that a consumer may commit with an offset."
    )
    offsets_commit_timeout_ms = Int(
        5000,
        at_least=1,
        note="Time within which an offset commit must reach all in-sync replicas.",
    )
    offsets_retention_check_interval_ms = Long(
        600_000,
        at_least=1,
        note="Interval for removing expired offsets.",
    )
    offsets_retention_minutes = Int(10_080, at_least=1, note="Time for which offsets of an empty group are kept.")
    ottla_group_metadata_max_bytes = Long(
        134_217_728,
        at_least=1,
        note="Maximum memory for protocol metadata, assignments and subscriptions of the members of all groups, on "
        "each broker. Above the limit, new members are rejected (GROUP_MAX_SIZE_REACHED); existing members "
        "continue, and may join again.",
    )
    offsets_topic_compression_codec = Int(0, note="Codec id of the offsets topic; 0 is none.")
    offsets_topic_num_partitions = Int(
        50,
        at_least=1,
        note="Number of partitions of the offsets topic; must be set before it is created.",
    )
    offsets_topic_replication_factor = Short(3, at_least=1, note="Replicas of the offsets topic.")
    offsets_topic_segment_bytes = Int(
        104_857_600,
        at_least=1,
        note="Segment size of the offsets topic; small segments are loaded and compacted faster.",
    )


class TransactionKeys(Settings):
    """Producer ids and transactions."""

    add_partitions_to_txn_retry_backoff_max_ms = Int(
        100,
        at_least=0,
        note="Maximum wait of a producer request while the previous transaction of its producer is being completed.",
    )
    add_partitions_to_txn_retry_backoff_ms = Int(
        20,
        at_least=1,
        note="Wait before the broker retries such a request.",
    )
    producer_id_expiration_check_interval_ms = Int(
        600_000,
        at_least=1,
        is_internal=True,
        note="Interval for removing expired producer ids.",
    )
    producer_id_expiration_ms = Int(
        86_400_000,
        at_least=1,
        mode=CLUSTER_WIDE,
        note="Time without a write after which a partition removes the state of an idempotent producer.",
    )
    transaction_abort_timed_out_transaction_cleanup_interval_ms = Int(
        10_000,
        at_least=1,
        note="Interval for aborting transactions that have timed out.",
    )
    transaction_max_timeout_ms = Int(
        900_000,
        at_least=1,
        note="Maximum transaction timeout that a producer may request.",
    )
    transaction_partition_verification_enable = Boolean(
        True,
        mode=CLUSTER_WIDE,
        note="Whether the broker verifies that a write belongs to an open transaction.",
    )
    transaction_remove_expired_transaction_cleanup_interval_ms = Int(
        3_600_000,
        at_least=1,
        note="Interval for removing expired transactional ids.",
    )
    transaction_state_log_min_isr = Int(
        2,
        at_least=1,
        note="Replicas of the transaction topic that must have a record before it is committed.",
    )
    transaction_state_log_num_partitions = Int(
        50,
        at_least=1,
        note="Number of partitions of the transaction topic; must be set before it is created.",
    )
    transaction_state_log_replication_factor = Short(3, at_least=1, note="Replicas of the transaction topic.")
    transaction_state_log_segment_bytes = Int(104_857_600, at_least=1, note="Segment size of the transaction topic.")
    transactional_id_expiration_ms = Int(
        604_800_000,
        at_least=1,
        note="Time without use after which a transactional id expires.",
    )
