"""Start of the console: the socket, the store, the cluster readers, uvicorn. Ends with SIGTERM or Ctrl-C.

Rules:
1. When ready, print `ottla console ready on http://HOST:PORT`. Without sign-in and on a terminal, the address contains
   the token. Elsewhere output ends up in logs, so a line before it names the file with the link instead.
2. No cluster is needed to start: unreachable clusters are shown as such, and connected when they are up.
3. Beyond loopback, sign-in is required. The first start creates the person `admin` and prints the password once.
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
from ottla.base.passwords import hash_password, new_link_token, new_password
from ottla.console.api.dispatch import Dispatcher
from ottla.console.api.routes import ROUTES
from ottla.console.app import LIBRARIES_MISSING, AllowedHosts, App, Assets, is_loopback
from ottla.console.auth.authentication import Authenticator
from ottla.console.auth.local_link import LinkFile, make_link
from ottla.console.auth.rights import FULL_GRANTS
from ottla.console.clusters.cluster import ClusterAddress
from ottla.console.clusters.metrics import MetricAddresses
from ottla.console.console import Console
from ottla.console.store import DATABASE_FILE, Person, Store, Tables
from ottla.operations.http_connections import TimeoutProtocol, listen

ADMIN = "admin"
CONNECTIONS_MAX = 1_000
STOP_SECONDS_MAX = 2


@dataclass(frozen=True, slots=True)
class Options:
    """Options of the command line."""

    data: Path
    host: str = "127.0.0.1"
    port: int = 8080
    cluster: ClusterAddress | None = None
    needs_sign_in: bool = False
    allowed_hosts: tuple[str, ...] = ()
    certificate: str | None = None
    key: str | None = None
    pipelines: Path | None = None  # the state folder of pipelines; None: the usual one
    allows_private: bool = False  # for registries, token endpoints, metrics and receivers from pages
    metrics: MetricAddresses | None = None  # of the cluster above
    local_token: str | None = None  # from a parent program that prints the link itself; None: generated
    is_on_terminal: bool = False


def serve(options: Options, print_line: Callable[[str], None], print_warning: Callable[[str], None]) -> None:
    """Serve until stopped. Raises OSError if the address cannot be bound."""
    listener = listen(options.host, options.port)
    store = Store(options.data / DATABASE_FILE)
    needs_sign_in = options.needs_sign_in or not is_loopback(options.host)
    if needs_sign_in:
        create_first_admin(store, print_line)
        if options.certificate is None and not is_loopback(options.host):
            print_warning(
                "warning: passwords are sent in clear text: use --ssl-certificate and --ssl-key, or a proxy with TLS"
            )
    with listener, contextlib.suppress(KeyboardInterrupt):
        asyncio.run(_serve(options, listener, store, needs_sign_in, print_line, print_warning))


async def _serve(
    options: Options,
    listener: socket.socket,
    store: Store,
    needs_sign_in: bool,
    print_line: Callable[[str], None],
    print_warning: Callable[[str], None],
) -> None:
    clock = SystemClock()
    is_secure = options.certificate is not None
    host, port = listener.getsockname()[:2]
    address = f"http{'s' if is_secure else ''}://{f'[{host}]' if ':' in host else host}:{port}"
    token = "" if needs_sign_in else options.local_token or new_link_token()
    signing_in = Authenticator(store, clock, is_needed=needs_sign_in, is_secure=is_secure, port=port, local_token=token)
    console = Console(store, signing_in, clock, ROUTES)
    console.message_workers.allows_private = console.alerts.allows_private = options.allows_private
    if options.pipelines is not None:
        console.pipelines_folder = options.pipelines
    if options.cluster is not None:
        console.pipelines_cluster = options.cluster.name
    console.start(options.cluster, options.metrics)
    assets = Assets()
    if not assets.is_complete:
        print_warning(LIBRARIES_MISSING)
    config = _config(
        App(Dispatcher(console, ROUTES), assets, AllowedHosts(options.host, options.allowed_hosts)), options
    )
    logging.getLogger("uvicorn.error").setLevel(
        logging.ERROR
    )  # errors of clients belong into responses, not into the log
    data = options.data.resolve()
    link = LinkFile(data, port, make_link(address, token)) if token else None

    def announce() -> None:
        if link is not None and options.local_token is None and not options.is_on_terminal:
            print_line(f"ottla console: the link to sign in with is in {link.path} (ottla console link --data {data})")
        print_line(
            f"ottla console ready on {make_link(address, token) if token and options.is_on_terminal else address}"
        )

    server = _ConsoleServer(config, console.end_streams, announce)
    try:
        await server.serve([listener])
    finally:
        if link is not None:
            link.remove()
        await console.stop_background()
        console.stop()


def _config(app: App, options: Options) -> uvicorn.Config:
    return uvicorn.Config(
        app,
        http=TimeoutProtocol,
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


class _ConsoleServer(uvicorn.Server):
    """A uvicorn server that reports readiness and does not re-raise signals after the shutdown."""

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


def create_first_admin(store: Store, print_line: Callable[[str], None]) -> None:
    """Create the first admin if there are no people yet."""
    if store.run_sync(Tables.people):
        return
    password = new_password()
    store.run_sync(Tables.put_person, Person(ADMIN, hash_password(password), list(FULL_GRANTS)))
    print_line(f"ottla console: sign in as {ADMIN} with the password {password} (shown only once)")
