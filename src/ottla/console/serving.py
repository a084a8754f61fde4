"""Starts the console: a socket, the store, the readers, uvicorn. Ends with SIGTERM or Ctrl-C.

Rules:
1. Says one line on stdout when it serves: `ottla console ready on http://HOST:PORT`.
2. Needs no cluster to start: what cannot be reached is shown as such, and found when it comes.
3. Beyond loopback people sign in. The first time there is one, `admin`, whose password is printed once.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
import socket
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import uvicorn

from ottla.base.clock import SystemClock
from ottla.base.passwords import hash_password, new_password
from ottla.console.api.dispatch import Dispatcher
from ottla.console.api.table import ROUTES
from ottla.console.app import App
from ottla.console.assets import MISSING, Assets
from ottla.console.clusters.cluster import Address
from ottla.console.clusters.metric_addresses import MetricAddresses
from ottla.console.console import Console
from ottla.console.hosts import Hosts, is_loopback
from ottla.console.people.rights import EVERYTHING
from ottla.console.people.signing_in import SigningIn
from ottla.console.store import FILE, Person, Store, Tables
from ottla.operations.http_connections import LimitedProtocol, listen

ADMIN = "admin"
CONNECTIONS_MAX = 1_000
STOP_SECONDS_MAX = 2


@dataclass(frozen=True, slots=True)
class Options:
    """What the command line says."""

    data: Path
    host: str = "127.0.0.1"
    port: int = 8080
    cluster: Address | None = None
    needs_sign_in: bool = False
    allowed_hosts: tuple[str, ...] = ()
    certificate: str | None = None
    key: str | None = None
    pipelines: Path | None = None  # the state folder of pipelines; None: the usual one
    allows_private: bool = False  # registries, token endpoints, metrics, receivers of a page may have addresses inside
    metrics: MetricAddresses | None = None  # of the cluster above


def serve(options: Options, say: Callable[[str], None], warn: Callable[[str], None]) -> None:
    """Serve until somebody stops it. Raises OSError if the address is not to be had."""
    listener = listen(options.host, options.port)
    store = Store(options.data / FILE)
    needs_sign_in = options.needs_sign_in or not is_loopback(options.host)
    if needs_sign_in:
        first_password(store, say)
        if options.certificate is None and not is_loopback(options.host):
            warn("warning: passwords travel in the clear: give --ssl-certificate and --ssl-key, or a proxy with TLS")
    with listener, contextlib.suppress(KeyboardInterrupt):
        asyncio.run(_serve(options, listener, store, needs_sign_in, say, warn))


async def _serve(
    options: Options,
    listener: socket.socket,
    store: Store,
    needs_sign_in: bool,
    say: Callable[[str], None],
    warn: Callable[[str], None],
) -> None:
    clock = SystemClock()
    is_secure = options.certificate is not None
    signing_in = SigningIn(store, clock, is_needed=needs_sign_in, is_secure=is_secure)
    console = Console(store, signing_in, clock, ROUTES)
    console.message_workers.allows_private = console.alerts.allows_private = options.allows_private
    if options.pipelines is not None:
        console.pipelines = options.pipelines
    if options.cluster is not None:
        console.pipelines_cluster = options.cluster.name
    console.start(options.cluster, options.metrics)
    assets = Assets()
    if not assets.is_complete:
        warn(MISSING)
    app = App(Dispatcher(console, ROUTES), assets, Hosts(options.host, options.allowed_hosts))
    config = uvicorn.Config(
        app,
        http=LimitedProtocol,
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        limit_concurrency=CONNECTIONS_MAX,
        timeout_graceful_shutdown=STOP_SECONDS_MAX,
        ssl_certfile=options.certificate,
        ssl_keyfile=options.key,
    )
    logging.getLogger("uvicorn.error").setLevel(logging.ERROR)  # what a client does wrong is told to the client
    host, port = listener.getsockname()[:2]
    shown = f"[{host}]" if ":" in host else host
    server = _Server(
        config,
        console.end_streams,
        lambda: say(f"ottla console ready on http{'s' if is_secure else ''}://{shown}:{port}"),
    )
    try:
        await server.serve([listener])
    finally:
        await console.stop_watching()
        console.stop()


class _Server(uvicorn.Server):
    """Says when it serves, and leaves signals as they are for whoever waits for this process."""

    def __init__(self, config: uvicorn.Config, on_stop: Callable[[], None], on_ready: Callable[[], None]) -> None:
        super().__init__(config)
        self.on_stop = on_stop
        self.on_ready = on_ready

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.on_ready()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, self._stop)
        yield

    def _stop(self) -> None:
        self.should_exit = True
        self.on_stop()


def first_password(store: Store, say: Callable[[str], None]) -> None:
    """Make the first admin, if there is nobody yet."""
    if store.now(Tables.people):
        return
    password = new_password()
    store.now(Tables.put_person, Person(ADMIN, hash_password(password), list(EVERYTHING)))
    say(f"ottla console: sign in as {ADMIN} with the password {password} (told only this once)")
