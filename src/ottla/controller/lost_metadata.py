"""Detects a metadata store that lacks topics of the log directories: a start would rename their partitions to stray.

Each log directory records the last transaction that created or deleted a partition in it
(storage/checkpoints.py). Rules for the store of a standalone broker:

1. If the directories have partitions and the store has no cluster id, the store was emptied.
2. If the last transaction of the store is lower than that of a directory, the store has lost transactions or is an old
   copy.
3. If a directory has no transaction number, because an older version wrote it, and the store lacks an internal topic
   of that directory, the store has lost it: internal topics are hardly ever deleted.

A topic that was deleted right before a crash violates none of these rules, because the store's number is higher then.
The rules hold for any kind of store whose transaction numbers increase.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Final, NamedTuple

from ottla.base.names import INTERNAL_TOPICS, TopicPartition
from ottla.base.text import format_count
from ottla.controller import tree
from ottla.controller.stores.sqlite_tree import SqliteTree
from ottla.controller.stores.store import StoreUnusableError

ACCEPTED_KEY: Final = "ottla.metadata.accepted.loss"
NAMES_MAX: Final = 5  # in a message
BACKUP_PAGE: Final = "docs/backup.md"


class LogDirState(NamedTuple):
    """The partitions and the recorded transaction of a log directory."""

    path: str
    transaction: int | None
    partitions: Collection[TopicPartition]


class StoredTopics(NamedTuple):
    """The contents of a store, as far as the rules need them."""

    path: str
    cluster_id: str | None  # None: the store is empty
    transaction: int  # the last one
    partition_counts: Mapping[str, int]  # of the topics in the log directories


def read_stored_topics(path: str, store: SqliteTree | None, folders: Sequence[LogDirState]) -> StoredTopics:
    """Read the topics of a store. Raises DamagedNodeError."""
    cluster = store.get(tree.CLUSTER_ID) if store is not None else None
    if store is None or cluster is None:
        return StoredTopics(path, None, 0, {})
    counts: dict[str, int] = {}
    for name in sorted({partition.topic for folder in folders for partition in folder.partitions}):
        node = store.get(tree.topic_path(name))
        if node is not None:
            counts[name] = len(tree.decode_topic(name, node.data).replicas)
    return StoredTopics(path, tree.decode_cluster_id(cluster.data), store.last_transaction, counts)


def check_no_loss(path: str, folders: Sequence[LogDirState], store: SqliteTree | None) -> None:
    """Check that no topics are lost; for tools that copy a store. Raises StoreUnusableError."""
    problem = loss_problem(read_stored_topics(path, store, folders), folders)
    if problem is not None:
        raise StoreUnusableError(problem)


def find_strays(stored: StoredTopics, folders: Sequence[LogDirState]) -> dict[str, list[TopicPartition]]:
    """Return the partitions, by topic, that would become stray at a start with this store."""
    strays: dict[str, list[TopicPartition]] = {}
    for folder in folders:
        for partition in folder.partitions:
            if partition.partition >= stored.partition_counts.get(partition.topic, 0):
                strays.setdefault(partition.topic, []).append(partition)
    return dict(sorted(strays.items()))


def loss_problem(stored: StoredTopics, folders: Sequence[LogDirState]) -> str | None:
    """Return the problem and its solution in one line; None if the store may be used."""
    count = sum(len(folder.partitions) for folder in folders)
    if stored.cluster_id is None:
        return empty_store_problem(stored, count) if count else None
    strays, recorded = find_strays(stored, folders), last_recorded_transaction(folders)
    if recorded > stored.transaction:
        newest = next(folder.path for folder in folders if folder.transaction == recorded)
        return (
            f"{stored.path} is older than the log directories: its last transaction is {stored.transaction}, but "
            f"{newest} has recorded {recorded}. {describe_strays(strays)}. {loss_remedy(stored, folders)}"
        )
    unnumbered = [folder for folder in folders if folder.transaction is None]
    internal = find_strays(stored, unnumbered).keys() & INTERNAL_TOPICS
    if internal:
        return (
            f"{stored.path} does not have {', '.join(sorted(internal))}, which the log directories have: it has lost "
            f"metadata. {describe_strays(strays)}. {loss_remedy(stored, folders)}"
        )
    return None


def empty_store_problem(stored: StoredTopics, count: int) -> str:
    path = stored.path
    return (
        f"{path} is empty, but the log directories hold {format_count(count, 'partition')}. Put it back from a backup, "
        f"with its -wal file if there is one. Without a backup, move {path} and its -wal and -shm files "
        "away, and make a new "
        "one from the log directories: ottla migrate from-kafka FOLDER --in-place --all --internal. To start empty, "
        "move the partitions' folders away."
    )


def describe_strays(strays: Mapping[str, Sequence[TopicPartition]]) -> str:
    if not strays:
        return "Topics that were deleted since would come back empty"
    names = list(strays)
    some = ", ".join(names[:NAMES_MAX]) + (f" and {len(names) - NAMES_MAX} more" if len(names) > NAMES_MAX else "")
    partitions = sum(map(len, strays.values()))
    return f"{format_count(partitions, 'partition')} would become -stray, of {some}"


def last_recorded_transaction(folders: Sequence[LogDirState]) -> int:
    """Return the last recorded transaction; 0 if no directory has one."""
    return max((folder.transaction or 0 for folder in folders), default=0)


def loss_id(stored: StoredTopics, folders: Sequence[LogDirState]) -> str:
    """Return the missing transactions in the format of the setting. It applies to no other store or later loss."""
    return f"{stored.transaction}-{last_recorded_transaction(folders)}"


def loss_remedy(stored: StoredTopics, folders: Sequence[LogDirState]) -> str:
    return (
        f"Put the newest copy of it back, with its -wal file if there is one ({BACKUP_PAGE}). To use this one "
        f"all the same, as after a restore, start once with --override {ACCEPTED_KEY}={loss_id(stored, folders)}"
    )
