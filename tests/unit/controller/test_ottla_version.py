"""The level of a cluster: support of brokers, upgrades and downgrades, and functions that need a level."""

from uuid import UUID

import pytest

from ottla.base.broker_settings import BrokerSettings, find_key
from ottla.base.errors import Error, KafkaError
from ottla.base.topic_keys import TopicKeys
from ottla.broker.handlers.api_versions import CLUSTER_POLL, DEFAULT_LEVELS, SUPPORTED_FEATURES, inter_broker_apis
from ottla.controller import tree
from ottla.controller.decisions.config_changes import (
    ConfigOperation,
    ConfigResourceChange,
    ConfigResourceType,
    OperationType,
    decide_config_changes,
)
from ottla.controller.decisions.features import FeatureUpdate, UpgradeType, decide_feature_updates
from ottla.controller.decisions.ottla_version import (
    LEVEL_MAX,
    LEVEL_MIN,
    OTTLA_VERSION_FEATURE,
    SETTINGS_OF_LEVEL_1,
    SUPPORTED,
    cluster_level,
    supports,
    unsupported_level_problem,
)
from ottla.controller.image import BrokerImage, MetadataImage, PartitionImage, TopicImage
from ottla.controller.stores.store import SetNode

UNTIL = "ottla.maintenance.until.ms"
NEW = {id_: BrokerImage(id_, {}, None, id_, features=SUPPORTED) for id_ in (1, 2, 3)}
MIXED = {**NEW, **{id_: BrokerImage(id_, {}, None, id_) for id_ in (2, 3)}}
OLD_CLUSTER = MetadataImage(controller_id=1, brokers=NEW, features_epoch=3)
NEW_CLUSTER = MetadataImage(controller_id=1, brokers=NEW, features={OTTLA_VERSION_FEATURE: LEVEL_MAX}, features_epoch=3)
UPGRADE, SAFE, UNSAFE = UpgradeType.UPGRADE, UpgradeType.SAFE_DOWNGRADE, UpgradeType.UNSAFE_DOWNGRADE


def change(
    image: MetadataImage, wanted: int, kind: int = UPGRADE, brokers: dict[int, BrokerImage] = NEW
) -> MetadataImage:
    update = [FeatureUpdate(OTTLA_VERSION_FEATURE, wanted, kind)]
    decision = decide_feature_updates(image, update, SUPPORTED_FEATURES, DEFAULT_LEVELS, brokers.values())
    if decision.operations:
        (written,) = decision.operations
        assert isinstance(written, SetNode)
        assert tree.decode_feature(written.data) == decision.image.features
    return decision.image


def refusal(image: MetadataImage, wanted: int, kind: int = UPGRADE, brokers: dict[int, BrokerImage] = NEW) -> str:
    with pytest.raises(KafkaError) as refused:
        change(image, wanted, kind, brokers)
    assert refused.value.error is Error.INVALID_UPDATE_VERSION
    return refused.value.message or ""


def test_broker_without_level_has_level_1() -> None:
    assert cluster_level(MetadataImage()) == LEVEL_MIN
    silent = BrokerImage(1, {}, None, 0)
    assert (supports(silent, LEVEL_MIN), supports(silent, LEVEL_MAX)) == (True, False)
    assert supports(NEW[1], LEVEL_MIN)
    assert supports(NEW[1], LEVEL_MAX)


def test_the_level_is_raised_when_every_registered_broker_supports_it() -> None:
    assert change(OLD_CLUSTER, LEVEL_MAX).features == {OTTLA_VERSION_FEATURE: LEVEL_MAX}
    assert change(OLD_CLUSTER, LEVEL_MIN) is OLD_CLUSTER, "what is so already is not written"
    assert refusal(OLD_CLUSTER, LEVEL_MAX, brokers=MIXED).endswith(
        "Brokers 2, 3 do not support it: upgrade every broker first (docs/upgrade.md)."
    )
    alone = {**NEW, 2: MIXED[2]}
    assert "Broker 2 does not support it" in refusal(OLD_CLUSTER, LEVEL_MAX, brokers=alone)


def test_unknown_levels_are_refused() -> None:
    highest = f"Local controller 1 only supports versions {LEVEL_MIN}-{LEVEL_MAX}"
    assert refusal(OLD_CLUSTER, LEVEL_MAX + 1).endswith(highest)
    assert refusal(NEW_CLUSTER, 0, UNSAFE).endswith(
        f"{OTTLA_VERSION_FEATURE} cannot be off: its lowest level is {LEVEL_MIN}."
    )


@pytest.mark.parametrize("kind", [SAFE, UNSAFE])
def test_the_level_is_lowered_while_nothing_of_it_is_stored(kind: int) -> None:
    assert "without setting the upgrade type" in refusal(NEW_CLUSTER, LEVEL_MIN)
    assert change(NEW_CLUSTER, LEVEL_MIN, kind).features == {}
    known = NEW_CLUSTER.with_broker_config("2", {"ottla.quota.mode": "off", "log.retention.ms": "5"})
    assert change(known, LEVEL_MIN, kind).features == {}

    used = known.with_broker_config("2", {UNTIL: "5", "log.retention.ms": "5"})
    used = used.with_broker_config("", {"ottla.heal.after.ms": "-1"})
    assert refusal(used, LEVEL_MIN, kind).endswith(
        "It is in use, and brokers of an older version would not understand it: first delete ottla.heal.after.ms of "
        f"all brokers, {UNTIL} of broker 2."
    )


def test_the_level_stays_while_replicas_are_moved() -> None:
    """Some may be the controller's own, with throttles that an older controller would never remove."""
    moved = PartitionImage(1, 0, (1, 2), (1,), adding_replicas=(2,))
    image = NEW_CLUSTER.with_topics([TopicImage("a", UUID(int=1), (moved,))])
    assert "Replicas are being moved" in refusal(image, LEVEL_MIN, SAFE)
    still = NEW_CLUSTER.with_topics([TopicImage("a", UUID(int=1), (moved._replace(adding_replicas=()),))])
    assert change(still, LEVEL_MIN, SAFE).features == {}


@pytest.mark.parametrize("resource", [ConfigResourceType.BROKER, ConfigResourceType.TOPIC])
def test_a_setting_of_a_higher_level_waits_for_it(resource: ConfigResourceType) -> None:
    def answer(image: MetadataImage, kind: OperationType) -> tuple[Error, str | None]:
        wanted = ConfigResourceChange(resource, "1", (ConfigOperation(kind, "ottla.heal.after.ms", "5"),))
        (result,) = decide_config_changes(image, [wanted], BrokerSettings({"node.id": "1"})).reply
        return result.error, result.message

    error, sentence = answer(OLD_CLUSTER, OperationType.SET)
    assert error is Error.INVALID_CONFIG
    assert sentence == (
        f"ottla.heal.after.ms needs {OTTLA_VERSION_FEATURE} 2, and this cluster runs at 1: when every "
        "broker is upgraded, "
        f"raise it with `ottla features upgrade {OTTLA_VERSION_FEATURE}=2`"
    )
    assert answer(OLD_CLUSTER, OperationType.DELETE)[1] != sentence, "what is there can always go"
    assert answer(NEW_CLUSTER, OperationType.SET)[1] != sentence


def test_the_settings_of_the_first_level_are_settings() -> None:
    assert all(find_key(name) is not None or name in TopicKeys.keys for name in SETTINGS_OF_LEVEL_1)


def test_store_of_a_newer_version_is_refused() -> None:
    assert unsupported_level_problem(LEVEL_MAX) is None
    assert "the cluster runs at ottla.version=9, and this broker supports 1 to 2" in (
        unsupported_level_problem(9) or ""
    )


def test_polls_of_brokers_without_levels_are_refused() -> None:
    ranges = [(58, 0, 0), (CLUSTER_POLL, 0, 1)]
    assert inter_broker_apis(ranges, OLD_CLUSTER) == ranges
    assert inter_broker_apis(ranges, NEW_CLUSTER) == [(58, 0, 0), (CLUSTER_POLL, 1, 1)]
