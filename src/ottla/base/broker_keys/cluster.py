"""Keys for the identity of a node, for how nodes find each other, and for metrics and client quotas."""

from __future__ import annotations

from typing import Final

from ottla.base.broker_keys.unused import (
    PROVIDERS,
)
from ottla.base.setting_types import LONG_MAX, one_of
from ottla.base.settings import (
    Boolean,
    Int,
    Items,
    Long,
    OptionalText,
    Settings,
)

NODE_ID_DEFAULT: Final = 1
NODE_ID_UNKNOWN: Final = -1  # until ZooKeeper assigns one: controller/cluster/registration.py


class NodeId(Int):
    """The first that is set of `node.id`, `broker.id` and the default; possibly unknown in a cluster."""

    def effective(self, settings: Settings) -> int:
        node_id: int = super().effective(settings)
        if node_id >= 0:
            return node_id
        return NODE_ID_UNKNOWN if settings.texts.get("zookeeper.connect", "").strip() else NODE_ID_DEFAULT


class ClusterKeys(Settings):
    """Identity of a node, and how nodes find each other."""

    broker_id = Int(-1, note="Id of the node in its cluster; the older name of node.id.")
    broker_rack = OptionalText(note="Rack or zone of the broker; replicas are spread over racks.")
    controlled_shutdown_enable = Boolean(
        True,
        note="Whether a stopping broker of a cluster first transfers the leadership of its partitions.",
    )
    controller_listener_names = Items(
        None,
        may_be_empty=False,
        note="Listeners that belong to the controller; never advertised to clients.",
    )
    controller_quorum_bootstrap_servers = Items(
        note="Addresses of the controllers; only the address of this node is accepted."
    )
    controller_quorum_voters = Items(
        note="The controllers as id@host:port; only this node is accepted, because several need ZooKeeper.",
    )
    controller_quota_window_num = Int(
        11,
        at_least=1,
        note="Number of windows over which the rate of topic changes is averaged.",
    )
    controller_quota_window_size_seconds = Int(1, at_least=1, note="Length of one such window.")
    node_id = NodeId(
        at_least=0,
        fallback=(("broker.id", 1),),
        note="Id of the node in its cluster, which is also stored in its log directories.",
    )
    process_roles = Items(
        None,
        check=one_of("broker", "controller"),
        may_be_empty=False,
        note="Roles of the node: broker, controller or both; a single broker is always its own controller.",
    )
    server_max_startup_time_ms = Long(
        LONG_MAX,
        at_least=0,
        is_internal=True,
        note="Maximum time of a start; the broker stops if it takes longer.",
    )


class MeasurementKeys(Settings):
    """Quotas, metrics and client telemetry."""

    config_providers = Items(unused=PROVIDERS, note="Names of classes that replace ${...} in values.")
    metrics_num_samples = Int(
        2,
        at_least=1,
        note="Number of windows over which the rates of connections and bytes are computed.",
    )
    metrics_sample_window_ms = Long(30_000, at_least=1, note="Length of one such window.")
    quota_window_num = Int(
        11,
        at_least=1,
        note="Number of windows over which the rates of client quotas are averaged.",
    )
    quota_window_size_seconds = Int(1, at_least=1, note="Length of one such window.")
    telemetry_max_bytes = Int(
        1_048_576,
        at_least=1,
        note="Maximum size of a push of client metrics.",
    )
