"""The questions that a reader asks, each one a bounded piece. They run in the reader's thread."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple, TypeVar

from ottla.base.names import TopicPartition
from ottla.client.addresses import Address
from ottla.client.admin import Admin, Topic
from ottla.client.client import Client
from ottla.client.errors import RefusedError
from ottla.client.groups import Listing, committed_offsets_of, describe_groups, list_groups
from ottla.client.log_dirs import describe_log_dirs
from ottla.client.offsets import ask_offsets
from ottla.console.clusters.snapshot import Broker, Folder, Group

PARTITIONS_PER_REQUEST = 1_000
GROUPS_PER_REQUEST = 200
GROUPS_PER_PIECE = 1_000  # whose coordinators are found with one request
COMMITS_PER_REQUEST = 2_000
WITHOUT_MEMBERS = frozenset({"Empty", "Dead"})
T = TypeVar("T")


class Metadata(NamedTuple):
    """Brokers and topics."""

    cluster_id: str | None
    controller_id: int
    brokers: dict[int, Broker]
    topics: dict[str, Topic]


class Sizes(NamedTuple):
    """What one broker says about its folders for some partitions."""

    folders: list[tuple[str, str | None, int, int]]  # path, problem, total, usable
    replicas: list[tuple[str, TopicPartition, int]]  # path, partition, bytes


def pieces(items: Iterable[T], size: int) -> Iterator[list[T]]:
    piece: list[T] = []
    for item in items:
        piece.append(item)
        if len(piece) == size:
            yield piece
            piece = []
    if piece:
        yield piece


def ask_metadata(client: Client, bootstrap: Sequence[Address]) -> Metadata:
    """All topics and brokers. From then on any of these brokers will do, should the first ones go."""
    client.metadata = None
    found = client.cluster()
    learned = [Address(broker.host, broker.port) for broker in found.brokers]
    client.bootstrap = list(dict.fromkeys([*bootstrap, *learned]))
    topics = {topic.name: topic for topic in Admin(client).topics()}
    brokers = {item.node_id: Broker(item.node_id, item.host, item.port, item.rack) for item in found.brokers}
    return Metadata(found.cluster_id, found.controller_id, brokers, topics)


def led_pieces(topics: Mapping[str, Topic], live: Iterable[int]) -> list[tuple[int, list[TopicPartition]]]:
    """Which leader is asked about which partitions, in pieces."""
    by_leader: defaultdict[int, list[TopicPartition]] = defaultdict(list)
    for topic in topics.values():
        for partition in topic.partitions:
            by_leader[partition.leader].append(TopicPartition(topic.name, partition.number))
    there = set(live)
    return [
        (leader, piece)
        for leader, led in by_leader.items()
        if leader in there
        for piece in pieces(led, PARTITIONS_PER_REQUEST)
    ]


def ask_ends(client: Client, leader: int, led: Sequence[TopicPartition], time: int) -> dict[TopicPartition, int]:
    """Offsets at a special time; a partition that has just moved is left out until the next round."""
    return {
        place: answer.offset
        for place, answer in ask_offsets(client, leader, led, time)
        if not isinstance(answer, RefusedError)
    }


def ask_groups(client: Client) -> list[Listing]:
    return list_groups(client)


def ask_members(client: Client, listed: Sequence[Listing]) -> dict[str, Group]:
    """Groups with their members; one that is gone meanwhile, or is none of consumers, has none."""
    found = {item.group_id: Group(item.group_id, item.protocol_type, item.state, item.type) for item in listed}
    for group_id, answer in describe_groups(client, found).items():
        if not isinstance(answer, RefusedError):
            found[group_id] = found[group_id]._replace(
                state=answer.state,
                assignor=answer.assignor,
                coordinator=answer.coordinator,
                members=tuple(answer.members),
            )
    return found


def groups_per_request(commits: Mapping[str, Mapping[TopicPartition, int]]) -> int:
    """So many that an answer stays short, judged by what they have committed last."""
    each = sum(map(len, commits.values())) / len(commits) if commits else 0.0
    return max(1, min(GROUPS_PER_REQUEST, int(COMMITS_PER_REQUEST / max(1.0, each))))


def ask_commits(client: Client, group_ids: Sequence[str], per_request: int) -> dict[str, dict[TopicPartition, int]]:
    return {
        group_id: {place: item.offset for place, item in answer.items()}
        for group_id, answer in committed_offsets_of(client, group_ids, per_request).items()
        if not isinstance(answer, RefusedError)
    }


def ask_sizes(client: Client, broker: int, partitions: Sequence[TopicPartition]) -> Sizes:
    found = Sizes([], [])
    for folder in describe_log_dirs(client, [broker], partitions)[broker]:
        problem = folder.error.name if folder.error else None
        found.folders.append((folder.path, problem, folder.total_bytes, folder.usable_bytes))
        found.replicas.extend((folder.path, replica.partition, replica.size_bytes) for replica in folder.replicas)
    return found


def replicas_of(topics: Mapping[str, Topic], broker: int) -> list[TopicPartition]:
    return [
        TopicPartition(topic.name, partition.number)
        for topic in topics.values()
        for partition in topic.partitions
        if broker in partition.replicas
    ]


def folders_of(answers: Iterable[Sizes]) -> tuple[Folder, ...]:
    """The folders of one broker, summed up over all pieces."""
    folders: dict[str, Folder] = {}
    for answer in answers:
        for path, problem, total, usable in answer.folders:
            folders.setdefault(path, Folder(path, problem, 0, 0, total, usable))
        for path, _, size_bytes in answer.replicas:
            folder = folders[path]
            folders[path] = folder._replace(replicas=folder.replicas + 1, size_bytes=folder.size_bytes + size_bytes)
    return tuple(folders.values())
