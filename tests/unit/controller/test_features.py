"""Feature levels; all messages are those of Apache Kafka 4.3.1."""

import pytest

from ottla.base.errors import Error, KafkaError
from ottla.controller import tree
from ottla.controller.decisions.features import FeatureUpdate, UpgradeType, decide_feature_updates
from ottla.controller.image import MetadataImage
from ottla.controller.stores.store import SetNode

SUPPORTED = {"group.version": (0, 1), "metadata.version": (7, 30)}
IMAGE = MetadataImage(controller_id=1, features={"group.version": 1, "metadata.version": 20}, features_epoch=4)
CANNOT_DOWNGRADE = "Can't downgrade the version of this feature without setting"
UPGRADE, SAFE, UNSAFE = UpgradeType.UPGRADE, UpgradeType.SAFE_DOWNGRADE, UpgradeType.UNSAFE_DOWNGRADE


def test_levels_are_stored_and_the_epoch_grows() -> None:
    decision = decide_feature_updates(IMAGE, [FeatureUpdate("metadata.version", 30, UPGRADE)], SUPPORTED)
    features = {"group.version": 1, "metadata.version": 30}
    assert (decision.image.features, decision.image.features_epoch) == (features, 5)
    assert decision.operations == (SetNode(tree.FEATURE, tree.encode_feature(features), 4),)


def test_a_downgrade_leads_to_no_newer_level() -> None:
    with pytest.raises(KafkaError, match=r"Can't downgrade to a newer version\."):
        decide_feature_updates(IMAGE, [FeatureUpdate("metadata.version", 21, SAFE)], SUPPORTED)


def test_level_zero_switches_a_feature_off() -> None:
    decision = decide_feature_updates(IMAGE, [FeatureUpdate("group.version", 0, SAFE)], SUPPORTED)
    assert decision.image.features == {"metadata.version": 20}


def test_unchanged_quota_writes_nothing() -> None:
    decision = decide_feature_updates(IMAGE, [FeatureUpdate("group.version", 1, UPGRADE)], SUPPORTED)
    assert (decision.operations, decision.image) == ((), IMAGE)


@pytest.mark.parametrize(
    ("name", "level", "upgrade_type", "reason"),
    [
        ("bogus", 1, UPGRADE, "Local controller 1 does not support this feature."),
        ("bogus", 0, UPGRADE, "Feature bogus not found."),
        ("group.version", 99, UPGRADE, "Local controller 1 only supports versions 0-1"),
        ("group.version", -1, UNSAFE, "A feature version cannot be less than 0."),
        ("group.version", 0, 9, "The controller does not support the given upgrade type."),
        ("group.version", 0, UPGRADE, f"{CANNOT_DOWNGRADE} the upgrade type to either safe or unsafe downgrade."),
        ("metadata.version", 31, SAFE, "Local controller 1 only supports versions 7-30"),
    ],
)
def test_one_update_that_cannot_be_fails_all(name: str, level: int, upgrade_type: int, reason: str) -> None:
    updates = [FeatureUpdate("metadata.version", 30, UPGRADE), FeatureUpdate(name, level, upgrade_type)]
    with pytest.raises(KafkaError) as refused:
        decide_feature_updates(IMAGE, updates, SUPPORTED)
    assert refused.value.error is Error.INVALID_UPDATE_VERSION
    assert refused.value.message == (
        "The update failed for all features since the following feature had an error: "
        f"Invalid update version {level} for feature {name}. {reason}"
    )


def test_a_feature_that_is_on_by_default_stays_off_and_can_be_switched_on_again() -> None:
    defaults = {"group.version": 1}
    fresh = MetadataImage()
    with pytest.raises(KafkaError, match="Can't downgrade the version of this feature without"):
        decide_feature_updates(fresh, [FeatureUpdate("group.version", 0, UPGRADE)], SUPPORTED, defaults)
    off = decide_feature_updates(fresh, [FeatureUpdate("group.version", 0, SAFE)], SUPPORTED, defaults).image
    assert off.features == {"group.version": 0}
    on = decide_feature_updates(off, [FeatureUpdate("group.version", 1, UPGRADE)], SUPPORTED, defaults).image
    assert on.features == {}
    assert not decide_feature_updates(on, [FeatureUpdate("group.version", 1, SAFE)], SUPPORTED, defaults).operations
