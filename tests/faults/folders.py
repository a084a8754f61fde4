"""A broker with two log folders, and partitions that lie where a test wants them."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from kafka.protocol.admin.cluster import AlterReplicaLogDirsRequest, DescribeLogDirsRequest
from kafka.protocol.metadata import MetadataRequest
from tests.conformance.peer import Peer
from tests.faults.disk_faults import DiskFaults, broker_with_faults

UNKNOWN_TOPIC_OR_PARTITION = 3


class Folders:
    """`first` holds the metadata store as well; `second` is the one that tests break."""

    def __init__(self, directory: Path) -> None:
        self.first = directory / "first"
        self.second = directory / "second"

    @property
    def setting(self) -> str:
        return f"{self.first},{self.second}"


def move(peer: Peer, folder: Path, topic: str, partition: int = 0) -> int:
    """Ask for a partition to lie in a folder; the error code."""
    shape = AlterReplicaLogDirsRequest.AlterReplicaLogDir
    rows = [shape(path=str(folder), topics=[shape.AlterReplicaLogDirTopic(name=topic, partitions=[partition])])]
    return int(peer.ask(AlterReplicaLogDirsRequest(dirs=rows), 2).results[0].partitions[0].error_code)


def create_in(peer: Peer, folder: Path, topic: str, **configs: object) -> None:
    assert move(peer, folder, topic) == UNKNOWN_TOPIC_OR_PARTITION
    peer.create_topic(topic, **configs)
    assert where(peer, topic) == [(str(folder), False)]


def describe(peer: Peer, version: int = 4) -> Any:
    return peer.ask(DescribeLogDirsRequest(topics=None), version)


def rows_of(peer: Peer, topic: str, partition: int = 0) -> Iterator[tuple[str, Any]]:
    """(folder, row) for each folder that has the partition or a copy of it."""
    for result in describe(peer).results:
        for one in result.topics:
            for row in one.partitions:
                if (one.name, row.partition_index) == (topic, partition):
                    yield result.log_dir, row


def where(peer: Peer, topic: str, partition: int = 0) -> list[tuple[str, bool]]:
    """(folder, whether it is a copy under way) for each folder that has the partition."""
    return [(folder, row.is_future_key) for folder, row in rows_of(peer, topic, partition)]


def folder_errors(peer: Peer) -> dict[str, int]:
    return {result.log_dir: result.error_code for result in describe(peer).results}


def metadata_of(peer: Peer, topic: str) -> Any:
    """The row of the topic's first partition."""
    rows = [MetadataRequest.MetadataRequestTopic(name=topic, topic_id=None)]
    return peer.ask(MetadataRequest(topics=rows, allow_auto_topic_creation=False), 12).topics[0].partitions[0]


def broker_with_two_folders(
    broker_factory: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, directory: Path, **settings: object
) -> tuple[Any, DiskFaults, Folders]:
    folders = Folders(directory)
    broker, faults = broker_with_faults(broker_factory, monkeypatch, directory, log_dirs=folders.setting, **settings)
    return broker, faults, folders
