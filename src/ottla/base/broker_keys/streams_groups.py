"""Groups of Kafka Streams applications."""

from __future__ import annotations

from ottla.base.broker_keys.words import CLUSTER_WIDE, NO_STREAMS_GROUPS
from ottla.base.setting_types import INT_MAX
from ottla.base.settings import Int, Settings


class StreamsGroupKeys(Settings):
    """Groups of Kafka Streams applications."""

    group_streams_assignment_interval_ms = Int(
        1000,
        at_least=0,
        mode=CLUSTER_WIDE,
        unused=NO_STREAMS_GROUPS,
        note="Shortest time between two assignments of a streams group.",
    )
    group_streams_heartbeat_interval_ms = Int(
        5000, at_least=1, unused=NO_STREAMS_GROUPS, note="Heartbeat interval that members of streams groups are told."
    )
    group_streams_initial_rebalance_delay_ms = Int(
        3000,
        at_least=0,
        unused=NO_STREAMS_GROUPS,
        note="Time a new streams group waits for more members before its first assignment.",
    )
    group_streams_max_assignment_interval_ms = Int(
        15_000, at_least=0, unused=NO_STREAMS_GROUPS, note="Largest assignment interval a streams group may set."
    )
    group_streams_max_heartbeat_interval_ms = Int(
        15_000, at_least=1, unused=NO_STREAMS_GROUPS, note="Largest heartbeat interval a streams group may set."
    )
    group_streams_max_session_timeout_ms = Int(
        60_000, at_least=1, unused=NO_STREAMS_GROUPS, note="Largest session time-out a streams group may set."
    )
    group_streams_max_size = Int(
        INT_MAX, at_least=1, unused=NO_STREAMS_GROUPS, note="Most members of one streams group."
    )
    group_streams_max_standby_replicas = Int(
        2, at_least=0, unused=NO_STREAMS_GROUPS, note="Most standby copies of its state a streams group may ask for."
    )
    group_streams_min_assignment_interval_ms = Int(
        0, at_least=0, unused=NO_STREAMS_GROUPS, note="Smallest assignment interval a streams group may set."
    )
    group_streams_min_heartbeat_interval_ms = Int(
        5000, at_least=1, unused=NO_STREAMS_GROUPS, note="Smallest heartbeat interval a streams group may set."
    )
    group_streams_min_session_timeout_ms = Int(
        45_000, at_least=1, unused=NO_STREAMS_GROUPS, note="Smallest session time-out a streams group may set."
    )
    group_streams_num_standby_replicas = Int(
        0, at_least=0, unused=NO_STREAMS_GROUPS, note="Standby copies of each task's state."
    )
    group_streams_session_timeout_ms = Int(
        45_000,
        at_least=1,
        unused=NO_STREAMS_GROUPS,
        note="Time without a heartbeat after which a member of a streams group is out.",
    )
