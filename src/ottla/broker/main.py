"""The composition root: puts one broker together, runs it, takes it apart again.

The order of a start: folders are locked, addresses are bound, the metadata store is opened, logs are opened (those
that need recovery in worker threads, behind the others), and only then connections are accepted. A stop goes the other
way round: what was accepted is answered first.
"""

from __future__ import annotations

import asyncio
import gc
import json
import logging
import random
import signal
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from ottla.base.broker_checks import parse_connection_overrides
from ottla.base.broker_settings import BrokerSettings
from ottla.base.clock import SystemClock
from ottla.base.logs import log_to_stderr
from ottla.broker.dispatch import Dispatcher
from ottla.broker.fetch_sessions import FetchSessions
from ottla.broker.file_limits import raise_file_limit
from ottla.broker.flusher import Flusher
from ottla.broker.handlers.api_versions import unsupported_version
from ottla.broker.handlers.table import HANDLERS
from ottla.broker.housekeeping import Housekeeping
from ottla.broker.live_settings import LiveSettings
from ottla.broker.log_loading import LogLoading
from ottla.broker.publisher import Publisher
from ottla.broker.services import Services
from ottla.controller.embedded import FILE_NAME as METADATA_FILE
from ottla.controller.embedded import EmbeddedStore
from ottla.controller.image import Endpoint, MetadataImage
from ottla.controller.service import ControllerService
from ottla.controller.store import StoreUnusableError
from ottla.network.listener import ConnectionLimits, ConnectionSet, Listener
from ottla.network.poller import Poller
from ottla.replication.replica_set import ReplicaSet
from ottla.storage.errors import LogDirError
from ottla.storage.log_dirs import LogDirs

logger = logging.getLogger(__name__)

WORKERS = 4
DRAIN_SECONDS_MAX = 10.0
BACKLOG = 1024
SEND_BUFFER_BYTES = 307_200


class StartError(Exception):
    """Why the broker does not start: one line with cause and cure."""


def run_broker(settings: BrokerSettings) -> int:
    """Run a broker until SIGTERM or SIGINT; the result is the process's exit code."""
    log_to_stderr()
    for warning in settings.warnings:
        logger.warning("%s", warning)
    raise_file_limit()
    poller = Poller()
    loop = asyncio.SelectorEventLoop(poller)  # type: ignore[arg-type]  # it has all that asyncio asks of one
    broker = Broker(settings, poller)
    try:
        loop.run_until_complete(broker.run())
    except (StartError, StoreUnusableError, LogDirError) as error:
        print(f"ottla broker: {error}", file=sys.stderr)
        return 1
    finally:
        loop.close()
    return 0


class Broker:
    """One broker process."""

    def __init__(self, settings: BrokerSettings, poller: Poller) -> None:
        self._file_settings = settings
        self._poller = poller
        self._clock = SystemClock()
        self._stopping = asyncio.Event()
        self._workers = ThreadPoolExecutor(WORKERS, thread_name_prefix="worker")

    async def run(self) -> None:
        """Start, serve, stop."""
        self._watch_signals()
        settings = self._file_settings
        log_dirs = LogDirs.open(
            settings.log_dirs,
            node_id=settings.node_id,
            clock=self._clock,
            producer_id_expiration_ms=settings.producer_id_expiration_ms,
        )
        try:
            check_metadata_store(settings, log_dirs)
            services = self._assemble(log_dirs)
            await self._serve(services)
        except BaseException:
            log_dirs.close(clean=False)
            raise
        finally:
            self._workers.shutdown()
        log_dirs.close(clean=True)
        logger.info("broker %d has stopped; %s", settings.node_id, self._loop_report())

    # ---- putting together

    def _assemble(self, log_dirs: LogDirs) -> Services:
        settings = self._file_settings
        live = LiveSettings(settings)
        store = EmbeddedStore(Path(settings.log_dirs[0]))
        controller = ControllerService(store, self._clock, live, live.check_topic_configs)
        flusher = Flusher(self._workers)
        replicas = ReplicaSet(settings.node_id, log_dirs, flusher.start, flusher.start_rolled)
        publisher = Publisher(settings.node_id, replicas, live)
        return Services(
            node_id=settings.node_id,
            live=live,
            clock=self._clock,
            controller=controller,
            replicas=replicas,
            publisher=publisher,
            flusher=flusher,
            fetch_sessions=FetchSessions(
                settings.max_incremental_fetch_session_cache_slots,
                first_id=random.randrange(1, 2**30),  # noqa: S311 (so that a restart does not repeat ids; no secret)
            ),
            workers=self._workers,
        )

    async def _serve(self, services: Services) -> None:
        settings = self._file_settings
        dispatcher = Dispatcher(services, HANDLERS, unsupported_version)
        connections = ConnectionSet(connection_limits(settings), dispatcher, self._poller)
        services.live.on_change(lambda changed: connections.limit(connection_limits(changed)))
        listeners = bind_listeners(settings, connections)
        log_dirs = services.replicas.log_dirs
        await services.controller.start(
            advertised_endpoints(settings, listeners),
            rack=settings.broker_rack,
            cluster_id=log_dirs.cluster_id,
        )
        log_dirs.claim(services.cluster_id)
        loading = LogLoading(services)
        await loading.run()
        services.publisher.on_image(MetadataImage(), services.image)
        services.controller.on_image(services.publisher.on_image)
        await services.publisher.settled()
        housekeeping = Housekeeping(services)
        housekeeping.start()
        for listener in listeners:
            listener.start()
        settle_garbage_collector()
        print(f"ottla broker {settings.node_id} ready on {listeners[0].host}:{listeners[0].port}", flush=True)
        await self._stopping.wait()
        logger.info("stopping: answering what was accepted")
        for listener in listeners:
            listener.close()
        housekeeping.stop()
        loading.cancel()
        await dispatcher.finish(DRAIN_SECONDS_MAX)
        await connections.drain(DRAIN_SECONDS_MAX)
        await services.controller.close()

    # ---- signals

    def _watch_signals(self) -> None:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._stopping.set)
        loop.add_signal_handler(signal.SIGUSR1, self._report)

    def _report(self) -> None:
        """SIGUSR1: one line of JSON about the loop, for benchmarks and curious people."""
        longest_ms = round(self._poller.longest_ns / 1e6, 3)
        report = {"longest_callback_ms": longest_ms, "slow_iterations": self._poller.slow_count}
        print(json.dumps(report), file=sys.stderr, flush=True)

    def _loop_report(self) -> str:
        return f"longest loop callback: {self._poller.longest_ns / 1e6:.1f} ms"


def check_metadata_store(settings: BrokerSettings, log_dirs: LogDirs) -> None:
    """Partitions without the store that knows them would all be taken for strays: rather not start."""
    store = Path(settings.log_dirs[0]) / METADATA_FILE
    if log_dirs.found and not store.exists():
        raise StartError(
            f"{store} is gone, but the log folders hold {len(log_dirs.found)} partitions. Put it back from a backup: "
            "without it nobody knows which topics these are. To start empty, move the partitions' folders away."
        )


def settle_garbage_collector() -> None:
    """What was loaded stays: no collection looks at it again. Requests leave no cycles, so few collections do."""
    gc.freeze()
    gc.set_threshold(20_000, 20, 50)


def connection_limits(settings: BrokerSettings) -> ConnectionLimits:
    """Kafka's limits, but for three defaults that cost dearly: they count only when somebody sets them.

    A receive buffer of 100 KiB switches the kernel's own tuning off, a send buffer of that size is a fifth slower than
    one of 300 KiB, and a backlog of 50 makes the 51st of many clients that come at once wait for a second.
    """
    explicit = settings.explicit
    return ConnectionLimits(
        frame_bytes_max=settings.socket_request_max_bytes,
        connections_max=settings.max_connections,
        connections_per_host_max=settings.max_connections_per_ip,
        connections_by_host=parse_connection_overrides(settings.max_connections_per_ip_overrides),
        idle_ms_max=settings.connections_max_idle_ms,
        send_buffer_bytes=settings.socket_send_buffer_bytes
        if "socket.send.buffer.bytes" in explicit
        else SEND_BUFFER_BYTES,
        receive_buffer_bytes=settings.socket_receive_buffer_bytes if "socket.receive.buffer.bytes" in explicit else -1,
        backlog=settings.socket_listen_backlog_size if "socket.listen.backlog.size" in explicit else BACKLOG,
    )


def bind_listeners(settings: BrokerSettings, connections: ConnectionSet) -> list[Listener]:
    """Bind every address before anything else is touched: a port in use must not leave traces."""
    bound: list[Listener] = []
    for listener in settings.listeners:
        try:
            bound.append(Listener(listener.name, listener.host, listener.port, connections))
        except OSError as error:
            for earlier in bound:
                earlier.close()
            raise StartError(
                f"cannot listen on {listener.host or '*'}:{listener.port}: {error.strerror or error}. "
                "Stop whatever uses that address, or choose another one in listeners."
            ) from error
    return bound


def advertised_endpoints(settings: BrokerSettings, listeners: list[Listener]) -> dict[str, Endpoint]:
    """What clients are told; port 0 (any free port) becomes the port that was bound."""
    ports = {listener.name: listener.port for listener in listeners}
    return {
        advertised.name: Endpoint(
            advertised.host, advertised.port or ports.get(advertised.name, 0), advertised.protocol
        )
        for advertised in settings.advertised_listeners
    }
