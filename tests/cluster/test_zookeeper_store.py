"""The ZooKeeper store when the network breaks at the worst moment, and what it says about its session."""

import asyncio
import contextlib
import random
import time
from collections.abc import Awaitable, Callable

import pytest
from tests.cluster.conftest import promised
from tests.cluster.zookeeper_proxy import Fault, ZooKeeperProxy

from ottla.base.clock import SystemClock
from ottla.controller.stores.store import (
    CheckNode,
    CreateNode,
    DeleteNode,
    Outcome,
    Refusal,
    SessionState,
    SetNode,
    StoreAwayError,
    StoreError,
    StoreUnusableError,
    TransactionRefusedError,
    WatchEvent,
)
from ottla.controller.stores.zookeeper.store import ZooKeeperStore
from ottla.testing.zookeeper import ZooKeeperProcess

SECONDS_MAX = 20.0
Check = Callable[[ZooKeeperStore, ZooKeeperProxy, ZooKeeperStore], Awaitable[None]]


def run(zookeeper: ZooKeeperProcess, chroot: str, check: Check, session_timeout_ms: int = 4000) -> None:
    """A store behind a proxy, and another one that sees what is really there."""

    async def body() -> None:
        async with ZooKeeperProxy(zookeeper.port) as proxy:
            store = ZooKeeperStore(proxy.connect + chroot, session_timeout_ms)
            witness = ZooKeeperStore(zookeeper.connect + chroot, session_timeout_ms)
            await store.open()
            await witness.open()
            try:
                await asyncio.wait_for(check(store, proxy, witness), SECONDS_MAX)
            finally:
                proxy.heal()
                await witness.close()
                await store.close()

    asyncio.run(body())


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(SECONDS_MAX):
        while not condition():
            await asyncio.sleep(0.01)


@pytest.mark.parametrize("fault", list(Fault))
def test_a_conditional_write_happens_once_whatever_is_lost(
    zookeeper: ZooKeeperProcess, chroot: str, fault: Fault
) -> None:
    async def check(store: ZooKeeperStore, proxy: ZooKeeperProxy, witness: ZooKeeperStore) -> None:
        await store.multi([CreateNode("/epoch", b"1"), CreateNode("/a", b"0")])
        proxy.fault = fault
        before = proxy.transactions
        outcomes = await store.multi([CheckNode("/epoch", 0), SetNode("/a", b"1", 0), CreateNode("/b", b"x")])
        assert outcomes == [Outcome("/epoch", 0), Outcome("/a", 1), Outcome("/b", 0)]
        assert proxy.transactions - before == (2 if fault is Fault.LOSE_REQUEST else 1)
        node = await witness.get("/a")
        assert node is not None
        assert (node.data, node.version) == (b"1", 1)

    run(zookeeper, chroot, check)


@pytest.mark.parametrize("fault", list(Fault))
def test_a_sequential_node_is_made_once_and_its_name_is_known(
    zookeeper: ZooKeeperProcess, chroot: str, fault: Fault
) -> None:
    async def check(store: ZooKeeperStore, proxy: ZooKeeperProxy, witness: ZooKeeperStore) -> None:
        await store.multi([CreateNode("/c"), CreateNode("/c/change_", b"same", is_sequential=True)])
        proxy.fault = fault
        [outcome] = await store.multi([CreateNode("/c/change_", b"same", is_sequential=True)])
        assert await witness.children("/c") == ["change_0000000000", "change_0000000001"]
        assert outcome.path == "/c/change_0000000001"

    run(zookeeper, chroot, check)


@pytest.mark.parametrize("fault", list(Fault))
def test_an_ephemeral_node_belongs_to_the_session_that_lost_the_answer(
    zookeeper: ZooKeeperProcess, chroot: str, fault: Fault
) -> None:
    async def check(store: ZooKeeperStore, proxy: ZooKeeperProxy, witness: ZooKeeperStore) -> None:
        proxy.fault = fault
        session_id = store.session_id
        await store.multi([CreateNode("/controller", b"1", is_ephemeral=True)])
        assert store.session_id == session_id
        assert await witness.get("/controller") is not None
        with pytest.raises(TransactionRefusedError):
            await witness.multi([CreateNode("/controller", b"2", is_ephemeral=True)])
        await store.close()
        assert await witness.get("/controller") is None

    run(zookeeper, chroot, check)


def test_a_node_that_another_client_created_is_not_taken_for_ours(zookeeper: ZooKeeperProcess, chroot: str) -> None:
    async def check(store: ZooKeeperStore, proxy: ZooKeeperProxy, witness: ZooKeeperStore) -> None:
        await witness.multi([CreateNode("/controller", b"1", is_ephemeral=True)])
        proxy.fault = Fault.LOSE_ANSWER
        operation = CreateNode("/controller", b"1", is_ephemeral=True)
        with pytest.raises(TransactionRefusedError) as refused:
            await store.multi([operation])
        assert (refused.value.operation, refused.value.reason) == (operation, Refusal.NODE_EXISTS)

    run(zookeeper, chroot, check)


def test_a_refused_write_stays_refused_when_its_answer_is_lost(zookeeper: ZooKeeperProcess, chroot: str) -> None:
    async def check(store: ZooKeeperStore, proxy: ZooKeeperProxy, witness: ZooKeeperStore) -> None:
        await witness.multi([CreateNode("/a"), CreateNode("/epoch")])
        await witness.multi([SetNode("/epoch", b"2")])
        proxy.fault = Fault.LOSE_ANSWER
        fence = CheckNode("/epoch", 0)
        with pytest.raises(TransactionRefusedError) as refused:
            await store.multi([fence, SetNode("/a", b"x", 0)])
        assert refused.value.operation == fence
        node = await witness.get("/a")
        assert node is not None
        assert node.version == 0

    run(zookeeper, chroot, check)


def test_a_deletion_whose_answer_is_lost_is_a_deletion(zookeeper: ZooKeeperProcess, chroot: str) -> None:
    async def check(store: ZooKeeperStore, proxy: ZooKeeperProxy, witness: ZooKeeperStore) -> None:
        await store.multi([CreateNode("/a")])
        proxy.fault = Fault.LOSE_ANSWER
        await store.multi([DeleteNode("/a", 0)])
        assert await witness.get("/a") is None

    run(zookeeper, chroot, check)


def test_reads_are_repeated_over_a_lost_connection(zookeeper: ZooKeeperProcess, chroot: str) -> None:
    async def check(store: ZooKeeperStore, proxy: ZooKeeperProxy, witness: ZooKeeperStore) -> None:
        await store.multi([CreateNode("/a", b"x")])
        proxy.cut()
        reading = asyncio.ensure_future(store.subtree("/"))
        await asyncio.sleep(0.5)
        assert not reading.done()
        proxy.heal()
        assert list(await reading) == ["/a"]

    run(zookeeper, chroot, check)


def test_a_short_cut_keeps_the_session_and_a_watch_reports_missed_changes(
    zookeeper: ZooKeeperProcess, chroot: str
) -> None:
    async def check(store: ZooKeeperStore, proxy: ZooKeeperProxy, witness: ZooKeeperStore) -> None:
        states: list[SessionState] = []
        events: list[WatchEvent] = []
        store.on_session(states.append)
        await store.multi([CreateNode("/a"), CreateNode("/e", is_ephemeral=True)])
        store.watch_node("/a", events.append)
        session_id = store.session_id
        proxy.cut()
        await until(lambda: states == [SessionState.SUSPENDED])
        await witness.multi([SetNode("/a", b"x")])
        assert events == []
        proxy.heal()
        await until(lambda: len(events) == 1)
        assert states == [SessionState.SUSPENDED, SessionState.CONNECTED]
        assert store.session_id == session_id
        assert await witness.get("/e") is not None
        await witness.multi([SetNode("/a", b"y")])  # the watch is armed on the new connection
        await until(lambda: len(events) == 2)

    run(zookeeper, chroot, check)


def test_an_expired_session_is_reported_its_nodes_are_gone_and_watches_continue(
    zookeeper: ZooKeeperProcess, chroot: str
) -> None:
    async def check(store: ZooKeeperStore, proxy: ZooKeeperProxy, witness: ZooKeeperStore) -> None:
        states: list[SessionState] = []
        events: list[WatchEvent] = []
        store.on_session(states.append)
        await store.multi([CreateNode("/a"), CreateNode("/e", is_ephemeral=True)])
        store.watch_children("/", events.append)
        session_id = store.session_id
        proxy.cut()
        async with asyncio.timeout(SECONDS_MAX):
            while await witness.get("/e") is not None:
                await asyncio.sleep(0.05)
        with pytest.raises(StoreAwayError):
            await store.multi([SetNode("/a", b"x")])
        proxy.heal()
        await until(lambda: states == [SessionState.SUSPENDED, SessionState.EXPIRED, SessionState.CONNECTED])
        assert store.session_id not in (0, session_id)
        await until(lambda: len(events) == 1)
        await store.multi([CreateNode("/e", is_ephemeral=True)])
        await until(lambda: len(events) == 2)

    run(zookeeper, chroot, check, session_timeout_ms=1000)


@promised(4.0)  # the session
def test_a_line_that_is_open_but_silent_is_given_up(
    zookeeper: ZooKeeperProcess, chroot: str, seconds_max: float
) -> None:
    async def check(store: ZooKeeperStore, proxy: ZooKeeperProxy, witness: ZooKeeperStore) -> None:
        states: list[SessionState] = []
        store.on_session(states.append)
        proxy.is_silent = True
        began = time.monotonic()
        await until(lambda: SessionState.SUSPENDED in states)
        assert time.monotonic() - began < seconds_max, "noticed before the session ends"
        proxy.drop_all()
        proxy.heal()
        await until(lambda: store.state is SessionState.CONNECTED)

    run(zookeeper, chroot, check)


def test_the_last_contact_ages_while_no_server_answers(zookeeper: ZooKeeperProcess, chroot: str) -> None:
    async def check(store: ZooKeeperStore, proxy: ZooKeeperProxy, witness: ZooKeeperStore) -> None:
        clock = SystemClock()
        asked_ms = clock.monotonic_ms()
        await store.get("/")
        contact_ms = store.last_contact_ms()
        assert contact_ms >= asked_ms
        await until(lambda: store.last_contact_ms() > contact_ms)  # heartbeats alone keep it young
        proxy.cut()
        cut_ms = clock.monotonic_ms()
        await asyncio.sleep(1.0)
        assert store.last_contact_ms() <= cut_ms

    run(zookeeper, chroot, check, session_timeout_ms=2000)


def test_the_time_out_is_the_one_that_the_server_has_agreed_to(zookeeper: ZooKeeperProcess, chroot: str) -> None:
    async def check(store: ZooKeeperStore, proxy: ZooKeeperProxy, witness: ZooKeeperStore) -> None:
        assert store.session_timeout_ms == 60_000

    run(zookeeper, chroot, check, session_timeout_ms=120_000)


def test_reconnects_to_an_absent_server_back_off(zookeeper: ZooKeeperProcess, chroot: str) -> None:
    async def check(store: ZooKeeperStore, proxy: ZooKeeperProxy, witness: ZooKeeperStore) -> None:
        proxy.cut()
        proxy.connections = 0
        await asyncio.sleep(3.0)
        assert 1 <= proxy.connections <= 12

    run(zookeeper, chroot, check)


def test_the_chroot_is_made_as_deep_as_it_is(zookeeper: ZooKeeperProcess, chroot: str) -> None:
    async def body() -> None:
        first = ZooKeeperStore(f"{zookeeper.connect}{chroot}/deep/er")
        second = ZooKeeperStore(zookeeper.connect)
        await first.open()
        await second.open()
        await first.multi([CreateNode("/a")])
        expected = [chroot, f"{chroot}/deep", f"{chroot}/deep/er", f"{chroot}/deep/er/a"]
        assert list(await second.subtree(chroot)) == expected
        assert "zookeeper" not in await second.children("/")
        await first.close()
        await second.close()

    asyncio.run(body())


def test_without_a_server_the_start_ends_with_one_line(zookeeper: ZooKeeperProcess) -> None:
    async def body() -> str:
        async with ZooKeeperProxy(zookeeper.port) as proxy:
            port = proxy.port
        store = ZooKeeperStore(f"127.0.0.1:{port}/x", connection_timeout_ms=300)
        with pytest.raises(StoreUnusableError) as unusable:
            await store.open()
        return str(unusable.value)

    message = asyncio.run(body())
    assert "within 300 ms" in message
    assert "Connection refused" in message
    assert "zookeeper.connect" in message
    assert "\n" not in message


def test_a_change_that_is_too_large_is_refused_and_costs_no_connection(
    zookeeper: ZooKeeperProcess, chroot: str
) -> None:
    async def check(store: ZooKeeperStore, proxy: ZooKeeperProxy, witness: ZooKeeperStore) -> None:
        with pytest.raises(StoreError, match="exceeds the limit of ZooKeeper"):
            await store.multi([CreateNode("/a", b"x" * 1_100_000)])
        await store.multi([CreateNode("/a", b"x" * 1_000_000)])
        assert proxy.connections == 1

    run(zookeeper, chroot, check)


def test_many_reads_at_once_do_not_stop_the_loop(zookeeper: ZooKeeperProcess, chroot: str) -> None:
    """kazoo announces its queue through a small pipe: a loop that fills the pipe would block for ever."""

    async def check(store: ZooKeeperStore, proxy: ZooKeeperProxy, witness: ZooKeeperStore) -> None:
        await store.multi([CreateNode("/a")])
        proxy.is_silent = True
        reads = [asyncio.ensure_future(store.get("/a")) for _ in range(3000)]
        await asyncio.sleep(0.3)
        proxy.heal()
        assert all(await asyncio.gather(*reads))

    run(zookeeper, chroot, check, session_timeout_ms=10_000)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_thread_that_dies_of_a_surprise_is_replaced_within_the_session(
    zookeeper: ZooKeeperProcess, chroot: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def check(store: ZooKeeperStore, proxy: ZooKeeperProxy, witness: ZooKeeperStore) -> None:
        states: list[SessionState] = []
        events: list[WatchEvent] = []
        store.on_session(states.append)
        await store.multi([CreateNode("/a"), CreateNode("/e", is_ephemeral=True)])
        store.watch_node("/a", events.append)
        session_id = store.session_id
        connection = store._session._connection
        assert connection is not None
        monkeypatch.setattr(connection, "_read_socket", lambda _timeout: 1 // 0)
        await until(lambda: states == [SessionState.SUSPENDED, SessionState.CONNECTED])
        assert store.session_id == session_id
        assert await witness.get("/e") is not None
        await until(lambda: len(events) == 1)
        await witness.multi([SetNode("/a", b"x")])
        await until(lambda: len(events) == 2)

    run(zookeeper, chroot, check)


@promised(5.0)
def test_a_store_closes_although_no_server_answers(
    zookeeper: ZooKeeperProcess, chroot: str, seconds_max: float
) -> None:
    async def check(store: ZooKeeperStore, proxy: ZooKeeperProxy, witness: ZooKeeperStore) -> None:
        proxy.is_silent = True
        began = time.monotonic()
        await store.close()
        assert time.monotonic() - began < seconds_max

    run(zookeeper, chroot, check, session_timeout_ms=20_000)


async def count_up(store: ZooKeeperStore, proxy: ZooKeeperProxy, name: bytes, chance: random.Random) -> list[int]:
    """Raise a counter by conditional writes over a line that loses requests and answers; the versions that were won."""
    wins = []
    for number in range(60):
        node = await store.get("/counter")
        assert node is not None
        proxy.fault = chance.choice([None, None, Fault.LOSE_REQUEST, Fault.LOSE_ANSWER])
        with contextlib.suppress(TransactionRefusedError):
            [outcome] = await store.multi([SetNode("/counter", b"%s %d" % (name, number), node.version)])
            wins.append(outcome.version)
        proxy.fault = None
    return wins


def test_a_writer_behind_a_lossy_line_loses_nothing(zookeeper: ZooKeeperProcess, chroot: str) -> None:
    async def check(store: ZooKeeperStore, proxy: ZooKeeperProxy, witness: ZooKeeperStore) -> None:
        await witness.multi([CreateNode("/counter")])
        wins = await count_up(store, proxy, b"a", random.Random(5))
        counter = await witness.get("/counter")
        assert counter is not None
        assert wins == list(range(1, 61))
        assert (counter.version, counter.data) == (60, b"a 59")
        assert proxy.connections > 10

    run(zookeeper, chroot, check)


def test_of_two_writers_behind_lossy_lines_never_both_win(zookeeper: ZooKeeperProcess, chroot: str) -> None:
    """A writer that is overwritten before it reads back may be told that it lost; none is told wrongly that it won."""

    async def check(store: ZooKeeperStore, proxy: ZooKeeperProxy, witness: ZooKeeperStore) -> None:
        await witness.multi([CreateNode("/counter")])
        async with ZooKeeperProxy(zookeeper.port) as other_proxy:
            other = ZooKeeperStore(other_proxy.connect + chroot)
            await other.open()
            ours, theirs = await asyncio.gather(
                count_up(store, proxy, b"a", random.Random(6)), count_up(other, other_proxy, b"b", random.Random(7))
            )
            await other.close()
        counter = await witness.get("/counter")
        assert counter is not None
        wins = sorted(ours + theirs)
        assert len(set(wins)) == len(wins)
        assert len(wins) <= counter.version
        assert min(len(ours), len(theirs)) > 10

    run(zookeeper, chroot, check)
