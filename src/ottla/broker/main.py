"""The composition root: puts one broker together, runs it, takes it apart again.

The order of a start: addresses are bound, folders are locked, the metadata store is opened, logs are opened (those
that need recovery in worker threads, behind the others), and only then connections are accepted. A stop goes the other
way round: what was accepted is answered first.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import signal
import socket
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from ottla.base.broker_checks import ALL_FOLDERS
from ottla.base.broker_settings import BrokerSettings
from ottla.base.clock import SystemClock
from ottla.base.logs import stop_logging
from ottla.base.systemd import tell_systemd
from ottla.base.uncollected import settle_garbage_collector
from ottla.broker.announcing import announce
from ottla.broker.assembly import Assembly, assemble
from ottla.broker.authorizing import start_authorizer
from ottla.broker.cluster.automatic_id import with_node_id
from ottla.broker.cluster.drain_before_stop import drain_before_stop
from ottla.broker.configs.live_settings import LiveSettings
from ottla.broker.connection_limits import connection_limits
from ottla.broker.dispatch import Dispatcher
from ottla.broker.file_limits import raise_file_limit
from ottla.broker.first_steps import StartError, bind_addresses, check_metadata_store, make_tls
from ottla.broker.handlers.api_versions import unsupported_version
from ottla.broker.handlers.table import APIS
from ottla.broker.log_options import start_broker_logging
from ottla.broker.logs.cleaning import Cleaning
from ottla.broker.logs.failed_folders import FailedFolders
from ottla.broker.logs.flusher import Flusher
from ottla.broker.logs.housekeeping import Housekeeping
from ottla.broker.logs.log_loading import LogLoading
from ottla.broker.logs.room_watch import LOOK_MS, RoomWatch
from ottla.broker.monitoring.loop_watch import loop_report
from ottla.broker.monitoring.observed import Observed
from ottla.broker.monitoring.start import MetricsAccessError, start_monitor
from ottla.broker.node import Node
from ottla.broker.parts import BrokerParts
from ottla.broker.publisher import Publisher
from ottla.broker.quota_gate import FORGET_MS
from ottla.broker.security.listener_rules import own_listener
from ottla.broker.security.opening import (
    LoginSettingsError,
    check_logins,
    open_changes,
    open_logins,
    open_peer_login,
)
from ottla.broker.security.upkeep import keep_security
from ottla.broker.workers import Workers
from ottla.controller.holder import ImageHolder
from ottla.controller.image import BrokerImage, Endpoint, MetadataImage
from ottla.controller.service import ControllerService
from ottla.controller.stores.embedded import EmbeddedStore
from ottla.controller.stores.store import StoreError
from ottla.network.listener import ConnectionSet, Listener
from ottla.network.poller import Poller
from ottla.network.receiver import Receiver
from ottla.network.tls_handshake import Handshakes, OutgoingTls
from ottla.replication.replica_set import ReplicaSet
from ottla.storage.errors import LogDirError
from ottla.storage.log_dirs import LogDirs

if TYPE_CHECKING:
    from ottla.broker.cluster.clustering import Clustering
    from ottla.broker.monitoring.monitor import Monitor
    from ottla.broker.security.changes import SecurityChanges
    from ottla.broker.security.peer_login import PeerLogin
    from ottla.broker.security.tls import BrokerTls

logger = logging.getLogger(__name__)

DRAIN_SECONDS_MAX = 10.0
SWITCH_SECONDS = 0.001  # so long a worker thread that computes may keep the loop waiting; Python's own 5 ms show
START_SECONDS_FOREVER = 1e9


class BrokerFailedError(Exception):
    """Why a broker that was running ends by itself: one line."""


def run_broker(settings: BrokerSettings) -> int:
    """Run a broker until SIGTERM or SIGINT; the result is the process's exit code."""
    start_broker_logging(settings, os.environ)
    for warning in settings.warnings:
        logger.warning("%s", warning)
    raise_file_limit()
    poller = Poller()
    loop = asyncio.SelectorEventLoop(poller)  # type: ignore[arg-type]  # it has all that asyncio asks of one
    broker = Broker(settings, poller)
    sys.setswitchinterval(SWITCH_SECONDS)
    try:
        loop.run_until_complete(broker.run())
    except (StartError, BrokerFailedError, LoginSettingsError, StoreError, LogDirError) as error:
        stop_logging()  # the reason is the last line, and not in the middle of another one
        print(f"ottla broker: {error}", file=sys.stderr)
        return 2 if isinstance(error, LoginSettingsError) else 1
    finally:
        loop.close()
        stop_logging()
    return 0


class Broker:
    """One broker process."""

    def __init__(self, settings: BrokerSettings, poller: Poller) -> None:
        self._file_settings = settings
        self._poller = poller
        self._clock = SystemClock()
        self._stopping = asyncio.Event()
        self._failure: str | None = None
        self._monitor: Monitor | None = None
        self._cluster: Clustering | None = None  # None: this broker is alone
        self._tls: BrokerTls | None = None  # None: no listener speaks it
        self._peer_login: PeerLogin | None = None  # None: other brokers ask for no login
        self._handshakes = Handshakes()
        self._sockets: list[socket.socket] = []  # one for each listener
        self._workers = Workers(settings.num_io_threads)

    async def run(self) -> None:
        """Start, serve, stop."""
        self._watch_signals()
        settings = self._file_settings = await with_node_id(self._file_settings, self._clock)
        self._tls = make_tls(settings, self._clock, self._workers)
        check_logins(settings, os.environ, self._clock, self._workers)
        self._sockets = bind_addresses(settings)
        log_dirs = LogDirs.open(
            settings.log_dirs,
            node_id=settings.node_id,
            clock=self._clock,
            producer_id_expiration_ms=settings.producer_id_expiration_ms,
        )
        try:
            if not settings.zookeeper_connect:
                check_metadata_store(settings, log_dirs)
            log_dirs.tell_failures()
            assembly = self._assemble(log_dirs)
            await self._serve_in_time(assembly, asyncio.timeout(start_seconds_max(settings)))
        except BaseException:
            log_dirs.close(clean=False)
            raise
        finally:
            if self._monitor is not None:
                await self._monitor.close()
            self._workers.shutdown()
        log_dirs.close(clean=True, broker_epoch=self._cluster.membership.last_epoch if self._cluster else -1)
        logger.info("broker %d has stopped; %s", settings.node_id, self._loop_report())

    # ---- putting together

    def _assemble(self, log_dirs: LogDirs) -> Assembly:
        """What does not need to know yet what the metadata are."""
        settings = self._file_settings
        node = Node(settings.node_id, LiveSettings(settings), self._clock, ImageHolder(), self._workers)
        flusher = Flusher(self._workers, log_dirs.sync_times)
        replicas = ReplicaSet(settings.node_id, log_dirs, flusher.start, flusher.start_rolled)
        replicas.lag_ms_max = settings.replica_lag_time_max_ms
        replicas.tells_watermark = settings.replica_selector_class is not None
        publisher = Publisher(settings.node_id, replicas, node.live, self._clock, self._workers)
        if settings.zookeeper_connect:
            from ottla.broker.cluster.clustering import Clustering  # noqa: PLC0415 (a broker alone starts without it)

            outgoing = self._tls.outgoing if self._tls is not None else None
            tls = OutgoingTls(self._handshakes, outgoing.context) if outgoing is not None else None
            self._peer_login = open_peer_login(settings, os.environ, self._workers)
            log_in = self._peer_login.log_in if self._peer_login is not None else None
            address = settings.zookeeper_connect
            self._cluster = Clustering(address, node, replicas, publisher, self._poller, tls, log_in)
            controller: ControllerService = self._cluster.controller
        else:
            store = EmbeddedStore(Path(settings.log_dirs[0]))
            live = node.live
            controller = ControllerService(store, self._clock, live, live.check_topic_configs, images=node.images)
        return assemble(node, replicas, publisher, flusher, controller, self._cluster)

    async def _serve_in_time(self, assembly: Assembly, patience: asyncio.Timeout) -> None:
        """Only a start that took too long is told as one: whatever else times out has its own reason."""
        try:
            async with patience:
                await self._serve(assembly, patience)
        except TimeoutError:
            if not patience.expired():
                raise
            message = "the start took longer than server.max.startup.time.ms allows: raise it"
            raise StartError(message) from None

    def _open_connections(self, parts: BrokerParts, dispatcher: Dispatcher) -> ConnectionSet:
        """All of them go through TLS and the login that their listener asks for."""
        limits = connection_limits(self._file_settings)
        tls = self._tls.listeners if self._tls is not None else {}
        receiver = Receiver(asyncio.get_running_loop(), self._poller)
        connections = ConnectionSet(limits, dispatcher, self._poller, tls, self._handshakes, receiver)
        images = parts.node.images
        parts.logins = open_logins(self._file_settings, os.environ, self._clock, self._workers, images, parts.tokens)
        parts.logins.audit, connections.on_refused = parts.audit, parts.logins.on_refused
        connections.on_open, parts.logins.traffic_of = parts.logins.on_open, connections.traffic_of
        parts.quotas.connections, connections.hold_up = connections.connections, parts.quotas.seconds_to_refuse
        changes = open_changes(
            self._file_settings, os.environ, parts.node, parts.logins, self._peer_login, self._tls, parts.tokens
        )
        parts.security_changes = changes
        parts.quotas.brokers_listener = own_listener(self._file_settings)
        self._follow_settings(parts, connections, changes)
        return connections

    async def _serve(self, assembly: Assembly, patience: asyncio.Timeout) -> None:
        settings = self._file_settings
        cluster = self._cluster
        parts, node = assembly.parts, assembly.parts.node
        served = [row for row in APIS if cluster is not None or not row.is_between_brokers]
        dispatcher = Dispatcher(parts, served, unsupported_version, self._poller)
        parts.coordinators.groups.crowd = self._poller
        connections = self._open_connections(parts, dispatcher)
        listeners = [
            Listener(listener.name, listener.host, listener.port, connections, bound)
            for listener, bound in zip(settings.listeners, self._sockets, strict=True)
        ]
        self._monitor = monitor = await open_monitor(assembly.observed(connections, self._poller))
        await self._get_image(parts, advertised_endpoints(settings, listeners))
        parts.authorizer = start_authorizer(node)
        failed_folders = self._watch_folders(parts)
        loading = LogLoading(node, parts.replicas, parts.publisher, parts.coordinators.on_recovered)
        await loading.run(self._stopping)
        failed_folders.report(loading.missing())
        parts.publisher.on_image(MetadataImage(), node.image)
        node.images.on_image(parts.publisher.on_image)
        node.images.on_image(parts.coordinators.on_image)
        await parts.publisher.settled()
        if cluster is not None:
            cluster.serve()
        parts.coordinators.follow()
        parts.moves.resume()
        housekeeping = Housekeeping(node, parts.replicas, assembly.flusher, parts.checkpoints)
        housekeeping.start()
        room_watch = RoomWatch(node, parts.replicas, parts.publisher, loading)
        housekeeping.every("room", LOOK_MS, lambda: LOOK_MS, room_watch.look)
        housekeeping.every("idle quotas", FORGET_MS, lambda: FORGET_MS, parts.quotas.forget_idle)
        keep_security(housekeeping, parts, self._tls)
        cleaning = Cleaning(node, parts.replicas, parts.checkpoints, parts.index_rebuilds, parts.counters.cleaner)
        cleaning.start()
        await settled_security(parts)
        for listener in listeners:
            listener.start()
        if monitor is not None:
            monitor.note_serving()
        settle_garbage_collector()
        patience.reschedule(None)
        announce(node, listeners, parts.replicas)
        self._poller.forget()
        await self._stopping.wait()
        if self._failure is not None:
            raise BrokerFailedError(self._failure)
        await self._begin_stop(parts, listeners)
        housekeeping.stop()
        await cleaning.stop()
        assembly.close()
        loading.cancel()
        await dispatcher.finish(DRAIN_SECONDS_MAX)
        await assembly.audit.stop()
        await self._end_stop(parts, connections)

    def _follow_settings(self, parts: BrokerParts, connections: ConnectionSet, security: SecurityChanges) -> None:
        """What was set in the file, and what is changed while we run."""
        live, log_dirs = parts.node.live, parts.replicas.log_dirs
        live.on_change(lambda changed: connections.limit(connection_limits(changed)))
        live.on_change(lambda changed: self._workers.limit(changed.num_io_threads))
        live.on_change(security.follow)
        cordon_folders(log_dirs, self._file_settings)
        live.on_change(lambda changed: cordon_folders(log_dirs, changed))

    async def _get_image(self, parts: BrokerParts, endpoints: dict[str, Endpoint]) -> None:
        """Learn what the metadata are: from the other brokers, or from the store of a broker that is alone."""
        settings = self._file_settings
        log_dirs = parts.replicas.log_dirs
        jmx_port = self._monitor.port if self._monitor is not None else -1
        if self._cluster is not None:
            me = BrokerImage(settings.node_id, endpoints, settings.broker_rack, 0, jmx_port)
            await self._cluster.join(me, lambda: settled_security(parts))
        else:
            await parts.controller.start(
                endpoints, rack=settings.broker_rack, cluster_id=log_dirs.cluster_id, jmx_port=jmx_port
            )
        log_dirs.claim(parts.node.image.cluster_id)

    def _watch_folders(self, parts: BrokerParts) -> FailedFolders:
        cluster = self._cluster
        return FailedFolders(
            parts.replicas,
            parts.controller,
            Path(self._file_settings.log_dirs[0]) if cluster is None else None,
            self._give_up,
            cluster.tell_offline if cluster is not None else None,
        )

    async def _begin_stop(self, parts: BrokerParts, listeners: list[Listener]) -> None:
        """Others lead what we lead, then nobody new is let in."""
        tell_systemd("STOPPING=1")
        if self._cluster is not None:
            await self._cluster.hand_over()
            await drain_before_stop(parts.counters)
        logger.info("stopping: answering what was accepted")
        if self._monitor is not None:
            self._monitor.note_stopping()
        for listener in listeners:
            listener.close()
        parts.quotas.stop()
        parts.moves.stop()

    async def _end_stop(self, parts: BrokerParts, connections: ConnectionSet) -> None:
        """All requests are answered; what is left are answers on their way, and our place in the cluster."""
        if self._cluster is not None:
            await self._cluster.stop()
            await parts.checkpoints.write_high_watermarks()  # so that a restart knows what is committed
        await connections.drain(DRAIN_SECONDS_MAX)
        if self._cluster is not None:
            await self._cluster.leave()
        else:
            await parts.controller.close()

    def _give_up(self, reason: str) -> None:
        """End now, with what is on disk as it is: the next start recovers it."""
        self._failure = reason
        self._stopping.set()

    # ---- signals

    def _watch_signals(self) -> None:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._stopping.set)
        loop.add_signal_handler(signal.SIGUSR1, self._report)

    def _report(self) -> None:
        """SIGUSR1: one line of JSON about the loop, for benchmarks and curious people."""
        print(json.dumps(loop_report(self._poller)), file=sys.stderr, flush=True)

    def _loop_report(self) -> str:
        return f"longest loop callback: {self._poller.longest_ns / 1e6:.1f} ms"


async def settled_security(parts: BrokerParts) -> None:
    """Nobody is let in by a password or a certificate that was changed while the broker ran the last time."""
    if parts.security_changes is not None:
        await parts.security_changes.settled()


def cordon_folders(log_dirs: LogDirs, settings: BrokerSettings) -> None:
    """Tell which folders get no new partitions."""
    named = settings.cordoned_log_dirs
    log_dirs.cordoned = frozenset(settings.log_dirs if ALL_FOLDERS in named else named)


def start_seconds_max(settings: BrokerSettings) -> float | None:
    seconds = settings.server_max_startup_time_ms / 1000
    return seconds if seconds < START_SECONDS_FOREVER else None


async def open_monitor(observed: Observed) -> Monitor | None:
    try:
        return await start_monitor(observed)
    except MetricsAccessError as problem:
        raise StartError(str(problem)) from None
    except OSError as error:
        settings = observed.node.settings
        raise StartError(
            f"the metrics endpoint cannot listen on {settings.ottla_metrics_host}:{settings.ottla_metrics_port}: "
            f"{error.strerror or error}. Stop whatever uses that address, or choose another ottla.metrics.port."
        ) from error


def advertised_endpoints(settings: BrokerSettings, listeners: list[Listener]) -> dict[str, Endpoint]:
    """What clients are told; port 0 (any free port) becomes the port that was bound."""
    ports = {listener.name: listener.port for listener in listeners}
    return {
        advertised.name: Endpoint(
            advertised.host, advertised.port or ports.get(advertised.name, 0), advertised.protocol
        )
        for advertised in settings.advertised_listeners
    }
