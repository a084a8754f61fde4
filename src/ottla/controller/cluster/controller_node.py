"""/controller and /controller_epoch when they cannot be read: what an election makes of them.

/controller is ephemeral: it goes with the session of whoever was elected. One that somebody has damaged would stay for
as long as that broker lives, and nobody new could learn who it is. So it is left alone for the time of a session, in
which its writer may be about to mend it, and then removed by its version: an election follows. A wrong guess costs
nothing else, because whatever a controller writes is fenced by the version of /controller_epoch.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping

from ottla.controller import tree
from ottla.controller.image import NO_CONTROLLER
from ottla.controller.start import epoch_operation
from ottla.controller.stores.store import CreateNode, DeleteNode, Node, SetNode, StoreOperation

logger = logging.getLogger(__name__)


class UnreadableController:
    """For how long /controller has been what it is now, by the clock of this broker."""

    def __init__(self) -> None:
        self._seen: tuple[int, int] | None = None  # the node's creation and version
        self._since_ms = 0

    def left_ms(self, node: Node, now_ms: int, session_ms: int) -> int:
        """So long it is still left alone; it is told when it is seen for the first time."""
        if self._seen != (node.created_id, node.version):
            self._seen, self._since_ms = (node.created_id, node.version), now_ms
            logger.error("%s cannot be read; unless somebody mends it, it is removed", tree.CONTROLLER)
        return max(0, self._since_ms + session_ms - now_ms)


def elected_in(node: Node) -> int | None:
    """Who is the controller; None if that cannot be read."""
    try:
        return tree.decode_controller(node.data)
    except tree.DamagedNodeError:
        return None


def election(
    broker_id: int, now_ms: int, epoch_node: Node | None, epoch: int, deposed: Node | None
) -> list[StoreOperation]:
    """One transaction; the epoch's node comes last. `deposed` is the /controller that has to go, if there is one."""
    operations: list[StoreOperation] = [
        CreateNode(tree.CONTROLLER, tree.encode_controller(broker_id, now_ms), is_ephemeral=True),
        epoch_operation(epoch_node, epoch),
    ]
    return operations if deposed is None else [DeleteNode(tree.CONTROLLER, deposed.version), *operations]


def offered(node: Node) -> StoreOperation:
    """Nobody's /controller, for whoever knows what that is: an older broker would be elected if it were gone."""
    return SetNode(tree.CONTROLLER, tree.encode_controller(NO_CONTROLLER, 0), node.version)


def highest_epoch(epoch_node: Node, nodes: Mapping[str, Node], last_known: int) -> int:
    """An epoch that no controller had before or was above, when /controller_epoch does not tell.

    Every election writes that node once, so its version counts them; states of partitions name their writer's epoch.
    """
    epochs = [last_known, epoch_node.version + 1]
    for path, node in nodes.items():
        if path.startswith(tree.BROKER_TOPICS) and path.endswith("/state"):
            try:
                epochs.append(tree.decode_partition_state(path, node.data).controller_epoch)
            except tree.DamagedNodeError:
                continue
    return max(epochs)
