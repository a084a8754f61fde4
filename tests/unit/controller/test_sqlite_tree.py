"""The SQLite file: ZooKeeper's rules, and atomic transactions after a crash."""

import os
import shutil
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from ottla.controller.stores.sqlite_tree import SqliteTree
from ottla.controller.stores.store import (
    CheckNode,
    CreateNode,
    DeleteNode,
    Refusal,
    SetNode,
    StoreError,
    StoreUnusableError,
    TransactionRefusedError,
)

KILLS = 15


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "tree.db")


@pytest.fixture
def tree(path: str) -> Iterator[SqliteTree]:
    opened = SqliteTree(path)
    opened.open()
    yield opened
    opened.close()


def reopened(path: str) -> SqliteTree:
    tree = SqliteTree(path)
    tree.open()
    return tree


def refusal(tree: SqliteTree, *operations: CreateNode | SetNode | DeleteNode | CheckNode) -> Refusal:
    with pytest.raises(TransactionRefusedError) as caught:
        tree.multi(operations)
    return caught.value.reason


# ---- the rules of the tree


def test_a_new_node_has_version_0_and_each_set_adds_one(tree: SqliteTree) -> None:
    tree.multi([CreateNode("/a", b"one")])
    assert tree.multi([SetNode("/a", b"two")])[0].version == 1
    assert tree.multi([SetNode("/a", b"three", expected_version=1)])[0].version == 2
    node = tree.get("/a")
    assert node is not None
    assert (node.data, node.version) == (b"three", 2)


def test_an_absent_node_is_none(tree: SqliteTree) -> None:
    assert tree.get("/a") is None
    assert tree.children("/a") == []
    assert tree.subtree("/a") == {}


def test_refusals_are_those_of_zookeeper(tree: SqliteTree) -> None:
    tree.multi([CreateNode("/a"), CreateNode("/a/b")])
    assert refusal(tree, CreateNode("/x/y")) is Refusal.NO_PARENT
    assert refusal(tree, CreateNode("/a")) is Refusal.NODE_EXISTS
    assert refusal(tree, DeleteNode("/a")) is Refusal.NOT_EMPTY
    assert refusal(tree, DeleteNode("/x")) is Refusal.NO_NODE
    assert refusal(tree, SetNode("/x", b"")) is Refusal.NO_NODE
    assert refusal(tree, SetNode("/a", b"", expected_version=7)) is Refusal.BAD_VERSION
    assert refusal(tree, DeleteNode("/a/b", expected_version=7)) is Refusal.BAD_VERSION
    assert refusal(tree, CheckNode("/a", 7)) is Refusal.BAD_VERSION


def test_a_refused_transaction_leaves_nothing_behind(tree: SqliteTree) -> None:
    tree.multi([CreateNode("/a", b"one")])
    refusal(tree, SetNode("/a", b"two"), CreateNode("/b"), CheckNode("/a", 5))
    node = tree.get("/a")
    assert node is not None
    assert (node.data, node.version) == (b"one", 0)
    assert tree.get("/b") is None


def test_a_transaction_sees_its_own_changes(tree: SqliteTree) -> None:
    tree.multi([CreateNode("/a"), CreateNode("/a/b"), SetNode("/a", b"x"), CheckNode("/a", 1), DeleteNode("/a/b")])
    assert list(tree.subtree("/")) == ["/a"]
    assert refusal(tree, CreateNode("/c"), DeleteNode("/c"), CreateNode("/c/d")) is Refusal.NO_PARENT


def test_sequential_nodes_are_numbered_on(tree: SqliteTree) -> None:
    tree.multi([CreateNode("/q")])
    numbered = CreateNode("/q/n_", is_sequential=True)
    assert [outcome.path for outcome in tree.multi([numbered, numbered])] == ["/q/n_0000000000", "/q/n_0000000001"]
    tree.multi([DeleteNode("/q/n_0000000001")])
    assert tree.multi([numbered])[0].path == "/q/n_0000000002"


def test_children_and_subtrees_are_not_misled_by_similar_names(tree: SqliteTree) -> None:
    paths = ["/a", "/a/b", "/a/b/c", "/a/b-c", "/a/b-c/d", "/a/b.c", "/a/b0", "/ab", "/ab/c", "/a0"]
    tree.multi([CreateNode(path) for path in sorted(paths, key=lambda each: (each.count("/"), each))])
    assert tree.children("/a") == ["b", "b-c", "b.c", "b0"]
    assert tree.children("/") == ["a", "a0", "ab"]
    assert set(tree.subtree("/a/b")) == {"/a/b", "/a/b/c"}
    assert set(tree.subtree("/a")) == {path for path in paths if path == "/a" or path.startswith("/a/")}
    assert set(tree.subtree("/")) == set(paths)


def test_parents_come_before_their_children(tree: SqliteTree) -> None:
    tree.multi([CreateNode("/a"), CreateNode("/a/z"), CreateNode("/a/z/b"), CreateNode("/a/z-1")])
    seen: list[str] = []
    for path in tree.subtree("/"):
        parent = path.rpartition("/")[0]
        assert not parent or parent in seen
        seen.append(path)


def test_the_creating_transaction_is_remembered(tree: SqliteTree) -> None:
    tree.multi([CreateNode("/a"), CreateNode("/b")])
    tree.multi([SetNode("/a", b"x"), CreateNode("/c")])
    created = {path: node.created_id for path, node in tree.subtree("/").items()}
    assert created["/a"] == created["/b"] < created["/c"]


# ---- the file


def test_nodes_outlive_the_process_but_ephemeral_ones_do_not(path: str) -> None:
    first = reopened(path)
    first.multi([CreateNode("/a", b"kept"), CreateNode("/b", b"gone", is_ephemeral=True)])
    first.close()
    second = reopened(path)
    assert {name: node.data for name, node in second.subtree("/").items()} == {"/a": b"kept"}
    second.close()


def test_transaction_numbers_go_on_after_a_restart(path: str) -> None:
    first = reopened(path)
    first.multi([CreateNode("/a")])
    first.close()
    second = reopened(path)
    second.multi([CreateNode("/b")])
    nodes = second.subtree("/")
    assert nodes["/b"].created_id > nodes["/a"].created_id
    second.close()


def test_foreign_file_is_refused_and_does_not_change(path: str) -> None:
    Path(path).write_bytes(b"these are not the bytes of a database")
    with pytest.raises(StoreUnusableError, match=r"file is not a database.*move it"):
        reopened(path)
    assert Path(path).read_bytes() == b"these are not the bytes of a database"


def test_database_of_another_application_is_refused(path: str) -> None:
    other = sqlite3.connect(path)
    other.execute("CREATE TABLE mine (x)")
    other.close()
    with pytest.raises(StoreUnusableError, match=r"not one of ottla\. .*log\.dirs"):
        reopened(path)


def test_a_newer_schema_is_refused(path: str) -> None:
    reopened(path).close()
    newer = sqlite3.connect(path)
    newer.execute("PRAGMA user_version = 99")
    newer.close()
    with pytest.raises(StoreUnusableError, match="schema version 99; this ottla reads version 1"):
        reopened(path)


def test_an_empty_file_is_a_new_store(path: str) -> None:
    Path(path).touch()
    tree = reopened(path)
    assert tree.subtree("/") == {}
    tree.close()


def test_a_cut_file_is_refused(path: str) -> None:
    tree = reopened(path)
    tree.multi([CreateNode("/a")] + [CreateNode(f"/a/{number}", bytes(1000)) for number in range(100)])
    tree.close()
    for size in (20, 100, 4096, 20_000, os.path.getsize(path) - 4096):
        os.truncate(shutil.copy(path, f"{path}.{size}"), size)
        with pytest.raises(StoreUnusableError, match="cannot be used as metadata store"):
            reopened(f"{path}.{size}")


def test_a_folder_in_its_place_is_refused(path: str) -> None:
    os.mkdir(path)
    with pytest.raises(StoreUnusableError, match="cannot be read"):
        reopened(path)


def test_missing_directory_is_reported(path: str) -> None:
    with pytest.raises(StoreUnusableError, match=r"unable to open database file\. Check that its folder exists"):
        reopened(f"{path}/missing/tree.db")


def test_file_locked_by_another_process_is_reported(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ottla.controller.stores.sqlite_tree.BUSY_SECONDS_MAX", 0.01)
    other = reopened(path)
    other.multi([CreateNode("/a", is_ephemeral=True)])
    other._connection.execute("BEGIN IMMEDIATE")
    with pytest.raises(StoreUnusableError, match="Another process is using it"):
        reopened(path)
    other.close()


def test_damage_found_later_is_reported(path: str) -> None:
    tree = reopened(path)
    tree._connection.execute("DROP TABLE node")
    with pytest.raises(StoreError, match="could not be read"):
        tree.subtree("/")
    with pytest.raises(StoreError, match="could not save"):
        tree.multi([CreateNode("/a")])
    tree.close()


def test_access_to_a_closed_tree_is_refused(path: str) -> None:
    with pytest.raises(StoreError, match="is not open"):
        SqliteTree(path).get("/a")


def test_nothing_is_written_after_an_io_error(tree: SqliteTree) -> None:
    error = sqlite3.OperationalError("disk I/O error")
    error.sqlite_errorname = "SQLITE_IOERR_FSYNC"
    tree._note_failure(error)
    with pytest.raises(StoreError, match="check the disk, then restart"):
        tree.multi([CreateNode("/a")])
    assert "failed" in repr(tree)


def test_a_full_disk_is_survived(tree: SqliteTree) -> None:
    tree.multi([CreateNode("/a")])
    pages = tree._connection.execute("PRAGMA page_count").fetchone()[0]
    tree._connection.execute(f"PRAGMA max_page_count = {pages}")
    with pytest.raises(StoreError, match=r"could not save a change.*full"):
        tree.multi([CreateNode("/b", bytes(100_000))])
    tree._connection.execute("PRAGMA max_page_count = 100000")
    tree.multi([CreateNode("/c")])
    assert set(tree.subtree("/")) == {"/a", "/c"}


# ---- crashes


def test_a_log_that_was_cut_anywhere_gives_whole_transactions(path: str, tmp_path: Path) -> None:
    """Each transaction writes two nodes; with any prefix of the write-ahead log there are both or none."""
    tree = reopened(path)
    tree.multi([CreateNode("/a"), CreateNode("/b")])
    ends = []
    for number in range(8):
        tree.multi([CreateNode(f"/a/{number}", bytes(700)), CreateNode(f"/b/{number}", bytes(700))])
        ends.append(os.path.getsize(f"{path}-wal"))
    log = Path(f"{path}-wal").read_bytes()
    copy = tmp_path / "copy.db"
    for size in range(0, len(log) + 1, 1499):
        shutil.copy(path, copy)
        Path(f"{copy}-wal").write_bytes(log[:size])
        Path(f"{copy}-shm").unlink(missing_ok=True)
        crashed = reopened(str(copy))
        survivors = crashed.children("/a")
        assert survivors == crashed.children("/b") == [str(number) for number in range(len(survivors))]
        assert len(survivors) >= sum(end <= size for end in ends)
        crashed.close()
    tree.close()


CHILD = """
import sys
from ottla.controller.stores.sqlite_tree import SqliteTree
from ottla.controller.stores.store import CreateNode, SetNode
tree = SqliteTree(sys.argv[1])
tree.open()
if tree.get("/a") is None:
    tree.multi([CreateNode("/a", b"0"), CreateNode("/b", b"0")])
number = int(tree.get("/a").data)
while True:
    number += 1
    tree.multi([SetNode("/a", b"%d" % number), SetNode("/b", b"%d" % number)])
    print(number, flush=True)
"""


def test_kill_9_loses_nothing_that_was_answered_and_splits_no_transaction(path: str) -> None:
    answered = 0
    for kill in range(KILLS):
        child = subprocess.Popen([sys.executable, "-c", CHILD, path], stdout=subprocess.PIPE, text=True)
        assert child.stdout is not None
        for _ in range(3 + 5 * kill):
            answered = int(child.stdout.readline())
        child.send_signal(signal.SIGKILL)
        answered = max([answered, *map(int, child.stdout.read().split())])
        child.wait()
        child.stdout.close()
        tree = reopened(path)
        first, second = tree.get("/a"), tree.get("/b")
        assert first is not None
        assert second is not None
        assert first.data == second.data
        assert int(first.data) >= answered
        tree.close()


def test_file_with_password_hashes_is_readable_by_its_owner_only(tree: SqliteTree, path: str) -> None:
    tree.multi([CreateNode("/x")])
    for file in (path, f"{path}-wal"):
        assert os.stat(file).st_mode & 0o077 == 0
