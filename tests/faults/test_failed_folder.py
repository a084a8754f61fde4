"""A folder of log.dirs whose disk fails is out of service as a whole; the others go on, as with Apache Kafka 4.3."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from kafka.protocol.admin.topics import DeleteRecordsRequest, DescribeTopicPartitionsRequest
from tests.conformance.peer import LATEST, Peer
from tests.conformance.raw_batches import batch
from tests.conformance.waiting import eventually
from tests.faults.disk_faults import broker_with_faults
from tests.faults.folders import (
    Folders,
    broker_with_two_folders,
    create_in,
    describe,
    folder_errors,
    metadata_of,
    move,
    where,
)

LEADER_NOT_AVAILABLE = 5
KAFKA_STORAGE_ERROR = 56
BrokerFactory = Callable[..., Any]


def delete_records_error(peer: Peer, topic: str) -> int:
    shape = DeleteRecordsRequest.DeleteRecordsTopic
    rows = [shape(name=topic, partitions=[shape.DeleteRecordsPartition(partition_index=0, offset=-1)])]
    answer = peer.ask(DeleteRecordsRequest(topics=rows, timeout_ms=5000), 2)
    return int(answer.topics[0].partitions[0].error_code)


def errors_of(peer: Peer, topic: str) -> set[int]:
    """What every kind of request says about the topic's first partition."""
    return {
        peer.produce(topic, batch()).error_code,
        peer.fetch(topic, 0).error_code,
        peer.list_offset(topic, LATEST).error_code,
        delete_records_error(peer, topic),
    }


def offsets(peer: Peer, topic: str) -> list[int]:
    return [header.base_offset for header in peer.stored_batches(topic)]


def test_one_failed_write_takes_the_whole_folder_out_and_leaves_the_other(
    broker_factory: BrokerFactory, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    broker, faults, folders = broker_with_two_folders(broker_factory, monkeypatch, tmp_path)
    with Peer(broker.bootstrap) as peer:
        create_in(peer, folders.first, "well")
        for topic in ("sick", "neighbour"):
            create_in(peer, folders.second, topic)
            assert [peer.produce(topic, batch()).base_offset for _ in range(3)] == [0, 1, 2]
        with faults.during("write_at", "EIO", "/sick-0"):
            assert peer.produce("sick", batch()).error_code == KAFKA_STORAGE_ERROR
        for topic in ("sick", "neighbour"):
            assert errors_of(peer, topic) == {KAFKA_STORAGE_ERROR}
            row = eventually_without_leader(peer, topic)
            assert (row.error_code, row.leader_id) == (LEADER_NOT_AVAILABLE, -1)
            assert (row.replica_nodes, row.isr_nodes, row.offline_replicas) == ([1], [], [1])
            told = described(peer, topic)
            assert (told.error_code, told.leader_id, told.isr_nodes, told.offline_replicas) == (0, -1, [], [1])
            assert (told.eligible_leader_replicas, told.last_known_elr) == ([1], [1])
        assert folder_errors(peer) == {str(folders.first): 0, str(folders.second): KAFKA_STORAGE_ERROR}
        failed = next(result for result in describe(peer).results if result.error_code)
        assert (failed.topics, failed.total_bytes, failed.usable_bytes) == ([], -1, -1)
        assert move(peer, folders.second, "well") == KAFKA_STORAGE_ERROR
        assert move(peer, folders.first, "sick") == KAFKA_STORAGE_ERROR
        peer.create_topic("new", 3)
        assert {where(peer, "new", index)[0] for index in range(3)} == {(str(folders.first), False)}
        assert peer.produce("well", batch()).error_code == peer.produce("new", batch()).error_code == 0
    assert f"The log directory {folders.second} is offline" in broker.log_text
    broker.restart()
    with Peer(broker.bootstrap) as peer:
        for topic in ("sick", "neighbour"):
            assert offsets(peer, topic) == [0, 1, 2]
            assert peer.produce(topic, batch()).base_offset == 3
            assert metadata_of(peer, topic).isr_nodes == [1]
    broker.assert_no_traceback()


def described(peer: Peer, topic: str) -> Any:
    """The same in the newer API, which knows the replicas that may lead again."""
    shape = DescribeTopicPartitionsRequest
    request = shape(topics=[shape.TopicRequest(name=topic)], response_partition_limit=10, cursor=None)
    return peer.ask(request, 0).topics[0].partitions[0]


def eventually_without_leader(peer: Peer, topic: str) -> Any:
    assert eventually(lambda: metadata_of(peer, topic).leader_id == -1)
    return metadata_of(peer, topic)


@pytest.mark.parametrize(
    ("is_only", "reason"),
    [(True, "all directories of log.dirs have failed"), (False, "which holds the metadata store, has failed")],
    ids=["only", "first"],
)
def test_a_broker_whose_only_or_first_folder_fails_ends_with_one_line(
    broker_factory: BrokerFactory, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, is_only: bool, reason: str
) -> None:
    folders = tmp_path / "first" if is_only else Folders(tmp_path).setting
    broker, faults = broker_with_faults(broker_factory, monkeypatch, tmp_path, log_dirs=folders)
    with Peer(broker.bootstrap) as peer:
        create_in(peer, tmp_path / "first", "kept")
        assert peer.produce("kept", batch()).error_code == 0
        with faults.during("write_at", "EIO", "/kept-0"):
            assert peer.produce("kept", batch()).error_code == KAFKA_STORAGE_ERROR
            assert broker.wait() == 1
    assert [line for line in broker.log_text.splitlines() if line.startswith("ottla broker: ") and reason in line]
    broker.assert_no_traceback()
    broker.start()
    with Peer(broker.bootstrap) as peer:
        assert offsets(peer, "kept") == [0]


def test_a_folder_that_is_missing_at_the_start_is_left_out_and_comes_back(
    broker_factory: BrokerFactory, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    broker, _, folders = broker_with_two_folders(broker_factory, monkeypatch, tmp_path)
    with Peer(broker.bootstrap) as peer:
        create_in(peer, folders.first, "well")
        create_in(peer, folders.second, "away")
        assert peer.produce("away", batch()).base_offset == 0
    broker.stop()
    kept = tmp_path / "kept"
    shutil.move(folders.second, kept)
    folders.second.touch()
    broker.start()
    with Peer(broker.bootstrap) as peer:
        assert errors_of(peer, "away") == {KAFKA_STORAGE_ERROR}
        assert eventually_without_leader(peer, "away").offline_replicas == [1]
        assert folder_errors(peer)[str(folders.second)] == KAFKA_STORAGE_ERROR
        assert peer.produce("well", batch()).error_code == 0
        peer.create_topic("new")
        assert where(peer, "new") == [(str(folders.first), False)]
    broker.stop()
    folders.second.unlink()
    shutil.move(kept, folders.second)
    broker.start()
    with Peer(broker.bootstrap) as peer:
        assert offsets(peer, "away") == [0]
        assert peer.produce("away", batch()).base_offset == 1


def test_a_broker_without_any_usable_folder_does_not_start(
    broker_factory: BrokerFactory, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    folders = (tmp_path / "one", tmp_path / "two")
    for folder in folders:
        folder.touch()
    broker = broker_factory(start=False, log_dirs=f"{folders[0]},{folders[1]}")
    broker.launch()
    assert broker.wait() == 1
    for folder in folders:
        assert f"Cannot use the log directory {folder}" in broker.log_text
    broker.assert_no_traceback()


def test_a_folder_that_vanishes_is_noticed_by_itself(
    broker_factory: BrokerFactory, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Without any write, the checkpoint of the high watermarks detects the failure."""
    broker, _, folders = broker_with_two_folders(
        broker_factory, monkeypatch, tmp_path, replica_high_watermark_checkpoint_interval_ms=50
    )
    with Peer(broker.bootstrap) as peer:
        create_in(peer, folders.second, "away")
        shutil.move(folders.second, tmp_path / "kept")
        assert eventually(lambda: folder_errors(peer)[str(folders.second)] == KAFKA_STORAGE_ERROR)
        assert errors_of(peer, "away") == {KAFKA_STORAGE_ERROR}
    broker.assert_no_traceback()


def test_a_folder_that_fails_when_a_partition_is_made_gives_way_to_the_next(
    broker_factory: BrokerFactory, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    broker, faults, folders = broker_with_two_folders(broker_factory, monkeypatch, tmp_path)
    with Peer(broker.bootstrap) as peer:
        create_in(peer, folders.first, "well")  # so that the second has fewer
        with faults.during("make_directory", "EIO", "/second/"):
            peer.create_topic("late")
        assert where(peer, "late") == [(str(folders.first), False)]
        assert folder_errors(peer)[str(folders.second)] == KAFKA_STORAGE_ERROR
        assert peer.produce("late", batch()).base_offset == 0
    broker.assert_no_traceback()
