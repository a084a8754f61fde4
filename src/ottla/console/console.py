"""The console put together: its store, its clusters, who signs in, and who waits for news."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from ottla.base.clock import Clock
from ottla.client.errors import ClientError
from ottla.console.alerts import FILE as ALERTS_FILE
from ottla.console.alerts import Alerts
from ottla.console.api.dead_letters import Tallies
from ottla.console.api.errors import ApiError, conflict, not_found
from ottla.console.api.examining import Examinations
from ottla.console.api.pipeline_course import Courses
from ottla.console.api.routing import Route
from ottla.console.clusters.cluster import Address, Cluster
from ottla.console.clusters.metric_addresses import MetricAddresses
from ottla.console.history.archive import FILE as HISTORY_FILE
from ottla.console.history.recorder import Recorder
from ottla.console.messages.workers import MessageWorkers
from ottla.console.people.signing_in import SigningIn
from ottla.console.steering.runner import Runner
from ottla.console.store import Store, Tables
from ottla.operations.pipeline_runs.statuses import state_folder

DEFAULT = "default"
CLUSTERS_MAX = 50


class Console:
    """All that the handlers of the API reach."""

    def __init__(self, store: Store, signing_in: SigningIn, clock: Clock, routes: Sequence[Route]) -> None:
        self.store = store
        self.signing_in = signing_in
        self.clock = clock
        self.routes = routes
        self.started_ms = clock.now_ms()
        self.clusters: dict[str, Cluster] = {}
        self.broken: dict[str, str] = {}  # clusters of which no client can be made, and why
        self.metric_addresses: dict[str, MetricAddresses] = {}
        self.runner = Runner(store, clock, self.clusters)
        self.examinations = Examinations()
        self.news = asyncio.Event()
        self.message_workers = MessageWorkers()
        self.pipelines = state_folder()  # where their runs leave word, and the cluster that they are shown with
        self.pipelines_cluster = DEFAULT
        self.courses = Courses()
        self.tallies = Tallies()
        self.cluster_tests = 0  # that run
        self.event_streams = 0
        self.recorder = Recorder(store.path.parent / HISTORY_FILE, clock, self.clusters, self.tell)
        self.alerts = Alerts(self, store.path.parent / ALERTS_FILE)
        self.is_stopping = False

    def __repr__(self) -> str:
        return f"<Console {list(self.clusters)}>"

    def start(self, named: Address | None, metrics: MetricAddresses | None = None) -> None:
        """Begin to read; `named` is the cluster of the command line, which goes before a stored one of that name; so do
        the addresses of its metrics.
        """
        self.metric_addresses = self.store.now(Tables.metric_addresses)
        if named is not None and metrics is not None:
            self.metric_addresses[named.name] = metrics
        stored = {address.name: address for address in self.store.now(Tables.clusters)}
        for address in (stored | ({named.name: named} if named is not None else {})).values():
            try:
                self.add(address)
            except (ClientError, ValueError) as problem:
                self.broken[address.name] = str(problem)
        self.runner.resume()
        self.recorder.start()
        self.alerts.start()

    def add(self, address: Address) -> None:
        """Read one more cluster; raises ClientError or PropertiesError where its address makes no sense."""
        if len(self.clusters) >= CLUSTERS_MAX:
            raise conflict("TOO_MANY", "this console looks after {0} clusters at most", CLUSTERS_MAX)
        cluster = Cluster(self.bounded(address), self.clock, self.tell)
        self.remove(address.name)
        self.clusters[address.name] = cluster
        self.broken.pop(address.name, None)
        cluster.start()
        cluster.metrics.allows_private = self.message_workers.allows_private
        cluster.metrics.use(self.metric_addresses.get(address.name, MetricAddresses()))
        self.tell()

    def bounded(self, address: Address) -> Address:
        """The same, where it may talk to what this console may."""
        return address._replace(allows_inside=self.message_workers.allows_private)

    def remove(self, name: str) -> None:
        cluster = self.clusters.pop(name, None)
        if cluster is not None:
            cluster.stop()
            self.message_workers.forget(cluster.address)
        self.broken.pop(name, None)
        self.tell()

    def cluster(self, name: str) -> Cluster:
        if name in self.broken:
            raise ApiError(503, "UNREACHABLE", self.broken[name])
        if name not in self.clusters:
            raise not_found("there is no cluster {0}", name)
        return self.clusters[name]

    def tell(self) -> None:
        """Something is new: wake the streams."""
        self.news.set()
        self.news = asyncio.Event()

    def end_streams(self) -> None:
        self.is_stopping = True
        self.tell()

    async def stop_watching(self) -> None:
        await self.recorder.stop()
        await self.alerts.stop()
        await asyncio.gather(*(cluster.watch.stopped() for cluster in self.clusters.values()))

    def stop(self) -> None:
        self.runner.stop()
        for cluster in self.clusters.values():
            cluster.stop()
        self.message_workers.stop()
        self.store.close()

    def ages(self) -> dict[str, dict[str, tuple[int, int, str | None]]]:
        """For each cluster how fresh its parts are: version, time of reading, problem."""
        return {
            name: {
                **{part.value: (state.version, state.read_ms, state.problem) for part, state in states.items()},
                "verdicts": (watched.version, watched.at_ms, None),
                "history": (self.recorder.rounds, 0, None),
                "alerts": (self.alerts.version, 0, None),
                "metrics": (cluster.metrics.version, cluster.metrics.at_ms, None),
            }
            for name, cluster in self.clusters.items()
            for states, watched in [(cluster.snapshot.states, cluster.watch.seen)]
        }
