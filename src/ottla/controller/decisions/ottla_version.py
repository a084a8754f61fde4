"""The feature `ottla.version`: the level of functions that all brokers of a cluster support (KIP-584). Pure.

Rules:
1. Level 1 is that of versions without this feature: a cluster or a broker without a level has it. A new cluster starts
   at the highest level.
2. An administrator raises the level when all brokers support it (`ottla features upgrade`, `kafka-features.sh
   upgrade`). Until then no data is stored that an older version does not support, so brokers can be downgraded.
3. Afterwards a broker that does not support the level is excluded: it is not admitted to the live brokers, gets no
   metadata and cannot be the controller (cluster/version_gate.py).
4. The level can be lowered while no stored data needs the higher one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from ottla.controller.decisions.reassignment import ongoing_reassignments
from ottla.controller.image import BrokerImage, MetadataImage

OTTLA_VERSION_FEATURE: Final = "ottla.version"
LEVEL_MIN: Final = 1
LEVEL_MAX: Final = 2
SELF_BALANCING_LEVEL: Final = (
    2  # healing, balancing and maintenance: the controller moves replicas and leaders automatically
)

SUPPORTED: Final[Mapping[str, tuple[int, int]]] = {
    OTTLA_VERSION_FEATURE: (LEVEL_MIN, LEVEL_MAX)
}  # in this broker's registration
NEW_CLUSTER_FEATURES: Final[Mapping[str, int]] = {OTTLA_VERSION_FEATURE: LEVEL_MAX}

OWN_PREFIX: Final = "ottla."  # of settings that Kafka does not have
# The settings of level 1. An older broker would reject any change of a resource that has one of the later ones.
SETTINGS_OF_LEVEL_1: Final = frozenset(
    {
        *("ottla.audit.enable", "ottla.audit.events", "ottla.audit.exclude.principals"),
        *("ottla.audit.topic.num.partitions", "ottla.audit.topic.replication.factor", "ottla.audit.topic.retention.ms"),
        *("ottla.authorizer.mode", "ottla.dynamic.config.allowed.paths"),
        *("ottla.log.dir", "ottla.log.file.max.bytes", "ottla.log.file.max.ms", "ottla.log.files.kept"),
        *("ottla.log.format", "ottla.log.level"),
        *("ottla.metrics.host", "ottla.metrics.insecure", "ottla.metrics.password", "ottla.metrics.port"),
        *("ottla.metrics.ssl.key.password", "ottla.metrics.ssl.keystore.location"),
        *("ottla.metrics.ssl.keystore.password", "ottla.metrics.username"),
        *("ottla.quota.action", "ottla.quota.mode"),
        *("ottla.quota.fetch.bytes", "ottla.quota.fetch.messages"),
        *("ottla.quota.produce.bytes", "ottla.quota.produce.messages"),
        *("ottla.quota.partition.fetch.bytes", "ottla.quota.partition.fetch.messages"),
        *("ottla.quota.partition.produce.bytes", "ottla.quota.partition.produce.messages"),
    }
)


def cluster_level(image: MetadataImage) -> int:
    return level_of(image.features)


def level_of(features: Mapping[str, int]) -> int:
    return features.get(OTTLA_VERSION_FEATURE, LEVEL_MIN)


def supported_levels(broker: BrokerImage) -> tuple[int, int]:
    """Return the minimum and maximum levels in a broker's registration."""
    return broker.features.get(OTTLA_VERSION_FEATURE, (LEVEL_MIN, LEVEL_MIN))


def supports(broker: BrokerImage, wanted: int) -> bool:
    lowest, highest = supported_levels(broker)
    return lowest <= wanted <= highest


def unsupported_level_problem(stored: int) -> str | None:
    """Return the reason why this broker cannot join a cluster at that level; None if it can."""
    if LEVEL_MIN <= stored <= LEVEL_MAX:
        return None
    return (
        f"the cluster runs at {OTTLA_VERSION_FEATURE}={stored}, and this broker supports {LEVEL_MIN} to {LEVEL_MAX}: "
        "install the version that the other brokers have (docs/upgrade.md)"
    )


def level_change_problem(image: MetadataImage, registered: Iterable[BrokerImage], wanted: int) -> str | None:
    """Return the reason why the cluster cannot change to that level, or None; features.py has checked the order."""
    if wanted < LEVEL_MIN:
        return f"{OTTLA_VERSION_FEATURE} cannot be off: its lowest level is {LEVEL_MIN}."
    if wanted < cluster_level(image):
        if any(
            True for _ in ongoing_reassignments(image)
        ):  # some may be the controller's own, which lower levels cannot complete
            return "Replicas are being moved: wait until they are in place, or cancel it (ottla reassign list)."
        used = newer_settings(image, wanted)
        return (
            f"It is in use, and brokers of an older version would not understand it: first delete {', '.join(used)}."
            if used
            else None
        )
    unable = sorted(broker.id for broker in registered if not supports(broker, wanted))
    if not unable:
        return None
    which = f"Broker {unable[0]} does" if len(unable) == 1 else f"Brokers {', '.join(map(str, unable))} do"
    return f"{which} not support it: upgrade every broker first (docs/upgrade.md)."


def newer_settings(image: MetadataImage, wanted: int) -> list[str]:
    """Return descriptions of stored settings that a lower level does not have."""
    kinds = (("broker", image.broker_configs), ("topic", image.topic_configs), ("group", image.group_configs))
    return [
        f"{key} of {kind} {name}" if name else f"{key} of all brokers"
        for kind, configs in kinds
        for name, config in sorted(configs.items())
        for key in sorted(config)
        if needs_newer_level(key, wanted)
    ]


def needs_newer_level(key: str, than: int) -> bool:
    """Return whether a setting needs a higher level."""
    return than < SELF_BALANCING_LEVEL and key.startswith(OWN_PREFIX) and key not in SETTINGS_OF_LEVEL_1


def setting_level_problem(image: MetadataImage, key: str) -> str | None:
    """Return the reason why a setting cannot be stored yet (rule 2), or None."""
    if not needs_newer_level(key, cluster_level(image)):
        return None
    return (
        f"{key} needs {OTTLA_VERSION_FEATURE} {LEVEL_MAX}, and this cluster runs at {cluster_level(image)}: "
        f"when every broker is upgraded, raise it with `ottla features upgrade {OTTLA_VERSION_FEATURE}={LEVEL_MAX}`"
    )
