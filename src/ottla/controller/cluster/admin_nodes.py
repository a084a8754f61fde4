"""Reassignments and elections that other tools write into the store, as tools of Kafka before 2.4 do:
/admin/reassign_partitions and /admin/preferred_replica_election.

As in Kafka 3.9, the reassignments are started, the node keeps those in progress, and it is deleted with the last one:
tools wait for that. A reassignment that is rejected is logged and removed from the node. An election and the deletion
of its node are one transaction.

The node is only a request; the state of a reassignment is in the topic node. So a new controller removes a partition
from the node if it is being reassigned to other replicas: another request has changed it since.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Final, NamedTuple

from ottla.base.errors import Error
from ottla.base.names import TopicPartition
from ottla.controller import tree
from ottla.controller.cluster.controller import ClusterController
from ottla.controller.cluster.store_watches import StoreWatches
from ottla.controller.decisions.decision import Decision
from ottla.controller.decisions.elect_leaders import ElectionResult, ElectionType, decide_elections
from ottla.controller.decisions.leader_eligibility import BrokerAvailability, ElectionRules
from ottla.controller.decisions.reassignment import (
    ReassignmentRequest,
    ReassignmentResult,
    decide_completed_reassignments,
    decide_reassignments,
    is_reassigning,
    ongoing_reassignments,
)
from ottla.controller.image import MetadataCache, MetadataImage
from ottla.controller.stores.store import DeleteNode, MetadataStore, Node, SetNode, StoreOperation

logger = logging.getLogger(__name__)

ABSENT: Final = -1  # as the version of a node


class ReassignmentNode(NamedTuple):
    """The processed node: its version, the reassignments that remain in it, and the rejected ones."""

    version: int
    remaining: Mapping[TopicPartition, tuple[int, ...]]
    refused: tuple[ReassignmentResult, ...] = ()


class AdminRequests:
    """Active while its broker is the controller; the controller's watches call it."""

    def __init__(
        self,
        store: MetadataStore,
        controller: ClusterController,
        images: MetadataCache,
        watches: StoreWatches,
    ) -> None:
        self._store = store
        self._controller = controller
        self._watches = watches
        self._epoch = -1  # the controller epoch in which the node was last processed
        self._version = ABSENT
        self._remaining: Mapping[TopicPartition, tuple[int, ...]] = {}
        watches.add(tree.REASSIGN_PARTITIONS, self._process_reassignments)
        watches.add(tree.PREFERRED_ELECTION, self._process_election)
        images.add_listener(self._on_image)

    def _on_image(self, old: MetadataImage, new: MetadataImage) -> None:
        """Update the node if one of its reassignments may have ended."""
        if self._remaining and self._controller.is_active and new is not old:
            changed = new.changed_topics_since(old)
            if any(name.topic in changed for name in self._remaining):
                self._watches.enqueue(tree.REASSIGN_PARTITIONS)

    # ---- moves

    async def _process_reassignments(self) -> None:
        if self._epoch != self._controller.image.controller_epoch:
            await self._resume_reassignments()
        reading = await self._controller.change_after_reading(self._read_reassignments, self._decide_reassignments)
        self._epoch = self._controller.image.controller_epoch
        self._version, self._remaining = reading.version, reading.remaining
        for result in reading.refused:
            logger.error(
                "[Controller] the reassignment of %s in %s was refused: %s",
                result.partition,
                tree.REASSIGN_PARTITIONS,
                result.message or result.error.name,
            )

    async def _resume_reassignments(self) -> None:
        """Continue the reassignments of the previous controller, which may have ended between two steps."""
        under_way = list(ongoing_reassignments(self._controller.image))
        if not under_way:
            return
        logger.info("[Controller] Partitions being reassigned: %s", ",".join(str(move.partition) for move in under_way))
        topics = {move.partition.topic for move in under_way}
        liveness, rules = self._controller.liveness, self._controller.rules
        await self._controller.change(
            lambda image: decide_completed_reassignments(image, topics, liveness, rules), is_urgent=True
        )

    async def _read_reassignments(self) -> Node | None:
        return await self._store.get(tree.REASSIGN_PARTITIONS)

    def _decide_reassignments(self, image: MetadataImage, node: Node | None) -> Decision[ReassignmentNode]:
        if node is None:
            return Decision((), image, ReassignmentNode(ABSENT, {}))
        try:
            wanted = tree.decode_reassignments(node.data)
        except tree.DamagedNodeError as damage:
            logger.error("[Controller] ignoring reassignments that cannot be read: %s", damage)
            operation = DeleteNode(tree.REASSIGN_PARTITIONS, node.version)
            return Decision((operation,), image, ReassignmentNode(ABSENT, {}))
        is_new = image.controller_epoch == self._epoch and node.version > self._version
        return decide_node_reassignments(
            image, node, wanted, self._controller.liveness, self._controller.rules, is_new=is_new
        )

    # ---- elections

    async def _process_election(self) -> None:
        results = await self._controller.change_after_reading(self._read_election, self._decide_election)
        failed = [result for result in results if result.error not in (Error.NONE, Error.ELECTION_NOT_NEEDED)]
        for result in failed:
            logger.error("[Controller] preferred replica election of %s: %s", result.partition, result.error.name)

    async def _read_election(self) -> Node | None:
        return await self._store.get(tree.PREFERRED_ELECTION)

    def _decide_election(self, image: MetadataImage, node: Node | None) -> Decision[list[ElectionResult]]:
        if node is None:
            return Decision((), image, [])
        over = DeleteNode(tree.PREFERRED_ELECTION, node.version)
        try:
            wanted = tree.decode_election(node.data)
        except tree.DamagedNodeError as damage:
            logger.error("[Controller] ignoring an election that cannot be read: %s", damage)
            return Decision((over,), image, [])
        liveness, rules = self._controller.liveness, self._controller.rules
        decision = decide_elections(image, ElectionType.PREFERRED, wanted, liveness, rules)
        return decision._replace(operations=(*decision.operations, over))

    def __repr__(self) -> str:
        return f"<AdminRequests {len(self._remaining)} reassignments>"


def decide_node_reassignments(
    image: MetadataImage,
    node: Node,
    wanted: Mapping[TopicPartition, tuple[int, ...]],
    liveness: BrokerAvailability,
    rules: ElectionRules,
    *,
    is_new: bool,
) -> Decision[ReassignmentNode]:
    """Start new reassignments and remove the completed ones from the node.

    `is_new`: the node was written since it was last processed.
    """
    targets = {move.partition: move.target for move in ongoing_reassignments(image, {name.topic for name in wanted})}
    requests = [
        ReassignmentRequest(name, replicas) for name, replicas in wanted.items() if targets.get(name) != replicas
    ]
    if not is_new:
        requests = [request for request in requests if request.partition not in targets]
    decision = decide_reassignments(image, requests, liveness, rules)
    after = decision.image
    left = {name: replicas for name, replicas in wanted.items() if is_reassignment_in_progress(after, name, replicas)}
    operations: list[StoreOperation] = list(decision.operations)
    version = node.version
    if not left:
        operations.append(DeleteNode(tree.REASSIGN_PARTITIONS, node.version))
        version = ABSENT
    elif left != wanted:
        operations.append(SetNode(tree.REASSIGN_PARTITIONS, tree.encode_reassignments(left), node.version))
        version += 1
    refused = tuple(result for result in decision.reply if result.error is not Error.NONE)
    return Decision(tuple(operations), after, ReassignmentNode(version, left, refused))


def is_reassignment_in_progress(image: MetadataImage, name: TopicPartition, replicas: tuple[int, ...]) -> bool:
    partition = image.partition(*name)
    if partition is None or not is_reassigning(partition):
        return False
    return tuple(broker for broker in partition.replicas if broker not in partition.removing_replicas) == replicas
