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
    """The node's id: `node.id`, else the older `broker.id`, else the default; in a cluster it may not be known yet."""

    def effective(self, settings: Settings) -> int:
        node_id: int = super().effective(settings)
        if node_id >= 0:
            return node_id
        return NODE_ID_UNKNOWN if settings.texts.get("zookeeper.connect", "").strip() else NODE_ID_DEFAULT


class ClusterKeys(Settings):
    """Identity of a node, and how nodes find each other."""

    broker_id = Int(-1, note="The node's number in its cluster; the older name of node.id.")
    broker_rack = OptionalText(note="Name of the rack or zone the broker stands in; replicas are spread over racks.")
    controlled_shutdown_enable = Boolean(
        True,
        note="Whether a stopping broker of a cluster first hands over what it leads.",
    )
    controller_listener_names = Items(
        None,
        may_be_empty=False,
        note="Listeners that belong to the controller; never advertised to clients.",
    )
    controller_quorum_bootstrap_servers = Items(
        note="Addresses to find the controllers at; one that is this node itself is accepted."
    )
    controller_quorum_voters = Items(
        note="The controllers as id@host:port; this node alone is accepted, several need ZooKeeper here.",
    )
    controller_quota_window_num = Int(
        11,
        at_least=1,
        note="Windows over which the rate of topic changes is averaged.",
    )
    controller_quota_window_size_seconds = Int(1, at_least=1, note="Length of one such window.")
    node_id = NodeId(
        at_least=0,
        fallback=(("broker.id", 1),),
        note="The node's number in its cluster; its data folders belong to it.",
    )
    process_roles = Items(
        None,
        check=one_of("broker", "controller"),
        may_be_empty=False,
        note="What this node is: broker, controller or both; here a broker is always its own controller.",
    )
    server_max_startup_time_ms = Long(
        LONG_MAX,
        at_least=0,
        is_internal=True,
        note="Time after which a start that is not finished is given up.",
    )


class MeasurementKeys(Settings):
    """Quotas, metrics and client telemetry."""

    config_providers = Items(unused=PROVIDERS, note="Names of classes that fill in ${...} in values.")
    metrics_num_samples = Int(2, at_least=1, note="Windows that the rates of connections and bytes are computed over.")
    metrics_sample_window_ms = Long(30_000, at_least=1, note="Length of one such window.")
    quota_window_num = Int(
        11,
        at_least=1,
        note="Windows over which the rates of client quotas are averaged.",
    )
    quota_window_size_seconds = Int(1, at_least=1, note="Length of one such window.")
    telemetry_max_bytes = Int(
        1_048_576,
        at_least=1,
        note="Most bytes of metrics that a client may push at a time.",
    )
