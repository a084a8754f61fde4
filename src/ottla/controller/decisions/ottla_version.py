"""What all brokers of a cluster can do, as a feature of the cluster (KIP-584). Pure, under the rules of machine.py.

Rules:
1. Level 1 is what brokers could before they had such a feature: a cluster or a broker that says nothing about it has
   that one. A new cluster begins at the highest level.
2. Somebody raises the level, when every broker is new enough (`kafka-features.sh upgrade`, `ottla features upgrade`).
   Until then nothing is written that an older broker would not understand, and the way back is open.
3. Afterwards a broker that does not support the level is none of the cluster: it is not counted on, gets no metadata
   and is no controller (cluster/version_gate.py).
4. The level can be lowered while nothing is stored that only the higher one knows: then the way back is open again.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from ottla.controller.decisions.reassignment import moves
from ottla.controller.image import BrokerImage, MetadataImage

FEATURE: Final = "ottla.version"
LEVEL_MIN: Final = 1
LEVEL_MAX: Final = 2
SELF_OPERATION: Final = 2  # the controller moves replicas and leaders by itself: healing, balance, maintenance

SUPPORTED: Final[Mapping[str, tuple[int, int]]] = {FEATURE: (LEVEL_MIN, LEVEL_MAX)}  # by this broker, as it registers
OF_NEW_CLUSTERS: Final[Mapping[str, int]] = {FEATURE: LEVEL_MAX}

OWN_PREFIX: Final = "ottla."  # of settings that Kafka does not have
# Those of level 1. All others came later, and an older broker would refuse any change of whatever has one of them.
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


def level(image: MetadataImage) -> int:
    return level_of(image.features)


def level_of(features: Mapping[str, int]) -> int:
    return features.get(FEATURE, LEVEL_MIN)


def supported_by(broker: BrokerImage) -> tuple[int, int]:
    """The lowest and the highest level with which a broker can run, as its registration tells."""
    return broker.features.get(FEATURE, (LEVEL_MIN, LEVEL_MIN))


def supports(broker: BrokerImage, wanted: int) -> bool:
    lowest, highest = supported_by(broker)
    return lowest <= wanted <= highest


def why_not_here(stored: int) -> str | None:
    """Why this broker cannot be one of a cluster at that level; None if it can."""
    if LEVEL_MIN <= stored <= LEVEL_MAX:
        return None
    return (
        f"the cluster runs at {FEATURE}={stored}, and this broker supports {LEVEL_MIN} to {LEVEL_MAX}: install the "
        "version that the other brokers have (docs/upgrade.md)"
    )


def why_not_level(image: MetadataImage, registered: Iterable[BrokerImage], wanted: int) -> str | None:
    """Why the cluster cannot have another level; the order of the levels was looked at before (features.py)."""
    if wanted < LEVEL_MIN:
        return f"{FEATURE} cannot be off: its lowest level is {LEVEL_MIN}."
    if wanted < level(image):
        if any(True for _ in moves(image)):  # some may be the controller's own, and only this level ends those
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
    """Stored settings that a lower level does not have, in words."""
    kinds = (("broker", image.broker_configs), ("topic", image.topic_configs), ("group", image.group_configs))
    return [
        f"{key} of {kind} {name}" if name else f"{key} of all brokers"
        for kind, configs in kinds
        for name, config in sorted(configs.items())
        for key in sorted(config)
        if is_newer(key, wanted)
    ]


def is_newer(key: str, than: int) -> bool:
    """Whether a setting came with a higher level."""
    return than < SELF_OPERATION and key.startswith(OWN_PREFIX) and key not in SETTINGS_OF_LEVEL_1


def why_not_setting(image: MetadataImage, key: str) -> str | None:
    """Why a setting cannot be stored yet (rule 2)."""
    if not is_newer(key, level(image)):
        return None
    return (
        f"{key} needs {FEATURE} {LEVEL_MAX}, and this cluster runs at {level(image)}: when every broker is upgraded, "
        f"raise it with `ottla features upgrade {FEATURE}={LEVEL_MAX}`"
    )
