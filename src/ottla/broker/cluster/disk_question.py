"""How full the disks of another broker are, and how large its replicas: asked with Kafka's own DescribeLogDirs.

Every version of ottla answers it, so that a cluster of two versions needs nothing new for it.
"""

from __future__ import annotations

import logging

from ottla.base.errors import Error
from ottla.base.names import TopicPartition
from ottla.broker.cluster.peers import CALL_MS_MAX, Peers
from ottla.controller.decisions.healing.situation import Disks, Folder
from ottla.network.peer_error import PeerError
from ottla.protocol.messages.log_dirs import DescribeLogDirsRequest, DescribeLogDirsResponse

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
        tuple(Folder(folder.total_bytes, folder.usable_bytes) for folder in working if not folder.is_cordoned),
        {
            TopicPartition(topic.name, row.partition_index): row.partition_size
            for folder in working
            for topic in folder.topics
            for row in topic.partitions
            if not row.is_future_key
        },
    )
