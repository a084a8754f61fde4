"""Moves and elections that another tool has written into the store: /admin/reassign_partitions and
/admin/preferred_replica_election, as tools from before Kafka 2.4 do.

As in Kafka 3.9: the moves are begun, the node holds those that are still under way, and it goes when the last one is
done; so a tool that waits for the node to vanish sees the end. A move that cannot be begun is told in the log and
leaves the node. An election is done and its node deleted in one write.

The node is only a wish: what is under way stands in the topics. So a new controller that finds the node takes
partitions which are already moving elsewhere for changed by somebody since, and drops them from the node.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Final, NamedTuple

from ottla.base.errors import Error
from ottla.base.names import TopicPartition
from ottla.controller import tree
from ottla.controller.cluster.controller import ClusterController
from ottla.controller.cluster.watching import ControllerWatches
from ottla.controller.decisions.liveness import Liveness, Rules
from ottla.controller.decisions.machine import Decision
from ottla.controller.decisions.preferred import ElectionResult, ElectionType, decide_elections
from ottla.controller.decisions.reassignment import (
    MoveResult,
    Wish,
    decide_next_steps,
    decide_reassignments,
    is_moving,
    moves,
)
from ottla.controller.holder import ImageHolder
from ottla.controller.image import MetadataImage
from ottla.controller.stores.store import DeleteNode, MetadataStore, Node, SetNode, StoreOperation

logger = logging.getLogger(__name__)

ABSENT: Final = -1  # as the version of a node


class Reading(NamedTuple):
    """What a look at the node came to: its version, the moves left in it, and those that were refused."""

    version: int
    left: Mapping[TopicPartition, tuple[int, ...]]
    refused: tuple[MoveResult, ...] = ()


class AdminNodes:
    """At work while its broker is the controller: the watches of the controller call it."""

    def __init__(
        self,
        store: MetadataStore,
        controller: ClusterController,
        images: ImageHolder,
        watches: ControllerWatches,
    ) -> None:
        self._store = store
        self._controller = controller
        self._watches = watches
        self._epoch = -1  # of the controller whose look at /admin/reassign_partitions is remembered here:
        self._version = ABSENT
        self._left: Mapping[TopicPartition, tuple[int, ...]] = {}
        watches.add(tree.REASSIGN_PARTITIONS, self._look_at_moves)
        watches.add(tree.PREFERRED_ELECTION, self._look_at_election)
        images.on_image(self._on_image)

    def _on_image(self, old: MetadataImage, new: MetadataImage) -> None:
        """A move that the node holds may have ended."""
        if self._left and self._controller.is_active and new is not old:
            changed = new.changed_topics_since(old)
            if any(name.topic in changed for name in self._left):
                self._watches.want(tree.REASSIGN_PARTITIONS)

    # ---- moves

    async def _look_at_moves(self) -> None:
        if self._epoch != self._controller.image.controller_epoch:
            await self._go_on_with_moves()
        reading = await self._controller.change_after_reading(self._read_moves, self._decide_moves)
        self._epoch = self._controller.image.controller_epoch
        self._version, self._left = reading.version, reading.left
        for result in reading.refused:
            logger.error(
                "[Controller] the move of %s in %s was refused: %s",
                result.partition,
                tree.REASSIGN_PARTITIONS,
                result.message or result.error.name,
            )

    async def _go_on_with_moves(self) -> None:
        """After an election: the controller before this one may have ended between two steps."""
        under_way = list(moves(self._controller.image))
        if not under_way:
            return
        logger.info("[Controller] Partitions being reassigned: %s", ",".join(str(move.partition) for move in under_way))
        topics = {move.partition.topic for move in under_way}
        liveness, rules = self._controller.liveness, self._controller.rules
        await self._controller.change(lambda image: decide_next_steps(image, topics, liveness, rules), is_urgent=True)

    async def _read_moves(self) -> Node | None:
        return await self._store.get(tree.REASSIGN_PARTITIONS)

    def _decide_moves(self, image: MetadataImage, node: Node | None) -> Decision[Reading]:
        if node is None:
            return Decision((), image, Reading(ABSENT, {}))
        try:
            wanted = tree.decode_reassignments(node.data)
        except tree.DamagedNodeError as damage:
            logger.error("[Controller] ignoring moves that cannot be read: %s", damage)
            operation = DeleteNode(tree.REASSIGN_PARTITIONS, node.version)
            return Decision((operation,), image, Reading(ABSENT, {}))
        is_new = image.controller_epoch == self._epoch and node.version > self._version
        return decide_moves(image, node, wanted, self._controller.liveness, self._controller.rules, is_new=is_new)

    # ---- elections

    async def _look_at_election(self) -> None:
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
        return f"<AdminNodes {len(self._left)} moves left>"


def decide_moves(
    image: MetadataImage,
    node: Node,
    wanted: Mapping[TopicPartition, tuple[int, ...]],
    liveness: Liveness,
    rules: Rules,
    *,
    is_new: bool,
) -> Decision[Reading]:
    """Begin what is not begun, drop what is done from the node. `is_new`: somebody has just written it again."""
    targets = {move.partition: move.target for move in moves(image, {name.topic for name in wanted})}
    wishes = [Wish(name, replicas) for name, replicas in wanted.items() if targets.get(name) != replicas]
    if not is_new:
        wishes = [wish for wish in wishes if wish.partition not in targets]
    decision = decide_reassignments(image, wishes, liveness, rules)
    after = decision.image
    left = {name: replicas for name, replicas in wanted.items() if is_under_way(after, name, replicas)}
    operations: list[StoreOperation] = list(decision.operations)
    version = node.version
    if not left:
        operations.append(DeleteNode(tree.REASSIGN_PARTITIONS, node.version))
        version = ABSENT
    elif left != wanted:
        operations.append(SetNode(tree.REASSIGN_PARTITIONS, tree.encode_reassignments(left), node.version))
        version += 1
    refused = tuple(result for result in decision.reply if result.error is not Error.NONE)
    return Decision(tuple(operations), after, Reading(version, left, refused))


def is_under_way(image: MetadataImage, name: TopicPartition, replicas: tuple[int, ...]) -> bool:
    partition = image.partition(*name)
    if partition is None or not is_moving(partition):
        return False
    return tuple(broker for broker in partition.replicas if broker not in partition.removing_replicas) == replicas
