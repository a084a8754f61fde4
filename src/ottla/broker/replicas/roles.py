"""From the metadata image to what replicas need to know."""

from __future__ import annotations

from ottla.controller.image import PartitionImage
from ottla.replication.role import Role


def role_of(state: PartitionImage) -> Role:
    """The role of a partition's replicas, as the image tells it."""
    return Role(
        leader=state.leader,
        leader_epoch=state.leader_epoch,
        isr=state.isr,
        replicas=state.replicas,
        partition_epoch=state.partition_epoch,
        adding=state.adding_replicas,
        removing=state.removing_replicas,
        eligible=state.eligible,
        is_recovering=state.leader_recovery_state != 0,
    )
