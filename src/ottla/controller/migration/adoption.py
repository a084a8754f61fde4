"""The metadata for partitions that came from somewhere else: a new store that knows their topics.

Topics keep their ids, their settings and their leader epochs, so that clients notice nothing but a new leader epoch.
Pure but for `write_store`, which makes the file of the embedded store in one transaction.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Final, NamedTuple
from uuid import UUID

from ottla.controller import acl_nodes, token_nodes, tree
from ottla.controller.decisions import ottla_version
from ottla.controller.decisions.machine import Decision, TopicResult, create_operations
from ottla.controller.decisions.quota_changes import (
    Parts,
    QuotaAlteration,
    QuotaOperation,
    QuotaResult,
    decide_quota_changes,
)
from ottla.controller.image import NO_LEADER, MetadataImage, PartitionImage, TopicImage
from ottla.controller.producer_ids import BLOCK_SIZE
from ottla.controller.stores.embedded import FILE_NAME
from ottla.controller.stores.sqlite_tree import SqliteTree
from ottla.controller.stores.store import CreateNode, StoreOperation
from ottla.security.acls import Acls
from ottla.security.delegation_tokens import DelegationToken

# The old cluster may have counted further than the logs show: clients that still run must not meet an older epoch, nor
# a producer another one with its id.
EPOCHS_SKIPPED: Final = 1000
PRODUCER_IDS_SKIPPED: Final = 100_000


class AdoptedTopic(NamedTuple):
    """A topic as it is to be; the place in `leader_epochs` is the number of the partition."""

    name: str
    topic_id: UUID
    leader_epochs: tuple[int, ...]
    configs: Mapping[str, str]


class AdoptedRights(NamedTuple):
    """Access rules, settings of users (texts of SCRAM credentials by mechanism), quotas by entity, tokens."""

    acls: Acls
    users: Mapping[str, Mapping[str, str]]
    quotas: Mapping[Parts, Mapping[str, float]] = MappingProxyType({})
    tokens: Sequence[DelegationToken] = ()


NO_RIGHTS: Final = AdoptedRights({}, {})


def write_store(
    directory: str,
    *,
    node_id: int,
    cluster_id: str,
    topics: Sequence[AdoptedTopic],
    producer_id_max: int,
    rights: AdoptedRights = NO_RIGHTS,
) -> None:
    """Make the metadata store in a folder that has none."""
    store = SqliteTree(os.path.join(directory, FILE_NAME))
    store.open()
    try:
        operations = [*adoption_operations(node_id, cluster_id, topics, producer_id_max), *rights_operations(rights)]
        store.multi(operations)
    finally:
        store.close()


def rights_operations(rights: AdoptedRights) -> Iterator[StoreOperation]:
    for pattern, entries in rights.acls.items():
        yield CreateNode(acl_nodes.acl_path(pattern), acl_nodes.encode_acls(entries))
    for name, config in rights.users.items():
        if config:
            yield CreateNode(tree.config_path(tree.USER_CONFIG, name), tree.encode_config(config))
    yield from quota_decision(rights).operations
    for token in rights.tokens:
        yield CreateNode(token_nodes.token_path(token.token_id), token_nodes.encode_token(token))


def quota_decision(rights: AdoptedRights) -> Decision[list[QuotaResult]]:
    """How the quotas are kept, users' ones beside their passwords; and which of them cannot be."""
    image = MetadataImage().with_user_configs({name: config for name, config in rights.users.items() if config})
    alterations = [
        QuotaAlteration(entity, tuple(QuotaOperation(key, value) for key, value in limits.items()))
        for entity, limits in rights.quotas.items()
    ]
    return decide_quota_changes(image, alterations)


def adoption_operations(
    node_id: int, cluster_id: str, topics: Sequence[AdoptedTopic], producer_id_max: int
) -> Iterator[StoreOperation]:
    yield from (CreateNode(path) for path in (*tree.SKELETON, *acl_nodes.SKELETON, *token_nodes.SKELETON))
    yield CreateNode(tree.CLUSTER_ID, tree.encode_cluster_id(cluster_id))
    yield CreateNode(tree.FEATURE, tree.encode_feature(ottla_version.OF_NEW_CLUSTERS))
    if producer_id_max >= 0:
        yield CreateNode(tree.PRODUCER_ID_BLOCK, tree.encode_producer_id_block(used_block(node_id, producer_id_max)))
    image = MetadataImage(cluster_id=cluster_id)
    for topic in topics:
        made = TopicImage(topic.name, topic.topic_id, adopted_partitions(topic.leader_epochs, node_id))
        yield from create_operations(image, TopicResult(topic.name, topic=made, configs=topic.configs))


def adopted_partitions(leader_epochs: Sequence[int], node_id: int) -> tuple[PartitionImage, ...]:
    """Led by nobody: the first start elects a leader, with an epoch past all those that anybody has seen."""
    return tuple(
        PartitionImage(NO_LEADER, max(epoch, 0) + EPOCHS_SKIPPED, (node_id,), (node_id,)) for epoch in leader_epochs
    )


def used_block(node_id: int, producer_id_max: int) -> tree.ProducerIdBlock:
    """The block that counts as the newest one: all ids up to its end are taken."""
    block = (producer_id_max + PRODUCER_IDS_SKIPPED) // BLOCK_SIZE
    return tree.ProducerIdBlock(node_id, block * BLOCK_SIZE, (block + 1) * BLOCK_SIZE - 1)
