"""Settings of groups and transactions in their state machines."""

from typing import Any

import pytest

from ottla.base.broker_settings import BrokerSettings
from ottla.base.errors import Error
from ottla.broker.coordinator_service.coordinators import (
    group_settings,
    group_times,
    transaction_settings,
    with_write_error,
)
from ottla.broker.coordinator_service.internal_topics import offsets_topic, transactions_topic
from ottla.controller.image import MetadataImage
from ottla.groups.settings import ConsumerGroupTimes, GroupSettings
from ottla.protocol.messages.group_offsets import (
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from ottla.transactions.transaction_coordinator import EndTransactionResult, TransactionSettings

GROUP_KEYS = {
    "group.min.session.timeout.ms": ("7", {"session_timeout_ms_min": 7}),
    "group.max.session.timeout.ms": ("7", {"session_timeout_ms_max": 7}),
    "group.initial.rebalance.delay.ms": ("7", {"initial_rebalance_delay_ms": 7}),
    "group.max.size": ("7", {"size_max": 7}),
    "ottla.group.metadata.max.bytes": ("7", {"metadata_bytes_max": 7}),
    "offset.metadata.max.bytes": ("7", {"offset_metadata_bytes_max": 7}),
    "offsets.retention.minutes": ("7", {"offsets_retention_ms": 420_000}),
    "offsets.retention.check.interval.ms": ("7", {"offsets_check_interval_ms": 7}),
    "group.consumer.migration.policy": ("DISABLED", {"migration_policy": "disabled"}),
    "group.consumer.max.size": ("7", {"consumer_size_max": 7}),
    "group.consumer.assignors": ("range", {"consumer_assignors": ("range",)}),
    "group.consumer.session.timeout.ms": ("50000", {"consumer_times": ConsumerGroupTimes(session_timeout_ms=50_000)}),
    "group.consumer.heartbeat.interval.ms": (
        "6000",
        {"consumer_times": ConsumerGroupTimes(heartbeat_interval_ms=6_000)},
    ),
    "group.consumer.regex.refresh.interval.ms": ("10001", {"regex_refresh_interval_ms": 10_001}),
    "group.consumer.assignment.interval.ms": ("7", {"consumer_times": ConsumerGroupTimes(assignment_interval_ms=7)}),
}
TRANSACTION_KEYS = {
    "transaction.max.timeout.ms": ("7", {"timeout_ms_max": 7}),
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": ("7", {"abort_interval_ms": 7}),
    "transactional.id.expiration.ms": ("7", {"id_expiration_ms": 7}),
    "transaction.remove.expired.transaction.cleanup.interval.ms": ("7", {"id_expiration_interval_ms": 7}),
}


def test_without_settings_the_machines_have_kafkas_defaults() -> None:
    assert group_settings(BrokerSettings({})) == GroupSettings()
    assert transaction_settings(BrokerSettings({})) == TransactionSettings()


@pytest.mark.parametrize("key", GROUP_KEYS)
def test_a_key_of_groups_reaches_the_machine(key: str) -> None:
    text, changed = GROUP_KEYS[key]
    assert group_settings(BrokerSettings({key: text})) == GroupSettings()._replace(**changed)


@pytest.mark.parametrize("key", TRANSACTION_KEYS)
def test_a_key_of_transactions_reaches_the_machine(key: str) -> None:
    text, changed = TRANSACTION_KEYS[key]
    assert transaction_settings(BrokerSettings({key: text})) == TransactionSettings()._replace(**changed)


def test_group_settings_override_those_of_the_broker() -> None:
    configs = {"g": {"consumer.session.timeout.ms": "50000"}, "share": {"share.session.timeout.ms": "50000"}}
    image = MetadataImage().with_group_configs(configs)
    times = group_times(image, BrokerSettings({"group.consumer.heartbeat.interval.ms": "6000"}))
    assert times == {"g": ConsumerGroupTimes(50_000, 6_000, 1_000)}


def test_append_errors_turn_every_response_into_an_error() -> None:
    assert with_write_error(Error.NONE, Error.NOT_LEADER_OR_FOLLOWER) is Error.NOT_COORDINATOR
    assert with_write_error(EndTransactionResult(Error.NONE, 7, 3), Error.NOT_ENOUGH_REPLICAS) == EndTransactionResult(
        Error.COORDINATOR_NOT_AVAILABLE
    )
    rows = [OffsetCommitResponsePartition(partition_index=index, error_code=code) for index, code in ((0, 0), (1, 12))]
    response: Any = OffsetCommitResponse(topics=[OffsetCommitResponseTopic(name="t", partitions=rows)])
    refused = with_write_error(response, Error.MESSAGE_TOO_LARGE)
    assert [row.error_code for row in refused.topics[0].partitions] == [Error.INVALID_COMMIT_OFFSET_SIZE, 12]


def test_internal_topics_have_the_configured_form() -> None:
    settings = BrokerSettings(
        {
            "offsets.topic.num.partitions": "7",
            "offsets.topic.replication.factor": "2",
            "offsets.topic.segment.bytes": "1048577",
            "transaction.state.log.num.partitions": "8",
            "transaction.state.log.replication.factor": "2",
            "transaction.state.log.min.isr": "2",
            "transaction.state.log.segment.bytes": "1048578",
        }
    )
    offsets = offsets_topic(settings, 3)
    assert (offsets.partition_count, offsets.replication_factor) == (7, 2)
    assert dict(offsets.configs) == {
        "cleanup.policy": "compact",
        "segment.bytes": "1048577",
        "compression.type": "producer",
    }
    transactions = transactions_topic(settings, 3)
    assert (transactions.partition_count, transactions.replication_factor) == (8, 2)
    assert dict(transactions.configs) == {
        "cleanup.policy": "compact",
        "segment.bytes": "1048578",
        "compression.type": "uncompressed",
        "min.insync.replicas": "2",
        "unclean.leader.election.enable": "false",
    }


def test_a_standalone_broker_is_a_whole_cluster() -> None:
    transactions = transactions_topic(BrokerSettings({}), 1)
    assert (transactions.replication_factor, dict(transactions.configs)["min.insync.replicas"]) == (1, "1")
