"""The embedded store on the loop: order, watches, one thread."""

import asyncio
import sqlite3
from pathlib import Path

import pytest
from tests import virtual_time

from ottla.controller.stores.embedded import CHECKPOINT_SECONDS, EmbeddedStore
from ottla.controller.stores.store import (
    CheckNode,
    CreateNode,
    DeleteNode,
    SetNode,
    TransactionRefusedError,
    WatchEvent,
    WatchKind,
)


async def open_store(directory: Path) -> EmbeddedStore:
    store = EmbeddedStore(directory)
    await store.open()
    return store


def test_written_nodes_are_read(tmp_path: Path) -> None:
    async def check() -> None:
        store = await open_store(tmp_path)
        await store.multi([CreateNode("/a", b"x"), CreateNode("/a/b", b"y")])
        node = await store.get("/a/b")
        assert node is not None
        assert node.data == b"y"
        assert await store.children("/a") == ["b"]
        assert list(await store.subtree("/a")) == ["/a", "/a/b"]
        await store.close()
        assert (tmp_path / "ottla.metadata.db").exists()

    virtual_time.run(check())


def test_calls_are_done_in_their_order(tmp_path: Path) -> None:
    async def check() -> None:
        store = await open_store(tmp_path)
        await store.multi([CreateNode("/a", b"0")])
        await asyncio.gather(*(store.multi([SetNode("/a", b"%d" % i, expected_version=i - 1)]) for i in range(1, 50)))
        node = await store.get("/a")
        assert node is not None
        assert (node.data, node.version) == (b"49", 49)
        await store.close()

    virtual_time.run(check())


def test_watches_report_committed_changes_of_a_node_and_its_children(tmp_path: Path) -> None:
    async def check() -> None:
        store = await open_store(tmp_path)
        await store.multi([CreateNode("/a"), CreateNode("/ab")])
        seen: list[WatchEvent] = []
        end_watches = [store.watch_node("/a", seen.append), store.watch_children("/a", seen.append)]
        await store.multi([CreateNode("/a/b"), SetNode("/a", b"x"), SetNode("/ab", b"x"), CheckNode("/a", 1)])
        await store.multi([CreateNode("/a/s_", is_sequential=True), SetNode("/a/b", b"x"), CreateNode("/a/b/c")])
        with pytest.raises(TransactionRefusedError):
            await store.multi([CreateNode("/a/c"), CreateNode("/a")])
        for end_watch in end_watches:
            end_watch()
        await store.multi([SetNode("/a", b"y"), DeleteNode("/a/s_0000000000")])
        assert seen == [
            WatchEvent(WatchKind.CHANGED, "/a"),  # b came
            WatchEvent(WatchKind.CHANGED, "/a"),  # its own data
            WatchEvent(WatchKind.CHANGED, "/a"),  # s_0000000000 came
        ]
        await store.close()

    virtual_time.run(check())


def test_the_log_is_brought_into_the_file_after_a_start_and_at_an_interval(tmp_path: Path) -> None:
    def log_bytes() -> int:
        return (tmp_path / "ottla.metadata.db-wal").stat().st_size

    async def check() -> None:
        store = await open_store(tmp_path)
        assert log_bytes() == 0, "what the process before has left"
        await store.multi([CreateNode("/a")])
        await asyncio.sleep(0.1)
        assert log_bytes() == 0, "what the start has written"
        for _ in range(3):
            await store.multi([SetNode("/a", b"x")])
            await asyncio.sleep(CHECKPOINT_SECONDS / 2)
            assert log_bytes() > 0
            await asyncio.sleep(CHECKPOINT_SECONDS)
            assert log_bytes() == 0
        await store.close()

    virtual_time.run(check())


def test_a_reader_in_the_way_of_a_checkpoint_is_not_waited_for(tmp_path: Path) -> None:
    async def check() -> None:
        store = await open_store(tmp_path)
        await store.multi([CreateNode("/a")])
        reader = sqlite3.connect(tmp_path / "ottla.metadata.db", isolation_level=None)
        reader.execute("BEGIN")
        reader.execute("SELECT * FROM node").fetchall()
        await store.multi([CreateNode("/b")])
        await asyncio.sleep(CHECKPOINT_SECONDS + 1)
        assert (tmp_path / "ottla.metadata.db-wal").stat().st_size > 0
        reader.close()
        await asyncio.sleep(CHECKPOINT_SECONDS + 1)
        assert (tmp_path / "ottla.metadata.db-wal").stat().st_size == 0
        await store.close()

    virtual_time.run(check())


def test_a_watch_that_fails_does_not_fail_the_change(tmp_path: Path) -> None:
    async def check() -> None:
        store = await open_store(tmp_path)
        seen: list[WatchEvent] = []
        store.watch_node("/a", lambda _: 1 / 0)
        store.watch_node("/a", seen.append)
        await store.multi([CreateNode("/a")])
        assert seen == [WatchEvent(WatchKind.CREATED, "/a")]
        await store.close()

    virtual_time.run(check())


def test_a_checkpoint_that_fails_is_repeated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def check() -> None:
        store = await open_store(tmp_path)
        with monkeypatch.context() as broken:
            broken.setattr(store._tree, "checkpoint", lambda: 1 / 0)
            await store.multi([CreateNode("/a")])
            await asyncio.sleep(CHECKPOINT_SECONDS + 1)
        assert (tmp_path / "ottla.metadata.db-wal").stat().st_size > 0
        await asyncio.sleep(CHECKPOINT_SECONDS + 1)
        assert (tmp_path / "ottla.metadata.db-wal").stat().st_size == 0
        await store.close()

    virtual_time.run(check())


def test_the_last_transaction_is_one_that_was_committed(tmp_path: Path) -> None:
    async def check() -> None:
        store = await open_store(tmp_path)
        assert store.last_transaction == 0
        await store.multi([CreateNode("/a")])
        with pytest.raises(TransactionRefusedError):
            await store.multi([CreateNode("/b"), CreateNode("/a")])
        assert store.last_transaction == 1
        await store.close()
        again = await open_store(tmp_path)
        assert again.last_transaction == 1
        await again.close()

    virtual_time.run(check())
