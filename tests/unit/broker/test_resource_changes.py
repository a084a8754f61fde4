"""Audit events of administrative requests: each resource with its state before and after, without secrets."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest
from tests.virtual_time import LoopClock, run

from ottla.base.audit_events import EVENTS
from ottla.base.broker_settings import BrokerSettings
from ottla.base.errors import Error
from ottla.broker.audit import request_auditor
from ottla.broker.audit.event import LINE_BYTES_MAX, Change, ClientIdentity, encode_event
from ottla.broker.audit.request_auditor import AUDITED_APIS, OFFSETS_RESET, changes_of
from ottla.broker.audit.resource_changes import HIDDEN, AuditedRequest
from ottla.broker.handlers.table import APIS
from ottla.broker.security.delegation_tokens import DelegationTokenManager
from ottla.controller.decisions.config_changes import ConfigResourceType, OperationType
from ottla.controller.image import MetadataCache, MetadataImage, PartitionImage, TopicImage
from ottla.protocol.messages import acls, cluster, configs, credentials, group_offsets, groups, reassignments, topics
from ottla.security.delegation_tokens import DelegationToken, password_of_hmac, token_hmac
from ottla.security.scram_credentials import make_credential

SETTINGS = BrokerSettings({"node.id": "1", "broker.id": "1"})
ORDERS = TopicImage("orders", UUID(int=7), (PartitionImage(1, 0, (1, 2), (1, 2)), PartitionImage(2, 0, (1, 2), (2, 1))))
IMAGE = MetadataImage().with_topics([ORDERS], configs={"orders": {"retention.ms": "1000", "cleanup.policy": "delete"}})
TOPIC, BROKER = ConfigResourceType.TOPIC, ConfigResourceType.BROKER
WHO = ClientIdentity("User:alice", "10.0.0.1", "c", "librdkafka 2.5", "PLAINTEXT", "CreateTopics")


def found(
    key: int,
    request: Any,
    response: Any,
    before: MetadataImage = IMAGE,
    after: MetadataImage | None = None,
    seen: Any = None,
) -> list[Change]:
    asked = AuditedRequest(request, response, before, after or before, SETTINGS, seen if seen is not None else {})
    return changes_of(AUDITED_APIS[key].describe, asked)


def test_every_audited_api_is_served_and_its_event_is_known() -> None:
    assert AUDITED_APIS.keys() <= {row.key for row in APIS}
    assert {how.event for how in AUDITED_APIS.values()} <= EVENTS.keys()


def test_a_created_topic_is_described_as_created_and_a_refused_one_as_requested() -> None:
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


def test_a_denied_request_is_no_failed_change() -> None:
    request = topics.CreateTopicsRequest(
        topics=[topics.CreatableTopic(name="n", num_partitions=1, replication_factor=1)]
    )
    row = topics.CreatableTopicResult(name="n", error_code=Error.TOPIC_AUTHORIZATION_FAILED)
    assert found(19, request, topics.CreateTopicsResponse(topics=[row])) == []


def test_a_topic_deleted_by_id_has_its_name_and_its_old_state() -> None:
    request = topics.DeleteTopicsRequest(topics=[topics.DeleteTopicState(topic_id=UUID(int=7))], timeout_ms=1)
    rows = [topics.DeletableTopicResult(name="orders", topic_id=UUID(int=7))]
    (change,) = found(20, request, topics.DeleteTopicsResponse(responses=rows), after=MetadataImage())
    assert change.resource == "orders"
    assert change.before is not None
    assert change.before["configs"] == {"retention.ms": "1000", "cleanup.policy": "delete"}
    assert change.after is None


def test_created_partitions_are_described() -> None:
    request = topics.CreatePartitionsRequest(
        topics=[topics.CreatePartitionsTopic(name="orders", count=6)], timeout_ms=1
    )
    response = topics.CreatePartitionsResponse(results=[topics.CreatePartitionsTopicResult(name="orders")])
    assert found(37, request, response) == [Change("topic", "orders", {"partitions": 2}, {"partitions": 6})]


def test_deleted_records_have_one_change_per_error() -> None:
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


def test_settings_are_described_before_and_after() -> None:
    change = altered(
        TOPIC,
        "orders",
        (OperationType.SET, "retention.ms", "5"),
        (OperationType.DELETE, "segment.bytes", None),
        (OperationType.APPEND, "cleanup.policy", "compact"),
    )
    assert change.before == {"retention.ms": "1000", "segment.bytes": None, "cleanup.policy": "delete"}
    assert change.after == {"retention.ms": "5", "segment.bytes": None, "cleanup.policy": "delete,compact"}


def test_alter_configs_describes_removed_settings() -> None:
    rows = [configs.AlterableConfig(name="retention.ms", value="5")]
    resource = configs.AlterConfigsResource(resource_type=TOPIC, resource_name="orders", configs=rows)
    answer = configs.AlterConfigsResourceResponse(resource_type=TOPIC, resource_name="orders")
    request = configs.AlterConfigsRequest(resources=[resource])
    (change,) = found(33, request, configs.AlterConfigsResponse(responses=[answer]))
    assert change.before == {"retention.ms": "1000", "cleanup.policy": "delete"}
    assert change.after == {"retention.ms": "5", "cleanup.policy": None}


def test_possible_secrets_are_hidden_whether_the_change_was_accepted_or_not() -> None:
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
        assert "geheim" not in repr(change), "not in the message either"
        assert change.after["ssl.keystore.password"] == HIDDEN
        assert change.after["log.cleaner.threads"] == "2"
    assert altered(TOPIC, "orders", (OperationType.SET, "password", "x"), error=40).after == {"password": HIDDEN}


def test_log_levels_are_described() -> None:
    rows = [configs.IncrementalAlterableConfig(name="root", config_operation=OperationType.SET, value="DEBUG")]
    kind = ConfigResourceType.BROKER_LOGGER
    resource = configs.IncrementalAlterConfigsResource(resource_type=kind, resource_name="1", configs=rows)
    answer = configs.AlterConfigsResourceResponse(resource_type=kind, resource_name="1")
    request = configs.IncrementalAlterConfigsRequest(resources=[resource])
    response = configs.IncrementalAlterConfigsResponse(responses=[answer])
    (change,) = found(44, request, response, seen={"root": "INFO"})
    assert change == Change("broker-logger", "1", {"root": "INFO"}, {"root": "DEBUG"})


def test_created_and_deleted_acls_are_described() -> None:
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


def test_a_credential_is_described_by_its_mechanism_only() -> None:
    kept = make_credential("SCRAM-SHA-256", b"geheim", b"salz", 4096).to_text()
    before = IMAGE.with_user_configs({"bob": {"SCRAM-SHA-256": kept, "consumer_byte_rate": "5"}})
    request = credentials.AlterUserScramCredentialsRequest(
        deletions=[credentials.ScramCredentialDeletion(name="bob", mechanism=1)],
        upsertions=[
            credentials.ScramCredentialUpsertion(
                name="bob", mechanism=2, iterations=8192, salt=b"pfeffer", salted_password=b"geheim"
            )
        ],
    )
    response = credentials.AlterUserScramCredentialsResponse(results=[credentials.ScramAlterationResult(user="bob")])
    (change,) = found(51, request, response, before)
    assert change == Change(
        "user", "bob", {"iterations": {"SCRAM-SHA-256": 4096}}, {"iterations": {"SCRAM-SHA-512": 8192}}
    )


def test_quotas_are_described_before_and_after() -> None:
    entity = [configs.QuotaEntity(entity_type="user", entity_name="bob")]
    entity.append(configs.QuotaEntity(entity_type="client-id", entity_name=None))
    operations = [
        configs.QuotaOperation(key="producer_byte_rate", value=1e6),
        configs.QuotaOperation(key="consumer_byte_rate", value=0.0, remove=True),
    ]
    request = configs.AlterClientQuotasRequest(entries=[configs.QuotaAlteration(entity=entity, ops=operations)])
    response = configs.AlterClientQuotasResponse(entries=[configs.QuotaAlterationResult(entity=entity)])
    before = IMAGE.with_quota_configs({"users/bob/clients/<default>": {"consumer_byte_rate": "5"}})
    (change,) = found(49, request, response, before)
    assert (change.resource, change.before, change.after) == (
        "user=bob,client-id=<default>",
        {"producer_byte_rate": None, "consumer_byte_rate": 5.0},
        {"producer_byte_rate": 1e6, "consumer_byte_rate": None},
    )


def test_an_entity_that_is_named_twice_is_refused_twice() -> None:
    entity = [configs.QuotaEntity(entity_type="user", entity_name="bob")]
    other = [configs.QuotaEntity(entity_type="unknown-type", entity_name="x")]
    rows = [configs.QuotaAlteration(entity=each, ops=[]) for each in (entity, entity, other)]
    answers = [
        configs.QuotaAlterationResult(entity=entity, error_code=42, error_message="duplicate"),
        configs.QuotaAlterationResult(entity=other, error_code=42, error_message="unknown"),
    ]
    changes = found(
        49,
        configs.AlterClientQuotasRequest(entries=rows),
        configs.AlterClientQuotasResponse(entries=answers),
    )
    assert [(each.resource, each.message) for each in changes] == [
        ("user=bob", "duplicate"),
        ("user=bob", "duplicate"),
        ("unknown-type=x", "unknown"),
    ]


def test_moves_and_elections_describe_replicas_and_leaders() -> None:
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
    results = [reassignments.ElectionPartitionResult(partition_id=0)]
    results.append(reassignments.ElectionPartitionResult(partition_id=1, error_code=Error.ELECTION_NOT_NEEDED))
    (election,) = found(
        43,
        reassignments.ElectLeadersRequest(election_type=1),
        reassignments.ElectLeadersResponse(
            replica_election_results=[reassignments.ReplicaElectionResult(topic="orders", partition_result=results)]
        ),
        after=IMAGE.with_topics([ORDERS._replace(partitions=elected)]),
    )
    assert election.before == {"leaders": {"0": 1}}
    assert election.after == {"election": "unclean", "leaders": {"0": 2}}


def test_a_completely_refused_request_is_a_change_of_the_cluster() -> None:
    response = reassignments.AlterPartitionReassignmentsResponse(error_code=Error.REQUEST_TIMED_OUT)
    (change,) = found(45, reassignments.AlterPartitionReassignmentsRequest(), response)
    assert (change.resource_type, change.error) == ("cluster", Error.REQUEST_TIMED_OUT)


def test_groups_offsets_directories_and_features_are_described() -> None:
    seen: Any = {"g": {"orders": {"0": 17}}}
    response: Any = groups.DeleteGroupsResponse(results=[groups.DeletableGroupResult(group_id="g")])
    (group,) = found(42, groups.DeleteGroupsRequest(groups_names=["g"]), response, seen=seen)
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
    asked = AuditedRequest(request, response, IMAGE, IMAGE, SETTINGS, seen["g"])
    assert changes_of(OFFSETS_RESET.describe, asked) == [
        Change("group", "g", {"offsets": {"orders": {"0": 17}}}, {"offsets": {"orders": {"0": 3}}})
    ]
    folder = topics.AlterReplicaLogDir(
        path="/b", topics=[topics.AlterReplicaLogDirTopic(name="orders", partitions=[0])]
    )
    moved = topics.AlterReplicaLogDirTopicResult(
        topic_name="orders", partitions=[topics.AlterReplicaLogDirPartitionResult(partition_index=0)]
    )
    (move,) = found(
        34,
        topics.AlterReplicaLogDirsRequest(dirs=[folder]),
        topics.AlterReplicaLogDirsResponse(results=[moved]),
        seen={("orders", 0): "/a"},
    )
    assert (move.before, move.after) == ({"log_dirs": {"0": "/a"}}, {"log_dirs": {"0": "/b"}})
    update = cluster.FeatureUpdateKey(feature="transaction.version", max_version_level=1)
    before = IMAGE.with_features({"transaction.version": 2}, 1)
    (level,) = found(
        57, cluster.UpdateFeaturesRequest(feature_updates=[update]), cluster.UpdateFeaturesResponse(), before
    )
    assert level == Change("feature", "transaction.version", {"level": 2}, {"level": 1})


# ---- lines


def line(change: Change, **details: Any) -> Any:
    made = encode_event(
        "topic.create", details.pop("who", WHO), change, id_="1-2-3", time_ms=1_700_000_000_123, broker=1, **details
    )
    assert len(made.value) <= LINE_BYTES_MAX
    return json.loads(made.value)


def test_a_line_contains_all_fields() -> None:
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


def test_a_failed_change_is_reported_as_requested() -> None:
    told = line(Change("topic", "orders", None, {"partitions": 1}, Error.INVALID_PARTITIONS, "no"))
    assert (told["outcome"], told["error"], told["message"]) == ("failure", "INVALID_PARTITIONS", "no")
    assert (told["after"], told["requested"]) == (None, {"partitions": 1})


@pytest.mark.parametrize("text", ["x" * 100_000, "\ud800" * 30_000, "\0\n\x1b[2J" * 10_000, "ä€😀" * 20_000])
def test_a_line_is_bounded_and_readable_for_any_client_text(text: str) -> None:
    change = Change("topic", text, {"a": text}, {"a": text}, 12345, text)
    told = line(change, who=WHO._replace(client_id=text, software=text, principal=text))
    assert told["before"].keys() == {"omitted_bytes"}
    assert told["error"] == "12345"
    assert told["client_id"].endswith("characters)")


# ---- delegation tokens: the token id, never its HMAC

SECRET = "top-secret"
TOKEN = DelegationToken("abc", "User:alice", "User:alice", ("User:bob",), 1, 9_000, 5_000)
TOKEN_IMAGE = MetadataImage(delegation_tokens={"abc": TOKEN})
HMAC = token_hmac(SECRET, "abc")
RENEW, EXPIRE = 39, 40


def seen_by(key: int, request: Any, secret: str = SECRET) -> Any:
    async def scene() -> Any:
        images = MetadataCache()
        images.publish(TOKEN_IMAGE)
        broker = SimpleNamespace(delegation_tokens=DelegationTokenManager(secret, images, LoopClock()))
        look = AUDITED_APIS[key].read_state
        assert look is request_auditor.read_token_id
        return await look(request, SimpleNamespace(broker=broker))  # type: ignore[arg-type]

    return run(scene())


def renewal(period_ms: int, hmac: bytes = HMAC) -> Any:
    return credentials.RenewDelegationTokenRequest(hmac=hmac, renew_period_ms=period_ms)


def expiry(period_ms: int, hmac: bytes = HMAC) -> Any:
    return credentials.ExpireDelegationTokenRequest(hmac=hmac, expiry_time_period_ms=period_ms)


def told(key: int, request: Any, expires_ms: int, error: int = Error.NONE, **how: str) -> Change:
    kinds = (credentials.RenewDelegationTokenResponse, credentials.ExpireDelegationTokenResponse)
    response = kinds[key == EXPIRE](error_code=error, expiry_timestamp_ms=expires_ms)
    (change,) = found(key, request, response, before=TOKEN_IMAGE, seen=seen_by(key, request, **how))
    line = encode_event("token", ClientIdentity(*[None] * 6), change, id_="1", time_ms=0, broker=1).value.decode()
    for password in (HMAC.hex(), password_of_hmac(HMAC), json.dumps(password_of_hmac(HMAC))[1:-1]):
        assert password not in line
    return change


def test_renewals_and_expirations_name_the_token_its_owner_and_its_times() -> None:
    before = {"owner": "User:alice", "expires_ms": 5_000}
    assert told(RENEW, renewal(-1), 8_000) == Change("token", "abc", before, {**before, "expires_ms": 8_000})
    assert told(EXPIRE, expiry(10), 4_000) == Change("token", "abc", before, {**before, "expires_ms": 4_000})
    assert told(EXPIRE, expiry(-1), 4_000) == Change("token", "abc", before, None), "it is gone"


@pytest.mark.parametrize(("key", "make"), [(RENEW, renewal), (EXPIRE, expiry)])
def test_a_refused_client_is_reported_with_the_token_and_the_requested_change(key: int, make: Any) -> None:
    change = told(key, make(77), 0, Error.DELEGATION_TOKEN_OWNER_MISMATCH)
    assert (change.resource, change.before) == ("abc", {"owner": "User:alice", "expires_ms": 5_000})
    assert (change.error, change.after) == (Error.DELEGATION_TOKEN_OWNER_MISMATCH, {"period_ms": 77})


@pytest.mark.parametrize("secret", [SECRET, "another", ""])
def test_an_unknown_hmac_names_no_token(secret: str) -> None:
    change = told(RENEW, renewal(77, b"forged"), 0, Error.DELEGATION_TOKEN_NOT_FOUND, secret=secret)
    assert change == Change("token", None, None, {"period_ms": 77}, Error.DELEGATION_TOKEN_NOT_FOUND)
