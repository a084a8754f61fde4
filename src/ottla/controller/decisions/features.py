"""UpdateFeatures: changes of the cluster's feature levels (KIP-584, KIP-1022). Pure.

Either all updates of a request are applied or none. Messages are Kafka's.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from enum import IntEnum
from typing import NamedTuple

from ottla.base.errors import Error, KafkaError
from ottla.controller import tree
from ottla.controller.decisions import ottla_version
from ottla.controller.decisions.decision import Decision, check_readable
from ottla.controller.image import BrokerImage, MetadataImage
from ottla.controller.stores.store import SetNode

SupportedLevels = Mapping[str, tuple[int, int]]  # the minimum and maximum levels that this broker supports


NO_DEFAULTS: Mapping[str, int] = {}


class UpgradeType(IntEnum):
    """The changes that a client permits."""

    UPGRADE = 1
    SAFE_DOWNGRADE = 2
    UNSAFE_DOWNGRADE = 3


class FeatureUpdate(NamedTuple):
    """One feature and its requested level; level 0 disables it."""

    name: str
    level: int
    upgrade_type: int


def decide_feature_updates(
    image: MetadataImage,
    updates: Sequence[FeatureUpdate],
    supported: SupportedLevels,
    defaults: Mapping[str, int] = NO_DEFAULTS,
    registered: Iterable[BrokerImage] = (),
) -> Decision[None]:
    """Apply all updates. Raises KafkaError(INVALID_UPDATE_VERSION) if one is invalid.

    `defaults` are the levels of features that are not stored; a disabled one of them is stored as 0. `registered` are
    all registered brokers, fenced or not.
    """
    check_readable(image, tree.FEATURE)
    features = dict(image.features)
    for update in updates:
        current = features.get(update.name, defaults.get(update.name, 0))
        reason = update_problem(update, current, supported, image.controller_id)
        if reason is None and update.name == ottla_version.OTTLA_VERSION_FEATURE:
            reason = ottla_version.level_change_problem(image, registered, update.level)
        if reason is not None:
            raise KafkaError(
                Error.INVALID_UPDATE_VERSION,
                "The update failed for all features since the following feature had an error: "
                f"Invalid update version {update.level} for feature {update.name}. {reason}",
            )
        features[update.name] = update.level
    features = {name: level for name, level in features.items() if level != defaults.get(name, 0)}
    if features == image.features:
        return Decision((), image, None)
    operations = (SetNode(tree.FEATURE, tree.encode_feature(features), image.features_epoch),)
    return Decision(operations, image.with_features(features, image.features_epoch + 1), None)


def update_problem(update: FeatureUpdate, current: int, supported: SupportedLevels, controller_id: int) -> str | None:
    """Return the reason why a feature cannot have that level, or None; the order of the checks is Kafka's."""
    if update.upgrade_type not in tuple(UpgradeType):
        return "The controller does not support the given upgrade type."
    if update.level < 0:
        return "A feature version cannot be less than 0."
    if update.name not in supported:
        if update.level == 0:
            return f"Feature {update.name} not found."
        return f"Local controller {controller_id} does not support this feature."
    lowest, highest = supported[update.name]
    if update.level != 0 and not lowest <= update.level <= highest:
        return f"Local controller {controller_id} only supports versions {lowest}-{highest}"
    if update.level < current and update.upgrade_type == UpgradeType.UPGRADE:
        return (
            "Can't downgrade the version of this feature without setting the upgrade type to either safe or "
            "unsafe downgrade."
        )
    if update.level > current and update.upgrade_type != UpgradeType.UPGRADE:
        return "Can't downgrade to a newer version."
    return None
