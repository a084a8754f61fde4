"""/controller and /controller_epoch when they cannot be read: what an election makes of them.

/controller is ephemeral: it goes with the session of whoever was elected. One that somebody has damaged would stay for
as long as that broker lives, and nobody new could learn who it is. So it is left alone for the time of a session, in
which its writer may be about to mend it, and then removed by its version: an election follows. A wrong guess costs
nothing else, because whatever a controller writes is fenced by the version of /controller_epoch.
"""

from __future__ import annotations

from collections.abc import Mapping

from ottla.controller import tree
from ottla.controller.stores.store import Node


class UnreadableController:
    """For how long /controller has been what it is now, by the clock of this broker."""

    def __init__(self) -> None:
        self._seen: tuple[int, int] | None = None  # the node's creation and version
        self._since_ms = 0

    def is_new(self, node: Node, now_ms: int) -> bool:
        """Note it; True when it is seen for the first time."""
        if self._seen == (node.created_id, node.version):
            return False
        self._seen, self._since_ms = (node.created_id, node.version), now_ms
        return True

    def left_ms(self, now_ms: int, session_ms: int) -> int:
        """So long it is still left alone."""
        return max(0, self._since_ms + session_ms - now_ms)


def elected_in(node: Node) -> int | None:
    """Who is the controller; None if that cannot be read."""
    try:
        return tree.decode_controller(node.data)
    except tree.DamagedNodeError:
        return None


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
