"""Entry points for the names of Kafka's scripts; each imports only its own tool.

`python -m ottla.cli.kafka_scripts kafka-topics.sh ...` runs a tool without an installed script.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from importlib import import_module

from ottla.cli.terminal import EXIT_USAGE, fail, run_tool

# Script name -> module with run(arguments) -> exit code; a colon precedes the name of another function.
SCRIPTS = {
    "kafka-topics.sh": "ottla.cli.kafka.topics",
    "kafka-console-producer.sh": "ottla.cli.kafka.produce",
    "kafka-console-consumer.sh": "ottla.cli.kafka.consume",
    "kafka-avro-console-producer": "ottla.cli.kafka.produce:run_avro",
    "kafka-avro-console-consumer": "ottla.cli.kafka.consume:run_avro",
    "kafka-json-schema-console-producer": "ottla.cli.kafka.produce:run_json_schema",
    "kafka-json-schema-console-consumer": "ottla.cli.kafka.consume:run_json_schema",
    "kafka-protobuf-console-producer": "ottla.cli.kafka.produce:run_protobuf",
    "kafka-protobuf-console-consumer": "ottla.cli.kafka.consume:run_protobuf",
    "kafka-producer-perf-test.sh": "ottla.cli.kafka.perf_produce",
    "kafka-consumer-perf-test.sh": "ottla.cli.kafka.perf_consume",
    "kafka-acls.sh": "ottla.cli.kafka.acls",
    "kafka-delegation-tokens.sh": "ottla.cli.kafka.delegation_tokens",
    "kafka-dump-log.sh": "ottla.cli.kafka.dump_log",
    "kafka-configs.sh": "ottla.cli.kafka.configs",
    "kafka-consumer-groups.sh": "ottla.cli.kafka.groups",
    "kafka-groups.sh": "ottla.cli.kafka.group_list",
    "kafka-transactions.sh": "ottla.cli.kafka.transactions",
    "kafka-get-offsets.sh": "ottla.cli.kafka.get_offsets",
    "kafka-delete-records.sh": "ottla.cli.kafka.delete_records",
    "kafka-log-dirs.sh": "ottla.cli.kafka.log_dirs",
    "kafka-reassign-partitions.sh": "ottla.cli.kafka.reassign_partitions",
    "kafka-leader-election.sh": "ottla.cli.kafka.leader_election",
    "kafka-broker-api-versions.sh": "ottla.cli.kafka.broker_api_versions",
    "kafka-cluster.sh": "ottla.cli.kafka.cluster",
    "kafka-features.sh": "ottla.cli.kafka.features",
    "kafka-client-metrics.sh": "ottla.cli.kafka.client_metrics",
    "kafka-metadata-quorum.sh": "ottla.cli.kafka.metadata_quorum",
    "kafka-storage.sh": "ottla.cli.kafka.storage",
    "kafka-run-class.sh": "ottla.cli.kafka.run_class",
    "kafka-server-start.sh": "ottla.cli.kafka.server_scripts:start_broker",
    "kafka-server-stop.sh": "ottla.cli.kafka.server_scripts:stop_brokers",
    "zookeeper-server-start.sh": "ottla.cli.kafka.server_scripts:start_zookeeper",
    "zookeeper-server-stop.sh": "ottla.cli.kafka.server_scripts:stop_zookeepers",
    "zookeeper-shell.sh": "ottla.cli.kafka.zookeeper_shell",
    "zookeeper-security-migration.sh": "ottla.cli.kafka.zookeeper_security_migration",
}


def topics() -> int:
    return run_script("kafka-topics.sh", sys.argv[1:])


def console_producer() -> int:
    return run_script("kafka-console-producer.sh", sys.argv[1:])


def console_consumer() -> int:
    return run_script("kafka-console-consumer.sh", sys.argv[1:])


def producer_perf_test() -> int:
    return run_script("kafka-producer-perf-test.sh", sys.argv[1:])


def consumer_perf_test() -> int:
    return run_script("kafka-consumer-perf-test.sh", sys.argv[1:])


def dump_log() -> int:
    return run_script("kafka-dump-log.sh", sys.argv[1:])


def client_metrics() -> int:
    return run_script("kafka-client-metrics.sh", sys.argv[1:])


def server_start() -> int:
    return run_script("kafka-server-start.sh", sys.argv[1:])


def server_stop() -> int:
    return run_script("kafka-server-stop.sh", sys.argv[1:])


def by_name() -> int:
    """Run the tool whose script name started this process."""
    return run_script(os.path.basename(sys.argv[0]), sys.argv[1:])


def run_script(name: str, arguments: Sequence[str]) -> int:
    """Run one of Kafka's tools under its own name."""

    def body() -> int:
        module, _, function = SCRIPTS[name].partition(":")
        code: int = getattr(import_module(module), function or "run")(arguments)
        return code

    return run_tool(name, body)


def main() -> int:
    name = sys.argv[1] if len(sys.argv) > 1 else ""
    if name not in SCRIPTS:
        return fail("kafka_scripts", f"name one of: {', '.join(SCRIPTS)}", EXIT_USAGE)
    return run_script(name, sys.argv[2:])


if __name__ == "__main__":
    sys.exit(main())
