"""What becomes of administrative requests in the audit trail: each thing with what was before and after, no secrets."""

from __future__ import annotations

import json
from typing import Any
from uuid import UUID

import pytest

from ottla.base.audit_events import EVENTS
from ottla.base.broker_settings import BrokerSettings
from ottla.base.errors import Error
from ottla.broker.audit.changes import HIDDEN, Asked
from ottla.broker.audit.event import LINE_BYTES_MAX, Change, Who, line_of
from ottla.broker.audit.noting import NOTED, RESET, changes_of
from ottla.broker.handlers.table import APIS
from ottla.controller.decisions.config_changes import ConfigResourceType, OperationType
from ottla.controller.image import MetadataImage, PartitionImage, TopicImage
from ottla.protocol.messages import (
    acls,
    client_quotas,
    configs,
    elections,
    features,
    group_admin,
    group_offsets,
    log_dirs,
    reassignments,
    scram_credentials,
    topics,
)
from ottla.security.scram import make_credential

SETTINGS = BrokerSettings({"node.id": "1", "broker.id": "1"})
ORDERS = TopicImage("orders", UUID(int=7), (PartitionImage(1, 0, (1, 2), (1, 2)), PartitionImage(2, 0, (1, 2), (2, 1))))
IMAGE = MetadataImage().with_topics([ORDERS], configs={"orders": {"retention.ms": "1000", "cleanup.policy": "delete"}})
TOPIC, BROKER = ConfigResourceType.TOPIC, ConfigResourceType.BROKER
WHO = Who("User:alice", "10.0.0.1", "c", "librdkafka 2.5", "PLAINTEXT", "CreateTopics")


def found(
    key: int,
    request: Any,
    response: Any,
    before: MetadataImage = IMAGE,
    after: MetadataImage | None = None,
    seen: Any = None,
) -> list[Change]:
    asked = Asked(request, response, before, after or before, SETTINGS, seen if seen is not None else {})
    return changes_of(NOTED[key].describe, asked)


def test_every_api_that_is_noted_is_served_and_its_event_is_known() -> None:
    assert NOTED.keys() <= {row.key for row in APIS}
    assert {how.event for how in NOTED.values()} <= EVENTS.keys()


def test_a_new_topic_is_told_as_it_was_made_and_one_that_was_refused_as_it_was_asked_for() -> None:
    after = IMAGE.with_topics([ORDERS._replace(name="new")], configs={"new": {"retention.ms": "5"}})
    request = topics.CreateTopicsRequest(
        topics=[
            topics.CreatableTopic(name="new", num_partitions=-1, replication_factor=-1),
            topics.CreatableTopic(
                name="orders",
                num_partitions=3,
                replication_factor=2,
                configs=[topics.CreatableTopicConfig(name="retention.ms", value="9")],
            ),
        ]
    )
    response = topics.CreateTopicsResponse(
        topics=[
            topics.CreatableTopicResult(name="new"),
            topics.CreatableTopicResult(name="orders", error_code=Error.TOPIC_ALREADY_EXISTS, error_message="is there"),
        ]
    )
    made, refused = found(19, request, response, after=after)
    assert made.after == {
        "id": str(UUID(int=7)),
        "partitions": 2,
        "replication_factor": 2,
        "configs": {"retention.ms": "5"},
    }
    assert refused.after == {"partitions": 3, "replication_factor": 2, "configs": {"retention.ms": "9"}}
    assert (refused.error, refused.message) == (Error.TOPIC_ALREADY_EXISTS, "is there")
    request.validate_only = True
    assert found(19, request, response, after=after) == [], "nothing was changed"


def test_what_an_access_rule_refuses_is_no_failed_change() -> None:
    request = topics.CreateTopicsRequest(
        topics=[topics.CreatableTopic(name="n", num_partitions=1, replication_factor=1)]
    )
    row = topics.CreatableTopicResult(name="n", error_code=Error.TOPIC_AUTHORIZATION_FAILED)
    assert found(19, request, topics.CreateTopicsResponse(topics=[row])) == []


def test_a_topic_that_was_deleted_by_id_has_its_name_and_all_that_it_was() -> None:
    request = topics.DeleteTopicsRequest(topics=[topics.DeleteTopicState(topic_id=UUID(int=7))], timeout_ms=1)
    rows = [topics.DeletableTopicResult(name="orders", topic_id=UUID(int=7))]
    (change,) = found(20, request, topics.DeleteTopicsResponse(responses=rows), after=MetadataImage())
    assert change.resource == "orders"
    assert change.before is not None
    assert change.before["configs"] == {"retention.ms": "1000", "cleanup.policy": "delete"}
    assert change.after is None


def test_more_partitions() -> None:
    request = topics.CreatePartitionsRequest(
        topics=[topics.CreatePartitionsTopic(name="orders", count=6)], timeout_ms=1
    )
    response = topics.CreatePartitionsResponse(results=[topics.CreatePartitionsTopicResult(name="orders")])
    assert found(37, request, response) == [Change("topic", "orders", {"partitions": 2}, {"partitions": 6})]


def test_deleted_records_one_change_for_each_error() -> None:
    rows = [topics.DeleteRecordsPartition(partition_index=index, offset=9) for index in (0, 1, 7)]
    request = topics.DeleteRecordsRequest(
        topics=[topics.DeleteRecordsTopic(name="orders", partitions=rows)], timeout_ms=1
    )
    answers = [
        topics.DeleteRecordsPartitionResult(partition_index=0, low_watermark=9),
        topics.DeleteRecordsPartitionResult(partition_index=1, low_watermark=9),
        topics.DeleteRecordsPartitionResult(
            partition_index=7, low_watermark=-1, error_code=Error.UNKNOWN_TOPIC_OR_PARTITION
        ),
    ]
    response = topics.DeleteRecordsResponse(topics=[topics.DeleteRecordsTopicResult(name="orders", partitions=answers)])
    done, failed = found(21, request, response, seen={"orders": {0: 0, 1: 4}})
    assert (done.before, done.after) == ({"start_offsets": {"0": 0, "1": 4}}, {"start_offsets": {"0": 9, "1": 9}})
    assert (failed.after, failed.error) == ({"start_offsets": {"7": 9}}, Error.UNKNOWN_TOPIC_OR_PARTITION)


def altered(kind: int, name: str, *operations: tuple[int, str, str | None], error: int = 0) -> Change:
    rows = [
        configs.IncrementalAlterableConfig(name=key, config_operation=op, value=value) for op, key, value in operations
    ]
    resource = configs.IncrementalAlterConfigsResource(resource_type=kind, resource_name=name, configs=rows)
    answer = configs.AlterConfigsResourceResponse(resource_type=kind, resource_name=name, error_code=error)
    answer.error_message = f"Invalid value {operations[0][2]}" if error else None
    request = configs.IncrementalAlterConfigsRequest(resources=[resource])
    (change,) = found(44, request, configs.IncrementalAlterConfigsResponse(responses=[answer]))
    return change


def test_settings_are_told_as_they_were_and_are_set_deleted_and_appended_to() -> None:
    change = altered(
        TOPIC,
        "orders",
        (OperationType.SET, "retention.ms", "5"),
        (OperationType.DELETE, "segment.bytes", None),
        (OperationType.APPEND, "cleanup.policy", "compact"),
    )
    assert change.before == {"retention.ms": "1000", "segment.bytes": None, "cleanup.policy": "delete"}
    assert change.after == {"retention.ms": "5", "segment.bytes": None, "cleanup.policy": "delete,compact"}


def test_the_older_request_takes_away_what_it_does_not_name() -> None:
    rows = [configs.AlterableConfig(name="retention.ms", value="5")]
    resource = configs.AlterConfigsResource(resource_type=TOPIC, resource_name="orders", configs=rows)
    answer = configs.AlterConfigsResourceResponse(resource_type=TOPIC, resource_name="orders")
    request = configs.AlterConfigsRequest(resources=[resource])
    (change,) = found(33, request, configs.AlterConfigsResponse(responses=[answer]))
    assert change.before == {"retention.ms": "1000", "cleanup.policy": "delete"}
    assert change.after == {"retention.ms": "5", "cleanup.policy": None}


def test_values_that_may_be_secrets_are_hidden_whether_they_were_taken_or_not() -> None:
    for error in (Error.NONE, Error.INVALID_REQUEST):
        change = altered(
            BROKER,
            "1",
            (OperationType.SET, "ssl.keystore.password", "geheim"),
            (OperationType.SET, "listener.name.outside.plain.sasl.jaas.config", "geheim"),
            (OperationType.SET, "my.own.token", "geheim"),
            (OperationType.SET, "log.cleaner.threads", "2"),
            error=error,
        )
        assert change.after is not None
        assert "geheim" not in repr(change), "neither in the message"
        assert change.after["ssl.keystore.password"] == HIDDEN
        assert change.after["log.cleaner.threads"] == "2"
    assert altered(TOPIC, "orders", (OperationType.SET, "password", "x"), error=40).after == {"password": HIDDEN}


def test_levels_of_loggers() -> None:
    rows = [configs.IncrementalAlterableConfig(name="root", config_operation=OperationType.SET, value="DEBUG")]
    kind = ConfigResourceType.BROKER_LOGGER
    resource = configs.IncrementalAlterConfigsResource(resource_type=kind, resource_name="1", configs=rows)
    answer = configs.AlterConfigsResourceResponse(resource_type=kind, resource_name="1")
    request = configs.IncrementalAlterConfigsRequest(resources=[resource])
    response = configs.IncrementalAlterConfigsResponse(responses=[answer])
    (change,) = found(44, request, response, seen={"root": "INFO"})
    assert change == Change("broker-logger", "1", {"root": "INFO"}, {"root": "DEBUG"})


def test_access_rules_that_come_and_go() -> None:
    rule = {"resource_type": 2, "resource_name": "orders", "principal": "User:bob", "host": "*"}
    creation = acls.AclCreation(**rule, resource_pattern_type=4, operation=3, permission_type=3)
    (made,) = found(
        30,
        acls.CreateAclsRequest(creations=[creation]),
        acls.CreateAclsResponse(results=[acls.AclCreationResult()]),
    )
    described = {
        "pattern_type": "Prefixed",
        "principal": "User:bob",
        "host": "*",
        "operation": "Read",
        "permission": "Allow",
    }
    assert made == Change("topic", "orders", None, described)
    gone = acls.DeleteAclsMatchingAcl(**rule, pattern_type=4, operation=3, permission_type=3)
    response = acls.DeleteAclsResponse(filter_results=[acls.DeleteAclsFilterResult(matching_acls=[gone])])
    assert found(31, acls.DeleteAclsRequest(), response) == [Change("topic", "orders", described, None)]


def test_a_password_is_told_by_its_mechanism_alone() -> None:
    kept = make_credential("SCRAM-SHA-256", b"geheim", b"salz", 4096).to_text()
    before = IMAGE.with_user_configs({"bob": {"SCRAM-SHA-256": kept, "consumer_byte_rate": "5"}})
    request = scram_credentials.AlterUserScramCredentialsRequest(
        deletions=[scram_credentials.ScramCredentialDeletion(name="bob", mechanism=1)],
        upsertions=[
            scram_credentials.ScramCredentialUpsertion(
                name="bob", mechanism=2, iterations=8192, salt=b"pfeffer", salted_password=b"geheim"
            )
        ],
    )
    response = scram_credentials.AlterUserScramCredentialsResponse(
        results=[scram_credentials.ScramAlterationResult(user="bob")]
    )
    (change,) = found(51, request, response, before)
    assert change == Change(
        "user", "bob", {"iterations": {"SCRAM-SHA-256": 4096}}, {"iterations": {"SCRAM-SHA-512": 8192}}
    )


def test_quotas_as_they_were_and_as_they_are_asked_for() -> None:
    entity = [client_quotas.QuotaEntity(entity_type="user", entity_name="bob")]
    entity.append(client_quotas.QuotaEntity(entity_type="client-id", entity_name=None))
    operations = [
        client_quotas.QuotaOperation(key="producer_byte_rate", value=1e6),
        client_quotas.QuotaOperation(key="consumer_byte_rate", value=0.0, remove=True),
    ]
    request = client_quotas.AlterClientQuotasRequest(
        entries=[client_quotas.QuotaAlteration(entity=entity, ops=operations)]
    )
    response = client_quotas.AlterClientQuotasResponse(entries=[client_quotas.QuotaAlterationResult(entity=entity)])
    before = IMAGE.with_quota_configs({"users/bob/clients/<default>": {"consumer_byte_rate": "5"}})
    (change,) = found(49, request, response, before)
    assert (change.resource, change.before, change.after) == (
        "user=bob,client-id=<default>",
        {"producer_byte_rate": None, "consumer_byte_rate": 5.0},
        {"producer_byte_rate": 1e6, "consumer_byte_rate": None},
    )


def test_an_entity_that_is_named_twice_is_refused_twice() -> None:
    entity = [client_quotas.QuotaEntity(entity_type="user", entity_name="bob")]
    other = [client_quotas.QuotaEntity(entity_type="nobody", entity_name="x")]
    rows = [client_quotas.QuotaAlteration(entity=each, ops=[]) for each in (entity, entity, other)]
    answers = [
        client_quotas.QuotaAlterationResult(entity=entity, error_code=42, error_message="duplicate"),
        client_quotas.QuotaAlterationResult(entity=other, error_code=42, error_message="unknown"),
    ]
    changes = found(
        49,
        client_quotas.AlterClientQuotasRequest(entries=rows),
        client_quotas.AlterClientQuotasResponse(entries=answers),
    )
    assert [(each.resource, each.message) for each in changes] == [
        ("user=bob", "duplicate"),
        ("user=bob", "duplicate"),
        ("nobody=x", "unknown"),
    ]


def test_moves_and_elections_tell_whom_a_partition_had_and_has() -> None:
    rows = [reassignments.ReassignablePartition(partition_index=0, replicas=[2, 3])]
    rows.append(reassignments.ReassignablePartition(partition_index=1, replicas=None))
    moving = ORDERS.partitions[1]._replace(replicas=(2, 1, 3), adding_replicas=(3,), removing_replicas=(1,))
    before = IMAGE.with_topics([ORDERS._replace(partitions=(ORDERS.partitions[0], moving))])
    answers = [reassignments.ReassignablePartitionResponse(partition_index=index) for index in (0, 1)]
    (moved,) = found(
        45,
        reassignments.AlterPartitionReassignmentsRequest(
            topics=[reassignments.ReassignableTopic(name="orders", partitions=rows)]
        ),
        reassignments.AlterPartitionReassignmentsResponse(
            responses=[reassignments.ReassignableTopicResponse(name="orders", partitions=answers)]
        ),
        before,
    )
    assert moved.before == {"replicas": {"0": [1, 2], "1": {"replicas": [2, 1, 3], "adding": [3], "removing": [1]}}}
    assert moved.after == {"replicas": {"0": [2, 3], "1": None}}
    elected = tuple(each._replace(leader=2) for each in ORDERS.partitions)
    results = [elections.ElectionPartitionResult(partition_id=0)]
    results.append(elections.ElectionPartitionResult(partition_id=1, error_code=Error.ELECTION_NOT_NEEDED))
    (election,) = found(
        43,
        elections.ElectLeadersRequest(election_type=1),
        elections.ElectLeadersResponse(
            replica_election_results=[elections.ReplicaElectionResult(topic="orders", partition_result=results)]
        ),
        after=IMAGE.with_topics([ORDERS._replace(partitions=elected)]),
    )
    assert election.before == {"leaders": {"0": 1}}
    assert election.after == {"election": "unclean", "leaders": {"0": 2}}


def test_a_request_that_was_refused_as_a_whole_is_a_change_of_the_cluster() -> None:
    response = reassignments.AlterPartitionReassignmentsResponse(error_code=Error.REQUEST_TIMED_OUT)
    (change,) = found(45, reassignments.AlterPartitionReassignmentsRequest(), response)
    assert (change.resource_type, change.error) == ("cluster", Error.REQUEST_TIMED_OUT)


def test_groups_offsets_folders_features() -> None:
    seen: Any = {"g": {"orders": {"0": 17}}}
    response: Any = group_admin.DeleteGroupsResponse(results=[group_admin.DeletableGroupResult(group_id="g")])
    (group,) = found(42, group_admin.DeleteGroupsRequest(groups_names=["g"]), response, seen=seen)
    assert group == Change("group", "g", {"offsets": {"orders": {"0": 17}}}, None)
    rows = [group_offsets.OffsetDeleteResponsePartition(partition_index=0)]
    response = group_offsets.OffsetDeleteResponse(
        topics=[group_offsets.OffsetDeleteResponseTopic(name="orders", partitions=rows)]
    )
    (offsets,) = found(47, group_offsets.OffsetDeleteRequest(group_id="g"), response, seen=seen["g"])
    assert offsets == Change("group", "g", {"offsets": {"orders": {"0": 17}}}, None)
    commit = group_offsets.OffsetCommitRequestPartition(partition_index=0, committed_offset=3)
    request = group_offsets.OffsetCommitRequest(
        group_id="g",
        member_id="",
        topics=[group_offsets.OffsetCommitRequestTopic(name="orders", partitions=[commit])],
    )
    answer = group_offsets.OffsetCommitResponseTopic(
        name="orders", partitions=[group_offsets.OffsetCommitResponsePartition(partition_index=0)]
    )
    response = group_offsets.OffsetCommitResponse(topics=[answer])
    asked = Asked(request, response, IMAGE, IMAGE, SETTINGS, seen["g"])
    assert changes_of(RESET.describe, asked) == [
        Change("group", "g", {"offsets": {"orders": {"0": 17}}}, {"offsets": {"orders": {"0": 3}}})
    ]
    folder = log_dirs.AlterReplicaLogDir(
        path="/b", topics=[log_dirs.AlterReplicaLogDirTopic(name="orders", partitions=[0])]
    )
    moved = log_dirs.AlterReplicaLogDirTopicResult(
        topic_name="orders", partitions=[log_dirs.AlterReplicaLogDirPartitionResult(partition_index=0)]
    )
    (move,) = found(
        34,
        log_dirs.AlterReplicaLogDirsRequest(dirs=[folder]),
        log_dirs.AlterReplicaLogDirsResponse(results=[moved]),
        seen={("orders", 0): "/a"},
    )
    assert (move.before, move.after) == ({"log_dirs": {"0": "/a"}}, {"log_dirs": {"0": "/b"}})
    update = features.FeatureUpdateKey(feature="transaction.version", max_version_level=1)
    before = IMAGE.with_features({"transaction.version": 2}, 1)
    (level,) = found(
        57, features.UpdateFeaturesRequest(feature_updates=[update]), features.UpdateFeaturesResponse(), before
    )
    assert level == Change("feature", "transaction.version", {"level": 2}, {"level": 1})


# ---- lines


def line(change: Change, **details: Any) -> Any:
    made = line_of(
        "topic.create", details.pop("who", WHO), change, id_="1-2-3", time_ms=1_700_000_000_123, broker=1, **details
    )
    assert len(made.value) <= LINE_BYTES_MAX
    return json.loads(made.value)


def test_a_line_has_all_fields() -> None:
    assert line(Change("topic", "orders", None, {"partitions": 1})) == {
        "version": 1,
        "id": "1-2-3",
        "time": "2023-11-14T22:13:20.123Z",
        "event": "topic.create",
        "outcome": "success",
        "error": None,
        "message": None,
        "principal": "User:alice",
        "host": "10.0.0.1",
        "client_id": "c",
        "software": "librdkafka 2.5",
        "listener": "PLAINTEXT",
        "api": "CreateTopics",
        "broker": 1,
        "resource_type": "topic",
        "resource": "orders",
        "before": None,
        "after": {"partitions": 1},
        "requested": None,
        "count": 1,
    }


def test_what_failed_was_only_requested() -> None:
    told = line(Change("topic", "orders", None, {"partitions": 1}, Error.INVALID_PARTITIONS, "no"))
    assert (told["outcome"], told["error"], told["message"]) == ("failure", "INVALID_PARTITIONS", "no")
    assert (told["after"], told["requested"]) == (None, {"partitions": 1})


@pytest.mark.parametrize("text", ["x" * 100_000, "\ud800" * 30_000, "\0\n\x1b[2J" * 10_000, "ä€😀" * 20_000])
def test_whatever_clients_say_a_line_is_bounded_and_can_be_read(text: str) -> None:
    change = Change("topic", text, {"a": text}, {"a": text}, 12345, text)
    told = line(change, who=WHO._replace(client_id=text, software=text, principal=text))
    assert told["before"].keys() == {"omitted_bytes"}
    assert told["error"] == "12345"
    assert told["client_id"].endswith("characters)")
