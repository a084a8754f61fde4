"""The metrics endpoint of one broker: starts it, keeps rates up to date, ends it.

Nothing of this is imported or runs while `ottla.metrics.port` is not set; the counters that it reads are always kept.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Iterable, Sequence
from typing import Final

from ottla.base import tasks
from ottla.base.broker_checks import is_loopback
from ottla.broker.monitoring.access import metrics_login, metrics_tls
from ottla.broker.monitoring.cleaner_beans import CleanerBeans
from ottla.broker.monitoring.healing_families import healing_families
from ottla.broker.monitoring.http import HttpServer
from ottla.broker.monitoring.loop_watch import LoopWatch
from ottla.broker.monitoring.observed import Observed
from ottla.broker.monitoring.own_families import Disk, own_families, read_disks
from ottla.broker.monitoring.process_beans import ProcessBeans
from ottla.broker.monitoring.quota_beans import QuotaBeans
from ottla.broker.monitoring.replication_beans import ReplicationBeans
from ottla.broker.monitoring.routes import OPEN_PATHS, Routes
from ottla.broker.monitoring.state_beans import StateBeans
from ottla.broker.monitoring.tcp_families import tcp_families
from ottla.broker.monitoring.traffic_beans import TrafficBeans
from ottla.metrics.beans import Source
from ottla.metrics.meters import TICK_SECONDS
from ottla.metrics.process import CollectorTimes
from ottla.metrics.prometheus import Family

logger = logging.getLogger(__name__)

SLICE_SECONDS: Final = 0.002


class Monitor:
    """All numbers of a broker, and the server that tells them."""

    def __init__(self, observed: Observed) -> None:
        node, replicas, counters = observed.node, observed.replicas, observed.counters
        self._node = node
        self._observed = observed
        self._loop_watch = LoopWatch(observed.poller)
        self._collector = CollectorTimes()
        self._traffic = TrafficBeans(node, replicas, counters, observed.fetch_sessions, observed.connections)
        self._state = StateBeans(node, replicas, observed.publisher, observed.flusher, self._loop_watch)
        self._cleaner = CleanerBeans(node, replicas, counters.cleaner)
        self._replication = ReplicationBeans(node, replicas, observed.clustering)
        self._quotas = QuotaBeans(observed.quotas)
        process = ProcessBeans(self._collector)
        beans = (self._traffic, self._state, self._cleaner, self._replication, self._quotas, process)
        all_sources = [source for some in beans for source in some.sources]
        self._sources = sorted(all_sources, key=lambda source: (source.domain, source.type))
        self._login = metrics_login(node.settings)
        self._tls = metrics_tls(node.settings)
        context = self._tls.context if self._tls is not None else None
        host = node.settings.ottla_metrics_host
        self._server = HttpServer(host, Routes(self), self._login, OPEN_PATHS, context, node.workers)
        self._disks: list[Disk] = []
        self._looking: asyncio.Future[list[Disk]] | None = None
        self._reading: asyncio.Future[None] | None = None  # the certificate
        self._ticker: asyncio.Task[None] | None = None

    @property
    def port(self) -> int:
        return self._server.port

    async def start(self) -> None:
        """Listen. Raises OSError if the address cannot be had."""
        tls = self._tls
        await self._server.start(self._node.settings.ottla_metrics_port)
        host = self._server.host
        if not is_loopback(host) and self._login is None:
            logger.warning(
                "metrics on %s:%d: everybody who can reach this machine can read them, without a password",
                host,
                self.port,
            )
        elif not is_loopback(host) and tls is None:
            logger.warning("metrics on %s:%d: their password crosses the network as it is", host, self.port)
        scheme, name = "https" if tls is not None else "http", f"[{host}]" if ":" in host else host
        logger.info("metrics on %s://%s:%d/metrics", scheme, name, self.port)
        self._collector.watch()
        self._ticker = tasks.keep_running(self._tick_forever, "bringing the metrics up to date")

    def note_serving(self) -> None:
        """Clients are let in."""
        self._state.is_serving = True

    def note_stopping(self) -> None:
        self._state.is_stopping = True

    async def close(self) -> None:
        self._collector.forget()
        if self._ticker is not None:
            self._ticker.cancel()
        await self._server.close()

    # ---- what the routes ask for

    @property
    def sources(self) -> Sequence[Source]:
        return self._sources

    def families(self) -> Iterable[Family | None]:
        yield from own_families(
            self._node,
            self._observed.counters,
            self._observed.client_metrics,
            self._loop_watch,
            self._disks,
            self._observed.connections,
        )
        clustering = self._observed.clustering
        yield from healing_families(clustering.healing.status if clustering is not None else None)
        yield from self._cleaner.families()
        yield from self._quotas.families()
        yield from tcp_families(self._observed.connections)

    def readiness(self) -> tuple[bool, str]:
        state = self._state
        if state.is_stopping:
            return False, "stopping"
        if not state.is_serving:
            return False, "starting"
        if state.recovering:
            return False, f"{state.recovering} partitions are recovering; the others are served"
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
        self._look_at_disks()
        self._look_at_certificate()
        until = time.monotonic() + SLICE_SECONDS
        for _ in self._traffic.tick(elapsed_s):
            if time.monotonic() > until:
                await asyncio.sleep(0)
                until = time.monotonic() + SLICE_SECONDS

    def _look_at_disks(self) -> None:
        """In a worker, and not again before the last look has ended: a dead file system may never answer."""
        if self._looking is None or self._looking.done():
            paths = [log_dir.path for log_dir in self._observed.replicas.log_dirs.dirs if log_dir.failure is None]
            loop = asyncio.get_running_loop()
            self._looking = loop.run_in_executor(self._node.workers, read_disks, paths)
            self._looking.add_done_callback(self._take_disks)

    def _look_at_certificate(self) -> None:
        if self._tls is not None and (self._reading is None or self._reading.done()):
            loop = asyncio.get_running_loop()
            self._reading = loop.run_in_executor(self._node.workers, self._tls.refresh)

    def _take_disks(self, looked: asyncio.Future[list[Disk]]) -> None:
        if not looked.cancelled():
            self._disks = looked.result()

    def __repr__(self) -> str:
        return f"<Monitor {self._server!r}>"
