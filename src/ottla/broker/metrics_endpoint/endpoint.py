"""The metrics endpoint of a broker: routes, rates and start and stop of its HTTP server.

Nothing in this module is imported while `ottla.metrics.port` is not set. The counters that it reads are always
maintained.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Iterable
from http import HTTPStatus
from typing import Final

from ottla.base import tasks
from ottla.base.broker_checks import is_loopback
from ottla.broker.metrics_endpoint.event_loop_load import EventLoopLoad
from ottla.broker.metrics_endpoint.http_server import (
    BadRequestError,
    HttpRequest,
    HttpResponse,
    HttpServer,
    metrics_login,
    metrics_tls,
)
from ottla.broker.metrics_endpoint.prometheus_families import (
    Disk,
    healing_families,
    own_families,
    read_disks,
    tcp_families,
)
from ottla.broker.metrics_endpoint.start import BrokerMetricsSources
from ottla.broker.metrics_endpoint.state_beans import CleanerBeans, ProcessBeans, ReplicationBeans, StateBeans
from ottla.broker.metrics_endpoint.traffic_beans import QuotaBeans, TrafficBeans
from ottla.metrics import jolokia
from ottla.metrics.meters import TICK_SECONDS
from ottla.metrics.process import CollectorTimes
from ottla.metrics.prometheus import CONTENT_TYPE, Family, render, render_families

JSON: Final = "application/json; charset=utf-8"
OPEN_PATHS: Final = frozenset({"/healthz", "/readyz"})  # for process supervisors: no password
INDEX: Final = "/metrics\n/metrics?partitions=true\n/jolokia\n/healthz\n/readyz\n"
JOLOKIA: Final = "/jolokia"

logger = logging.getLogger(__name__)

SLICE_SECONDS: Final = 0.002


class Routes:
    """The paths of the endpoint.

    /metrics   Prometheus; with ?partitions=true also four metrics of every partition /jolokia   the same metrics under
    Kafka's MBean names, as Jolokia's JSON /healthz 200 while the process runs /readyz    200 while every
    partition is served, 503 before that and during a stop

    The last two need no password.
    """

    def __init__(self, numbers: MetricsEndpoint) -> None:
        self._numbers = numbers
        self._table: dict[str, Callable[[HttpRequest], HttpResponse]] = {
            "/": lambda _: HttpResponse(iter((INDEX,))),
            "/metrics": self._metrics,
            "/healthz": lambda _: HttpResponse(iter(("ok\n",))),
            "/readyz": self._ready,
        }

    def __call__(self, request: HttpRequest) -> HttpResponse:
        if request.path == JOLOKIA or request.path.startswith(f"{JOLOKIA}/"):
            return self._jolokia(request)
        handler = self._table.get(request.path)
        if handler is None:
            raise BadRequestError(HTTPStatus.NOT_FOUND, "unknown path; try /metrics")
        if request.method == "POST":
            raise BadRequestError(HTTPStatus.METHOD_NOT_ALLOWED, "only GET and HEAD are allowed", Allow="GET, HEAD")
        return handler(request)

    def _metrics(self, request: HttpRequest) -> HttpResponse:
        with_large = request.query.get("partitions", "").lower() in ("true", "1", "yes")

        def pieces() -> Iterable[str]:
            kafkas = [source for source in self._numbers.sources if source.domain.startswith("kafka.")]
            yield from render(kafkas, with_large=with_large)
            yield from render_families(self._numbers.families())

        return HttpResponse(iter(pieces()), CONTENT_TYPE)

    def _jolokia(self, request: HttpRequest) -> HttpResponse:
        try:
            asked = self._jolokia_requests(request)
        except jolokia.BadRequestError as problem:
            raise BadRequestError(HTTPStatus.BAD_REQUEST, str(problem)) from None
        return HttpResponse(jolokia.answer(asked, self._numbers.sources, time.time()), JSON)

    def _jolokia_requests(self, request: HttpRequest) -> list[jolokia.Request] | jolokia.Request:
        if request.method == "POST":
            return jolokia.parse_post(request.body)
        return jolokia.parse_get(request.path.removeprefix(JOLOKIA))

    def _ready(self, _request: HttpRequest) -> HttpResponse:
        is_ready, line = self._numbers.readiness()
        status = HTTPStatus.OK if is_ready else HTTPStatus.SERVICE_UNAVAILABLE
        return HttpResponse(iter((f"{line}\n",)), status=status)

    def __repr__(self) -> str:
        return f"<Routes {', '.join(self._table)}, {JOLOKIA}>"


class MetricsEndpoint:
    """Collects all metrics of a broker and serves them."""

    def __init__(self, observed: BrokerMetricsSources) -> None:
        node, replicas, counters = observed.node, observed.replicas, observed.counters
        self._node = node
        self._observed = observed
        self._loop_watch = EventLoopLoad(observed.poller)
        self._collector = CollectorTimes()
        self._traffic = TrafficBeans(node, replicas, counters, observed.fetch_sessions, observed.connections)
        self._state = StateBeans(node, replicas, observed.publisher, observed.flusher, self._loop_watch)
        self._cleaner = CleanerBeans(node, replicas, counters.cleaner)
        self._replication = ReplicationBeans(node, replicas, observed.lifecycle)
        self._quotas = QuotaBeans(observed.quotas)
        process = ProcessBeans(self._collector)
        beans = (self._traffic, self._state, self._cleaner, self._replication, self._quotas, process)
        all_sources = [source for some in beans for source in some.sources]
        self.sources = sorted(all_sources, key=lambda source: (source.domain, source.type))
        self._login = metrics_login(node.settings)
        self._tls = metrics_tls(node.settings)
        context = self._tls.context if self._tls is not None else None
        host = node.settings.ottla_metrics_host
        self._server = HttpServer(host, Routes(self), self._login, OPEN_PATHS, context, node.workers)
        self._disks: list[Disk] = []
        self._disk_refresh: asyncio.Future[list[Disk]] | None = None
        self._certificate_refresh: asyncio.Future[None] | None = None  # of the certificate
        self._ticker: asyncio.Task[None] | None = None

    @property
    def port(self) -> int:
        return self._server.port

    async def start(self) -> None:
        """Start listening. Raises OSError if the address is not available."""
        tls = self._tls
        await self._server.start(self._node.settings.ottla_metrics_port)
        host = self._server.host
        if not is_loopback(host) and self._login is None:
            logger.warning(
                "metrics on %s:%d: every client that can reach this machine can read them without a password",
                host,
                self.port,
            )
        elif not is_loopback(host) and tls is None:
            logger.warning("metrics on %s:%d: the password is sent in plain text", host, self.port)
        scheme, name = "https" if tls is not None else "http", f"[{host}]" if ":" in host else host
        logger.info("metrics on %s://%s:%d/metrics", scheme, name, self.port)
        self._collector.watch()
        self._ticker = tasks.spawn_restarting(self._tick_forever, "bringing the metrics up to date")

    def set_serving(self) -> None:
        """Set the state to running: the broker accepts clients."""
        self._state.is_serving = True

    def set_stopping(self) -> None:
        self._state.is_stopping = True

    async def close(self) -> None:
        self._collector.forget()
        if self._ticker is not None:
            self._ticker.cancel()
        await self._server.close()

    # ---- for the routes

    def families(self) -> Iterable[Family | None]:
        """Return the metrics without an MBean name."""
        yield from own_families(
            self._node,
            self._observed.counters,
            self._observed.client_metrics,
            self._loop_watch,
            self._disks,
            self._observed.connections,
        )
        clustering = self._observed.lifecycle
        yield from healing_families(clustering.healing.status if clustering is not None else None)
        yield from self._cleaner.families()
        yield from self._quotas.families()
        yield from tcp_families(self._observed.connections)

    def readiness(self) -> tuple[bool, str]:
        """Whether clients are served, and one line about the state."""
        state = self._state
        if state.is_stopping:
            return False, "stopping"
        if not state.is_serving:
            return False, "starting"
        if state.recovering:
            return False, f"{state.recovering} partitions are recovering; all others are served"
        return True, "ok"

    # ---- rates

    async def _tick_forever(self) -> None:
        ticked_s = time.monotonic() - TICK_SECONDS
        while True:
            now_s = time.monotonic()
            await self._tick(now_s - ticked_s)
            ticked_s = now_s
            await asyncio.sleep(TICK_SECONDS)

    async def _tick(self, elapsed_s: float) -> None:
        self._loop_watch.tick()
        self._state.tick(elapsed_s)
        self._replication.tick(elapsed_s)
        self._refresh_disks()
        self._refresh_certificate()
        until = time.monotonic() + SLICE_SECONDS
        for _ in self._traffic.tick(elapsed_s):
            if time.monotonic() > until:
                await asyncio.sleep(0)
                until = time.monotonic() + SLICE_SECONDS

    def _refresh_disks(self) -> None:
        """Read the disk usage in a worker thread, one read at a time: a failed file system may never respond."""
        if self._disk_refresh is None or self._disk_refresh.done():
            paths = [
                log_dir.path for log_dir in self._observed.replicas.log_dirs.dirs if log_dir.offline_reason is None
            ]
            loop = asyncio.get_running_loop()
            self._disk_refresh = loop.run_in_executor(self._node.workers, read_disks, paths)
            self._disk_refresh.add_done_callback(self._on_disks_read)

    def _refresh_certificate(self) -> None:
        if self._tls is not None and (self._certificate_refresh is None or self._certificate_refresh.done()):
            loop = asyncio.get_running_loop()
            self._certificate_refresh = loop.run_in_executor(self._node.workers, self._tls.refresh)

    def _on_disks_read(self, looked: asyncio.Future[list[Disk]]) -> None:
        if not looked.cancelled():
            self._disks = looked.result()

    def __repr__(self) -> str:
        return f"<MetricsEndpoint {self._server!r}>"
