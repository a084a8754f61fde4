"""Share groups: many consumers of one partition."""

from __future__ import annotations

from ottla.base.broker_keys.words import CLUSTER_WIDE, HIGH, LOW, NO_PURGATORY, NO_SHARE_GROUPS, ONE_LOOP
from ottla.base.settings import Int, Items, Settings, Short, Text


class ShareGroupKeys(Settings):
    """Share groups: many consumers of one partition."""

    group_share_assignment_interval_ms = Int(
        1000,
        at_least=0,
        mode=CLUSTER_WIDE,
        unused=NO_SHARE_GROUPS,
        note="Shortest time between two assignments of a share group.",
    )
    group_share_assignors = Items(
        ("simple",), may_be_empty=False, unused=NO_SHARE_GROUPS, note="Assignors of share groups."
    )
    group_share_delivery_count_limit = Int(
        5,
        at_least=2,
        at_most=10,
        unused=NO_SHARE_GROUPS,
        note="Times a record is handed out before it counts as undeliverable.",
    )
    group_share_heartbeat_interval_ms = Int(
        5000, at_least=1, unused=NO_SHARE_GROUPS, note="Heartbeat interval that members of share groups are told."
    )
    group_share_initialize_retry_interval_ms = Int(
        30_000,
        at_least=1,
        importance=LOW,
        is_internal=True,
        unused=NO_SHARE_GROUPS,
        note="Wait before the state of a share group's new partition is initialized again.",
    )
    group_share_max_assignment_interval_ms = Int(
        15_000, at_least=0, unused=NO_SHARE_GROUPS, note="Largest assignment interval a share group may set."
    )
    group_share_max_delivery_count_limit = Int(
        10, at_least=5, at_most=25, unused=NO_SHARE_GROUPS, note="Largest delivery count a share group may set."
    )
    group_share_max_heartbeat_interval_ms = Int(
        15_000, at_least=1, unused=NO_SHARE_GROUPS, note="Largest heartbeat interval a share group may set."
    )
    group_share_max_partition_max_record_locks = Int(
        4000,
        at_least=2000,
        at_most=10_000,
        unused=NO_SHARE_GROUPS,
        note="Largest number of locked records per partition a share group may set.",
    )
    group_share_max_record_lock_duration_ms = Int(
        60_000,
        at_least=30_000,
        at_most=3_600_000,
        unused=NO_SHARE_GROUPS,
        note="Longest record lock a share group may set.",
    )
    group_share_max_session_timeout_ms = Int(
        60_000, at_least=1, unused=NO_SHARE_GROUPS, note="Largest session time-out a share group may set."
    )
    group_share_max_share_sessions = Int(
        2000, at_least=1, unused=NO_SHARE_GROUPS, note="Most share sessions one broker keeps."
    )
    group_share_max_size = Int(
        200, at_least=1, at_most=1000, unused=NO_SHARE_GROUPS, note="Most members of one share group."
    )
    group_share_min_assignment_interval_ms = Int(
        0, at_least=0, unused=NO_SHARE_GROUPS, note="Smallest assignment interval a share group may set."
    )
    group_share_min_delivery_count_limit = Int(
        2, at_least=2, at_most=5, unused=NO_SHARE_GROUPS, note="Smallest delivery count a share group may set."
    )
    group_share_min_heartbeat_interval_ms = Int(
        5000, at_least=1, unused=NO_SHARE_GROUPS, note="Smallest heartbeat interval a share group may set."
    )
    group_share_min_partition_max_record_locks = Int(
        100,
        at_least=100,
        at_most=2000,
        unused=NO_SHARE_GROUPS,
        note="Smallest number of locked records per partition a share group may set.",
    )
    group_share_min_record_lock_duration_ms = Int(
        15_000,
        at_least=1000,
        at_most=30_000,
        unused=NO_SHARE_GROUPS,
        note="Shortest record lock a share group may set.",
    )
    group_share_min_session_timeout_ms = Int(
        45_000, at_least=1, unused=NO_SHARE_GROUPS, note="Smallest session time-out a share group may set."
    )
    group_share_partition_max_record_locks = Int(
        2000,
        at_least=100,
        at_most=10_000,
        unused=NO_SHARE_GROUPS,
        note="Records of one partition that may be handed out and not yet acknowledged.",
    )
    group_share_persister_class_name = Text(
        "org.apache.kafka.server.share.persister.DefaultStatePersister",
        is_internal=True,
        unused=NO_SHARE_GROUPS,
        note="Class that keeps the state of share groups.",
    )
    group_share_record_lock_duration_ms = Int(
        30_000,
        at_least=1000,
        at_most=3_600_000,
        unused=NO_SHARE_GROUPS,
        note="Time a consumer has to acknowledge a record of a share group.",
    )
    group_share_session_timeout_ms = Int(
        45_000,
        at_least=1,
        unused=NO_SHARE_GROUPS,
        note="Time without a heartbeat after which a member of a share group is out.",
    )
    share_coordinator_append_linger_ms = Int(
        -1,
        at_least=-1,
        unused=NO_SHARE_GROUPS,
        note="Time the share coordinator gathers records before it writes them; -1 adapts to the load.",
    )
    share_coordinator_cached_buffer_max_bytes = Int(
        1_048_588,
        at_least=524_288,
        mode=CLUSTER_WIDE,
        unused=NO_SHARE_GROUPS,
        note="Largest write buffer a share coordinator keeps for its next batch.",
    )
    share_coordinator_cold_partition_snapshot_interval_ms = Int(
        300_000,
        at_least=1,
        importance=LOW,
        is_internal=True,
        unused=NO_SHARE_GROUPS,
        note="Time after which a quiet partition's state is written as a snapshot.",
    )
    share_coordinator_load_buffer_size = Int(
        5_242_880,
        at_least=1,
        importance=HIGH,
        unused=NO_SHARE_GROUPS,
        note="Bytes read at a time when a share coordinator loads its state.",
    )
    share_coordinator_snapshot_update_records_per_snapshot = Int(
        500,
        at_least=0,
        at_most=500,
        unused=NO_SHARE_GROUPS,
        note="Updates between two snapshots of a share group's state.",
    )
    share_coordinator_state_topic_compression_codec = Int(
        0, importance=HIGH, unused=NO_SHARE_GROUPS, note="Codec number of the share state topic; 0 is none."
    )
    share_coordinator_state_topic_min_isr = Short(
        2,
        at_least=1,
        importance=HIGH,
        unused=NO_SHARE_GROUPS,
        note="Replicas of the share state topic that must have a record before it counts.",
    )
    share_coordinator_state_topic_num_partitions = Int(
        50,
        at_least=1,
        importance=HIGH,
        unused=NO_SHARE_GROUPS,
        note="Partitions of the share state topic; to be set before it is created.",
    )
    share_coordinator_state_topic_prune_interval_ms = Int(
        300_000,
        at_least=1,
        importance=LOW,
        is_internal=True,
        unused=NO_SHARE_GROUPS,
        note="Time between two removals of outdated share state.",
    )
    share_coordinator_state_topic_replication_factor = Short(
        3, at_least=1, importance=HIGH, unused=NO_SHARE_GROUPS, note="Replicas of the share state topic."
    )
    share_coordinator_state_topic_segment_bytes = Int(
        104_857_600, at_least=1, importance=HIGH, unused=NO_SHARE_GROUPS, note="Segment size of the share state topic."
    )
    share_coordinator_threads = Int(1, at_least=1, unused=ONE_LOOP, note="Threads that run share coordinators.")
    share_coordinator_write_timeout_ms = Int(
        5000,
        at_least=1,
        importance=HIGH,
        unused=NO_SHARE_GROUPS,
        note="Time within which share state must reach all in-sync replicas.",
    )
    share_fetch_purgatory_purge_interval_requests = Int(
        1000, unused=NO_PURGATORY, note="Waiting share fetches after which finished ones are swept out."
    )
