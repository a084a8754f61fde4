"""Both stores keep the same promises: every test here runs on the embedded store and on a real ZooKeeper."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from ottla.controller.stores.embedded import EmbeddedStore
from ottla.controller.stores.store import (
    CheckNode,
    CreateNode,
    DeleteNode,
    MetadataStore,
    Outcome,
    Refusal,
    SetNode,
    StoreOperation,
    TransactionRefusedError,
    WatchEvent,
    WatchKind,
)
from ottla.controller.stores.zookeeper.store import ZooKeeperStore

SECONDS_MAX = 10.0
Check = Callable[[MetadataStore], Awaitable[None]]
Run = Callable[[Check], None]


@pytest.fixture(params=["embedded", "zookeeper"])
def run(request: pytest.FixtureRequest, tmp_path: Path) -> Run:
    """Runs a check on an open store that is empty."""

    @asynccontextmanager
    async def opened() -> AsyncIterator[MetadataStore]:
        store: MetadataStore
        if request.param == "embedded":
            store = EmbeddedStore(tmp_path)
        else:
            server = request.getfixturevalue("zookeeper")
            store = ZooKeeperStore(server.connect + request.getfixturevalue("chroot"))
        await store.open()
        try:
            yield store
        finally:
            await store.close()

    def run_check(check: Check) -> None:
        async def body() -> None:
            async with opened() as store:
                await check(store)

        asyncio.run(body())

    return run_check


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(SECONDS_MAX):
        while not condition():
            await asyncio.sleep(0.005)


def test_written_data_is_read(run: Run) -> None:
    async def check(store: MetadataStore) -> None:
        outcomes = await store.multi([CreateNode("/a", b"x"), CreateNode("/a/b", b"y"), SetNode("/a", b"z", 0)])
        assert outcomes == [Outcome("/a", 0), Outcome("/a/b", 0), Outcome("/a", 1)]
        node = await store.get("/a")
        assert node is not None
        assert (node.data, node.version) == (b"z", 1)
        assert node.created_id > 0
        assert await store.get("/c") is None
        assert await store.children("/a") == ["b"]
        assert await store.children("/c") == []

    run(check)


def test_nodes_of_one_transaction_have_one_number_and_later_ones_a_higher(run: Run) -> None:
    async def check(store: MetadataStore) -> None:
        await store.multi([CreateNode("/a"), CreateNode("/b")])
        await store.multi([CreateNode("/c")])
        first, second, later = [await store.get(path) for path in ("/a", "/b", "/c")]
        assert first is not None
        assert second is not None
        assert later is not None
        assert first.created_id == second.created_id < later.created_id

    run(check)


def test_a_subtree_comes_with_parents_before_children_and_without_its_surroundings(run: Run) -> None:
    async def check(store: MetadataStore) -> None:
        await store.multi([CreateNode("/a", b"1"), CreateNode("/a/b"), CreateNode("/a/b/c", b"3"), CreateNode("/ab")])
        nodes = await store.subtree("/a")
        assert list(nodes) == ["/a", "/a/b", "/a/b/c"]
        assert nodes["/a/b/c"].data == b"3"
        assert sorted(await store.subtree("/")) == ["/a", "/a/b", "/a/b/c", "/ab"]
        assert await store.children("/") == ["a", "ab"]
        assert await store.subtree("/none") == {}

    run(check)


def test_a_large_subtree_is_whole(run: Run) -> None:
    async def check(store: MetadataStore) -> None:
        await store.multi([CreateNode("/t")])
        for part in range(4):
            names = [f"/t/{part}-{number}" for number in range(600)]
            await store.multi([node for name in names for node in (CreateNode(name), CreateNode(f"{name}/s", b"x"))])
        assert len(await store.subtree("/t")) == 1 + 4 * 600 * 2

    run(check)


@pytest.mark.parametrize(
    ("operation", "reason"),
    [
        (CreateNode("/a"), Refusal.NODE_EXISTS),
        (CreateNode("/none/x"), Refusal.NO_PARENT),
        (SetNode("/a", b"new", 7), Refusal.BAD_VERSION),
        (SetNode("/none", b"new"), Refusal.NO_NODE),
        (DeleteNode("/a"), Refusal.NOT_EMPTY),
        (DeleteNode("/a/b", 3), Refusal.BAD_VERSION),
        (DeleteNode("/none"), Refusal.NO_NODE),
        (CheckNode("/a", 3), Refusal.BAD_VERSION),
        (CheckNode("/none", 0), Refusal.NO_NODE),
    ],
)
def test_one_that_does_not_hold_refuses_them_all_and_is_named(
    run: Run, operation: StoreOperation, reason: Refusal
) -> None:
    async def check(store: MetadataStore) -> None:
        await store.multi([CreateNode("/a", b"old"), CreateNode("/a/b")])
        with pytest.raises(TransactionRefusedError) as refused:
            await store.multi([SetNode("/a/b", b"changed"), operation, CreateNode("/z")])
        assert (refused.value.operation, refused.value.reason) == (operation, reason)
        untouched = await store.get("/a/b")
        assert untouched is not None
        assert untouched.version == 0
        assert await store.get("/z") is None

    run(check)


def test_sequential_nodes_are_numbered_by_their_parent(run: Run) -> None:
    async def check(store: MetadataStore) -> None:
        await store.multi([CreateNode("/c")])
        made = [await store.multi([CreateNode("/c/change_", b"%d" % i, is_sequential=True)]) for i in range(3)]
        assert [outcome.path for [outcome] in made] == [f"/c/change_000000000{i}" for i in range(3)]
        node = await store.get("/c/change_0000000001")
        assert node is not None
        assert node.data == b"1"

    run(check)


def test_calls_are_done_in_their_order(run: Run) -> None:
    async def check(store: MetadataStore) -> None:
        await store.multi([CreateNode("/a", b"0")])
        await asyncio.gather(*(store.multi([SetNode("/a", b"%d" % i, i - 1)]) for i in range(1, 100)))
        node = await store.get("/a")
        assert node is not None
        assert (node.data, node.version) == (b"99", 99)

    run(check)


def test_a_watch_of_a_node_reports_creation_change_and_deletion(run: Run) -> None:
    async def check(store: MetadataStore) -> None:
        seen: list[WatchEvent] = []
        end_watch = store.watch_node("/a", seen.append)
        expected: list[WatchEvent] = []
        for operation, kind in [
            (CreateNode("/a"), WatchKind.CREATED),
            (SetNode("/a", b"x"), WatchKind.CHANGED),
            (SetNode("/a", b"y"), WatchKind.CHANGED),
            (DeleteNode("/a"), WatchKind.DELETED),
            (CreateNode("/a"), WatchKind.CREATED),
        ]:
            await store.multi([operation])
            expected.append(WatchEvent(kind, "/a"))
            await until(lambda: len(seen) >= len(expected))
            assert seen == expected
        await store.multi([CreateNode("/a/b"), CreateNode("/ab"), CheckNode("/a", 0)])
        end_watch()
        await store.multi([SetNode("/a", b"z")])
        await asyncio.sleep(0.05)
        assert seen == expected

    run(check)


def test_a_watch_of_children_reports_new_and_deleted_children(run: Run) -> None:
    async def check(store: MetadataStore) -> None:
        seen: list[list[str]] = []
        events: list[WatchEvent] = []

        def look(event: WatchEvent) -> None:
            events.append(event)
            looking.append(asyncio.ensure_future(note()))

        async def note() -> None:
            seen.append(await store.children("/ids"))

        looking: list[asyncio.Future[None]] = []
        store.watch_children("/ids", look)
        await store.multi([CreateNode("/ids"), CreateNode("/ids/1")])
        await until(lambda: bool(seen) and seen[-1] == ["1"])
        await store.multi([CreateNode("/ids/2")])
        await until(lambda: seen[-1] == ["1", "2"])
        await store.multi([DeleteNode("/ids/1")])
        await until(lambda: seen[-1] == ["2"])
        assert set(events) == {WatchEvent(WatchKind.CHANGED, "/ids")}

    run(check)


def test_no_change_between_two_reads_is_missed(run: Run) -> None:
    """A hundred changes at full speed: a watcher that reads on every call has seen the last one in the end."""

    async def check(store: MetadataStore) -> None:
        await store.multi([CreateNode("/n", b"0")])
        last = [b""]
        looking: list[asyncio.Future[None]] = []

        async def note() -> None:
            node = await store.get("/n")
            assert node is not None
            last[0] = node.data

        store.watch_node("/n", lambda _event: looking.append(asyncio.ensure_future(note())))
        for number in range(1, 101):
            await store.multi([SetNode("/n", b"%d" % number)])
        await until(lambda: last[0] == b"100")

    run(check)
