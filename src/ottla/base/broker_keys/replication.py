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
        note="Windows over which the speed of moves between folders is averaged; what was copied before is forgotten.",
    )
    alter_log_dirs_replication_quota_window_size_seconds = Int(
        1, at_least=1, note="Length of one such window; so much may be copied at once after a pause."
    )
    auto_leader_rebalance_enable = Boolean(
        True,
        note="Whether leadership goes back to the preferred replicas by itself.",
    )
    leader_imbalance_check_interval_seconds = Long(
        300,
        at_least=1,
        note="Time between two checks whether leaders should go back to their preferred replicas.",
    )
    leader_imbalance_per_broker_percentage = Int(
        10,
        at_least=1,
        is_internal=True,  # a key of clusters on ZooKeeper: shown only if it is set
        note="Percentage of the partitions that prefer a broker which others may lead before leadership goes back.",
    )
    min_insync_replicas = Int(
        1,
        at_least=1,
        mode=CLUSTER_WIDE,
        note="Replicas that must have a record before acks=all is answered; the default of the topic key.",
    )
    num_replica_fetchers = Int(
        1,
        at_least=1,
        mode=CLUSTER_WIDE,
        note="Connections over which a follower copies from each leader.",
    )
    replica_fetch_backoff_ms = Int(1000, at_least=0, note="Wait of a follower after a failed fetch.")
    replica_fetch_max_bytes = Int(1_048_576, at_least=0, note="Bytes a follower asks for per partition.")
    replica_fetch_min_bytes = Int(1, note="Fewest bytes a follower waits for.")
    replica_fetch_response_max_bytes = Int(10_485_760, at_least=0, note="Bytes a follower asks for in one fetch.")
    replica_fetch_wait_max_ms = Int(500, note="Longest time a leader holds a follower's fetch back.")
    replica_high_watermark_checkpoint_interval_ms = Long(
        5000, note="Time between two writings of the high watermarks to disk."
    )
    replica_lag_time_max_ms = Long(
        30_000,
        note="Time after which a follower that has not caught up is no longer in sync.",
    )
    replica_selector_class = OptionalText(
        note="How the replica is chosen that a consumer should read from: Kafka's RackAwareReplicaSelector by its full "
        "name sends consumers to a replica in their own rack; otherwise they read from the leader."
    )
    replica_socket_timeout_ms = Int(30_000, note="Time-out of those connections.")
    replication_quota_window_num = Int(
        11,
        at_least=1,
        note="Windows over which the speed of throttled replicas is averaged; what was copied before is forgotten.",
    )
    replication_quota_window_size_seconds = Int(
        1,
        at_least=1,
        note="Length of one such window; so much may be copied at once after a pause.",
    )
    unclean_leader_election_enable = Boolean(
        False,
        mode=CLUSTER_WIDE,
        note="Whether a replica that is not in sync may lead when no other is left, at the price of lost records.",
    )
    # Not a file setting: tools set it during a reassignment, and it is shown only then.
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


MOVES_MAX: Final = 200  # all moves under way are stored in one ZooKeeper node, whose limit is a megabyte


class HealingKeys(Settings):
    """Replicas that the controller reassigns to other brokers."""

    ottla_heal_after_ms = Long(
        600_000,
        at_least=-1,
        mode=CLUSTER_WIDE,
        note="How long a broker must be away, or a folder have failed, before its replicas are given to other brokers; "
        "-1: never.",
    )
    ottla_heal_brokers_max = Int(
        1,
        at_least=1,
        mode=CLUSTER_WIDE,
        note="Brokers that may be away, or have failed folders, at the same time: while there are more, healing waits.",
    )
    ottla_heal_disk_max_percentage = Int(
        85,
        at_least=1,
        at_most=100,
        mode=CLUSTER_WIDE,
        note="How full healing may make a disk: what would make it fuller waits.",
    )
    ottla_heal_moves_max = Int(
        10,
        at_least=1,
        at_most=MOVES_MAX,
        mode=CLUSTER_WIDE,
        note="Partitions whose replicas healing moves at the same time.",
    )
    ottla_heal_throttle_rate = Long(
        50_000_000,
        at_least=1,
        mode=CLUSTER_WIDE,
        note="Most bytes in a second that healing copies to a broker, and from one; a broker that has "
        "leader.replication.throttled.rate or follower.replication.throttled.rate keeps those.",
    )


class BalancingKeys(Settings):
    """Replicas that the controller moves to balance the brokers."""

    ottla_balance_enable = Boolean(
        False,
        mode=CLUSTER_WIDE,
        note="Whether the controller evens out replicas, leaders and bytes on disk as `ottla cluster balance` does, by "
        "itself, a little at a time. It waits while brokers are away or in maintenance, or others move replicas.",
    )
    ottla_balance_bytes_per_hour = Long(
        50_000_000_000,
        at_least=1,
        mode=CLUSTER_WIDE,
        note="Most bytes that balancing copies in an hour. A replica that is larger is moved in an hour of its own.",
    )
    ottla_balance_disk_max_percentage = Int(
        85,
        at_least=1,
        at_most=100,
        mode=CLUSTER_WIDE,
        note="Disks that are fuller are relieved first, and none is filled beyond that.",
    )
    ottla_balance_throttle_rate = Long(
        10_000_000,
        at_least=1,
        mode=CLUSTER_WIDE,
        note="Most bytes in a second that balancing copies to a broker, and from one.",
    )


class MaintenanceKeys(Settings):
    """Maintenance and slow brokers."""

    ottla_maintenance_until_ms = Long(
        0,
        at_least=0,
        mode=PER_BROKER,
        note="Until when this broker is in maintenance, in milliseconds since 1970 by the controller's clock: as long "
        "it leads nothing that another in-sync replica can lead, and nothing that it holds is moved away because it is "
        "down. Set it while brokers run (`ottla cluster maintenance`); in a file it has no effect.",
    )
    ottla_heal_slow_after_ms = Long(
        300_000,
        at_least=-1,
        mode=CLUSTER_WIDE,
        note="How long a broker may be out of the ISR in half of what it holds, or have a disk that is too slow, until "
        "others lead instead of it; it leads again when it has kept up for as long. -1: it goes on leading.",
    )
    ottla_heal_slow_sync_ms = Long(
        500,
        at_least=-1,
        mode=CLUSTER_WIDE,
        note="A disk is too slow if even its fastest sync of ten seconds takes longer than this. -1: no disk is.",
    )
