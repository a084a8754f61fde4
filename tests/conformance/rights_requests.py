"""One request of each API, about a topic that exists and one that does not: the answer under each set of rules.

`access_rights.json` holds the answers of Apache Kafka 4.3.1. `python -m tests.conformance.rights_requests HOST:PORT
FILE`, run in tests/, rewrites them: the broker must have `authorizer.class.name` set,
`allow.everyone.if.no.acl.found=true` and no topics.
"""

import json
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import UUID

from kafka.record.default_records import DefaultRecordBatchBuilder
from tests.conformance.rights_asker import ADMINISTRATOR, Asker, Right, close_to_others, errors_in, give, take_all

from ottla.base.security import CLUSTER_NAME, Operation, ResourceType
from ottla.protocol.messages import (
    acls,
    cluster,
    configs,
    groups,
    metadata,
    offsets,
    reassignments,
    topics,
    transactions,
)
from ottla.protocol.messages import consumer_groups as consumers
from ottla.protocol.messages import credentials as scram
from ottla.protocol.messages import fetch as fetching
from ottla.protocol.messages import group_offsets as committing
from ottla.protocol.messages import groups as admin
from ottla.protocol.messages import produce as producing
from ottla.protocol.messages import transactions as steps

HIDDEN, NOTHING, KEPT = "hidden", "nothing", "kept"  # one with records to hide, one that is not there, one to delete
NAMES = (HIDDEN, NOTHING)
GROUP, TRANSACTION = "g", "txn"
CREATING = "Metadata that creates"
NO_SUCH_ID = UUID(int=5)
SETTLING_SECONDS = 20.0

TOPIC, CLUSTER = ResourceType.TOPIC, ResourceType.CLUSTER
ALL_TOPICS: dict[str, Right] = {each.name: (each, TOPIC, "*") for each in Operation}
ALL_GROUPS: dict[str, Right] = {each.name: (each, ResourceType.GROUP, "*") for each in Operation}
WRITES_TRANSACTIONS = (Operation.WRITE, ResourceType.TRANSACTIONAL_ID, "*")

RIGHTS: dict[str, tuple[Right, ...]] = {
    "none": (),
    "describe topics": (ALL_TOPICS["DESCRIBE"],),
    "read topics": (ALL_TOPICS["READ"],),
    "write topics": (ALL_TOPICS["WRITE"],),
    "create topics": (ALL_TOPICS["CREATE"], ALL_TOPICS["DESCRIBE"]),
    "delete one topic": ((Operation.DELETE, TOPIC, NOTHING),),
    "alter topics": (ALL_TOPICS["ALTER_CONFIGS"], ALL_TOPICS["ALTER"]),
    "describe groups": (ALL_GROUPS["DESCRIBE"],),
    "read groups": (ALL_GROUPS["READ"],),
    "read groups, describe topics": (ALL_GROUPS["READ"], ALL_TOPICS["DESCRIBE"]),
    "delete groups": (ALL_GROUPS["DELETE"],),
    "transactions": (WRITES_TRANSACTIONS,),
    "transactions, groups": (WRITES_TRANSACTIONS, ALL_GROUPS["READ"]),
    "transactions, topics": (WRITES_TRANSACTIONS, ALL_TOPICS["WRITE"]),
    **{
        f"cluster {operation.name}": ((operation, CLUSTER, CLUSTER_NAME),)
        for operation in (
            Operation.DESCRIBE,
            Operation.ALTER,
            Operation.CLUSTER_ACTION,
            Operation.CREATE,
            Operation.ALTER_CONFIGS,
            Operation.IDEMPOTENT_WRITE,
        )
    },
}

Case = tuple[str, Any, int]


def requests(ids: dict[str, UUID]) -> Iterator[Case]:
    """A name for each, the request, its version."""
    known = (ids[HIDDEN], NO_SUCH_ID)
    yield from reading(known)
    yield from writing(known)
    yield from of_groups(known)
    yield from of_transactions()
    yield from of_topics(ids)
    yield from of_the_cluster()


def reading(ids: tuple[UUID, UUID]) -> Iterator[Case]:
    def ask(topics: list[metadata.MetadataRequestTopic] | None, **more: bool) -> metadata.MetadataRequest:
        return metadata.MetadataRequest(topics=topics, **{"allow_auto_topic_creation": False, **more})

    def row(name: str | None, **more: UUID) -> metadata.MetadataRequestTopic:
        return metadata.MetadataRequestTopic(name=name, **more)

    yield "Metadata", ask([row(name) for name in NAMES], include_topic_authorized_operations=True), 12
    yield CREATING, ask([row("new")], allow_auto_topic_creation=True), 12
    yield "Metadata by id", ask([row(None, topic_id=each) for each in ids]), 12
    yield "Metadata of all", ask(None), 12
    yield "Metadata with rights", ask([], include_cluster_authorized_operations=True), 8
    place = offsets.ListOffsetsPartition(partition_index=0, timestamp=-1, current_leader_epoch=-1)
    rows = [offsets.ListOffsetsTopic(name=name, partitions=[place]) for name in NAMES]
    yield "ListOffsets", offsets.ListOffsetsRequest(replica_id=-1, isolation_level=0, topics=rows), 7
    asked = offsets.OffsetForLeaderPartition(partition=0, current_leader_epoch=-1, leader_epoch=0)
    topics = [offsets.OffsetForLeaderTopic(topic=name, partitions=[asked]) for name in NAMES]
    yield "OffsetForLeaderEpoch", offsets.OffsetForLeaderEpochRequest(replica_id=-2, topics=topics), 4
    named = [fetching.FetchTopic(topic=name, partitions=[fetched()]) for name in NAMES]
    yield "Fetch", fetch(named), 12
    yield "Fetch by id", fetch([fetching.FetchTopic(topic_id=each, partitions=[fetched()]) for each in ids]), 13
    yield (
        "Fetch as a replica",
        fetch([fetching.FetchTopic(topic=name, partitions=[fetched()]) for name in NAMES], 7),
        12,
    )


def fetch(topics: list[fetching.FetchTopic], replica: int = -1) -> fetching.FetchRequest:
    return fetching.FetchRequest(
        replica_id=replica, max_wait_ms=0, min_bytes=0, max_bytes=10_000, session_epoch=-1, topics=topics
    )


def fetched() -> fetching.FetchPartition:
    return fetching.FetchPartition(
        partition=0,
        fetch_offset=0,
        partition_max_bytes=1000,
        current_leader_epoch=-1,
        last_fetched_epoch=-1,
        log_start_offset=-1,
    )


def writing(ids: tuple[UUID, UUID]) -> Iterator[Case]:
    def ask(topics: list[producing.TopicProduceData], transactional_id: str | None = None) -> producing.ProduceRequest:
        return producing.ProduceRequest(transactional_id=transactional_id, acks=1, timeout_ms=1000, topic_data=topics)

    def rows(is_transactional: bool = False) -> list[producing.PartitionProduceData]:
        return [producing.PartitionProduceData(index=0, records=batch(is_transactional))]

    topics = [producing.TopicProduceData(name=name, partition_data=rows()) for name in NAMES]
    yield "Produce", ask(topics), 11
    yield "Produce by id", ask([producing.TopicProduceData(topic_id=each, partition_data=rows()) for each in ids]), 13
    topics = [producing.TopicProduceData(name=name, partition_data=rows(True)) for name in NAMES]
    yield "Produce in a transaction", ask(topics, TRANSACTION), 11


def batch(is_transactional: bool) -> bytes:
    producer = (1, 99_999, 0, 0) if is_transactional else (0, -1, -1, -1)
    builder = DefaultRecordBatchBuilder(2, 0, *producer, 10_000)
    builder.append(0, None, None, b"x", [])
    return bytes(builder.build())


def of_groups(ids: tuple[UUID, UUID]) -> Iterator[Case]:
    yield "FindCoordinator", groups.FindCoordinatorRequest(key_type=0, coordinator_keys=[GROUP]), 4
    yield "JoinGroup", join(), 7
    member = {"group_id": GROUP, "generation_id": 1, "member_id": "m"}
    protocol = {"protocol_type": "consumer", "protocol_name": "range"}
    yield "SyncGroup", groups.SyncGroupRequest(**member, **protocol, assignments=[]), 5
    yield "Heartbeat", groups.HeartbeatRequest(**member), 4
    yield "LeaveGroup", groups.LeaveGroupRequest(group_id=GROUP, members=[groups.MemberIdentity(member_id="m")]), 5
    yield "OffsetCommit", commit([committing.OffsetCommitRequestTopic(name=n, partitions=[offset()]) for n in NAMES]), 9
    by_id = [committing.OffsetCommitRequestTopic(topic_id=each, partitions=[offset()]) for each in ids]
    yield "OffsetCommit by id", commit(by_id), 10
    named = [committing.OffsetFetchRequestTopics(name=name, partition_indexes=[0]) for name in NAMES]
    yield "OffsetFetch", fetch_offsets(named), 9
    yield "OffsetFetch of all", fetch_offsets(None), 9
    place = committing.OffsetDeleteRequestPartition(partition_index=0)
    rows = [committing.OffsetDeleteRequestTopic(name=name, partitions=[place]) for name in NAMES]
    yield "OffsetDelete", committing.OffsetDeleteRequest(group_id=GROUP, topics=rows), 0
    asked = [GROUP, "other"]
    yield "DescribeGroups", admin.DescribeGroupsRequest(groups=asked, include_authorized_operations=True), 5
    yield "ListGroups", admin.ListGroupsRequest(), 4
    yield "DeleteGroups", admin.DeleteGroupsRequest(groups_names=["never"]), 2
    beat = {"group_id": "cg", "member_epoch": 0, "subscribed_topic_names": list(NAMES), "topic_partitions": []}
    yield (
        "ConsumerGroupHeartbeat",
        consumers.ConsumerGroupHeartbeatRequest(**beat, member_id="AAAAAAAAAAAAAAAAAAAAAA", rebalance_timeout_ms=1000),
        0,
    )
    yield (
        "ConsumerGroupHeartbeat that is wrong",
        consumers.ConsumerGroupHeartbeatRequest(**beat, member_id="x", rebalance_timeout_ms=-1),
        0,
    )
    asked = [GROUP, "cg"]
    yield (
        "ConsumerGroupDescribe",
        consumers.ConsumerGroupDescribeRequest(group_ids=asked, include_authorized_operations=True),
        0,
    )


def join() -> groups.JoinGroupRequest:
    return groups.JoinGroupRequest(
        group_id=GROUP,
        session_timeout_ms=10_000,
        rebalance_timeout_ms=10_000,
        member_id="",
        protocol_type="consumer",
        protocols=[groups.JoinGroupRequestProtocol(name="range", metadata=b"")],
    )


def commit(topics: list[committing.OffsetCommitRequestTopic]) -> committing.OffsetCommitRequest:
    return committing.OffsetCommitRequest(group_id=GROUP, generation_id_or_member_epoch=-1, member_id="", topics=topics)


def offset() -> committing.OffsetCommitRequestPartition:
    return committing.OffsetCommitRequestPartition(partition_index=0, committed_offset=1, committed_metadata="")


def fetch_offsets(topics: list[committing.OffsetFetchRequestTopics] | None) -> committing.OffsetFetchRequest:
    group = committing.OffsetFetchRequestGroup(group_id=GROUP, member_id=None, member_epoch=-1, topics=topics)
    return committing.OffsetFetchRequest(groups=[group], require_stable=False)


def of_transactions() -> Iterator[Case]:
    who = {"producer_id": 99_999, "producer_epoch": 0}
    yield (
        "FindCoordinator of a transaction",
        groups.FindCoordinatorRequest(key_type=1, coordinator_keys=[TRANSACTION]),
        4,
    )
    yield "InitProducerId", init_producer(None), 4
    yield "InitProducerId of a transaction", init_producer(TRANSACTION), 4
    topics = [steps.AddPartitionsToTxnTopic(name=name, partitions=[0]) for name in NAMES]
    yield (
        "AddPartitionsToTxn",
        steps.AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=TRANSACTION,
            v3_and_below_producer_id=99_999,
            v3_and_below_producer_epoch=0,
            v3_and_below_topics=topics,
        ),
        3,
    )
    batched = steps.AddPartitionsToTxnTransaction(
        **who, transactional_id=TRANSACTION, verify_only=False, topics=topics[:1]
    )
    yield "AddPartitionsToTxn of a broker", steps.AddPartitionsToTxnRequest(transactions=[batched]), 4
    mine = {**who, "transactional_id": TRANSACTION}
    yield "AddOffsetsToTxn", steps.AddOffsetsToTxnRequest(**mine, group_id=GROUP), 3
    yield "EndTxn", steps.EndTxnRequest(**mine, committed=True), 3
    place = steps.TxnOffsetCommitRequestPartition(partition_index=0, committed_offset=1, committed_metadata="")
    rows = [steps.TxnOffsetCommitRequestTopic(name=name, partitions=[place]) for name in NAMES]
    yield "TxnOffsetCommit", steps.TxnOffsetCommitRequest(**mine, group_id=GROUP, topics=rows), 3
    marked = steps.WritableTxnMarkerTopic(name=HIDDEN, partition_indexes=[0])
    marker = steps.WritableTxnMarker(**who, transaction_result=False, coordinator_epoch=0, topics=[marked])
    yield "WriteTxnMarkers", steps.WriteTxnMarkersRequest(markers=[marker]), 1
    asked = [transactions.DescribeProducersTopicRequest(name=name, partition_indexes=[0]) for name in NAMES]
    yield "DescribeProducers", transactions.DescribeProducersRequest(topics=asked), 0
    yield "DescribeTransactions", steps.DescribeTransactionsRequest(transactional_ids=[TRANSACTION, "never"]), 0
    yield "ListTransactions", steps.ListTransactionsRequest(state_filters=[], producer_id_filters=[]), 0


def init_producer(transactional_id: str | None) -> transactions.InitProducerIdRequest:
    return transactions.InitProducerIdRequest(
        transactional_id=transactional_id, transaction_timeout_ms=1000, producer_id=-1, producer_epoch=-1
    )


def of_topics(ids: dict[str, UUID]) -> Iterator[Case]:
    new = [creatable(name) for name in NAMES]
    yield "CreateTopics", topics.CreateTopicsRequest(timeout_ms=1000, validate_only=True, topics=new), 7
    for title, state in (
        ("DeleteTopics of none", topics.DeleteTopicState(name=NOTHING)),
        ("DeleteTopics", topics.DeleteTopicState(name=KEPT)),
        ("DeleteTopics by id", topics.DeleteTopicState(name=None, topic_id=ids[KEPT])),
        ("DeleteTopics by no id", topics.DeleteTopicState(name=None, topic_id=NO_SUCH_ID)),
    ):
        yield title, topics.DeleteTopicsRequest(timeout_ms=1000, topics=[state]), 6
    more = [topics.CreatePartitionsTopic(name=name, count=3, assignments=None) for name in NAMES]
    yield (
        "CreatePartitions",
        topics.CreatePartitionsRequest(timeout_ms=1000, validate_only=True, topics=more),
        3,
    )
    place = topics.DeleteRecordsPartition(partition_index=0, offset=0)
    rows = [topics.DeleteRecordsTopic(name=name, partitions=[place]) for name in NAMES]
    yield "DeleteRecords", topics.DeleteRecordsRequest(timeout_ms=1000, topics=rows), 2
    asked = [topics.DescribeTopicPartitionsTopic(name=name) for name in NAMES]
    yield "DescribeTopicPartitions", topics.DescribeTopicPartitionsRequest(topics=asked), 0
    yield "DescribeTopicPartitions of all", topics.DescribeTopicPartitionsRequest(topics=[]), 0
    shown = [
        configs.DescribeConfigsResource(resource_type=kind, resource_name=name, configuration_keys=["retention.ms"])
        for kind, name in ((2, HIDDEN), (2, NOTHING), (4, "1"), (8, "1"), (16, "x"), (32, GROUP))
    ]
    yield "DescribeConfigs", configs.DescribeConfigsRequest(resources=shown), 4
    setting = configs.IncrementalAlterableConfig(name="retention.ms", config_operation=0, value="1000")
    changed = [
        configs.IncrementalAlterConfigsResource(resource_type=kind, resource_name=name, configs=[setting])
        for kind, name in ((2, HIDDEN), (2, NOTHING), (16, "x"), (32, GROUP))
    ]
    yield "IncrementalAlterConfigs", configs.IncrementalAlterConfigsRequest(validate_only=True, resources=changed), 1
    replaced = [configs.AlterConfigsResource(resource_type=2, resource_name=name, configs=[]) for name in NAMES]
    yield "AlterConfigs", configs.AlterConfigsRequest(validate_only=True, resources=replaced), 2


def creatable(name: str) -> topics.CreatableTopic:
    return topics.CreatableTopic(name=name, num_partitions=1, replication_factor=1, assignments=[], configs=[])


def of_the_cluster() -> Iterator[Case]:
    yield (
        "DescribeCluster",
        cluster.DescribeClusterRequest(include_cluster_authorized_operations=True, endpoint_type=1),
        1,
    )
    yield "ListConfigResources", configs.ListConfigResourcesRequest(resource_types=[2]), 1
    yield "DescribeLogDirs", topics.DescribeLogDirsRequest(topics=[]), 4
    moved = [topics.AlterReplicaLogDirTopic(name=name, partitions=[0]) for name in NAMES]
    folder = topics.AlterReplicaLogDir(path="/nowhere", topics=moved)
    yield "AlterReplicaLogDirs", topics.AlterReplicaLogDirsRequest(dirs=[folder]), 2
    elected = [reassignments.TopicPartitions(topic=name, partitions=[0]) for name in NAMES]
    yield (
        "ElectLeaders",
        reassignments.ElectLeadersRequest(election_type=0, topic_partitions=elected, timeout_ms=1000),
        2,
    )
    place = reassignments.ReassignablePartition(partition_index=0, replicas=[1])
    moved = reassignments.ReassignableTopic(name=NOTHING, partitions=[place])
    yield (
        "AlterPartitionReassignments",
        reassignments.AlterPartitionReassignmentsRequest(timeout_ms=1000, topics=[moved]),
        0,
    )
    yield "ListPartitionReassignments", reassignments.ListPartitionReassignmentsRequest(timeout_ms=1000, topics=None), 0
    yield "UpdateFeatures", cluster.UpdateFeaturesRequest(timeout_ms=1000, validate_only=True, feature_updates=[]), 1
    yield "UnregisterBroker", cluster.UnregisterBrokerRequest(broker_id=77), 0
    partition = cluster.DescribeQuorumPartition(partition_index=0)
    quorum = cluster.DescribeQuorumTopic(topic_name="__cluster_metadata", partitions=[partition])
    yield "DescribeQuorum", cluster.DescribeQuorumRequest(topics=[quorum]), 1
    users = [scram.ScramUserName(name="u")]
    yield "DescribeUserScramCredentials", scram.DescribeUserScramCredentialsRequest(users=users), 0
    gone = [scram.ScramCredentialDeletion(name="u", mechanism=1)]
    yield "AlterUserScramCredentials", scram.AlterUserScramCredentialsRequest(deletions=gone), 0
    yield "DescribeClientQuotas", configs.DescribeClientQuotasRequest(components=[], strict=False), 1
    rule = configs.QuotaAlteration(
        entity=[configs.QuotaEntity(entity_type="client-id", entity_name="nobody")],
        ops=[configs.QuotaOperation(key="producer_byte_rate", value=1.0, remove=False)],
    )
    yield "AlterClientQuotas", configs.AlterClientQuotasRequest(entries=[rule], validate_only=True), 1
    wanted = {"resource_type_filter": 2, "pattern_type_filter": 1, "operation": 1, "permission_type": 1}
    yield "DescribeAcls", acls.DescribeAclsRequest(**wanted, resource_name_filter="none"), 3
    wrong = [
        acls.AclCreation(
            resource_type=kind,
            resource_name=name,
            resource_pattern_type=3,
            principal=principal,
            host="*",
            operation=3,
            permission_type=3,
        )
        for kind, name, principal in ((4, "x", "User:a"), (2, "", "User:a"), (2, "x", "nobody"))
    ]
    yield "CreateAcls", acls.CreateAclsRequest(creations=wrong), 3
    yield (
        "DeleteAcls",
        acls.DeleteAclsRequest(filters=[acls.DeleteAclsFilter(**wanted, resource_name_filter="none")]),
        3,
    )


def told(answer: Any) -> list[str]:
    """What an answer reveals: its errors, the names in its lists, the authorized operations."""
    found = errors_in(answer)
    for field in ("topics", "groups", "transaction_states"):
        for row in getattr(answer, field, None) or ():
            name = getattr(row, "name", None) or getattr(row, "group_id", None)
            if name is None or name.startswith("__"):
                continue
            for detail in ("topic_authorized_operations", "authorized_operations", "topic_config_error_code"):
                found += [f"{name} {detail}={getattr(row, detail)}"] if hasattr(row, detail) else []
            found += [f"{name} has an id"] if getattr(row, "topic_id", UUID(int=0)).int else []
    found += [
        f"offsets of {each.name}" for group in getattr(answer, "groups", ()) for each in getattr(group, "topics", ())
    ]
    found += [f"transaction {row.transactional_id}" for row in getattr(answer, "transaction_states", ())]
    rights = getattr(answer, "cluster_authorized_operations", None)
    return sorted([*found, f"cluster operations={rights}"] if rights is not None else found)


def prepare(administrator: Asker) -> dict[str, UUID]:
    """Topics, a group with an offset, a transactional id, and rights for the administrator alone."""
    close_to_others(administrator)
    new = [creatable(name) for name in (HIDDEN, KEPT)]
    administrator.ask(topics.CreateTopicsRequest(timeout_ms=5000, topics=new), 7)
    mine = [committing.OffsetCommitRequestTopic(name=HIDDEN, partitions=[offset()])]
    for request, version in (
        (groups.FindCoordinatorRequest(key_type=0, coordinator_keys=[GROUP]), 4),
        (groups.FindCoordinatorRequest(key_type=1, coordinator_keys=[TRANSACTION]), 4),
        (commit(mine), 9),
        (init_producer(TRANSACTION), 4),
    ):
        deadline = time.monotonic() + SETTLING_SECONDS
        while errors_in(answer := administrator.ask(request, version)):
            assert time.monotonic() < deadline, answer
            time.sleep(0.1)
    listed = administrator.ask(metadata.MetadataRequest(topics=None, allow_auto_topic_creation=False), 12)
    return {topic.name: topic.topic_id for topic in listed.topics}


def answers_under(administrator: Asker, bootstrap: str, rights: tuple[Right, ...], ids: dict[str, UUID]) -> Any:
    """What a client with these rights learns, by request; answers that reveal nothing are left out."""
    take_all(administrator)
    if rights:
        give(administrator, *rights)
    with Asker(bootstrap) as stranger:
        found = {
            name: told(stranger.ask(request, version))
            for name, request, version in requests(ids)
            if not (name == CREATING and ALL_TOPICS["CREATE"] in rights)  # it may be there now, or soon
        }
    return {name: each for name, each in found.items() if each}


def record(bootstrap: str, path: str) -> None:
    with Asker(bootstrap, ADMINISTRATOR) as administrator:
        ids = prepare(administrator)
        recorded = {}
        for name, rights in RIGHTS.items():
            recorded[name] = answers_under(administrator, bootstrap, rights, ids)
            time.sleep(0.5)
        take_all(administrator)
    Path(path).write_text(json.dumps(recorded, indent=1) + "\n")


if __name__ == "__main__":
    record(*sys.argv[1:])
