"""Who this node is, and how nodes find each other."""

from __future__ import annotations

from typing import Final

from ottla.base.broker_keys.words import (
    BROKERS_ASK,
    HIGH,
    LOW,
    NO_QUORUM,
    NOTHING_UNFINISHED,
    SESSIONS_TELL,
)
from ottla.base.setting_types import LONG_MAX, one_of
from ottla.base.settings import Boolean, Int, Items, Long, OptionalInt, OptionalText, Settings

NODE_ID_DEFAULT: Final = 1
NODE_ID_UNKNOWN: Final = -1  # until ZooKeeper has given one: controller/cluster/broker_ids.py


class NodeId(Int):
    """The node's number: `node.id`, else the older `broker.id`, else the first; in a cluster it is not known yet."""

    def effective(self, settings: Settings) -> int:
        node_id: int = super().effective(settings)
        if node_id >= 0:
            return node_id
        return NODE_ID_UNKNOWN if settings.texts.get("zookeeper.connect", "").strip() else NODE_ID_DEFAULT


class ClusterKeys(Settings):
    """Who this node is, and how nodes find each other."""

    broker_heartbeat_interval_ms = Int(
        2000, unused=SESSIONS_TELL, note="Time between two heartbeats of a broker to the controller."
    )
    broker_id = Int(-1, importance=HIGH, note="The node's number in its cluster; the older name of node.id.")
    broker_rack = OptionalText(note="Name of the rack or zone the broker stands in; replicas are spread over racks.")
    broker_session_timeout_ms = Int(
        9000, unused=SESSIONS_TELL, note="Time without a heartbeat after which the controller counts a broker as gone."
    )
    controlled_shutdown_enable = Boolean(
        True,
        note="Whether a stopping broker of a cluster first hands over what it leads.",
    )
    controller_listener_names = Items(
        None,
        may_be_empty=False,
        importance=HIGH,
        note="Listeners that belong to the controller; clients are never told of them.",
    )
    controller_performance_always_log_threshold_ms = Long(
        2000,
        at_least=0,
        is_internal=True,
        unused=NO_QUORUM,
        note="Controller events slower than this are always logged.",
    )
    controller_performance_sample_period_ms = Long(
        60_000,
        at_least=100,
        is_internal=True,
        unused=NO_QUORUM,
        note="How often controller event times are summed up in the log.",
    )
    controller_quorum_append_linger_ms = Int(
        25, at_least=0, unused=NO_QUORUM, note="Time a quorum leader gathers records before it writes them."
    )
    controller_quorum_auto_join_enable = Boolean(
        False, importance=LOW, unused=NO_QUORUM, note="Whether a new controller joins the quorum by itself."
    )
    controller_quorum_bootstrap_servers = Items(
        importance=HIGH, note="Addresses to find the controllers at; one that is this node itself is accepted."
    )
    controller_quorum_election_backoff_max_ms = Int(
        1000,
        at_least=0,
        importance=HIGH,
        unused=NO_QUORUM,
        note="Longest random wait before another election of a quorum leader.",
    )
    controller_quorum_election_timeout_ms = Int(
        1000,
        at_least=0,
        importance=HIGH,
        unused=NO_QUORUM,
        note="Time without a leader after which a new election starts.",
    )
    controller_quorum_fetch_max_bytes = Int(
        1_048_576,
        at_least=1,
        importance=LOW,
        unused=NO_QUORUM,
        note="Most bytes of metadata records in one quorum fetch.",
    )
    controller_quorum_fetch_snapshot_max_bytes = Int(
        1_048_576, at_least=1, importance=LOW, unused=NO_QUORUM, note="Most bytes of a metadata snapshot in one fetch."
    )
    controller_quorum_fetch_timeout_ms = Int(
        2000,
        at_least=0,
        importance=HIGH,
        unused=NO_QUORUM,
        note="Time without a successful fetch after which a voter stands for election.",
    )
    controller_quorum_request_timeout_ms = Int(
        2000, at_least=0, unused=NO_QUORUM, note="Time a quorum request may take."
    )
    controller_quorum_retry_backoff_ms = Int(
        20, at_least=0, importance=LOW, unused=NO_QUORUM, note="Wait before a failed quorum request is tried again."
    )
    controller_quorum_voters = Items(
        importance=HIGH,
        note="The controllers as id@host:port; this node alone is accepted, several need ZooKeeper here.",
    )
    controller_quota_window_num = Int(
        11,
        at_least=1,
        importance=LOW,
        note="Windows over which the rate of topic changes is averaged.",
    )
    controller_quota_window_size_seconds = Int(1, at_least=1, importance=LOW, note="Length of one such window.")
    controller_socket_timeout_ms = Int(
        30_000, unused=BROKERS_ASK, note="Time-out of connections from the controller to brokers."
    )
    initial_broker_registration_timeout_ms = Int(
        60_000,
        unused=SESSIONS_TELL,
        note="Time a starting broker tries to register with the controller before it gives up.",
    )
    internal_metadata_delete_delay_millis = Long(
        60_000,
        importance=LOW,
        is_internal=True,
        unused=NO_QUORUM,
        note="Wait before old metadata files are removed from disk.",
    )
    internal_metadata_log_segment_bytes = OptionalInt(
        importance=LOW, is_internal=True, unused=NO_QUORUM, note="Segment size of the metadata log in tests."
    )
    internal_metadata_max_batch_size_in_bytes = Int(
        8_388_608, importance=LOW, is_internal=True, unused=NO_QUORUM, note="Largest batch of metadata records."
    )
    metadata_log_dir = OptionalText(importance=HIGH, unused=NO_QUORUM, note="Folder of the metadata log.")
    metadata_log_max_record_bytes_between_snapshots = Long(
        20_971_520,
        at_least=1,
        importance=HIGH,
        unused=NO_QUORUM,
        note="Bytes of new metadata records after which a snapshot is made.",
    )
    metadata_log_max_snapshot_interval_ms = Long(
        3_600_000,
        at_least=0,
        importance=HIGH,
        unused=NO_QUORUM,
        note="Time after which a metadata snapshot is made if anything changed.",
    )
    metadata_log_segment_bytes = Int(
        1_073_741_824, at_least=8_388_608, importance=HIGH, unused=NO_QUORUM, note="Segment size of the metadata log."
    )
    metadata_log_segment_ms = Long(
        604_800_000,
        importance=HIGH,
        unused=NO_QUORUM,
        note="Time after which a new segment of the metadata log is begun.",
    )
    metadata_max_idle_interval_ms = Int(
        500,
        at_least=0,
        importance=LOW,
        unused=NO_QUORUM,
        note="Time after which a quiet controller writes an empty record.",
    )
    metadata_max_retention_bytes = Long(
        104_857_600, importance=HIGH, unused=NO_QUORUM, note="Bytes of metadata log and snapshots that are kept."
    )
    metadata_max_retention_ms = Long(
        604_800_000, importance=HIGH, unused=NO_QUORUM, note="Time for which metadata log and snapshots are kept."
    )
    node_id = NodeId(
        at_least=0,
        fallback=(("broker.id", 1),),
        importance=HIGH,
        note="The node's number in its cluster; its data folders belong to it.",
    )
    process_roles = Items(
        None,
        check=one_of("broker", "controller"),
        may_be_empty=False,
        importance=HIGH,
        note="What this node is: broker, controller or both; here a broker is always its own controller.",
    )
    server_max_startup_time_ms = Long(
        LONG_MAX,
        at_least=0,
        is_internal=True,
        note="Time after which a start that is not finished is given up.",
    )
    unstable_api_versions_enable = Boolean(
        False,
        importance=HIGH,
        is_internal=True,
        unused=NOTHING_UNFINISHED,
        note="Whether API versions that are not finished are served.",
    )
    unstable_feature_versions_enable = Boolean(
        False,
        importance=HIGH,
        is_internal=True,
        unused=NOTHING_UNFINISHED,
        note="Whether feature levels that are not finished may be used.",
    )
