"""`kafka-run-class.sh CLASS ...`: runs a tool by the name of its Java class, as old scripts do.

`kafka-run-class.sh kafka.tools.GetOffsetShell --broker-list localhost:9092 --topic test --time -1`
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module

from ottla.cli.terminal import EXIT_FAILED, warn

TOOL = "kafka-run-class.sh"
USAGE = f"USAGE: {TOOL} [-daemon] [-name servicename] [-loggc] classname [opts]"
# Simple class name -> module. The classes moved from kafka.admin and kafka.tools to org.apache.kafka.tools.
MODULES = {
    "TopicCommand": "ottla.cli.kafka.topics",
    "ConfigCommand": "ottla.cli.kafka.configs",
    "ConsumerGroupCommand": "ottla.cli.kafka.groups",
    "GroupsCommand": "ottla.cli.kafka.group_list",
    "TransactionsCommand": "ottla.cli.kafka.transactions",
    "GetOffsetShell": "ottla.cli.kafka.get_offsets",
    "DelegationTokenCommand": "ottla.cli.kafka.delegation_tokens",
    "DeleteRecordsCommand": "ottla.cli.kafka.delete_records",
    "LogDirsCommand": "ottla.cli.kafka.log_dirs",
    "ReassignPartitionsCommand": "ottla.cli.kafka.reassign_partitions",
    "LeaderElectionCommand": "ottla.cli.kafka.leader_election",
    "BrokerApiVersionsCommand": "ottla.cli.kafka.broker_api_versions",
    "ClusterTool": "ottla.cli.kafka.cluster",
    "FeatureCommand": "ottla.cli.kafka.features",
    "MetadataQuorumCommand": "ottla.cli.kafka.metadata_quorum",
    "StorageTool": "ottla.cli.kafka.storage",
    "ConsoleProducer": "ottla.cli.kafka.produce",
    "ConsoleConsumer": "ottla.cli.kafka.consume",
    "ProducerPerformance": "ottla.cli.kafka.perf_produce",
    "ConsumerPerformance": "ottla.cli.kafka.perf_consume",
    "DumpLogSegments": "ottla.cli.kafka.dump_log",
    "Kafka": "ottla.cli.kafka.server_scripts",
}
PACKAGES = (
    "kafka",
    "kafka.admin",
    "kafka.tools",
    "org.apache.kafka.tools",
    "org.apache.kafka.tools.consumer",
    "org.apache.kafka.tools.consumer.group",
    "org.apache.kafka.tools.reassign",
)


def run(arguments: Sequence[str]) -> int:
    words, flags = list(arguments), []
    while words and words[0] in ("-daemon", "-loggc", "-name"):
        flags += words[: 2 if words[0] == "-name" else 1]
        del words[: 2 if words[0] == "-name" else 1]
    if not words:
        warn(USAGE)
        return EXIT_FAILED
    package, _, name = words[0].rpartition(".")
    if name not in MODULES or package not in PACKAGES:
        warn(f"Error: Could not find or load main class {words[0]}")
        return EXIT_FAILED
    module = import_module(MODULES[name])
    # Only a broker accepts -daemon and -name; the other tools run in the foreground.
    code: int = module.start_broker([*flags, *words[1:]]) if name == "Kafka" else module.run(words[1:])
    return code
