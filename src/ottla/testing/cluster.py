"""A test cluster: a real ZooKeeper and real brokers, each in its own process.

    from ottla.testing.cluster import Cluster

    with Cluster(brokers=3, min_insync_replicas=2, topics={"orders": 4}) as cluster:
        leader = cluster.leader_of("orders", 0)
        leader.kill()
        cluster.wait_for_leader("orders", 0, other_than=leader)
        leader.start()
        cluster.wait_until_whole()

Rules:
1. Settings of all brokers have Kafka's names (`settings`) or Python's (underscores for dots); `each` has more for
   single brokers. By default topics have as many replicas as there are brokers, at most three.
2. Addresses and folders survive stop(), kill() and start(); wipe() empties a folder. Ids are 1, 2, 3 ...
3. Processes and folders are removed at the end of the test. The output is printed when the test fails, and stays in
   `logs_folder` if there is one.
4. Every wait has a deadline; its error says what it has waited for.
5. With `security` ("SSL", "SASL_PLAINTEXT", "SASL_SSL") brokers and clients need certificates or logins, and rights:
   `cluster.security` has the client settings of a superuser.
6. `zookeeper` is a custom instance, with passwords for example; the cluster starts and closes it.
7. With `has_links` the brokers connect to each other and to ZooKeeper through proxies that a test can cut:
   `cluster.links`.
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
from ottla.testing.child import HOST, BrokerError, reserve_port
from ottla.testing.folders import Folder
from ottla.testing.links import ZOOKEEPER, Links
from ottla.testing.security import Security, make_security
from ottla.testing.zookeeper import ZooKeeperProcess

if TYPE_CHECKING:
    from ottla.client.admin import Admin
    from ottla.protocol.messages.metadata import MetadataResponse, MetadataResponsePartition

WAIT_SECONDS_MAX = 90.0  # on a busy machine sessions expire that should not, and are created again
POLL_SECONDS = 0.02
METADATA_TIMEOUT_MS = 3_000
ADMIN_TIMEOUT_MS = 20_000
REPLICAS_MAX = 3
LINES_SHOWN_MAX = 150
INTERNAL_PARTITIONS = 4  # Kafka's fifty of each would cost every test a second


T = TypeVar("T")


class ClusterBroker(Broker):
    """One broker of a cluster: start(), stop(), kill(), pause(), resume() and restart() as with any test broker."""

    def __init__(
        self,
        cluster: Cluster,
        broker_id: int,
        settings: Settings,
        environment: Mapping[str, str],
        security: Security | None = None,
    ) -> None:
        self.id = broker_id
        self.cluster = cluster
        super().__init__(settings, folder=cluster.folder, environment=environment, security=security)
        self._was_started = True  # the cluster creates the topics, and closes a broker that fails to start

    @property
    def is_paused(self) -> bool:
        return self._process.is_paused

    @property
    def output(self) -> Path:
        return self._folder.path / OUTPUT

    def start(self) -> Self:
        self.cluster.open_proxies(self.id)
        super().start()
        return self

    def stop(self) -> None:
        super().stop()
        self.cluster.close_proxies(self.id)

    def kill(self) -> None:
        super().kill()
        self.cluster.close_proxies(self.id)

    def launch(self) -> None:
        """Start the process without waiting for it."""
        self.cluster.open_proxies(self.id)
        self._process.launch(self.settings)

    def wait_until_ready(self) -> Self:
        """Wait after launch()."""
        self._process.wait_until_ready(self.start_seconds_max)
        return self

    def wipe(self) -> None:
        """Empty the data folder, as with a new disk; the broker must be down."""
        if self.is_running:
            raise BrokerError(f"broker {self.id} runs: stop or kill it before its data is wiped")
        for folder in self.log_folders:
            shutil.rmtree(folder, ignore_errors=True)

    @property
    def log_folders(self) -> list[Path]:
        return [Path(folder) for folder in self.settings["log.dirs"].split(",")]

    def partition_folder(self, topic: str, partition: int) -> Path | None:
        """The folder of a partition's log on this broker."""
        found = (folder / f"{topic}-{partition}" for folder in self.log_folders)
        return next((folder for folder in found if folder.is_dir()), None)

    def __repr__(self) -> str:
        return f"<ClusterBroker {self.id} {self._process}>"


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
        security: str | None = None,
        zookeeper: ZooKeeperProcess | None = None,
        **named: Value,
    ) -> None:
        self._folder = Folder(folder)
        self.folder = self._folder.path
        self.logs_folder = logs_folder
        self.topics = topics
        self.zookeeper = zookeeper or ZooKeeperProcess(self.folder / "zookeeper")
        self.security = make_security(security, self.folder)
        self._brokers: dict[int, ClusterBroker] = {}
        self._store: Any = None
        self.links = Links(self._pids) if has_links else None
        self._reservations: list[socket.socket] = []
        self._settings = {**(settings or {}), **{name.replace("_", "."): value for name, value in named.items()}}
        self._each = dict(each or {})
        self._environments = dict(environments or {})
        self._replicas = min(brokers, REPLICAS_MAX)
        for broker_id in range(1, brokers + 1):
            self._make_broker(broker_id)

    # ---- brokers

    @property
    def brokers(self) -> list[ClusterBroker]:
        return list(self._brokers.values())

    @property
    def live_brokers(self) -> list[ClusterBroker]:
        """The brokers that run and are not paused."""
        return [broker for broker in self.brokers if broker.is_running and not broker.is_paused]

    def broker(self, broker_id: int) -> ClusterBroker:
        return self._brokers[broker_id]

    @property
    def client_properties(self) -> dict[str, str]:
        """Connection settings of a superuser, in Java's names; empty without security."""
        return {} if self.security is None else self.security.properties

    @property
    def bootstrap(self) -> str:
        """host:port of all brokers, for a client's bootstrap.servers."""
        return ",".join(broker.bootstrap_servers for broker in self.brokers)

    bootstrap_servers = bootstrap

    def add_broker(self, settings: Settings | None = None) -> ClusterBroker:
        """Add a broker with the next id, and start it."""
        broker_id = max(self._brokers) + 1
        self._each[broker_id] = settings or {}
        self._make_broker(broker_id)
        return self._brokers[broker_id].start()

    # ---- start and end

    def start(self) -> Self:
        try:
            self.zookeeper.start()
            self.open_proxies(ZOOKEEPER)
            self.start_brokers()
            self._create_topics()
        except BaseException:
            self.print_logs()
            self.close()
            raise
        return self

    def start_brokers(self, brokers: Iterable[ClusterBroker] | None = None) -> None:
        """Start all brokers that are down, or these, in parallel."""
        waiting = [broker for broker in (self.brokers if brokers is None else brokers) if not broker.is_running]
        for broker in waiting:
            broker.launch()
        for broker in waiting:
            broker.wait_until_ready()

    def stop_brokers(self) -> None:
        """Stop all brokers in parallel, cleanly."""
        with ThreadPoolExecutor(len(self.brokers)) as pool:
            list(pool.map(lambda broker: broker.stop(), [broker for broker in self.brokers if broker.is_running]))

    def close(self) -> None:
        """Kill all processes and remove all data."""
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

    # ---- topics

    def create_topic(
        self,
        name: str,
        partitions: int = 1,
        replicas: int | None = None,
        settings: Settings | None = None,
        assignment: Mapping[int, list[int]] | None = None,
    ) -> str:
        """Create a topic and return its name. Replicas: None is the number of brokers, at most three."""
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
        """An Admin through any running broker."""
        from ottla.client.admin import Admin  # noqa: PLC0415 (start-up)
        from ottla.client.client import open_client  # noqa: PLC0415

        bootstrap = ",".join(broker.bootstrap_servers for broker in self.live_brokers)
        with open_client(bootstrap, self.client_properties, "ottla-testing", timeout_ms=ADMIN_TIMEOUT_MS) as client:
            yield Admin(client)

    def _create_topics(self) -> None:
        topics = self.topics if isinstance(self.topics, Mapping) else dict.fromkeys(self.topics, 1)
        for name, wanted in topics.items():
            if isinstance(wanted, int):
                self.create_topic(name, wanted)
            else:
                settings = dict(wanted)
                self.create_topic(name, int(settings.pop("partitions", 1)), settings=settings)

    # ---- current state

    def metadata(self, topic: str | None = None) -> dict[int, MetadataResponse]:
        """The metadata of a topic, or of all topics, from each broker that answers."""
        from ottla.client.client import open_client  # noqa: PLC0415
        from ottla.client.errors import ClientError  # noqa: PLC0415 (start-up)
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
                open_client(
                    broker.bootstrap_servers, self.client_properties, timeout_ms=METADATA_TIMEOUT_MS, connect_retry_ms=0
                ) as client,
            ):
                answers[broker.id] = client.call(request, MetadataResponse)
        return answers

    def partition(self, topic: str, number: int = 0) -> MetadataResponsePartition | None:
        """The most recent state of a partition that any broker reports; None if no broker knows it."""
        found = [
            partition
            for answer in self.metadata(topic).values()
            for told in answer.topics
            for partition in told.partitions
            if partition.partition_index == number
        ]
        return max(found, key=lambda partition: partition.leader_epoch, default=None)

    def leader_of(self, topic: str, partition: int = 0, seconds_max: float = WAIT_SECONDS_MAX) -> ClusterBroker:
        """Wait until a partition has a leader, and return its broker."""
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
        """The active controller, from ZooKeeper."""

        def active() -> ClusterBroker | None:
            broker = self._brokers.get(self.controller_id())
            return None if broker is other_than else broker

        return self.wait_for(active, "a controller", seconds_max)

    def controller_id(self) -> int:
        """The id in `/controller`; -1 if there is no such node."""
        data = self.read_node("/controller")
        return -1 if data is None else int(json.loads(data)["brokerid"])

    def read_node(self, path: str) -> bytes | None:
        """The data of a ZooKeeper node."""
        from kazoo.exceptions import NoNodeError  # noqa: PLC0415

        try:
            return bytes(self.store.get(path)[0])
        except NoNodeError:
            return None

    @property
    def store(self) -> Any:
        """A kazoo client of the cluster's ZooKeeper, without a proxy."""
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
        """The first true result. Raises BrokerError at the deadline."""
        deadline = time.monotonic() + seconds_max
        while not (found := look()):
            if time.monotonic() > deadline:
                raise BrokerError(f"after {seconds_max:g} s there was still not {what}: {self.describe()}")
            time.sleep(POLL_SECONDS)
        return found

    def wait_for_isr(
        self, topic: str, partition: int, isr: Iterable[int], seconds_max: float = WAIT_SECONDS_MAX
    ) -> None:
        """Wait until the ISR is exactly these brokers."""
        wanted = sorted(isr)

        def is_so() -> bool:
            found = self.partition(topic, partition)
            return found is not None and sorted(found.isr_nodes) == wanted

        self.wait_for(is_so, f"an ISR {wanted} of {topic}-{partition}", seconds_max)

    def wait_until_whole(self, topics: Iterable[str] | None = None, seconds_max: float = WAIT_SECONDS_MAX) -> None:
        """Wait until every broker reports all replicas of these topics (or of all) in sync."""
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

    def describe(self) -> str:
        """The running brokers and their views of the partitions, for error messages."""
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

    # ---- proxies, for clusters with links

    def open_proxies(self, target: int) -> None:
        if self.links is not None:
            self.links.open_proxies(target)

    def close_proxies(self, target: int) -> None:
        if self.links is not None:
            self.links.close_proxies(target)

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
        broker = ClusterBroker(self, broker_id, settings, self._environments.get(broker_id, {}), self.security)
        if self.links is not None:
            broker.settings |= self._linked_settings(self.links, broker)
        self._brokers[broker_id] = broker

    def _linked_settings(self, links: Links, broker: ClusterBroker) -> dict[str, str]:
        reservation = reserve_port()
        self._reservations.append(reservation)
        inner_port = reservation.getsockname()[1]
        broker_proxy = links.add_proxy(broker.id, inner_port)
        zookeeper_proxy = links.add_proxy(ZOOKEEPER, self.zookeeper.port, broker.id)
        outer = f"PLAINTEXT://{broker.bootstrap_servers}"
        return {
            "listeners": f"{outer},REPLICATION://{HOST}:{inner_port}",
            "advertised.listeners": f"{outer},REPLICATION://{HOST}:{broker_proxy.port}",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,REPLICATION:PLAINTEXT",
            "inter.broker.listener.name": "REPLICATION",
            "zookeeper.connect": f"{HOST}:{zookeeper_proxy.port}",
        }

    # ---- output

    def print_logs(self, lines_max: int = LINES_SHOWN_MAX) -> None:
        """Print the last lines of every process to stderr."""
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

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.brokers} {self.zookeeper!r}>"
