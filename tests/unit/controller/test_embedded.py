"""The embedded store on the loop: order, watches, one thread."""

import asyncio
from pathlib import Path

import pytest

import virtual_time
from ottla.controller.stores.embedded import EmbeddedStore
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


def test_what_is_written_is_read(tmp_path: Path) -> None:
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


def test_watches_tell_what_was_committed_to_a_node_or_below_it(tmp_path: Path) -> None:
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
