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
5. With `security` ("SSL", "SASL_PLAINTEXT", "SASL_SSL") brokers and clients need certificates or logins, and rights:
   `cluster.security` has the settings of clients who may do everything.
6. `zookeeper` is one of its own kind, with passwords for instance; it is started and closed here, too.
7. With `has_links` the brokers talk to each other and to ZooKeeper through doors that a test can cut: `cluster.links`.
"""

from __future__ import annotations

import contextlib
import shutil
import socket
import sys
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Self

from ottla.testing.broker import Settings, Topics, Value, as_text
from ottla.testing.cluster_broker import ClusterBroker
from ottla.testing.cluster_view import ClusterView
from ottla.testing.folders import Folder
from ottla.testing.links import HOST, ZOOKEEPER, Links
from ottla.testing.security import secured
from ottla.testing.zookeeper import ZooKeeperProcess

if TYPE_CHECKING:
    from ottla.client.admin import Admin

__all__ = ["Cluster", "ClusterBroker"]

ADMIN_TIMEOUT_MS = 20_000
REPLICAS_MAX = 3
LINES_SHOWN_MAX = 150
INTERNAL_PARTITIONS = 4  # fifty of each would cost every test a second


class Cluster(ClusterView):
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
        super().__init__(zookeeper or ZooKeeperProcess(self.folder / "zookeeper"), secured(security, self.folder))
        self.links = Links(self._pids) if has_links else None
        self._reservations: list[socket.socket] = []
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
        from ottla.client.opening import open_client  # noqa: PLC0415

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
        broker = ClusterBroker(self, broker_id, settings, self._environments.get(broker_id, {}), self.security)
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
