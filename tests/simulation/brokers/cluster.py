"""Three or four real brokers, their hosts, and what can be done to them."""

from __future__ import annotations

import contextlib
import gc
import logging
import os
import shutil
import signal
import sys
import tempfile
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from tests.simulation.brokers.disk import Disk
from tests.simulation.brokers.network import Network
from tests.simulation.brokers.node_loop import NodeLoop
from tests.simulation.brokers.patches import patched
from tests.simulation.brokers.sockets import Sockets
from tests.simulation.brokers.world import World
from tests.simulation.brokers.zookeeper import ZooKeeperServer

from ottla.base import tasks
from ottla.base.broker_settings import BrokerSettings
from ottla.broker.main import Broker, BrokerComponents
from ottla.storage.log_dirs import LogDirs

if TYPE_CHECKING:
    from tests.simulation.brokers.logins import Accounts

PORT: Final = 9092
MEMORY: Final = "/dev/shm"  # where there is one: nothing waits for a disk then
SESSION_MS: Final = 2_000
CLIENTS: Final = "c"
SETTINGS: Final = {
    "zookeeper.connect": "zk:2181",
    "zookeeper.session.timeout.ms": str(SESSION_MS),
    "zookeeper.connection.timeout.ms": "6000",
    "ottla.metrics.port": "-1",
    "auto.create.topics.enable": "false",
    "default.replication.factor": "3",
    "min.insync.replicas": "2",
    "offsets.topic.num.partitions": "2",
    "offsets.topic.replication.factor": "3",
    "transaction.state.log.num.partitions": "2",
    "transaction.state.log.replication.factor": "3",
    "transaction.state.log.min.isr": "2",
    "replica.lag.time.max.ms": "800",
    "replica.fetch.wait.max.ms": "500",
    "replica.socket.timeout.ms": "2000",
    "request.timeout.ms": "2000",
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "500",
    "group.consumer.session.timeout.ms": "2000",
    "group.consumer.min.session.timeout.ms": "500",
    "group.consumer.heartbeat.interval.ms": "300",
    "group.consumer.min.heartbeat.interval.ms": "100",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "500",
    "controlled.shutdown.max.retries": "2",
    "controlled.shutdown.retry.backoff.ms": "500",
    "log.roll.ms": "3000",
    "log.cleaner.backoff.ms": "700",
    "log.cleaner.min.cleanable.ratio": "0.2",
}


UNINTERESTING: Final = ("Rolled a new segment", "fetching from broker", "loaded %s")
BAD_DISKS: Final = ("No space left", "Input/output error")
EXPECTED_ENDS: Final = ("StartError", "BrokerFailedError", "StoreUnusableError", "LogDirError")


logging.getLogger("ottla").addHandler(
    logging.NullHandler()
)  # what is freed after the end of a world has nothing to say


class ObservedBroker(Broker):
    """A broker with access to its components."""

    def __init__(self, settings: BrokerSettings, loop: NodeLoop, host: BrokerHost) -> None:
        super().__init__(settings, loop.poller)  # type: ignore[arg-type]
        self._host = host

    def _assemble(self, log_dirs: LogDirs) -> BrokerComponents:
        self._host.assembly = assembly = super()._assemble(log_dirs)
        return assembly


class BrokerHost:
    """A host on which one broker runs, one life after the other."""

    def __init__(self, cluster: Cluster, number: int) -> None:
        self.cluster = cluster
        self.number = number
        self.name = f"b{number}"
        self.address = f"10.0.0.{number}"
        self.loop: NodeLoop | None = None  # None: nothing runs here
        self.broker: Broker | None = None
        self.lives = 0
        self.clock_step = 0.0
        self.mistakes: dict[str, str] = {}  # settings with a wrong value
        self.assembly: BrokerComponents | None = None
        self.failure: str | None = None  # why the last life ended by itself
        self.is_gone = False  # for good: it is never started again
        cluster.sockets.hosts[self.address] = self.name

    def __repr__(self) -> str:
        return f"<BrokerHost {self.name}, life {self.lives}>"

    @property
    def is_up(self) -> bool:
        return self.loop is not None

    @property
    def settings(self) -> BrokerSettings:
        return BrokerSettings(
            {
                **SETTINGS,
                **self.cluster.settings,
                "broker.id": str(self.number),
                "listeners": f"{self.cluster.protocol}://{self.address}:{PORT}",
                **self.mistakes,
                "log.dirs": ",".join(self.folders),
            }
        )

    @property
    def folders(self) -> list[str]:
        place = self.cluster.disk.disk_of(self.name).folder
        return [f"{place}/logs{number or ''}" for number in range(self.cluster.folders)]

    def start(self) -> None:
        if self.loop is not None or self.is_gone:
            return
        world = self.cluster.world
        self.lives += 1
        world.tell(f"{self.name} starts, life {self.lives}")
        self.cluster.network.turn_on(self.name)
        self.loop = loop = NodeLoop(world, f"{self.name}.{self.lives}")
        loop.clock_step = self.clock_step
        settings = self.settings
        self.cluster.disk.disk_of(self.name).is_full = False
        self.failure = None
        self.assembly = None

        def begin() -> None:
            self.broker = broker = ObservedBroker(settings, loop, self)
            task = loop.create_task(self._run(broker, loop), name="main")
            task.add_done_callback(lambda _: None)

        loop.call_soon(begin)

    async def _run(self, broker: Broker, loop: NodeLoop) -> None:
        try:
            await broker.run()
        except Exception as error:  # noqa: BLE001 (the process would end with it)
            self.failure = f"{type(error).__name__}: {error}"
            self.cluster.world.tell(f"{loop.name} ends: {self.failure}")
            if type(error).__name__ not in EXPECTED_ENDS or not self.cluster.is_in_trouble:
                self.cluster.errors.append(f"{loop.name} ended by itself: {self.failure}")
            self.cluster.world.after(1.0, self.start)
        else:
            self.cluster.world.tell(f"{loop.name} has stopped")
            if not self.cluster.is_in_trouble:
                self.cluster.world.after(0.1, self.start)
        if self.loop is loop:
            self._end(with_power=False)

    def kill(self, *, with_power: bool = False) -> None:
        """kill -9; or the power of this host goes, and with it what is not synced."""
        if self.loop is None:
            return
        self.cluster.world.tell(f"{self.name} {'loses power' if with_power else 'is killed'}")
        self._end(with_power=with_power)

    def correct(self) -> None:
        """Whatever is wrong in its settings; it takes a new life."""
        if self.mistakes:
            self.mistakes = {}
            self.kill()
            self.start()

    def kill_after_writes(self, count: int) -> None:
        self.cluster.disk.disk_of(self.name).writes_left = count

    def stop(self) -> None:
        """SIGTERM."""
        if self.loop is not None and signal.SIGTERM in self.loop.signals:
            self.cluster.world.tell(f"{self.name} is told to stop")
            self.loop.call_soon(self.loop.signals[signal.SIGTERM])

    def pause(self) -> None:
        if self.loop is not None:
            self.cluster.world.tell(f"{self.name} is paused")
            self.loop.pause()

    def resume(self) -> None:
        if self.loop is not None and self.loop.is_paused:
            self.cluster.world.tell(f"{self.name} goes on")
            self.loop.resume()

    def step_clock(self, seconds: float) -> None:
        self.clock_step = seconds
        if self.loop is not None:
            self.loop.clock_step = seconds

    def _end(self, *, with_power: bool) -> None:
        loop, self.loop = self.loop, None
        assert loop is not None
        self.cluster.note_end(loop)
        loop.die()
        self.cluster.world.graveyard.append(self.broker)
        self.broker = None
        self.assembly = None
        if with_power:
            self.cluster.network.turn_off(self.name)
        self.cluster.sockets.kill(loop)
        self.cluster.disk.kill(self.name, with_power=with_power)


class Cluster:
    """The hosts and everything between them."""

    def __init__(
        self, world: World, brokers: int, root: str, settings: dict[str, str] | None = None, folders: int = 1
    ) -> None:
        self.world = world
        self.folders = folders  # of log.dirs, of each broker
        self.settings = settings or {}
        self.protocol = self.settings.get("security.inter.broker.protocol", "PLAINTEXT")
        self.accounts: Accounts | None = None  # of clients, if the brokers ask for a login
        self.network = Network(world)
        self.sockets = Sockets(self.network)
        self.disk = Disk(world, root)
        self.disk.on_crash = self._on_crash
        self.server = ZooKeeperServer(world)
        self.hosts = [BrokerHost(self, number) for number in range(1, brokers + 1)]
        for host in self.hosts:
            self.disk.disk_of(host.name)
        self.clients = NodeLoop(world, CLIENTS)
        self.deaths: list[str] = []
        self.errors: list[str] = []
        self.meddled: list[str] = []  # nodes that were spoilt from outside: the brokers may log errors about them
        self.spoilt: dict[str, tuple[bytes, bytes]] = {}  # nodes with garbage in them: what it is, and what was there
        self.is_in_trouble = True
        self.mended_at: float | None = None
        self.working: dict[str, object] = {}  # clients that are not done

    def _on_crash(self, loop: NodeLoop) -> None:
        """A node has come to the write that it does not do any more."""
        for host in self.hosts:
            if host.loop is loop:
                self.world.tell(f"{host.name} dies before a write")
                host._end(with_power=False)
                seconds = 0.1 + 2 * self.world.random.random()
                self.world.after(seconds, host.start)

    def note_end(self, loop: NodeLoop) -> None:
        """A life is over: what died in it before?"""
        self.deaths += [f"{loop.name}: {death}" for death in loop.deaths()]

    def on_error(self, loop: NodeLoop, record: logging.LogRecord) -> None:
        """A broker says that something is wrong which it can do nothing about: only a bad disk is a reason for that."""
        if record.msg.startswith(UNINTERESTING):
            return
        text = record.getMessage()
        if record.exc_info is not None and record.exc_info[1] is not None:
            self.errors.append(f"{loop.name}: {text} [{record.exc_info[1]!r}]")
        elif not any(reason in text for reason in (*BAD_DISKS, *self.meddled)):
            self.errors.append(f"{loop.name}: {text}")

    def host(self, number: int) -> BrokerHost:
        return self.hosts[number - 1]

    def heal(self) -> None:
        self.world.tell("all is mended")
        self.is_in_trouble = False
        self.mended_at = self.world.now
        self.mend()

    def mend(self) -> None:
        """Everything that is broken, but for hosts that are gone."""
        for host in self.hosts:
            disk = self.disk.disk_of(host.name)
            disk.is_full = disk.refuses_sync = False
            disk.writes_left = -1
            host.resume()
            host.correct()
            host.start()
        self.network.heal()
        for path in list(self.spoilt):
            self.mend_node(path)

    def mend_node(self, path: str) -> None:
        """An operator writes back what was there, unless a broker has replaced it already."""
        spoilt = self.spoilt.pop(path, None)
        node = self.server.nodes.get(path)
        if spoilt is not None and node is not None and node.data == spoilt[0]:
            self.world.tell(f"zk: {path} is mended")
            self.server.spoil(path, spoilt[1])


class StoryHandler(logging.Handler):
    """The log messages of the brokers are part of the trace."""

    def __init__(self, cluster: Cluster) -> None:
        super().__init__(logging.INFO)
        self._cluster = cluster

    def emit(self, record: logging.LogRecord) -> None:
        loop = self._cluster.world.current
        if loop is None or loop.is_dead:
            return
        if record.msg.startswith(UNINTERESTING):
            return
        text = record.getMessage().replace(self._cluster.disk.root, "")
        if record.exc_info and record.exc_info[1] is not None:
            text += f" [{record.exc_info[1]!r}]"
        self._cluster.world.tell(f"{loop.name} {record.levelname[0]} {text}")
        if record.levelno >= logging.ERROR:
            self._cluster.on_error(loop, record)


@contextmanager
def running(
    seed: int, brokers: int = 3, settings: dict[str, str] | None = None, lines: int | None = 80, folders: int = 1
) -> Iterator[Cluster]:
    """A world with a cluster in it, and nothing left of it afterwards."""
    root = tempfile.mkdtemp(prefix="ottla-", dir=MEMORY if os.path.isdir(MEMORY) else None)
    logger = logging.getLogger("ottla")
    level, propagates = logger.level, logger.propagate
    was_collecting = gc.isenabled()
    gc.freeze()  # objects from before the run do not matter here
    gc.disable()  # when an object is freed must not depend on how full the memory is
    world = World(seed, lines)
    cluster = Cluster(world, brokers, root, settings, folders)
    handler = StoryHandler(cluster)
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    logger.propagate = False
    try:
        with patched(world, cluster.sockets, cluster.disk, cluster.server):
            try:
                yield cluster
            finally:
                end_world(cluster)
                logger.removeHandler(handler)
    finally:
        logger.setLevel(level)
        logger.propagate = propagates
        gc.unfreeze()
        if was_collecting:
            gc.enable()
        shutil.rmtree(root, ignore_errors=True)


def end_world(cluster: Cluster) -> None:
    """Free everything while nothing of it can do harm: code that is freed runs its `finally`."""
    world = cluster.world
    loops = [cluster.clients, *(host.loop for host in cluster.hosts if host.loop is not None)]
    loops += [each for each in world.graveyard if isinstance(each, NodeLoop)]
    world.current = None
    hook, sys.unraisablehook = sys.unraisablehook, lambda _: None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)
            for loop in loops:
                loop.is_dead = True
                for task in list(loop.tasks.values()):
                    task._log_destroy_pending = False  # type: ignore[attr-defined]
                    with contextlib.suppress(BaseException):
                        task.get_coro().close()  # type: ignore[union-attr]
                loop.clear()
            world.clear()
            tasks._running.clear()
            cluster.network.clear()
            cluster.sockets.clear()
            cluster.server.sessions.clear()
            cluster.disk.close_all()
            for host in cluster.hosts:
                host.loop = host.broker = host.assembly = None
            gc.collect()
    finally:
        sys.unraisablehook = hook
