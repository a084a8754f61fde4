"""`kafka-run-class.sh CLASS ...`: old scripts start the tools by the names of their Java classes.

`kafka-run-class.sh kafka.tools.GetOffsetShell --broker-list localhost:9092 --topic test --time -1`
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module

from ottla.cli.terminal import EXIT_FAILED, warn

TOOL = "kafka-run-class.sh"
USAGE = f"USAGE: {TOOL} [-daemon] [-name servicename] [-loggc] classname [opts]"
# Simple name of the class -> our module; the package moved from kafka.admin and kafka.tools to org.apache.kafka.tools.
MODULES = {
    "TopicCommand": "ottla.cli.topics_kafka",
    "ConfigCommand": "ottla.cli.configs_kafka",
    "ConsumerGroupCommand": "ottla.cli.groups_kafka",
    "GroupsCommand": "ottla.cli.group_list_kafka",
    "TransactionsCommand": "ottla.cli.transactions_kafka",
    "GetOffsetShell": "ottla.cli.get_offsets_kafka",
    "DeleteRecordsCommand": "ottla.cli.delete_records_kafka",
    "LogDirsCommand": "ottla.cli.log_dirs_kafka",
    "BrokerApiVersionsCommand": "ottla.cli.broker_api_versions_kafka",
    "ClusterTool": "ottla.cli.cluster_kafka",
    "FeatureCommand": "ottla.cli.features_kafka",
    "MetadataQuorumCommand": "ottla.cli.metadata_quorum_kafka",
    "StorageTool": "ottla.cli.storage_kafka",
    "ConsoleProducer": "ottla.cli.produce_kafka",
    "ConsoleConsumer": "ottla.cli.consume_kafka",
    "ProducerPerformance": "ottla.cli.perf_produce_kafka",
    "ConsumerPerformance": "ottla.cli.perf_consume_kafka",
    "DumpLogSegments": "ottla.cli.dump_log_kafka",
    "Kafka": "ottla.cli.server_start",
}
PACKAGES = (
    "kafka",
    "kafka.admin",
    "kafka.tools",
    "org.apache.kafka.tools",
    "org.apache.kafka.tools.consumer",
    "org.apache.kafka.tools.consumer.group",
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
    # Only a broker can stay behind in the background: the tools end soon.
    code: int = import_module(MODULES[name]).run([*flags, *words[1:]] if name == "Kafka" else words[1:])
    return code
