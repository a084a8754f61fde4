"""Keys for replication, healing, balancing and broker maintenance; Kafka has none for the last three."""

from __future__ import annotations

from typing import Final

from ottla.base.setting_types import LONG_MAX
from ottla.base.settings import CLUSTER_WIDE, PER_BROKER, Boolean, Int, Long, OptionalText, Settings


class ReplicationKeys(Settings):
    """Replication between leaders and followers."""

    alter_log_dirs_replication_quota_window_num = Int(
        11,
        at_least=1,
        note="Number of windows over which the rate of moves between log directories is averaged.",
    )
    alter_log_dirs_replication_quota_window_size_seconds = Int(
        1,
        at_least=1,
        note="Length of one such window; after a pause, one window's worth may be copied at once.",
    )
    auto_leader_rebalance_enable = Boolean(
        True,
        note="Whether leadership automatically returns to the preferred replicas.",
    )
    leader_imbalance_check_interval_seconds = Long(
        300,
        at_least=1,
        note="Interval for returning leadership to the preferred replicas.",
    )
    leader_imbalance_per_broker_percentage = Int(
        10,
        at_least=1,
        is_internal=True,  # a key of clusters on ZooKeeper: shown only if it is set
        note="Percentage of the partitions with this preferred leader that other brokers may lead before leadership is "
        "returned.",
    )
    min_insync_replicas = Int(
        1,
        at_least=1,
        mode=CLUSTER_WIDE,
        note="Replicas that must have a record before a produce request with acks=all is acknowledged; the default of "
        "the topic key.",
    )
    num_replica_fetchers = Int(
        1,
        at_least=1,
        mode=CLUSTER_WIDE,
        note="Number of connections over which a follower fetches from each leader.",
    )
    replica_fetch_backoff_ms = Int(1000, at_least=0, note="Wait of a follower after a failed fetch.")
    replica_fetch_max_bytes = Int(
        1_048_576, at_least=0, note="Maximum number of bytes that a follower requests per partition."
    )
    replica_fetch_min_bytes = Int(1, note="Minimum number of bytes that a follower waits for.")
    replica_fetch_response_max_bytes = Int(
        10_485_760, at_least=0, note="Maximum number of bytes that a follower requests in one fetch."
    )
    replica_fetch_wait_max_ms = Int(500, note="Maximum time for which a leader delays a follower's fetch.")
    replica_high_watermark_checkpoint_interval_ms = Long(5000, note="Interval for writing the high watermarks to disk.")
    replica_lag_time_max_ms = Long(
        30_000,
        note="Time after which a follower that has not caught up is no longer in sync.",
    )
    replica_selector_class = OptionalText(
        note="Selection of the replica from which a consumer reads: with the full class name of Kafka's "
        "RackAwareReplicaSelector, consumers read from a replica in their own rack; otherwise from the leader."
    )
    replica_socket_timeout_ms = Int(30_000, note="Timeout of those connections.")
    replication_quota_window_num = Int(
        11,
        at_least=1,
        note="Number of windows over which the rate of throttled replicas is averaged.",
    )
    replication_quota_window_size_seconds = Int(
        1,
        at_least=1,
        note="Length of one such window; after a pause, one window's worth may be copied at once.",
    )
    unclean_leader_election_enable = Boolean(
        False,
        mode=CLUSTER_WIDE,
        note="Whether a replica that is not in sync may become leader if no other is available; this may lose records.",
    )
    # Not a file setting: tools set it during a reassignment, and it is shown only then.
    follower_replication_throttled_rate = Long(
        LONG_MAX,
        at_least=0,
        mode=CLUSTER_WIDE,
        is_internal=True,
        note="Maximum number of bytes per second that throttled followers fetch.",
    )
    leader_replication_throttled_rate = Long(
        LONG_MAX,
        at_least=0,
        mode=CLUSTER_WIDE,
        is_internal=True,
        note="Maximum number of bytes per second that throttled leaders send to followers.",
    )
    replica_alter_log_dirs_io_max_bytes_per_second = Long(
        LONG_MAX,
        at_least=0,
        mode=CLUSTER_WIDE,
        is_internal=True,
        note="Maximum number of bytes per second that moves between log directories copy.",
    )


MOVES_MAX: Final = 200  # all moves under way are stored in one ZooKeeper node, whose limit is a megabyte


class HealingKeys(Settings):
    """Replicas that the controller reassigns to other brokers."""

    ottla_heal_after_ms = Long(
        600_000,
        at_least=-1,
        mode=CLUSTER_WIDE,
        note="Time for which a broker must be unavailable, or a log directory offline, before its replicas are moved "
        "to other brokers; -1: never.",
    )
    ottla_heal_brokers_max = Int(
        1,
        at_least=1,
        mode=CLUSTER_WIDE,
        note="Maximum number of brokers that are unavailable or have failed log directories; with more, healing waits.",
    )
    ottla_heal_disk_max_percentage = Int(
        85,
        at_least=1,
        at_most=100,
        mode=CLUSTER_WIDE,
        note="Maximum disk usage in percent after a move of healing; other moves wait.",
    )
    ottla_heal_moves_max = Int(
        10,
        at_least=1,
        at_most=MOVES_MAX,
        mode=CLUSTER_WIDE,
        note="Maximum number of partitions whose replicas healing moves concurrently.",
    )
    ottla_heal_throttle_rate = Long(
        50_000_000,
        at_least=1,
        mode=CLUSTER_WIDE,
        note="Maximum number of bytes per second that healing copies to or from a broker; existing values of "
        "leader.replication.throttled.rate and follower.replication.throttled.rate are not changed.",
    )


class BalancingKeys(Settings):
    """Replicas that the controller moves to balance the brokers."""

    ottla_balance_enable = Boolean(
        False,
        mode=CLUSTER_WIDE,
        note="Whether the controller continuously balances replicas, leaders and bytes on disk in small steps, as "
        "`ottla cluster balance` does. It waits while brokers are unavailable or in maintenance, or other tools "
        "move replicas.",
    )
    ottla_balance_bytes_per_hour = Long(
        50_000_000_000,
        at_least=1,
        mode=CLUSTER_WIDE,
        note="Maximum number of bytes that balancing copies per hour. A larger replica is moved alone, in a separate "
        "hour.",
    )
    ottla_balance_disk_max_percentage = Int(
        85,
        at_least=1,
        at_most=100,
        mode=CLUSTER_WIDE,
        note="Disk usage in percent above which replicas are first moved from a disk, and which no move may exceed.",
    )
    ottla_balance_throttle_rate = Long(
        10_000_000,
        at_least=1,
        mode=CLUSTER_WIDE,
        note="Maximum number of bytes per second that balancing copies to or from a broker.",
    )


class MaintenanceKeys(Settings):
    """Maintenance and slow brokers."""

    ottla_maintenance_until_ms = Long(
        0,
        at_least=0,
        mode=PER_BROKER,
        note="End of this broker's maintenance, in milliseconds since 1970 by the controller's clock. Until then it "
        "does not lead partitions that another in-sync replica can lead, and its replicas are not moved if it is "
        "down. Set it at run time (`ottla cluster maintenance`); in a file it has no effect.",
    )
    ottla_heal_slow_after_ms = Long(
        300_000,
        at_least=-1,
        mode=CLUSTER_WIDE,
        note="Time after which leadership is transferred from a broker that is missing from the ISR of half of its "
        "partitions, or has a slow disk; it may lead again after it has kept up for the same time. -1: never.",
    )
    ottla_heal_slow_sync_ms = Long(
        500,
        at_least=-1,
        mode=CLUSTER_WIDE,
        note="A disk is slow if its fastest sync in ten seconds takes longer than this. -1: never.",
    )
