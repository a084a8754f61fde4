"""Requests between brokers, sent by a client: refused, or the connection is closed, and no broker is harmed."""

import random
import socket
import uuid
from typing import Any
from uuid import UUID

import pytest

from ottla.base.errors import Error
from ottla.client.addresses import parse_bootstrap
from ottla.client.connection import Connection
from ottla.protocol.apis import BROKER_APIS
from ottla.protocol.headers import encode_request_header
from ottla.protocol.messages.inter_broker import (
    AllocateProducerIdsRequest,
    AllocateProducerIdsResponse,
    AlterPartitionPartition,
    AlterPartitionRequest,
    AlterPartitionResponse,
    AlterPartitionTopic,
    BrokerState,
    ClusterPollRequest,
    ClusterPollResponse,
    ControlledShutdownRequest,
    ControlledShutdownResponse,
    EnvelopeRequest,
    EnvelopeResponse,
    OfflineReplicas,
)
from ottla.testing.cluster import Cluster, ClusterBroker

NOWHERE = UUID(int=12345)
STALE = {Error.STALE_BROKER_EPOCH}


def ask(broker: ClusterBroker, request: Any, response: type[Any], version: int) -> Any:
    connection = Connection(parse_bootstrap(broker.bootstrap_servers)[0], "nobody", 10_000)
    try:
        return connection.call(request, response, version, 10_000)
    finally:
        connection.close()


def proposal(broker_id: int, epoch: int, topic_id: UUID) -> AlterPartitionRequest:
    isr = [BrokerState(broker_id=broker_id), BrokerState(broker_id=99)]
    row = AlterPartitionPartition(partition_index=0, leader_epoch=0, new_isr_with_epochs=isr, partition_epoch=0)
    topic = AlterPartitionTopic(topic_id=topic_id, partitions=[row])
    return AlterPartitionRequest(broker_id=broker_id, broker_epoch=epoch, topics=[topic])


@pytest.mark.parametrize("broker_id", [1, 2, 99, -1])
def test_unknown_epochs_are_refused(cluster: Cluster, broker_id: int) -> None:
    controller = cluster.controller()
    offline = [OfflineReplicas(topic_id=NOWHERE, partitions=[0])]
    poll = ClusterPollRequest(
        broker_id=broker_id, broker_epoch=1 << 60, controller_epoch=1, offline=offline, level_max=2
    )
    questions: list[tuple[Any, type[Any], int]] = [
        (ControlledShutdownRequest(broker_id=broker_id, broker_epoch=1 << 60), ControlledShutdownResponse, 3),
        (proposal(broker_id, 1 << 60, NOWHERE), AlterPartitionResponse, 3),
        (AllocateProducerIdsRequest(broker_id=broker_id, broker_epoch=5), AllocateProducerIdsResponse, 0),
        (poll, ClusterPollResponse, 1),
    ]
    for request, response, version in questions:
        assert ask(controller, request, response, version).error_code in STALE, type(request).__name__
    assert cluster.controller() is controller
    cluster.wait_until_whole()


def test_a_broker_that_is_not_the_controller_answers_not_controller(cluster: Cluster) -> None:
    controller = cluster.controller()
    other = next(broker for broker in cluster.brokers if broker is not controller)
    questions: list[tuple[Any, type[Any], int]] = [
        (ControlledShutdownRequest(broker_id=1, broker_epoch=1), ControlledShutdownResponse, 3),
        (proposal(1, 1, NOWHERE), AlterPartitionResponse, 3),
        (AllocateProducerIdsRequest(broker_id=1, broker_epoch=1), AllocateProducerIdsResponse, 0),
        (ClusterPollRequest(broker_id=1, broker_epoch=1, controller_epoch=1), ClusterPollResponse, 0),
        (EnvelopeRequest(request_data=b"", client_host_address=b""), EnvelopeResponse, 0),
    ]
    for request, response, version in questions:
        assert ask(other, request, response, version).error_code == Error.NOT_CONTROLLER, type(request).__name__


def test_garbage_instead_of_what_brokers_ask_closes_that_connection_only(cluster: Cluster) -> None:
    dice = random.Random(3)
    topic = cluster.create_topic(f"strange-{uuid.uuid4().hex[:8]}")
    for broker in cluster.brokers:
        host, port = parse_bootstrap(broker.bootstrap_servers)[0]
        for api in BROKER_APIS.values():
            for size in (0, 1, 7, 40, 400):
                header = encode_request_header(api.key, api.max_version, 1, "nobody")
                frame = header + dice.randbytes(size)
                with socket.create_connection((host, port), 10) as sock:
                    sock.sendall(len(frame).to_bytes(4, "big") + frame)
                    sock.settimeout(10)
                    sock.recv(4)  # an answer, or the end of the connection: but no silence
    cluster.wait_until_whole([topic])
    cluster.delete_topic(topic)
