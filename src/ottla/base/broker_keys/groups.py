"""Consumer groups and their committed offsets."""

from __future__ import annotations

from ottla.base.broker_keys.words import (
    CLUSTER_WIDE,
    HIGH,
    NO_LINGER,
    NO_WRITE_BUFFER,
    ONE_LOOP,
    SMALL_PIECES,
    TOPICS_AT_ONCE,
)
from ottla.base.setting_types import INT_MAX, one_of, one_of_any_case
from ottla.base.settings import Int, Items, Long, Settings, Short, Text


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
        5000, at_least=1, note="Heartbeat interval that members of the new protocol are told."
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
        unused=TOPICS_AT_ONCE,
        note="Time between two searches for topics that match a group's patterns.",
    )
    group_consumer_session_timeout_ms = Int(
        45_000,
        at_least=1,
        note="Time without a heartbeat after which a member of the new protocol is out.",
    )
    group_coordinator_append_linger_ms = Int(
        -1,
        at_least=-1,
        unused=NO_LINGER,
        note="Time the group coordinator gathers records before it writes them; -1 adapts to the load.",
    )
    group_coordinator_background_threads = Int(
        2, at_least=1, importance=HIGH, unused=ONE_LOOP, note="Threads for slow work of group coordinators."
    )
    group_coordinator_cached_buffer_max_bytes = Int(
        1_048_588,
        at_least=524_288,
        mode=CLUSTER_WIDE,
        unused=NO_WRITE_BUFFER,
        note="Largest write buffer a group coordinator keeps for its next batch.",
    )
    group_coordinator_rebalance_protocols = Items(
        ("classic", "consumer", "streams"),
        check=one_of("consumer", "classic", "share", "streams"),
        may_be_empty=False,
        note="Group protocols that are served.",
    )
    group_coordinator_threads = Int(
        4, at_least=1, importance=HIGH, unused=ONE_LOOP, note="Threads that run group coordinators."
    )
    group_initial_rebalance_delay_ms = Int(
        3000, note="Time a new group waits for more members before its first assignment."
    )
    group_max_session_timeout_ms = Int(1_800_000, note="Largest session time-out a consumer may ask for.")
    group_max_size = Int(INT_MAX, at_least=1, note="Most members of one classic group.")
    group_min_session_timeout_ms = Int(6000, note="Smallest session time-out a consumer may ask for.")
    offset_metadata_max_bytes = Int(
        4096, importance=HIGH, note="Longest note that a consumer may commit with an offset."
    )
    offsets_commit_timeout_ms = Int(
        5000,
        at_least=1,
        importance=HIGH,
        note="Time within which an offset commit must reach all in-sync replicas.",
    )
    offsets_load_buffer_size = Int(
        5_242_880,
        at_least=1,
        importance=HIGH,
        unused=SMALL_PIECES,
        note="Bytes read at a time when a coordinator loads committed offsets.",
    )
    offsets_retention_check_interval_ms = Long(
        600_000,
        at_least=1,
        importance=HIGH,
        note="Time between two searches for committed offsets that are too old.",
    )
    offsets_retention_minutes = Int(
        10_080, at_least=1, importance=HIGH, note="Time for which offsets of an empty group are kept."
    )
    offsets_topic_compression_codec = Int(0, importance=HIGH, note="Codec number of the offsets topic; 0 is none.")
    offsets_topic_num_partitions = Int(
        50,
        at_least=1,
        importance=HIGH,
        note="Partitions of the offsets topic; to be set before it is created.",
    )
    offsets_topic_replication_factor = Short(3, at_least=1, importance=HIGH, note="Replicas of the offsets topic.")
    offsets_topic_segment_bytes = Int(
        104_857_600,
        at_least=1,
        importance=HIGH,
        note="Segment size of the offsets topic; small ones load and compact faster.",
    )
