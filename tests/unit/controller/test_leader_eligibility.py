"""The feature of eligible leader replicas and its min.insync.replicas. Messages are those of Apache Kafka 4.3.1."""

import pytest
from tests.unit.controller.controller_harness import ControllerHarness

from ottla.base.broker_settings import BrokerSettings
from ottla.base.errors import Error
from ottla.controller.decisions.config_changes import (
    ConfigOperation,
    ConfigResourceChange,
    ConfigResourceType,
    OperationType,
    decide_config_changes,
)
from ottla.controller.decisions.leader_election import decide_election
from ottla.controller.decisions.leader_eligibility import (
    ELR_FEATURE,
    MIN_ISR_KEY,
    BrokerAvailability,
    ElectionRules,
    decide_cluster_min_isr,
)
from ottla.controller.decisions.topic_changes import NewTopic
from ottla.controller.image import MetadataImage, PartitionImage
from ottla.controller.stores.store import SetNode

SETTINGS = BrokerSettings({"listeners": "PLAINTEXT://127.0.0.1:9092"})
BROKER_LEVEL = (Error.INVALID_CONFIG, "Broker-level min.insync.replicas cannot be altered while ELR is enabled.")
CLUSTER_LEVEL = (Error.INVALID_CONFIG, "Cluster-level min.insync.replicas cannot be removed while ELR is enabled.")
DONE = (Error.NONE, None)
SET, DELETE = OperationType.SET, OperationType.DELETE
OFF = {ELR_FEATURE: 0}


def image_with(features: dict[str, int]) -> MetadataImage:
    return MetadataImage(broker_configs={"": {MIN_ISR_KEY: "1"}}, features=features)


@pytest.mark.parametrize(
    ("broker", "operations", "replaces_all", "answer"),
    [
        ("1", [(SET, MIN_ISR_KEY, "2")], False, BROKER_LEVEL),
        ("1", [(DELETE, MIN_ISR_KEY, "")], False, BROKER_LEVEL),
        ("1", [(SET, MIN_ISR_KEY, "2"), (SET, "log.retention.ms", "5")], False, BROKER_LEVEL),
        ("1", [(SET, MIN_ISR_KEY, "2")], True, BROKER_LEVEL),
        ("1", [(SET, "log.retention.ms", "5")], True, DONE),
        ("", [(SET, MIN_ISR_KEY, "2")], False, DONE),
        ("", [(DELETE, MIN_ISR_KEY, "")], False, CLUSTER_LEVEL),
        ("", [], True, CLUSTER_LEVEL),
        ("", [(SET, "log.retention.ms", "5")], True, CLUSTER_LEVEL),
        ("", [(SET, MIN_ISR_KEY, "3")], True, DONE),
    ],
)
def test_the_cluster_has_one_minimum_and_brokers_have_none(
    broker: str,
    operations: list[tuple[OperationType, str, str]],
    replaces_all: bool,
    answer: tuple[Error, str | None],
) -> None:
    wanted = tuple(ConfigOperation(*operation) for operation in operations)
    change = ConfigResourceChange(ConfigResourceType.BROKER, broker, wanted, replaces_all)
    (result,) = decide_config_changes(image_with({}), [change], SETTINGS).reply
    assert (result.error, result.message) == answer
    (result,) = decide_config_changes(image_with(OFF), [change], SETTINGS).reply
    assert result.error is Error.NONE


def test_a_new_cluster_gets_the_minimum_of_the_file_and_brokers_lose_theirs() -> None:
    image = MetadataImage(
        broker_configs={"1": {MIN_ISR_KEY: "3", "log.retention.ms": "5"}, "2": {"log.retention.ms": "6"}}
    )
    decision = decide_cluster_min_isr(image, 2)
    assert decision.image.broker_configs == {
        "": {MIN_ISR_KEY: "2"},
        "1": {"log.retention.ms": "5"},
        "2": {"log.retention.ms": "6"},
    }
    assert {each.path for each in decision.operations} == {"/config/brokers/<default>", "/config/brokers/1"}
    assert not decide_cluster_min_isr(decision.image, 1).operations, "what the cluster has counts before any file"
    assert not decide_cluster_min_isr(MetadataImage(features=OFF), 2).operations
    assert not decide_cluster_min_isr(MetadataImage(damaged=["/config/brokers/<default>"]), 2).operations


def test_other_settings_of_all_brokers_stay_beside_the_minimum() -> None:
    image = MetadataImage(broker_configs={"": {"log.retention.ms": "5"}})
    assert decide_cluster_min_isr(image, 2).image.broker_configs[""] == {"log.retention.ms": "5", MIN_ISR_KEY: "2"}


def test_without_the_feature_no_replica_is_eligible() -> None:
    stand = ControllerHarness(brokers=3)
    stand.create(NewTopic("t", assignments=((0, (1, 2, 3)),)))
    stand.image = stand.image.with_brokers({1: stand.image.brokers[1]})
    on = decide_election(stand.image, BrokerAvailability(), ElectionRules(2))
    assert on.image.topics["t"].partitions[0].elr == (2, 3)
    off = decide_election(on.image.with_features(OFF, 1), BrokerAvailability(), ElectionRules(2))
    assert off.image.partition("t", 0) == PartitionImage(1, 0, (1,), (1, 2, 3), 2)
    assert isinstance(off.operations[0], SetNode)
    assert not decide_election(off.image, BrokerAvailability(), ElectionRules(2)).operations
