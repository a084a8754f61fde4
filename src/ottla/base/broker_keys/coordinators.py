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
        note="Shortest time between two assignments of a group of the new protocol.",
    )
    group_consumer_assignors = Items(
        ("uniform", "range"),
        may_be_empty=False,
        note="Server-side assignors in the order of preference.",
    )
    group_consumer_heartbeat_interval_ms = Int(
        5000, at_least=1, note="Heartbeat interval for members of the new protocol."
    )
    group_consumer_max_assignment_interval_ms = Int(
        15_000, at_least=0, note="Largest assignment interval a group may set."
    )
    group_consumer_max_heartbeat_interval_ms = Int(
        15_000, at_least=1, note="Largest heartbeat interval a group may set."
    )
    group_consumer_max_session_timeout_ms = Int(60_000, at_least=1, note="Largest session time-out a group may set.")
    group_consumer_max_size = Int(INT_MAX, at_least=1, note="Most members of one group of the new protocol.")
    group_consumer_migration_policy = Text(
        "bidirectional",
        check=one_of_any_case("DISABLED", "DOWNGRADE", "UPGRADE", "BIDIRECTIONAL"),
        note="Whether groups may change between the classic and the new protocol while they run.",
    )
    group_consumer_min_assignment_interval_ms = Int(0, at_least=0, note="Smallest assignment interval a group may set.")
    group_consumer_min_heartbeat_interval_ms = Int(
        5000, at_least=1, note="Smallest heartbeat interval a group may set."
    )
    group_consumer_min_session_timeout_ms = Int(45_000, at_least=1, note="Smallest session time-out a group may set.")
    group_consumer_regex_refresh_interval_ms = Int(
        600_000,
        at_least=10_000,
        is_internal=True,
        note="Longest time between two searches for topics that match a group's patterns.",
    )
    group_consumer_session_timeout_ms = Int(
        45_000,
        at_least=1,
        note="Time without a heartbeat after which a member of the new protocol is out.",
    )
    group_coordinator_rebalance_protocols = Items(
        ("classic", "consumer", "streams"),
        check=one_of("consumer", "classic", "share", "streams"),
        may_be_empty=False,
        note="Group protocols that are served.",
    )
    group_initial_rebalance_delay_ms = Int(
        3000, note="Time a new group waits for more members before its first assignment."
    )
    group_max_session_timeout_ms = Int(1_800_000, note="Largest session time-out a consumer may ask for.")
    group_max_size = Int(INT_MAX, at_least=1, note="Most members of one classic group.")
    group_min_session_timeout_ms = Int(6000, note="Smallest session time-out a consumer may ask for.")
    offset_metadata_max_bytes = Int(4096, note="Longest note that a consumer may commit with an offset.")
    offsets_commit_timeout_ms = Int(
        5000,
        at_least=1,
        note="Time within which an offset commit must reach all in-sync replicas.",
    )
    offsets_retention_check_interval_ms = Long(
        600_000,
        at_least=1,
        note="Time between two searches for committed offsets that are too old.",
    )
    offsets_retention_minutes = Int(10_080, at_least=1, note="Time for which offsets of an empty group are kept.")
    ottla_group_metadata_max_bytes = Long(
        134_217_728,
        at_least=1,
        note="Memory for what the members of all groups send about themselves: protocol metadata, assignments and "
        "subscriptions, on each broker. When it is used up new members are refused (GROUP_MAX_SIZE_REACHED); those "
        "that are there go on, and may join again.",
    )
    offsets_topic_compression_codec = Int(0, note="Codec number of the offsets topic; 0 is none.")
    offsets_topic_num_partitions = Int(
        50,
        at_least=1,
        note="Partitions of the offsets topic; to be set before it is created.",
    )
    offsets_topic_replication_factor = Short(3, at_least=1, note="Replicas of the offsets topic.")
    offsets_topic_segment_bytes = Int(
        104_857_600,
        at_least=1,
        note="Segment size of the offsets topic; small ones load and compact faster.",
    )


class TransactionKeys(Settings):
    """Producer ids and transactions."""

    add_partitions_to_txn_retry_backoff_max_ms = Int(
        100,
        at_least=0,
        note="Longest wait of a producer request that found its transaction's previous end still running.",
    )
    add_partitions_to_txn_retry_backoff_ms = Int(
        20,
        at_least=1,
        note="Wait before such a request is tried again on the broker.",
    )
    producer_id_expiration_check_interval_ms = Int(
        600_000,
        at_least=1,
        is_internal=True,
        note="Time between two searches for producer ids that are too old.",
    )
    producer_id_expiration_ms = Int(
        86_400_000,
        at_least=1,
        mode=CLUSTER_WIDE,
        note="Time without a write after which a partition forgets an idempotent producer.",
    )
    transaction_abort_timed_out_transaction_cleanup_interval_ms = Int(
        10_000,
        at_least=1,
        note="Time between two searches for transactions that ran out of time.",
    )
    transaction_max_timeout_ms = Int(
        900_000,
        at_least=1,
        note="Longest transaction time-out that a producer may ask for.",
    )
    transaction_partition_verification_enable = Boolean(
        True,
        mode=CLUSTER_WIDE,
        note="Whether a write is checked to belong to a running transaction.",
    )
    transaction_remove_expired_transaction_cleanup_interval_ms = Int(
        3_600_000,
        at_least=1,
        note="Time between two searches for transactional ids that are too old.",
    )
    transaction_state_log_min_isr = Int(
        2,
        at_least=1,
        note="Replicas of the transaction topic that must have a record before it counts.",
    )
    transaction_state_log_num_partitions = Int(
        50,
        at_least=1,
        note="Partitions of the transaction topic; to be set before it is created.",
    )
    transaction_state_log_replication_factor = Short(3, at_least=1, note="Replicas of the transaction topic.")
    transaction_state_log_segment_bytes = Int(104_857_600, at_least=1, note="Segment size of the transaction topic.")
    transactional_id_expiration_ms = Int(
        604_800_000,
        at_least=1,
        note="Time without use after which a transactional id is forgotten.",
    )
