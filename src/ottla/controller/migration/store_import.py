"""Creates the metadata store for partitions that were imported from another cluster.

Topics keep their ids, settings and leader epochs, so clients only notice a new leader epoch. All functions are pure
except `write_store`, which creates the file of the embedded store in one transaction.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Final, NamedTuple
from uuid import UUID

from ottla.controller import acl_nodes, token_nodes, tree
from ottla.controller.decisions import ottla_version
from ottla.controller.decisions.decision import Decision
from ottla.controller.decisions.quota_changes import (
    EntityParts,
    QuotaAlteration,
    QuotaOperation,
    QuotaResult,
    decide_quota_changes,
)
from ottla.controller.decisions.topic_changes import TopicResult, create_operations
from ottla.controller.image import NO_LEADER, MetadataImage, PartitionImage, TopicImage
from ottla.controller.producer_ids import BLOCK_SIZE
from ottla.controller.stores.embedded import FILE_NAME
from ottla.controller.stores.sqlite_tree import SqliteTree
from ottla.controller.stores.store import CreateNode, StoreOperation
from ottla.security.acls import Acls
from ottla.security.delegation_tokens import DelegationToken

# The old cluster may have had higher values than the logs show: running clients must not get an older leader epoch, and
# producer ids must not be assigned twice.
EPOCHS_SKIPPED: Final = 1000
PRODUCER_IDS_SKIPPED: Final = 100_000


class ImportedTopic(NamedTuple):
    """A topic to create; `leader_epochs` has one entry for each partition."""

    name: str
    topic_id: UUID
    leader_epochs: tuple[int, ...]
    configs: Mapping[str, str]


class ImportedRights(NamedTuple):
    """ACLs, users (SCRAM credentials by mechanism), quotas by entity, and delegation tokens."""

    acls: Acls
    users: Mapping[str, Mapping[str, str]]
    quotas: Mapping[EntityParts, Mapping[str, float]] = MappingProxyType({})
    tokens: Sequence[DelegationToken] = ()


NO_RIGHTS: Final = ImportedRights({}, {})


def write_store(
    directory: str,
    *,
    node_id: int,
    cluster_id: str,
    topics: Sequence[ImportedTopic],
    producer_id_max: int,
    rights: ImportedRights = NO_RIGHTS,
) -> int:
    """Create the metadata store in a directory without one; returns the number of its transaction."""
    store = SqliteTree(os.path.join(directory, FILE_NAME))
    store.open()
    try:
        operations = [*import_operations(node_id, cluster_id, topics, producer_id_max), *rights_operations(rights)]
        store.multi(operations)
        return store.last_transaction
    finally:
        store.close()


def rights_operations(rights: ImportedRights) -> Iterator[StoreOperation]:
    for pattern, entries in rights.acls.items():
        yield CreateNode(acl_nodes.acl_path(pattern), acl_nodes.encode_acls(entries))
    for name, config in rights.users.items():
        if config:
            yield CreateNode(tree.config_path(tree.USER_CONFIG, name), tree.encode_config(config))
    yield from decide_quotas(rights).operations
    for token in rights.tokens:
        yield CreateNode(token_nodes.token_path(token.token_id), token_nodes.encode_token(token))


def decide_quotas(rights: ImportedRights) -> Decision[list[QuotaResult]]:
    """Return the decision that stores the quotas; its reply has the invalid ones."""
    image = MetadataImage().with_user_configs({name: config for name, config in rights.users.items() if config})
    alterations = [
        QuotaAlteration(entity, tuple(QuotaOperation(key, value) for key, value in limits.items()))
        for entity, limits in rights.quotas.items()
    ]
    return decide_quota_changes(image, alterations)


def import_operations(
    node_id: int, cluster_id: str, topics: Sequence[ImportedTopic], producer_id_max: int
) -> Iterator[StoreOperation]:
    yield from (
        CreateNode(path) for path in (*tree.SKELETON, *acl_nodes.PERSISTENT_PATHS, *token_nodes.PERSISTENT_PATHS)
    )
    yield CreateNode(tree.CLUSTER_ID, tree.encode_cluster_id(cluster_id))
    yield CreateNode(tree.FEATURE, tree.encode_feature(ottla_version.NEW_CLUSTER_FEATURES))
    if producer_id_max >= 0:
        yield CreateNode(tree.PRODUCER_ID_BLOCK, tree.encode_producer_id_block(used_block(node_id, producer_id_max)))
    image = MetadataImage(cluster_id=cluster_id)
    for topic in topics:
        made = TopicImage(topic.name, topic.topic_id, imported_partitions(topic.leader_epochs, node_id))
        yield from create_operations(image, TopicResult(topic.name, topic=made, configs=topic.configs))


def imported_partitions(leader_epochs: Sequence[int], node_id: int) -> tuple[PartitionImage, ...]:
    """Return partitions without a leader: the first start elects one, with an epoch above all previous ones."""
    return tuple(
        PartitionImage(NO_LEADER, max(epoch, 0) + EPOCHS_SKIPPED, (node_id,), (node_id,)) for epoch in leader_epochs
    )


def used_block(node_id: int, producer_id_max: int) -> tree.ProducerIdBlock:
    """Return the block to store as the newest one: all ids up to its end are used."""
    block = (producer_id_max + PRODUCER_IDS_SKIPPED) // BLOCK_SIZE
    return tree.ProducerIdBlock(node_id, block * BLOCK_SIZE, (block + 1) * BLOCK_SIZE - 1)
