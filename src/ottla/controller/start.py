"""What a broker writes into the store when it starts: its registration, its claim to be the controller.

Pure, and one transaction: afterwards the broker is registered and leads what it can lead, or nothing has happened.
"""

from __future__ import annotations

from collections.abc import Mapping

from ottla.controller import acl_nodes, token_nodes, tree
from ottla.controller.decisions import ottla_version
from ottla.controller.decisions.eligible_leaders import decide_minimum
from ottla.controller.decisions.external_changes import left_over_deletions
from ottla.controller.decisions.machine import Decision
from ottla.controller.decisions.single_broker_leaders import decide_leaders
from ottla.controller.image import BrokerImage, MetadataImage
from ottla.controller.stores.store import CreateNode, Node, SetNode, StoreOperation, StoreUnusableError


def check_start(image: MetadataImage, cluster_id: str | None) -> None:
    """Raises StoreUnusableError if the store is of another cluster than the folders, or of a version to come."""
    problem = ottla_version.why_not_here(ottla_version.level(image))
    if cluster_id and image.cluster_id and image.cluster_id != cluster_id:
        problem = (
            f"the metadata store belongs to cluster {image.cluster_id}, but the log folders to cluster "
            f"{cluster_id}. Give this broker the folders that belong together."
        )
    if problem is not None:
        raise StoreUnusableError(problem)


def decide_start(
    image: MetadataImage,
    nodes: Mapping[str, Node],
    broker: BrokerImage,
    *,
    new_cluster_id: str,
    now_ms: int,
    minimum: int = 1,
) -> Decision[int]:
    """Register, take the controller's place and lead; the reply is the number of partitions with a new leader epoch.

    The epoch inside `broker` is not known yet: it is the number of this very transaction. `minimum` is what the
    broker's file says about min.insync.replicas.
    """
    operations: list[StoreOperation] = [
        CreateNode(path) for path in (*tree.SKELETON, *acl_nodes.SKELETON, *token_nodes.SKELETON) if path not in nodes
    ]
    is_new = tree.CLUSTER_ID not in nodes
    if is_new:
        image = image.with_cluster_id(new_cluster_id)
        operations.append(CreateNode(tree.CLUSTER_ID, tree.encode_cluster_id(new_cluster_id)))
    if tree.FEATURE not in nodes:
        features = ottla_version.OF_NEW_CLUSTERS if is_new else {}
        image = image.with_features(features, 0)
        operations.append(CreateNode(tree.FEATURE, tree.encode_feature(features)))
    epoch = image.controller_epoch + 1
    operations.append(CreateNode(tree.broker_path(broker.id), tree.encode_broker(broker, now_ms), is_ephemeral=True))
    operations.append(CreateNode(tree.CONTROLLER, tree.encode_controller(broker.id, now_ms), is_ephemeral=True))
    operations.append(epoch_operation(nodes.get(tree.CONTROLLER_EPOCH), epoch))
    operations.extend(left_over_deletions(nodes))
    alive = image.with_brokers({**image.brokers, broker.id: broker}).with_controller(broker.id, epoch)
    settled = decide_minimum(alive, minimum)
    leaders = decide_leaders(settled.image, broker.id)
    return Decision((*operations, *settled.operations, *leaders.operations), leaders.image, leaders.reply)


def epoch_operation(node: Node | None, epoch: int) -> StoreOperation:
    if node is None:
        return CreateNode(tree.CONTROLLER_EPOCH, tree.encode_number(epoch))
    return SetNode(tree.CONTROLLER_EPOCH, tree.encode_number(epoch), node.version)
