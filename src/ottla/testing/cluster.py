"""A cluster that a test holds in its hands: a real ZooKeeper and real brokers, each a process of its own.

    from ottla.testing.cluster import Cluster

    with Cluster(brokers=3, min_insync_replicas=2, topics={"orders": 4}) as cluster:
        leader = cluster.leader_of("orders", 0)
        leader.kill()
        cluster.wait_for_leader("orders", 0, other_than=leader)
        leader.start()
        cluster.wait_until_whole()

Rules:
1. Settings are those of every broker, under Kafka's names (`settings`) or as Python's (dots are underscores); `each`
   has more for single brokers. Topics have as many replicas as there are brokers, at most three, unless told otherwise.
2. Addresses and folders outlive stop(), kill() and start(); wipe() empties a folder. Ids are 1, 2, 3 ...
3. Nothing outlives the test: neither processes nor folders. What was said is printed when the test fails, and stays in
   `logs_folder` if there is one.
4. Every wait has a deadline, and says what it has waited for.
5. With `has_links` the brokers talk to each other and to ZooKeeper through doors that a test can cut: `cluster.links`.
"""

from __future__ import annotations

import contextlib
import json
import shutil
import socket
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeVar

from ottla.testing.broker import OUTPUT, Broker, Settings, Topics, Value, as_text
from ottla.testing.child import BrokerError
from ottla.testing.folders import Folder
from ottla.testing.links import HOST, ZOOKEEPER, Links
from ottla.testing.zookeeper import ZooKeeperProcess

if TYPE_CHECKING:
    from ottla.client.admin import Admin
    from ottla.protocol.messages.metadata import MetadataResponse, MetadataResponsePartition

WAIT_SECONDS_MAX = 30.0
LOOK_SECONDS = 0.02
ASK_TIMEOUT_MS = 3_000
ADMIN_TIMEOUT_MS = 20_000
REPLICAS_MAX = 3
LINES_SHOWN_MAX = 150
INTERNAL_PARTITIONS = 4  # fifty of each would cost every test a second

T = TypeVar("T")


class ClusterBroker(Broker):
    """One broker of a cluster: start(), stop(), kill(), pause(), resume() and restart() as with any test broker."""

    def __init__(self, cluster: Cluster, broker_id: int, settings: Settings, environment: Mapping[str, str]) -> None:
        self.id = broker_id
        self.cluster = cluster
        super().__init__(settings, folder=cluster.folder, environment=environment)
        self._was_started = True  # it is the cluster that makes topics, and that closes a broker which does not start

    @property
    def is_paused(self) -> bool:
        return self._child.is_paused

    @property
    def output(self) -> Path:
        return self._folder.path / OUTPUT

    def start(self) -> Self:
        self.cluster.open_doors(self.id)
        super().start()
        return self

    def stop(self) -> None:
        super().stop()
        self.cluster.close_doors(self.id)

    def kill(self) -> None:
        super().kill()
        self.cluster.close_doors(self.id)

    def launch(self) -> None:
        """Start the process and do not wait for it."""
        self.cluster.open_doors(self.id)
        self._child.launch(self.settings)

    def wait_until_ready(self) -> Self:
        """After launch()."""
        self._child.wait_until_ready(self.start_seconds_max)
        return self

    def wipe(self) -> None:
        """As a new disk in place of the old one; the broker must be down."""
        if self.is_running:
            raise BrokerError(f"broker {self.id} runs: stop or kill it before its data is wiped")
        for folder in self.log_folders:
            shutil.rmtree(folder, ignore_errors=True)

    @property
    def log_folders(self) -> list[Path]:
        return [Path(folder) for folder in self.settings["log.dirs"].split(",")]

    def partition_folder(self, topic: str, partition: int) -> Path | None:
        """Where this broker has the log of a partition."""
        found = (folder / f"{topic}-{partition}" for folder in self.log_folders)
        return next((folder for folder in found if folder.is_dir()), None)

    def __repr__(self) -> str:
        return f"<ClusterBroker {self.id} {self._child}>"


class Cluster:
    """ZooKeeper and some brokers. A context manager; `start()` and `close()` do the same."""

    def __init__(
        self,
        brokers: int = 3,
        settings: Settings | None = None,
        *,
        topics: Topics = (),
        folder: Path | None = None,
        logs_folder: Path | None = None,
        has_links: bool = False,
        each: Mapping[int, Settings] | None = None,
        environments: Mapping[int, Mapping[str, str]] | None = None,
        **named: Value,
    ) -> None:
        self._folder = Folder(folder)
        self.folder = self._folder.path
        self.logs_folder = logs_folder
        self.topics = topics
        self.zookeeper = ZooKeeperProcess(self.folder / "zookeeper")
        self.links = Links(self._pids) if has_links else None
        self._reservations: list[socket.socket] = []
        self._brokers: dict[int, ClusterBroker] = {}
        self._store: Any = None
        self._settings = {**(settings or {}), **{name.replace("_", "."): value for name, value in named.items()}}
        self._each = dict(each or {})
        self._environments = dict(environments or {})
        self._replicas = min(brokers, REPLICAS_MAX)
        for broker_id in range(1, brokers + 1):
            self._make_broker(broker_id)

    # ---- who is there

    @property
    def bootstrap(self) -> str:
        """host:port of all brokers, for every client's bootstrap.servers."""
        return ",".join(broker.bootstrap_servers for broker in self.brokers)

    bootstrap_servers = bootstrap

    @property
    def brokers(self) -> list[ClusterBroker]:
        return list(self._brokers.values())

    @property
    def live_brokers(self) -> list[ClusterBroker]:
        """Those that run and are not paused."""
        return [broker for broker in self.brokers if broker.is_running and not broker.is_paused]

    def broker(self, broker_id: int) -> ClusterBroker:
        return self._brokers[broker_id]

    def add_broker(self, settings: Settings | None = None) -> ClusterBroker:
        """One more, with the next id; it runs."""
        broker_id = max(self._brokers) + 1
        self._each[broker_id] = settings or {}
        self._make_broker(broker_id)
        return self._brokers[broker_id].start()

    # ---- start and end

    def start(self) -> Self:
        try:
            self.zookeeper.start()
            self.open_doors(ZOOKEEPER)
            self.start_brokers()
            self._create_topics()
        except BaseException:
            self.print_logs()
            self.close()
            raise
        return self

    def start_brokers(self, brokers: Iterable[ClusterBroker] | None = None) -> None:
        """All that are down, or these, at the same time."""
        waiting = [broker for broker in (self.brokers if brokers is None else brokers) if not broker.is_running]
        for broker in waiting:
            broker.launch()
        for broker in waiting:
            broker.wait_until_ready()

    def stop_brokers(self) -> None:
        """All at once, cleanly."""
        with ThreadPoolExecutor(len(self.brokers)) as pool:
            list(pool.map(lambda broker: broker.stop(), [broker for broker in self.brokers if broker.is_running]))

    def close(self) -> None:
        """End everything at once and remove all data."""
        if self._store is not None:
            with contextlib.suppress(Exception):
                self._store.stop()
                self._store.close()
        self._keep_logs()
        for broker in self.brokers:
            broker.close()
        self.zookeeper.close()
        if self.links is not None:
            self.links.close()
        for reservation in self._reservations:
            reservation.close()
        self._folder.remove()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is not None:
            self.print_logs()
        self.close()

    # ---- what it is like now

    def metadata(self, topic: str | None = None) -> dict[int, MetadataResponse]:
        """What each broker that answers tells about a topic, or about all."""
        from ottla.client.client import Client  # noqa: PLC0415 (start-up)
        from ottla.client.errors import ClientError  # noqa: PLC0415
        from ottla.protocol.messages.metadata import (  # noqa: PLC0415
            MetadataRequest,
            MetadataRequestTopic,
            MetadataResponse,
        )

        wanted = None if topic is None else [MetadataRequestTopic(name=topic)]
        request = MetadataRequest(topics=wanted, allow_auto_topic_creation=False)
        answers = {}
        for broker in self.live_brokers:
            with (
                contextlib.suppress(ClientError),
                Client(broker.bootstrap_servers, timeout_ms=ASK_TIMEOUT_MS, patience_ms=0) as client,
            ):
                answers[broker.id] = client.call(request, MetadataResponse)
        return answers

    def partition(self, topic: str, number: int = 0) -> MetadataResponsePartition | None:
        """A partition as the best informed broker knows it; None if nobody does."""
        found = [
            partition
            for answer in self.metadata(topic).values()
            for told in answer.topics
            for partition in told.partitions
            if partition.partition_index == number
        ]
        return max(found, key=lambda partition: partition.leader_epoch, default=None)

    def leader_of(self, topic: str, partition: int = 0, seconds_max: float = WAIT_SECONDS_MAX) -> ClusterBroker:
        """The broker that leads a partition, as soon as there is one."""
        return self.wait_for_leader(topic, partition, seconds_max=seconds_max)

    def wait_for_leader(
        self,
        topic: str,
        partition: int = 0,
        *,
        other_than: ClusterBroker | None = None,
        seconds_max: float = WAIT_SECONDS_MAX,
    ) -> ClusterBroker:
        def leader() -> ClusterBroker | None:
            found = self.partition(topic, partition)
            broker = None if found is None else self._brokers.get(found.leader_id)
            return None if broker is other_than else broker

        return self.wait_for(leader, f"a leader of {topic}-{partition}", seconds_max)

    def controller(
        self, *, other_than: ClusterBroker | None = None, seconds_max: float = WAIT_SECONDS_MAX
    ) -> ClusterBroker:
        """The active controller, as ZooKeeper knows it."""

        def active() -> ClusterBroker | None:
            broker = self._brokers.get(self.controller_id())
            return None if broker is other_than else broker

        return self.wait_for(active, "a controller", seconds_max)

    def controller_id(self) -> int:
        """What `/controller` holds; -1 if there is no such node."""
        data = self.read_node("/controller")
        return -1 if data is None else int(json.loads(data)["brokerid"])

    def read_node(self, path: str) -> bytes | None:
        """What ZooKeeper has at this path."""
        from kazoo.exceptions import NoNodeError  # noqa: PLC0415

        try:
            return bytes(self.store.get(path)[0])
        except NoNodeError:
            return None

    @property
    def store(self) -> Any:
        """A kazoo client of the cluster's ZooKeeper, not through any door."""
        if self._store is None:
            from kazoo.client import KazooClient  # noqa: PLC0415 (start-up)

            self._store = KazooClient(hosts=self.zookeeper.connect, timeout=30)
            self._store.start(WAIT_SECONDS_MAX)
        return self._store

    def replica_folders(self, topic: str, partition: int) -> dict[int, Path]:
        """The folder of each replica of a partition, by broker id."""
        found = self.partition(topic, partition)
        folders = (
            {}
            if found is None
            else {each: self._brokers[each].partition_folder(topic, partition) for each in found.replica_nodes}
        )
        return {each: folder for each, folder in folders.items() if folder is not None}

    # ---- waiting

    def wait_for(self, look: Callable[[], T | None], what: str, seconds_max: float = WAIT_SECONDS_MAX) -> T:
        """The first answer that is not false. Raises BrokerError at the deadline."""
        deadline = time.monotonic() + seconds_max
        while not (found := look()):
            if time.monotonic() > deadline:
                raise BrokerError(f"after {seconds_max:g} s there was still not {what}: {self.describe()}")
            time.sleep(LOOK_SECONDS)
        return found

    def wait_for_isr(
        self, topic: str, partition: int, isr: Iterable[int], seconds_max: float = WAIT_SECONDS_MAX
    ) -> None:
        """Until exactly these brokers are in sync."""
        wanted = sorted(isr)

        def is_so() -> bool:
            found = self.partition(topic, partition)
            return found is not None and sorted(found.isr_nodes) == wanted

        self.wait_for(is_so, f"an ISR {wanted} of {topic}-{partition}", seconds_max)

    def wait_until_whole(self, topics: Iterable[str] | None = None, seconds_max: float = 2 * WAIT_SECONDS_MAX) -> None:
        """Until every broker says of every partition of these topics (or of all) that all its replicas are in sync."""
        wanted = None if topics is None else set(topics)

        def is_whole() -> bool:
            answers = self.metadata()
            return len(answers) == len(self.brokers) and all(
                len(answer.brokers) == len(self.brokers)
                and all(
                    partition.leader_id >= 0 and sorted(partition.isr_nodes) == sorted(partition.replica_nodes)
                    for topic in answer.topics
                    if wanted is None or topic.name in wanted
                    for partition in topic.partitions
                )
                for answer in answers.values()
            )

        self.wait_for(is_whole, "a whole cluster", seconds_max)

    # ---- topics

    def create_topic(
        self,
        name: str,
        partitions: int = 1,
        replicas: int | None = None,
        settings: Settings | None = None,
        assignment: Mapping[int, list[int]] | None = None,
    ) -> str:
        """Create a topic and return its name. Replicas: None is as many as the cluster has, at most three."""
        configs = {key: as_text(value) for key, value in (settings or {}).items()}
        with self.admin() as admin:
            if assignment is not None:
                admin.create_topic(name, assignment=assignment, configs=configs)
            else:
                admin.create_topic(
                    name, partitions=partitions, replication_factor=replicas or self._replicas, configs=configs
                )
        return name

    def delete_topic(self, name: str) -> None:
        with self.admin() as admin:
            admin.delete_topics([name])

    @contextlib.contextmanager
    def admin(self) -> Iterator[Admin]:
        """Administration through any broker that lives."""
        from ottla.client.admin import Admin  # noqa: PLC0415 (start-up)
        from ottla.client.client import Client  # noqa: PLC0415

        bootstrap = ",".join(broker.bootstrap_servers for broker in self.live_brokers)
        with Client(bootstrap, client_id="ottla-testing", timeout_ms=ADMIN_TIMEOUT_MS) as client:
            yield Admin(client)

    def _create_topics(self) -> None:
        topics = self.topics if isinstance(self.topics, Mapping) else dict.fromkeys(self.topics, 1)
        for name, wanted in topics.items():
            if isinstance(wanted, int):
                self.create_topic(name, wanted)
            else:
                settings = dict(wanted)
                self.create_topic(name, int(settings.pop("partitions", 1)), settings=settings)

    # ---- doors, for clusters with links

    def open_doors(self, target: int) -> None:
        if self.links is not None:
            self.links.open_doors(target)

    def close_doors(self, target: int) -> None:
        if self.links is not None:
            self.links.close_doors(target)

    def _pids(self) -> dict[int, int]:
        return {broker.id: broker.pid for broker in self.brokers if broker.is_running}

    def _make_broker(self, broker_id: int) -> None:
        more = self._each.get(broker_id, {})
        settings: dict[str, Value] = {
            "broker.id": broker_id,
            "zookeeper.connect": self.zookeeper.connect,
            "default.replication.factor": self._replicas,
            "min.insync.replicas": max(1, self._replicas - 1),
            "offsets.topic.replication.factor": self._replicas,
            "offsets.topic.num.partitions": INTERNAL_PARTITIONS,
            "transaction.state.log.replication.factor": self._replicas,
            "transaction.state.log.min.isr": max(1, self._replicas - 1),
            "transaction.state.log.num.partitions": INTERNAL_PARTITIONS,
            **self._settings,
            **more,
        }
        broker = ClusterBroker(self, broker_id, settings, self._environments.get(broker_id, {}))
        if self.links is not None:
            broker.settings |= self._linked_settings(self.links, broker)
        self._brokers[broker_id] = broker

    def _linked_settings(self, links: Links, broker: ClusterBroker) -> dict[str, str]:
        reservation = socket.socket()
        reservation.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        reservation.bind((HOST, 0))
        self._reservations.append(reservation)
        inner_port = reservation.getsockname()[1]
        door = links.add_door(broker.id, inner_port)
        store_door = links.add_door(ZOOKEEPER, self.zookeeper.port, broker.id)
        outer = f"PLAINTEXT://{broker.bootstrap_servers}"
        return {
            "listeners": f"{outer},REPLICATION://{HOST}:{inner_port}",
            "advertised.listeners": f"{outer},REPLICATION://{HOST}:{door.port}",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,REPLICATION:PLAINTEXT",
            "inter.broker.listener.name": "REPLICATION",
            "zookeeper.connect": f"{HOST}:{store_door.port}",
        }

    # ---- what was said

    def print_logs(self, lines_max: int = LINES_SHOWN_MAX) -> None:
        """The last lines of everybody, on stderr."""
        for broker in self.brokers:
            print(f"---- broker {broker.id} ({broker!r})", file=sys.stderr)
            print("\n".join(broker.logs.splitlines()[-lines_max:]), file=sys.stderr)
        print(f"---- {self.zookeeper!r}", file=sys.stderr, flush=True)

    def _keep_logs(self) -> None:
        if self.logs_folder is not None:
            self.logs_folder.mkdir(parents=True, exist_ok=True)
            for broker in self.brokers:
                if broker.output.exists():
                    shutil.copy(broker.output, self.logs_folder / f"broker-{broker.id}.log")

    def describe(self) -> str:
        """Who lives and what they say about the partitions, for messages."""
        told = []
        for broker_id, answer in self.metadata().items():
            rows = [
                f"{topic.name}-{each.partition_index} leader={each.leader_id} epoch={each.leader_epoch} "
                f"isr={each.isr_nodes} replicas={each.replica_nodes}"
                for topic in answer.topics
                for each in topic.partitions
                if not topic.is_internal
            ]
            alive = [broker.node_id for broker in answer.brokers]
            told.append(f"broker {broker_id} knows brokers {alive}, controller {answer.controller_id}: {rows}")
        return "\n".join([repr(self), *told])

    def __repr__(self) -> str:
        return f"<Cluster {self.brokers} {self.zookeeper!r}>"
