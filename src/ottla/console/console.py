"""The state of the console: its store, clusters, runs, alerts and event streams."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from ottla.base.clock import Clock
from ottla.client.errors import ClientError
from ottla.console.alerts import FILE as ALERTS_FILE
from ottla.console.alerts import Alerts
from ottla.console.api.dead_letters import TallyCache
from ottla.console.api.errors import ApiError, conflict, not_found
from ottla.console.api.examinations import Examinations
from ottla.console.api.pipelines import CourseCache
from ottla.console.api.routing import Route
from ottla.console.auth.authentication import Authenticator
from ottla.console.clusters.cluster import Cluster, ClusterAddress
from ottla.console.clusters.metrics import MetricAddresses
from ottla.console.history.archive import FILE as HISTORY_FILE
from ottla.console.history.recorder import Recorder
from ottla.console.message_workers import MessageWorkers
from ottla.console.reassignment.runner import ReassignmentRunner
from ottla.console.slots import Slots
from ottla.console.store import Store, Tables
from ottla.operations.pipeline_runs.statuses import state_folder

DEFAULT_CLUSTER = "default"
CLUSTERS_MAX = 50
TESTS_MAX = 2  # they occupy threads of the shared pool
STREAMS_MAX = 500  # half of the connections; the rest is for requests


class Console:
    """Everything that the API handlers use."""

    def __init__(self, store: Store, signing_in: Authenticator, clock: Clock, routes: Sequence[Route]) -> None:
        self.store = store
        self.authenticator = signing_in
        self.clock = clock
        self.routes = routes
        self.started_ms = clock.now_ms()
        self.clusters: dict[str, Cluster] = {}
        self.failed_clusters: dict[str, str] = {}  # the reason, for clusters without a valid client configuration
        self.metric_addresses: dict[str, MetricAddresses] = {}
        self.runner = ReassignmentRunner(store, clock, self.clusters)
        self.examinations = Examinations()
        self.changed = asyncio.Event()
        self.message_workers = MessageWorkers()
        self.pipelines_folder = state_folder()  # with the status files of pipeline runs
        self.pipelines_cluster = DEFAULT_CLUSTER  # the cluster whose page shows them
        self.course_cache = CourseCache()
        self.tally_cache = TallyCache()
        self.tests = Slots(TESTS_MAX, "{0} tests are running: wait", 5)  # of addresses that a page sends
        self.event_streams = Slots(STREAMS_MAX, "{0} streams are open already", 10, 503)
        self.recorder = Recorder(store.path.parent / HISTORY_FILE, clock, self.clusters, self.notify)
        self.alerts = Alerts(self, store.path.parent / ALERTS_FILE)
        self.is_stopping = False

    def __repr__(self) -> str:
        return f"<Console {list(self.clusters)}>"

    def start(self, command_line_cluster: ClusterAddress | None, metrics: MetricAddresses | None = None) -> None:
        """Start to read the clusters. The cluster of the command line, `command_line_cluster`, and its metrics
        addresses override a stored cluster of the same name.
        """
        self.metric_addresses = self.store.run_sync(Tables.metric_addresses)
        if command_line_cluster is not None and metrics is not None:
            self.metric_addresses[command_line_cluster.name] = metrics
        stored = {address.name: address for address in self.store.run_sync(Tables.clusters)}
        for address in (
            stored | ({command_line_cluster.name: command_line_cluster} if command_line_cluster is not None else {})
        ).values():
            try:
                self.add(address)
            except (ClientError, ValueError) as problem:
                self.failed_clusters[address.name] = str(problem)
        self.runner.resume()
        self.recorder.start()
        self.alerts.start()

    def add(self, address: ClusterAddress) -> None:
        """Add a cluster, or replace it. Raises ClientError or PropertiesError if its properties are invalid."""
        if len(self.clusters) >= CLUSTERS_MAX:
            raise conflict("TOO_MANY", "a console manages at most {0} clusters", CLUSTERS_MAX)
        cluster = Cluster(self.restricted(address), self.clock, self.notify)
        self.remove(address.name)
        self.clusters[address.name] = cluster
        self.failed_clusters.pop(address.name, None)
        cluster.start()
        cluster.metrics.allows_private = self.message_workers.allows_private
        cluster.metrics.set_addresses(self.metric_addresses.get(address.name, MetricAddresses()))
        self.notify()

    def restricted(self, address: ClusterAddress) -> ClusterAddress:
        """The address with the permission of this console to use private addresses."""
        return address._replace(allows_private=self.message_workers.allows_private)

    def remove(self, name: str) -> None:
        cluster = self.clusters.pop(name, None)
        if cluster is not None:
            cluster.stop()
            self.message_workers.discard(cluster.address)
        self.failed_clusters.pop(name, None)
        self.notify()

    def cluster(self, name: str) -> Cluster:
        if name in self.failed_clusters:
            raise ApiError(503, "UNREACHABLE", self.failed_clusters[name])
        if name not in self.clusters:
            raise not_found("there is no cluster {0}", name)
        return self.clusters[name]

    def notify(self) -> None:
        """Wake the event streams."""
        self.changed.set()
        self.changed = asyncio.Event()

    def end_streams(self) -> None:
        self.is_stopping = True
        self.notify()

    async def stop_background(self) -> None:
        await self.recorder.stop()
        await self.alerts.stop()
        await asyncio.gather(*(cluster.verdict_watch.wait_stopped() for cluster in self.clusters.values()))

    def stop(self) -> None:
        self.runner.stop()
        for cluster in self.clusters.values():
            cluster.stop()
        self.message_workers.stop()
        self.store.close()

    def ages(self) -> dict[str, dict[str, tuple[int, int, str | None]]]:
        """The freshness of each part of each cluster: version, time of reading, problem."""
        return {
            name: {
                **{part.value: (state.version, state.read_ms, state.problem) for part, state in states.items()},
                "verdicts": (watched.version, watched.at_ms, None),
                "history": (self.recorder.rounds, 0, None),
                "alerts": (self.alerts.version, 0, None),
                "metrics": (cluster.metrics.version, cluster.metrics.at_ms, None),
            }
            for name, cluster in self.clusters.items()
            for states, watched in [(cluster.snapshot.states, cluster.verdict_watch.state)]
        }
