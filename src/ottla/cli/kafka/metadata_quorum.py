"""`kafka-metadata-quorum.sh`: describe the metadata quorum."""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence

from ottla.base.names import id_text
from ottla.cli.arguments import Command, flag
from ottla.cli.java.errors import run_reporting_errors
from ottla.cli.java.options import OptionError
from ottla.cli.kafka.commands import COMMAND_CONFIG, KafkaParser, client_of_servers, endpoint_type, servers
from ottla.cli.reports.quorum_report import COLUMNS, UNKNOWN_TIME, leader_of, replication_rows
from ottla.client.addresses import Address
from ottla.client.client import Client
from ottla.client.cluster import Quorum, describe_cluster, describe_quorum
from ottla.protocol.messages.cluster import QuorumListener, QuorumReplica
from ottla.protocol.schema import ZERO_UUID

EXAMPLES = """
kafka-metadata-quorum.sh --bootstrap-server 127.0.0.1:9092 describe --status
kafka-metadata-quorum.sh --bootstrap-server 127.0.0.1:9092 describe --replication --human-readable
"""


def run(arguments: Sequence[str]) -> int:
    options = _parser().parse_args(arguments)

    def body() -> int:
        with client_of_servers(options) as client:
            code: int = options.action(client, options)
            return code

    return run_reporting_errors(body)


def _parser() -> KafkaParser:
    return KafkaParser(
        prog="kafka-metadata-quorum.sh",
        description="Show the state of the metadata quorum.",
        examples=EXAMPLES,
        arguments=(
            servers(),
            COMMAND_CONFIG,
        ),
        commands=(
            Command(
                "describe",
                "show the quorum",
                _describe,
                flag("--status", help="a short summary"),
                flag("--replication", help="how far each node is"),
                flag("--human-readable", help="with --replication: durations instead of timestamps"),
            ),
        ),
    )


def _describe(client: Client, options: argparse.Namespace) -> int:
    if options.status and options.replication:
        raise OptionError("Only one of --status or --replication should be specified with describe sub-command")
    if options.replication:
        for line in replication_lines(describe_quorum(client), int(time.time() * 1000), options.human_readable):
            print(line)
    elif options.status:
        if options.human_readable:
            raise OptionError("The option --human-readable is only supported along with --replication")
        cluster_id = describe_cluster(client, endpoint_type=endpoint_type(options)).cluster_id
        print("\n".join(status_lines(cluster_id, describe_quorum(client))))
    else:
        raise OptionError("One of --status or --replication must be specified with describe sub-command")
    return 0


def status_lines(cluster_id: str, quorum: Quorum) -> list[str]:
    partition = quorum.partition
    leader = leader_of(quorum)
    last = min(partition.current_voters, key=lambda voter: voter.log_end_offset)
    if leader is last:
        lag_ms = 0
    elif UNKNOWN_TIME in (leader.last_caught_up_timestamp, last.last_caught_up_timestamp):
        lag_ms = UNKNOWN_TIME
    else:
        lag_ms = leader.last_caught_up_timestamp - last.last_caught_up_timestamp
    fields = {
        "ClusterId": cluster_id,
        "LeaderId": partition.leader_id,
        "LeaderEpoch": partition.leader_epoch,
        "HighWatermark": partition.high_watermark,
        "MaxFollowerLag": leader.log_end_offset - last.log_end_offset,
        "MaxFollowerLagTimeMs": lag_ms,
        "CurrentVoters": _nodes(quorum, partition.current_voters),
        "CurrentObservers": _nodes(quorum, partition.observers),
    }
    return [f"{f'{name}:':<24}{value}" for name, value in fields.items()]


def replication_lines(quorum: Quorum, now_ms: int, is_human: bool) -> list[str]:
    """A table with a tab after each column, as Kafka prints it."""
    rows = [COLUMNS, *replication_rows(quorum, now_ms, is_human)]
    widths = [max(len(row[index]) for row in rows) for index in range(len(COLUMNS))]
    return ["".join(f"{cell:<{width}}\t" for cell, width in zip(row, widths, strict=True)) for row in rows]


def _nodes(quorum: Quorum, replicas: Sequence[QuorumReplica]) -> str:
    listeners = {node.node_id: node.listeners for node in quorum.nodes}
    return "[" + ", ".join(_node(replica, listeners.get(replica.replica_id, [])) for replica in replicas) + "]"


def _node(replica: QuorumReplica, listeners: Sequence[QuorumListener]) -> str:
    fields = [f'"id": {replica.replica_id}']
    if replica.replica_directory_id != ZERO_UUID:
        fields.append(f'"directoryId": "{id_text(replica.replica_directory_id)}"')
    if listeners:
        endpoints = ", ".join(f'"{item.name}://{Address(item.host, item.port)}"' for item in listeners)
        fields.append(f'"endpoints": [{endpoints}]')
    return "{" + ", ".join(fields) + "}"
