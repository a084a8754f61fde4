"""Composition root of the broker process: builds one broker, runs it and stops it.

Start order: bind addresses, lock log directories, open the metadata store, open logs (logs that need recovery are
opened by worker threads in the background), then accept connections. Stop runs in the reverse order and completes
accepted requests first.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import random
import signal
import socket
import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from ottla.base.broker_checks import ALL_FOLDERS
from ottla.base.broker_settings import BrokerSettings
from ottla.base.clock import SystemClock
from ottla.base.gc_pause import configure_collector
from ottla.base.logs import stop_logging
from ottla.base.systemd import notify_systemd
from ottla.broker.audit.trail import AuditTrail
from ottla.broker.audit.writer import AuditWriter
from ottla.broker.authorization import start_authorizer
from ottla.broker.cluster.controller_requests import ControllerRequests
from ottla.broker.cluster.peers import InterBrokerCalls
from ottla.broker.configs.connection_options import connection_limits
from ottla.broker.configs.dynamic_broker_config import (
    STORED_PASSWORDS_CHECK_MS,
    DynamicBrokerConfig,
    StoredPasswordEncoder,
)
from ottla.broker.coordinator_service.coordinators import Coordinators
from ottla.broker.coordinator_service.internal_topics import InternalTopicCreator
from ottla.broker.dispatch import Dispatcher
from ottla.broker.fetch_sessions import FetchSessionCache
from ottla.broker.handlers.api_versions import unsupported_version
from ottla.broker.handlers.table import APIS
from ottla.broker.log_manager.checkpoints import CheckpointWriter, MetadataTransactionRecorder
from ottla.broker.log_manager.flusher import Flusher
from ottla.broker.log_manager.log_cleaner import LogCleaner
from ottla.broker.log_manager.log_dir_failures import DISK_SPACE_CHECK_MS, DiskSpaceMonitor, LogDirFailureHandler
from ottla.broker.log_manager.log_dir_loader import IndexRebuilds, LogDirLoader
from ottla.broker.log_manager.log_dir_moves import LogDirMoves
from ottla.broker.log_manager.scheduled_tasks import TaskScheduler
from ottla.broker.metadata_publisher import BrokerMetadataPublisher
from ottla.broker.metrics_endpoint.event_loop_load import loop_report
from ottla.broker.metrics_endpoint.start import BrokerMetricsSources, MetricsAccessError, start_monitor
from ottla.broker.node import Node
from ottla.broker.offload import Workers
from ottla.broker.quota_manager import IDLE_CHECK_MS
from ottla.broker.security.delegation_tokens import remove_expired
from ottla.broker.security.listener_mechanisms import dedicated_inter_broker_listener
from ottla.broker.security.login_setup import (
    LoginSettingsError,
    check_logins,
    make_authenticator,
    make_inter_broker_login,
    make_security_changes,
)
from ottla.broker.services import BrokerServices
from ottla.broker.startup import (
    StartError,
    announce_ready,
    bind_addresses,
    check_metadata_store,
    check_stored_metadata,
    make_tls,
    raise_file_limit,
    resolve_node_id,
    start_broker_logging,
)
from ottla.broker.telemetry.client_metrics import ClientMetricsManager
from ottla.controller.image import BrokerImage, Endpoint, MetadataCache, MetadataImage
from ottla.controller.service import ControllerService
from ottla.controller.stores.embedded import EmbeddedStore
from ottla.controller.stores.store import MetadataStore, StoreError
from ottla.metrics.counters import BrokerCounters
from ottla.network.poller import Poller
from ottla.network.receiver_thread import ReceiverThread
from ottla.network.socket_server import Acceptor, SocketServer
from ottla.network.tls_handshake import OutgoingTls, TlsHandshakes
from ottla.replication.replica_set import ReplicaSet
from ottla.storage.errors import LogDirError
from ottla.storage.log_dirs import LogDirs

if TYPE_CHECKING:
    from ottla.broker.cluster.broker_lifecycle import BrokerLifecycle
    from ottla.broker.metrics_endpoint.endpoint import MetricsEndpoint
    from ottla.broker.security.inter_broker_login import InterBrokerLogin
    from ottla.broker.security.reconfiguration import SecurityReconfiguration
    from ottla.broker.security.tls import BrokerTls

logger = logging.getLogger(__name__)

DRAIN_TIMEOUT_SECONDS = 10.0
THREAD_SWITCH_INTERVAL_SECONDS = 0.001  # a computing worker thread may delay the loop for this time; 5 ms is noticeable
START_SECONDS_UNLIMITED = 1e9

DRAIN_CHECK_SECONDS: Final = 0.1
DRAIN_BEFORE_STOP_SECONDS_MAX: Final = 0.5


class BrokerComponents(NamedTuple):
    """The components that main.py starts, and stops in reverse order. Handlers see only `parts`."""

    services: BrokerServices
    flusher: Flusher
    inter_broker_calls: InterBrokerCalls
    lifecycle: BrokerLifecycle | None  # None: standalone broker
    audit: AuditWriter

    def observed(self, connections: SocketServer, poller: Poller) -> BrokerMetricsSources:
        """Return the objects that the broker's metrics read."""
        parts = self.services
        return BrokerMetricsSources(
            parts.node,
            parts.replicas,
            parts.publisher,
            self.flusher,
            parts.fetch_sessions,
            parts.counters,
            parts.client_metrics,
            connections,
            parts.quotas,
            poller,
            self.lifecycle,
        )

    def close(self) -> None:
        """Stop coordinating groups and transactions."""
        self.services.coordinators.close()
        self.inter_broker_calls.close()


def build_components(
    node: Node,
    replicas: ReplicaSet,
    publisher: BrokerMetadataPublisher,
    flusher: Flusher,
    controller: ControllerService,
    clustering: BrokerLifecycle | None,
) -> BrokerComponents:
    control = clustering.controller_requests if clustering is not None else ControllerRequests(node, controller)
    calls = InterBrokerCalls(clustering.peers if clustering is not None else None)
    checkpoints = CheckpointWriter(replicas, node.workers)
    coordinators = Coordinators(
        node,
        replicas,
        InternalTopicCreator(
            node, control.create_topics, publisher.wait_until_applied, is_standalone=clustering is None
        ),
        calls.call,
        clustering.is_registration_in_doubt if clustering is not None else None,
    )
    fetch_sessions = FetchSessionCache(
        node.settings.max_incremental_fetch_session_cache_slots,
        first_id=random.randrange(1, 2**30),  # noqa: S311 (a restart must not repeat ids; not a secret)
    )
    parts = BrokerServices(
        node,
        controller=controller,
        control=control,
        replicas=replicas,
        publisher=publisher,
        moves=LogDirMoves(replicas, node.dynamic_config, node.clock, checkpoints, flusher, node.workers),
        checkpoints=checkpoints,
        coordinators=coordinators,
        fetch_sessions=fetch_sessions,
        counters=BrokerCounters(),
        client_metrics=ClientMetricsManager(),
        index_rebuilds=IndexRebuilds(node.workers),
        clustering=clustering,
    )
    counters = parts.counters.audit
    parts.audit = AuditTrail(node, counters)
    topics = InternalTopicCreator(
        node, control.create_topics, publisher.wait_until_applied, is_standalone=clustering is None
    )
    audit = AuditWriter(node, parts.audit, replicas, topics, calls.call, counters)
    return BrokerComponents(parts, flusher, calls, clustering, audit)


class BrokerFailedError(Exception):
    """The reason why a running broker stops by itself, in one line."""


def run_broker(settings: BrokerSettings) -> int:
    """Run a broker until SIGTERM or SIGINT; the result is the process's exit code."""
    start_broker_logging(settings, os.environ)
    for warning in settings.warnings:
        logger.warning("%s", warning)
    raise_file_limit()
    poller = Poller()
    loop = asyncio.SelectorEventLoop(poller)  # type: ignore[arg-type]  # it has all that asyncio needs
    broker = Broker(settings, poller)
    sys.setswitchinterval(THREAD_SWITCH_INTERVAL_SECONDS)
    try:
        loop.run_until_complete(broker.run())
    except (StartError, BrokerFailedError, LoginSettingsError, StoreError, LogDirError) as error:
        stop_logging()  # the reason must be the last line, not mixed with log lines
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
        self._monitor: MetricsEndpoint | None = None
        self._cluster: BrokerLifecycle | None = None  # None: standalone broker
        self._tls: BrokerTls | None = None  # None: no listener uses TLS
        self._inter_broker_login: InterBrokerLogin | None = None  # None: inter-broker connections need no login
        self._handshakes = TlsHandshakes()
        self._sockets: list[socket.socket] = []  # one per listener
        self._workers = Workers(settings.num_io_threads)

    async def run(self) -> None:
        """Start, serve, stop."""
        self._watch_signals()
        settings = self._file_settings = await resolve_node_id(self._file_settings, self._clock)
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
            log_dirs.log_offline_dirs()
            assembly = self._assemble(log_dirs)
            await self._serve_with_start_timeout(assembly, asyncio.timeout(start_timeout_seconds(settings)))
        except BaseException:
            log_dirs.close(clean=False)
            raise
        finally:
            if self._monitor is not None:
                await self._monitor.close()
            self._workers.shutdown()
        log_dirs.close(clean=True, broker_epoch=self._cluster.membership.last_epoch if self._cluster else -1)
        logger.info("broker %d has stopped; %s", settings.node_id, self._loop_report())

    # ---- construction

    def _assemble(self, log_dirs: LogDirs) -> BrokerComponents:
        """Build everything that does not depend on the metadata."""
        settings = self._file_settings
        node = Node(settings.node_id, DynamicBrokerConfig(settings), self._clock, MetadataCache(), self._workers)
        flusher = Flusher(self._workers, log_dirs.sync_times)
        replicas = ReplicaSet(settings.node_id, log_dirs, flusher.start, flusher.start_rolled)
        replicas.lag_ms_max = settings.replica_lag_time_max_ms
        replicas.notifies_followers_of_watermark = settings.replica_selector_class is not None
        publisher = BrokerMetadataPublisher(settings.node_id, replicas, node.dynamic_config, self._clock, self._workers)
        if settings.zookeeper_connect:
            from ottla.broker.cluster.broker_lifecycle import BrokerLifecycle  # noqa: PLC0415 (a standalone broker starts without it)

            outgoing = self._tls.outgoing if self._tls is not None else None
            tls = OutgoingTls(self._handshakes, outgoing.context) if outgoing is not None else None
            self._inter_broker_login = make_inter_broker_login(settings, os.environ, self._workers)
            log_in = self._inter_broker_login.log_in if self._inter_broker_login is not None else None
            address = settings.zookeeper_connect
            self._cluster = BrokerLifecycle(address, node, replicas, publisher, self._poller, tls, log_in)
            controller: ControllerService = self._cluster.controller
        else:
            store = EmbeddedStore(Path(settings.log_dirs[0]), partial(check_stored_metadata, settings, log_dirs))
            publisher.recorder = MetadataTransactionRecorder(self._workers, lambda: store.last_transaction)
            live = node.dynamic_config
            controller = ControllerService(store, self._clock, live, live.check_topic_configs, images=node.images)
        return build_components(node, replicas, publisher, flusher, controller, self._cluster)

    async def _serve_with_start_timeout(self, assembly: BrokerComponents, start_timeout: asyncio.Timeout) -> None:
        """Report only an expired start limit as a slow start: other timeouts keep their own reason."""
        try:
            async with start_timeout:
                await self._serve(assembly, start_timeout)
        except TimeoutError:
            if not start_timeout.expired():
                raise
            message = "the start exceeded server.max.startup.time.ms: raise the limit"
            raise StartError(message) from None

    def _open_connections(self, parts: BrokerServices, dispatcher: Dispatcher) -> SocketServer:
        """Return the server; every connection passes TLS and the login that its listener requires."""
        limits = connection_limits(self._file_settings)
        tls = self._tls.listeners if self._tls is not None else {}
        receiver = ReceiverThread(asyncio.get_running_loop(), self._poller)
        connections = SocketServer(limits, dispatcher, self._poller, tls, self._handshakes, receiver)
        images = parts.node.images
        parts.authenticator = make_authenticator(
            self._file_settings, os.environ, self._clock, self._workers, images, parts.delegation_tokens
        )
        parts.authenticator.audit, connections.on_refused = parts.audit, parts.authenticator.on_refused
        connections.on_open, parts.authenticator.traffic_of = parts.authenticator.on_open, connections.traffic_of
        parts.quotas.connections, connections.connection_throttle_seconds = (
            connections.connections,
            parts.quotas.connection_delay_seconds,
        )
        changes = make_security_changes(
            self._file_settings,
            os.environ,
            parts.node,
            parts.authenticator,
            self._inter_broker_login,
            self._tls,
            parts.delegation_tokens,
        )
        parts.security_changes = changes
        parts.quotas.inter_broker_listener = dedicated_inter_broker_listener(self._file_settings)
        self._follow_settings(parts, connections, changes)
        return connections

    async def _serve(self, assembly: BrokerComponents, start_timeout: asyncio.Timeout) -> None:
        settings = self._file_settings
        cluster = self._cluster
        parts, node = assembly.services, assembly.services.node
        served = [row for row in APIS if cluster is not None or not row.is_inter_broker]
        dispatcher = Dispatcher(parts, served, unsupported_version, self._poller)
        parts.coordinators.groups.pending_requests = self._poller
        connections = self._open_connections(parts, dispatcher)
        listeners = [
            Acceptor(listener.name, listener.host, listener.port, connections, bound)
            for listener, bound in zip(settings.listeners, self._sockets, strict=True)
        ]
        self._monitor = monitor = await open_monitor(assembly.observed(connections, self._poller))
        await self._load_image(parts, advertised_endpoints(settings, listeners))
        parts.authorizer = start_authorizer(node)
        failed_folders = self._watch_log_dirs(parts)
        loading = LogDirLoader(node, parts.replicas, parts.publisher, parts.coordinators.on_recovered)
        await loading.run(self._stopping)
        failed_folders.report(loading.offline_partitions())
        parts.publisher.on_image(MetadataImage(), node.image)
        node.images.add_listener(parts.publisher.on_image)
        node.images.add_listener(parts.coordinators.on_image)
        await parts.publisher.wait_until_applied()
        if cluster is not None:
            cluster.start_replication()
        parts.coordinators.load_led_shards()
        parts.log_dir_moves.resume()
        housekeeping = TaskScheduler(node, parts.replicas, assembly.flusher, parts.checkpoints)
        housekeeping.start()
        room_watch = DiskSpaceMonitor(node, parts.replicas, parts.publisher, loading)
        housekeeping.schedule("room", DISK_SPACE_CHECK_MS, lambda: DISK_SPACE_CHECK_MS, room_watch.check_disks)
        housekeeping.schedule("idle quotas", IDLE_CHECK_MS, lambda: IDLE_CHECK_MS, parts.quotas.drop_idle_shares)
        schedule_security_checks(housekeeping, parts, self._tls, cluster.store if cluster is not None else None)
        cleaning = LogCleaner(node, parts.replicas, parts.checkpoints, parts.index_rebuilds, parts.counters.cleaner)
        cleaning.start()
        await wait_for_security_changes(parts)
        for listener in listeners:
            listener.start()
        if monitor is not None:
            monitor.set_serving()
        configure_collector()
        start_timeout.reschedule(None)
        announce_ready(node, listeners, parts.replicas)
        self._poller.reset_measurements()
        await self._stopping.wait()
        if self._failure is not None:
            raise BrokerFailedError(self._failure)
        await self._begin_stop(parts, listeners)
        housekeeping.stop()
        await cleaning.stop()
        assembly.close()
        loading.cancel()
        await dispatcher.wait_for_handlers(DRAIN_TIMEOUT_SECONDS)
        await assembly.audit.stop()
        await self._finish_stop(parts, connections)

    def _follow_settings(
        self, parts: BrokerServices, connections: SocketServer, security: SecurityReconfiguration
    ) -> None:
        """Apply the settings of the file and follow their changes at run time."""
        live, log_dirs = parts.node.dynamic_config, parts.replicas.log_dirs
        live.on_change(lambda changed: connections.update_limits(connection_limits(changed)))
        live.on_change(lambda changed: self._workers.limit(changed.num_io_threads))
        live.on_change(security.apply_settings)
        cordon_log_dirs(log_dirs, self._file_settings)
        live.on_change(lambda changed: cordon_log_dirs(log_dirs, changed))

    async def _load_image(self, parts: BrokerServices, endpoints: dict[str, Endpoint]) -> None:
        """Load the metadata: from the other brokers, or from the store of a standalone broker."""
        settings = self._file_settings
        log_dirs = parts.replicas.log_dirs
        jmx_port = self._monitor.port if self._monitor is not None else -1
        if self._cluster is not None:
            me = BrokerImage(settings.node_id, endpoints, settings.broker_rack, 0, jmx_port)
            await self._cluster.join(me, lambda: wait_for_security_changes(parts))
        else:
            await parts.controller.start(
                endpoints, rack=settings.broker_rack, cluster_id=log_dirs.cluster_id, jmx_port=jmx_port
            )
        log_dirs.write_meta_properties(parts.node.image.cluster_id)

    def _watch_log_dirs(self, parts: BrokerServices) -> LogDirFailureHandler:
        cluster = self._cluster
        return LogDirFailureHandler(
            parts.replicas,
            parts.controller,
            Path(self._file_settings.log_dirs[0]) if cluster is None else None,
            self._fail,
            cluster.report_offline_replicas if cluster is not None else None,
        )

    async def _begin_stop(self, parts: BrokerServices, listeners: list[Acceptor]) -> None:
        """Transfer leadership to other brokers, then accept no new connections."""
        notify_systemd("STOPPING=1")
        if self._cluster is not None:
            await self._cluster.run_controlled_shutdown()
            await drain_before_stop(parts.counters)
        logger.info("stopping: answering what was accepted")
        if self._monitor is not None:
            self._monitor.set_stopping()
        for listener in listeners:
            listener.close()
        parts.quotas.stop()
        parts.log_dir_moves.stop()

    async def _finish_stop(self, parts: BrokerServices, connections: SocketServer) -> None:
        """Complete all requests, send the remaining responses and leave the cluster."""
        if self._cluster is not None:
            await self._cluster.stop()
            await parts.checkpoints.write_high_watermarks()  # a restart knows the committed offsets
        await connections.drain(DRAIN_TIMEOUT_SECONDS)
        if self._cluster is not None:
            await self._cluster.leave()
        else:
            await parts.publisher.wait_until_recorded()
            await parts.controller.close()

    def _fail(self, reason: str) -> None:
        """Stop at once without a clean shutdown; the next start recovers the logs."""
        self._failure = reason
        self._stopping.set()

    # ---- signals

    def _watch_signals(self) -> None:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._stopping.set)
        loop.add_signal_handler(signal.SIGUSR1, self._print_loop_report)

    def _print_loop_report(self) -> None:
        """Print one line of JSON about the event loop, for benchmarks and diagnosis (SIGUSR1)."""
        print(json.dumps(loop_report(self._poller)), file=sys.stderr, flush=True)

    def _loop_report(self) -> str:
        return f"longest loop callback: {self._poller.longest_ns / 1e6:.1f} ms"


async def wait_for_security_changes(parts: BrokerServices) -> None:
    """Wait until changed passwords and certificates are in effect, so that old ones are rejected."""
    if parts.security_changes is not None:
        await parts.security_changes.wait_until_applied()


def cordon_log_dirs(log_dirs: LogDirs, settings: BrokerSettings) -> None:
    """Mark the log directories that get no new partitions."""
    named = settings.cordoned_log_dirs
    log_dirs.cordoned_paths = frozenset(settings.log_dirs if ALL_FOLDERS in named else named)


def start_timeout_seconds(settings: BrokerSettings) -> float | None:
    seconds = settings.server_max_startup_time_ms / 1000
    return seconds if seconds < START_SECONDS_UNLIMITED else None


async def open_monitor(observed: BrokerMetricsSources) -> MetricsEndpoint | None:
    try:
        return await start_monitor(observed)
    except MetricsAccessError as problem:
        raise StartError(str(problem)) from None
    except OSError as error:
        settings = observed.node.settings
        raise StartError(
            f"the metrics endpoint cannot listen on {settings.ottla_metrics_host}:{settings.ottla_metrics_port}: "
            f"{error.strerror or error}. Stop the process that uses this address, or choose another ottla.metrics.port."
        ) from error


def advertised_endpoints(settings: BrokerSettings, listeners: list[Acceptor]) -> dict[str, Endpoint]:
    """Return the endpoints for clients; port 0 (any free port) is replaced by the bound port."""
    ports = {listener.name: listener.port for listener in listeners}
    return {
        advertised.name: Endpoint(
            advertised.host, advertised.port or ports.get(advertised.name, 0), advertised.protocol
        )
        for advertised in settings.advertised_listeners
    }


async def drain_before_stop(counters: BrokerCounters) -> None:
    """Serve until no request has arrived for a moment, so that clients learn the new leaders. librdkafka reconnects
    with growing pauses of up to ten seconds, even after the broker has returned.
    """
    asked = -1
    for _ in range(round(DRAIN_BEFORE_STOP_SECONDS_MAX / DRAIN_CHECK_SECONDS)):
        before, asked = asked, sum(meter.count for meter in counters.requests.values())
        if asked == before:
            return
        await asyncio.sleep(DRAIN_CHECK_SECONDS)


def schedule_security_checks(
    housekeeping: TaskScheduler, parts: BrokerServices, tls: BrokerTls | None, store: MetadataStore | None
) -> None:
    """Schedule the checks of certificates, tokens and stored passwords. `store`: the metadata store of a cluster."""
    housekeeping.schedule(
        "stored passwords", 0, lambda: STORED_PASSWORDS_CHECK_MS, StoredPasswordEncoder(parts, store).encode_outdated
    )
    if tls is not None:
        housekeeping.schedule("certificates", 0, lambda: tls.check_interval_ms, tls.check_for_changes)
    if parts.delegation_tokens.is_enabled:
        look_ms = parts.node.settings.delegation_token_expiry_check_interval_ms
        housekeeping.schedule("tokens", look_ms, lambda: look_ms, remove_expired(parts.controller, parts.node.clock))
