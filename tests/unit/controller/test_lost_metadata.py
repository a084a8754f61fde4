"""Damage of the store's file: a start either has all topics or is refused; it never has fewer topics."""

import shutil
import sqlite3
from collections.abc import Iterable
from functools import partial
from pathlib import Path
from uuid import UUID

import pytest

from ottla.base.names import TopicPartition
from ottla.controller import tree
from ottla.controller.decisions.topic_changes import TopicResult, create_operations
from ottla.controller.image import MetadataImage, PartitionImage, TopicImage
from ottla.controller.image_loader import load_image
from ottla.controller.lost_metadata import LogDirState, check_no_loss, loss_id, loss_problem, read_stored_topics
from ottla.controller.migration.store_import import import_operations
from ottla.controller.stores.sqlite_transaction import CHECKSUM
from ottla.controller.stores.sqlite_tree import SqliteTree
from ottla.controller.stores.store import CreateNode, DeleteNode, SetNode, StoreError, StoreUnusableError

NODE = 1
TOPICS = 12
PARTITIONS = 3
STEP = 211  # bytes from one flipped bit to the next
LEADER = PartitionImage(NODE, 0, (NODE,), (NODE,))


def topic_id(number: int) -> UUID:
    return UUID(int=(0xC0FFEE << 64) + number)


def write_topic(store: SqliteTree, number: int) -> None:
    topic = TopicImage(f"topic-{number}", topic_id(number), (LEADER,) * PARTITIONS)
    store.multi(list(create_operations(MetadataImage(), TopicResult(topic.name, topic=topic, configs={}))))


def filled(path: Path) -> tuple[SqliteTree, LogDirState]:
    """An open store after alternating topic and other changes, and the state of its log directory."""
    store = SqliteTree(str(path))
    store.open()
    store.multi(list(import_operations(NODE, "cluster", [], -1)))
    store.multi([CreateNode("/config/users/u", b"{}")])
    recorded = 0
    for number in range(TOPICS):
        write_topic(store, number)
        recorded = store.last_transaction
        store.multi([SetNode("/config/users/u", b'{"version":1,"config":{"a":"%d"}}' % number)])
    partitions = [TopicPartition(f"topic-{n}", index) for n in range(TOPICS) for index in range(PARTITIONS)]
    return store, LogDirState(str(path.parent), recorded, partitions)


def start(path: Path, folder: LogDirState) -> dict[str, tuple[UUID, int]] | None:
    """The topics after a start; None if the start is refused."""
    store = SqliteTree(str(path))
    try:
        store.open(partial(check_no_loss, str(path), [folder]))
        topics = load_image(store.subtree("/")).topics
    except (StoreError, tree.DamagedNodeError):
        return None
    finally:
        store.close()
    assert all(each.replicas == (NODE,) for topic in topics.values() for each in topic.partitions)
    return {name: (topic.topic_id, len(topic.partitions)) for name, topic in topics.items()}


ALL = {f"topic-{number}": (topic_id(number), PARTITIONS) for number in range(TOPICS)}


def copies(folder: Path, source: Path, name: str, places: Iterable[int]) -> Iterable[Path]:
    """Copies of the store, each with one flipped bit in this file."""
    whole = {each.name: each.read_bytes() for each in source.iterdir()}
    for place in places:
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        for each, data in whole.items():
            flipped = bytearray(data)
            if each == name:
                flipped[place] ^= 1 << place % 8
            (folder / each).write_bytes(flipped)
        yield folder / "tree.db"


def files_of(path: Path, folder: Path) -> Path:
    """The files after a crash at this moment."""
    folder.mkdir()
    for suffix in ("", "-wal"):
        if Path(f"{path}{suffix}").exists():
            shutil.copy(f"{path}{suffix}", folder / f"{path.name}{suffix}")
    return folder


def change(path: Path, statement: str) -> None:
    """A change that no store makes."""
    with sqlite3.connect(path) as database:
        database.execute(statement)
    database.close()


@pytest.mark.parametrize("state", ["in the log", "in the file", "in both"])
@pytest.mark.parametrize("name", ["tree.db", "tree.db-wal"])
def test_a_flipped_bit_loses_no_topic(tmp_path: Path, state: str, name: str) -> None:
    """`in both`: SQLite has copied its log and not begun it anew; what follows the bit is in the file alone then."""
    (tmp_path / "live").mkdir()
    path = tmp_path / "live" / "tree.db"
    store, folder = filled(path)
    if state == "in both":
        store._connection.execute("PRAGMA wal_checkpoint(PASSIVE)")
    elif state == "in the file":
        assert store.checkpoint()
    source = files_of(path, tmp_path / "crashed")
    store.close()
    size = (source / name).stat().st_size
    if size == 0:
        assert (state, name) == ("in the file", "tree.db-wal")
        return
    outcomes = [start(copy, folder) for copy in copies(tmp_path / "copy", source, name, range(0, size, STEP))]
    assert [outcome for outcome in outcomes if outcome not in (None, ALL)] == []
    assert None in outcomes
    if state != "in the log":
        assert ALL in outcomes


@pytest.mark.parametrize("state", ["in the log", "in the file"])
def test_truncated_or_missing_write_ahead_log_loses_no_topic(tmp_path: Path, state: str) -> None:
    (tmp_path / "live").mkdir()
    path = tmp_path / "live" / "tree.db"
    store, folder = filled(path)
    if state == "in the file":
        assert store.checkpoint()
    source = files_of(path, tmp_path / "crashed")
    store.close()
    log = (source / "tree.db-wal").read_bytes()
    for size in range(0, len(log) + 1, 1999):
        (source / "tree.db-wal").write_bytes(log[:size])
        copy = shutil.copytree(source, tmp_path / "copy", dirs_exist_ok=True)
        assert start(copy / "tree.db", folder) in (None, ALL), size
    shutil.rmtree(tmp_path / "copy")
    (source / "tree.db-wal").unlink()
    assert start(source / "tree.db", folder) == (ALL if state == "in the file" else None)


def test_a_bit_in_the_name_of_a_topic_is_seen_by_the_checksum(tmp_path: Path) -> None:
    """For SQLite that is a valid database."""
    path = tmp_path / "tree.db"
    store, folder = filled(path)
    store.close()
    change(path, "UPDATE node SET name = 'topic-x' WHERE name = 'topic-7'")
    with pytest.raises(StoreUnusableError, match=r"not those that were written.*restore it from a backup"):
        SqliteTree(str(path)).open(partial(check_no_loss, str(path), [folder]))


def test_every_kind_of_change_carries_the_checksum_on(tmp_path: Path) -> None:
    path = str(tmp_path / "tree.db")
    for _ in range(3):
        store = SqliteTree(path)
        store.open()
        store.multi([CreateNode("/a"), CreateNode("/a/n_", b"x", is_sequential=True), SetNode("/a", b"1")])
        store.multi([SetNode("/a", b"2"), CreateNode("/e", is_ephemeral=True)])
        store.multi([DeleteNode("/a/n_0000000000"), DeleteNode("/a")])
        store.close()


@pytest.mark.parametrize(
    "statement",
    [
        pytest.param(f"DELETE FROM counter WHERE name = '{CHECKSUM}'", id="never had one"),
        pytest.param("UPDATE counter SET value = value + 1 WHERE name = 'transaction'", id="left behind"),
    ],
)
def test_a_store_of_an_older_version_gets_a_checksum(tmp_path: Path, statement: str) -> None:
    path = tmp_path / "tree.db"
    store, folder = filled(path)
    store.close()
    change(path, statement)
    assert start(path, folder) == ALL
    change(path, "UPDATE node SET data = (SELECT data FROM node WHERE name = 'topic-8') WHERE name = 'topic-7'")
    assert start(path, folder) is None


def test_refused_files_do_not_change(tmp_path: Path) -> None:
    """A log that is put back later must fit: opening the store without it would begin another one."""
    (tmp_path / "live").mkdir()
    path = tmp_path / "live" / "tree.db"
    store, folder = filled(path)
    source = files_of(path, tmp_path / "crashed")
    store.close()
    log = source / "tree.db-wal"
    log.rename(tmp_path / "kept")
    before = (source / "tree.db").read_bytes()
    assert start(source / "tree.db", folder) is None
    assert (source / "tree.db").read_bytes() == before
    assert not log.exists()
    (tmp_path / "kept").rename(log)
    assert start(source / "tree.db", folder) == ALL


def test_an_emptied_file_does_not_take_its_log_with_it(tmp_path: Path) -> None:
    (tmp_path / "live").mkdir()
    path = tmp_path / "live" / "tree.db"
    store, _ = filled(path)
    source = files_of(path, tmp_path / "crashed")
    store.close()
    log = (source / "tree.db-wal").read_bytes()
    (source / "tree.db").write_bytes(b"")
    with pytest.raises(StoreUnusableError, match=r"empty or missing, but .*-wal is not"):
        SqliteTree(str(source / "tree.db")).open()
    assert (source / "tree.db-wal").read_bytes() == log


def folder_of(transaction: int | None, *partitions: TopicPartition) -> LogDirState:
    return LogDirState("/logs", transaction, partitions)


@pytest.mark.parametrize(
    ("recorded", "names", "answer"),
    [
        (None, (), None),
        (None, ("topic-0", "gone"), None),
        (None, ("topic-0", "__consumer_offsets"), "does not have __consumer_offsets, which the log directories have"),
        (1, ("topic-0", "gone", "__consumer_offsets"), None),
        (10_000, ("topic-0",), "Topics that were deleted since would come back empty"),
        (10_000, ("topic-0", "a", "b", "c", "d", "e", "f"), "6 partitions would become -stray, of a, b, c, d, e and 1"),
    ],
)
def test_the_rules(tmp_path: Path, recorded: int | None, names: tuple[str, ...], answer: str | None) -> None:
    store, _ = filled(tmp_path / "tree.db")
    folders = [folder_of(recorded, *(TopicPartition(name, 0) for name in names)), folder_of(None)]
    stored = read_stored_topics(store.path, store, folders)
    problem = loss_problem(stored, folders)
    if answer is None:
        assert problem is None
    else:
        assert problem is not None
        assert answer in problem
        assert problem.endswith(f"--override ottla.metadata.accepted.loss={loss_id(stored, folders)}")
    store.close()


def test_an_empty_store_is_a_new_one_where_nothing_is_stored(tmp_path: Path) -> None:
    assert loss_problem(read_stored_topics("/logs/x", None, []), [folder_of(42)]) is None
    refused = loss_problem(read_stored_topics("/logs/x", None, []), [folder_of(None, TopicPartition("t", 0))])
    assert refused is not None
    assert "is empty, but the log directories hold 1 partition." in refused
