"""Followers and leaders."""

from __future__ import annotations

from ottla.base.broker_keys.words import (
    CLUSTER_WIDE,
    ELECTED_AT_ONCE,
    HIGH,
    LOW,
    SYSTEM_TUNES,
)
from ottla.base.setting_types import LONG_MAX
from ottla.base.settings import Boolean, Int, Long, OptionalText, Settings


class ReplicationKeys(Settings):
    """Followers and leaders."""

    alter_log_dirs_replication_quota_window_num = Int(
        11,
        at_least=1,
        importance=LOW,
        note="Windows over which the speed of moves between folders is averaged; what was copied before is forgotten.",
    )
    alter_log_dirs_replication_quota_window_size_seconds = Int(
        1, at_least=1, importance=LOW, note="Length of one such window; so much may be copied at once after a pause."
    )
    auto_leader_rebalance_enable = Boolean(
        True,
        importance=HIGH,
        note="Whether leadership goes back to the preferred replicas by itself.",
    )
    leader_imbalance_check_interval_seconds = Long(
        300,
        at_least=1,
        importance=HIGH,
        note="Time between two checks whether leaders should go back to their preferred replicas.",
    )
    leader_imbalance_per_broker_percentage = Int(
        10,
        at_least=1,
        importance=HIGH,
        is_internal=True,  # a key of clusters on ZooKeeper: it is not shown unless it is set
        note="Percentage of the partitions that prefer a broker which others may lead before leadership goes back.",
    )
    min_insync_replicas = Int(
        1,
        at_least=1,
        importance=HIGH,
        mode=CLUSTER_WIDE,
        note="Replicas that must have a record before acks=all is answered; the default of the topic key.",
    )
    num_replica_fetchers = Int(
        1,
        at_least=1,
        importance=HIGH,
        mode=CLUSTER_WIDE,
        note="Connections over which a follower copies from each leader.",
    )
    replica_fetch_backoff_ms = Int(1000, at_least=0, note="Wait of a follower after a failed fetch.")
    replica_fetch_max_bytes = Int(1_048_576, at_least=0, note="Bytes a follower asks for per partition.")
    replica_fetch_min_bytes = Int(1, importance=HIGH, note="Fewest bytes a follower waits for.")
    replica_fetch_response_max_bytes = Int(10_485_760, at_least=0, note="Bytes a follower asks for in one fetch.")
    replica_fetch_wait_max_ms = Int(500, importance=HIGH, note="Longest time a leader holds a follower's fetch back.")
    replica_high_watermark_checkpoint_interval_ms = Long(
        5000, importance=HIGH, note="Time between two writings of the high watermarks to disk."
    )
    replica_lag_time_max_ms = Long(
        30_000,
        importance=HIGH,
        note="Time after which a follower that has not caught up is no longer in sync.",
    )
    replica_selector_class = OptionalText(
        note="How the replica is chosen that a consumer should read from: Kafka's RackAwareReplicaSelector by its full "
        "name sends consumers to a replica in their own rack; otherwise they read from the leader."
    )
    replica_socket_receive_buffer_bytes = Int(
        65_536,
        importance=HIGH,
        unused=SYSTEM_TUNES,
        note="Receive buffer of the connections from followers to leaders.",
    )
    replica_socket_timeout_ms = Int(30_000, importance=HIGH, note="Time-out of those connections.")
    replication_quota_window_num = Int(
        11,
        at_least=1,
        importance=LOW,
        note="Windows over which the speed of throttled replicas is averaged; what was copied before is forgotten.",
    )
    replication_quota_window_size_seconds = Int(
        1,
        at_least=1,
        importance=LOW,
        note="Length of one such window; so much may be copied at once after a pause.",
    )
    unclean_leader_election_enable = Boolean(
        False,
        importance=HIGH,
        mode=CLUSTER_WIDE,
        note="Whether a replica that is not in sync may lead when no other is left, at the price of lost records.",
    )
    unclean_leader_election_interval_ms = Long(
        300_000,
        at_least=1,
        is_internal=True,
        unused=ELECTED_AT_ONCE,
        note="Time between two searches for partitions that need such an election.",
    )
    # Never in a file: tools set them for the time of a reassignment, and only then they are shown.
    follower_replication_throttled_rate = Long(
        LONG_MAX,
        at_least=0,
        mode=CLUSTER_WIDE,
        is_internal=True,
        note="Most bytes a second that throttled replicas copy in.",
    )
    leader_replication_throttled_rate = Long(
        LONG_MAX,
        at_least=0,
        mode=CLUSTER_WIDE,
        is_internal=True,
        note="Most bytes a second that throttled replicas copy out.",
    )
    replica_alter_log_dirs_io_max_bytes_per_second = Long(
        LONG_MAX,
        at_least=0,
        mode=CLUSTER_WIDE,
        is_internal=True,
        note="Most bytes a second that moves between folders copy.",
    )
