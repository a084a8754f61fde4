"""What the controller asks other brokers about their disks, in Kafka's own calls, and what it tells them.

DescribeLogDirs tells how full disks are, and how large replicas. AlterReplicaLogDirs about a replica in a failed folder
makes a broker have it anew in another one. Every version of ottla answers both, the first one the latter with
KAFKA_STORAGE_ERROR: so a cluster of two versions needs nothing new for them.
"""

from __future__ import annotations

import logging

from ottla.base.errors import Error
from ottla.base.names import TopicPartition
from ottla.broker.cluster.peers import CALL_MS_MAX, Peers
from ottla.controller.decisions.healing.situation import Disks, Folder
from ottla.controller.decisions.healing.steps import Refill
from ottla.network.peer_error import PeerError
from ottla.protocol.messages.log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopic,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
)

logger = logging.getLogger(__name__)


async def ask_disks(peers: Peers, broker: int) -> Disks | None:
    """What a broker tells; None if it does not, or says that we may not know."""
    try:
        answer = await peers.call(broker, DescribeLogDirsRequest(), DescribeLogDirsResponse, timeout_ms=CALL_MS_MAX)
    except PeerError as problem:
        logger.info("broker %d does not tell how full its disks are: %s", broker, problem)
        return None
    if answer.error_code != Error.NONE:
        logger.warning("broker %d does not tell how full its disks are: %s", broker, Error(answer.error_code).name)
        return None
    working = [folder for folder in answer.results if folder.error_code == Error.NONE]
    return Disks(
        tuple(
            Folder(folder.total_bytes, folder.usable_bytes, folder.log_dir)
            for folder in working
            if not folder.is_cordoned
        ),
        {
            TopicPartition(topic.name, row.partition_index): row.partition_size
            for folder in working
            for topic in folder.topics
            for row in topic.partitions
            if not row.is_future_key
        },
    )


async def tell_refills(peers: Peers, broker: int, refills: list[Refill]) -> frozenset[TopicPartition]:
    """Let a broker have replicas anew; which of them it refuses. Nobody knows what became of a call that failed."""
    request = AlterReplicaLogDirsRequest(
        dirs=[
            AlterReplicaLogDir(
                path=path,
                topics=[
                    AlterReplicaLogDirTopic(name=each.partition.topic, partitions=[each.partition.partition])
                    for each in refills
                    if each.path == path
                ],
            )
            for path in sorted({each.path for each in refills})
        ]
    )
    try:
        answer = await peers.call(broker, request, AlterReplicaLogDirsResponse, timeout_ms=CALL_MS_MAX)
    except PeerError as problem:
        logger.info("broker %d does not answer what becomes of its failed folder: %s", broker, problem)
        return frozenset()
    refused = {
        TopicPartition(topic.topic_name, row.partition_index): Error(row.error_code).name
        for topic in answer.results
        for row in topic.partitions
        if row.error_code != Error.NONE
    }
    if refused:
        logger.info("broker %d refuses to have replicas anew: %s", broker, ", ".join(sorted(set(refused.values()))))
    return frozenset(refused)
