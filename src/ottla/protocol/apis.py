"""The APIs with message classes: keys, names, versions.

A broker's table of handlers determines which of them it serves. The modules with the classes are imported on first use:
a broker handles its first request before it has imported all of them.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any, Final

from ottla.protocol.schema import NO_VERSION


class Api:
    """One API.

    min_version..max_version is the range that Apache Kafka 4.3 announces. As in Kafka, Produce is announced from
    version 0 on, because old versions of librdkafka would give up otherwise, but has messages only from version 3 on.
    """

    request: type[Any]
    response: type[Any]

    def __init__(
        self, key: int, name: str, module: str, min_version: int, max_version: int, flexible_since: int = NO_VERSION
    ) -> None:
        self.key = key
        self.name = name
        self.module = module
        self.min_version = min_version
        self.max_version = max_version
        self.flexible_since = flexible_since

    def __getattr__(self, attribute: str) -> Any:
        """Import the message classes on first use; called for a missing attribute."""
        if attribute not in ("request", "response"):
            raise AttributeError(attribute)
        messages = import_module(f"ottla.protocol.messages.{self.module}")
        self.request = getattr(messages, f"{self.name}Request")
        self.response = getattr(messages, f"{self.name}Response")
        return self.__dict__[attribute]

    def has_version(self, version: int) -> bool:
        return self.min_version <= version <= self.max_version

    def __repr__(self) -> str:
        return f"<Api {self.name} key={self.key} v{self.min_version}-{self.max_version}>"


APIS: Final[dict[int, Api]] = {
    api.key: api
    for api in (
        Api(0, "Produce", "produce", 0, 13, 9),
        Api(1, "Fetch", "fetch", 4, 18, 12),
        Api(2, "ListOffsets", "offsets", 1, 11, 6),
        Api(3, "Metadata", "metadata", 0, 13, 9),
        Api(8, "OffsetCommit", "group_offsets", 2, 10, 8),
        Api(9, "OffsetFetch", "group_offsets", 1, 10, 6),
        Api(10, "FindCoordinator", "groups", 0, 6, 3),
        Api(11, "JoinGroup", "groups", 0, 9, 6),
        Api(12, "Heartbeat", "groups", 0, 4, 4),
        Api(13, "LeaveGroup", "groups", 0, 5, 4),
        Api(14, "SyncGroup", "groups", 0, 5, 4),
        Api(15, "DescribeGroups", "groups", 0, 6, 5),
        Api(16, "ListGroups", "groups", 0, 5, 3),
        Api(17, "SaslHandshake", "credentials", 0, 1),
        Api(18, "ApiVersions", "cluster", 0, 4, 3),
        Api(19, "CreateTopics", "topics", 2, 7, 5),
        Api(20, "DeleteTopics", "topics", 1, 6, 4),
        Api(21, "DeleteRecords", "topics", 0, 2, 2),
        Api(22, "InitProducerId", "transactions", 0, 5, 2),
        Api(23, "OffsetForLeaderEpoch", "offsets", 2, 4, 4),
        Api(24, "AddPartitionsToTxn", "transactions", 0, 5, 3),
        Api(25, "AddOffsetsToTxn", "transactions", 0, 4, 3),
        Api(26, "EndTxn", "transactions", 0, 5, 3),
        Api(27, "WriteTxnMarkers", "transactions", 1, 2, 1),
        Api(28, "TxnOffsetCommit", "transactions", 0, 5, 3),
        Api(29, "DescribeAcls", "acls", 1, 3, 2),
        Api(30, "CreateAcls", "acls", 1, 3, 2),
        Api(31, "DeleteAcls", "acls", 1, 3, 2),
        Api(32, "DescribeConfigs", "configs", 1, 4, 4),
        Api(33, "AlterConfigs", "configs", 0, 2, 2),
        Api(34, "AlterReplicaLogDirs", "topics", 1, 2, 2),
        Api(35, "DescribeLogDirs", "topics", 1, 5, 2),
        Api(36, "SaslAuthenticate", "credentials", 0, 2, 2),
        Api(37, "CreatePartitions", "topics", 0, 3, 2),
        Api(38, "CreateDelegationToken", "credentials", 1, 3, 2),
        Api(39, "RenewDelegationToken", "credentials", 1, 2, 2),
        Api(40, "ExpireDelegationToken", "credentials", 1, 2, 2),
        Api(41, "DescribeDelegationToken", "credentials", 1, 3, 2),
        Api(42, "DeleteGroups", "groups", 0, 2, 2),
        Api(43, "ElectLeaders", "reassignments", 0, 2, 2),
        Api(44, "IncrementalAlterConfigs", "configs", 0, 1, 1),
        Api(45, "AlterPartitionReassignments", "reassignments", 0, 1, 0),
        Api(46, "ListPartitionReassignments", "reassignments", 0, 0, 0),
        Api(47, "OffsetDelete", "group_offsets", 0, 0),
        Api(48, "DescribeClientQuotas", "configs", 0, 1, 1),
        Api(49, "AlterClientQuotas", "configs", 0, 1, 1),
        Api(50, "DescribeUserScramCredentials", "credentials", 0, 0, 0),
        Api(51, "AlterUserScramCredentials", "credentials", 0, 0, 0),
        Api(55, "DescribeQuorum", "cluster", 0, 2, 0),
        Api(57, "UpdateFeatures", "cluster", 0, 2, 0),
        Api(60, "DescribeCluster", "cluster", 0, 2, 0),
        Api(61, "DescribeProducers", "transactions", 0, 0, 0),
        Api(64, "UnregisterBroker", "cluster", 0, 0, 0),
        Api(65, "DescribeTransactions", "transactions", 0, 0, 0),
        Api(66, "ListTransactions", "transactions", 0, 2, 0),
        Api(68, "ConsumerGroupHeartbeat", "consumer_groups", 0, 1, 0),
        Api(69, "ConsumerGroupDescribe", "consumer_groups", 0, 1, 0),
        Api(71, "GetTelemetrySubscriptions", "telemetry", 0, 0, 0),
        Api(72, "PushTelemetry", "telemetry", 0, 0, 0),
        Api(74, "ListConfigResources", "configs", 0, 1, 0),
        Api(75, "DescribeTopicPartitions", "topics", 0, 0, 0),
    )
}

# Only for brokers of a cluster among themselves: never announced to clients.
BROKER_APIS: Final[dict[int, Api]] = {
    api.key: api
    for api in (
        Api(7, "ControlledShutdown", "inter_broker", 1, 3, 3),
        Api(56, "AlterPartition", "inter_broker", 2, 3, 0),
        Api(58, "Envelope", "inter_broker", 0, 0, 0),
        Api(67, "AllocateProducerIds", "inter_broker", 0, 0, 0),
        Api(10000, "ClusterPoll", "inter_broker", 0, 1, 0),
        Api(10001, "WriteAudit", "inter_broker", 0, 0, 0),
    )
}

ALL_APIS: Final[dict[int, Api]] = {**APIS, **BROKER_APIS}
