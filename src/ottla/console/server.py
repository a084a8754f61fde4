"""Start of the console: the socket, the store, the cluster readers, the HTTP server. Ends with SIGTERM or Ctrl-C.

Rules:
1. When ready, print `ottla console ready on http://HOST:PORT`. Without sign-in and on a terminal, the address contains
   the token. Elsewhere output ends up in logs, so a line before it names the file with the link instead.
2. No cluster is needed to start: unreachable clusters are shown as such, and connected when they are up.
3. Beyond loopback, sign-in is required. The first start creates the person `admin` and prints the password once.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from ottla.base.clock import SystemClock
from ottla.base.passwords import hash_password, new_link_token, new_password
from ottla.console.api.dispatch import Dispatcher
from ottla.console.api.routes import ROUTES
from ottla.console.app import LIBRARIES_MISSING, App, Assets, allowed_hosts
from ottla.console.auth.authentication import Authenticator
from ottla.console.auth.local_link import LinkFile, make_link
from ottla.console.auth.rights import FULL_GRANTS
from ottla.console.clusters.cluster import ClusterAddress
from ottla.console.clusters.metrics import MetricAddresses
from ottla.console.console import Console
from ottla.console.store import DATABASE_FILE, Person, Store, Tables
from ottla.web.hosts import is_loopback
from ottla.web.server import HttpServer, ServerLimits, listen, listen_address, server_tls, stop_signal

ADMIN = "admin"
LIMITS = ServerLimits(connections=1_000, head_bytes=64 << 10, idle_seconds=5, stop_seconds=2)


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
    tls = server_tls(options.certificate, options.key) if options.certificate is not None else None
    port: int = listener.getsockname()[1]
    address = listen_address(listener, "http" if tls is None else "https")
    token = "" if needs_sign_in else options.local_token or new_link_token()
    signing_in = Authenticator(
        store, clock, is_needed=needs_sign_in, is_secure=tls is not None, port=port, local_token=token
    )
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
    app = App(Dispatcher(console, ROUTES), assets, allowed_hosts(options.host, options.allowed_hosts))
    server = HttpServer(app, LIMITS, tls=tls, trusts_local_proxy=True)
    data = options.data.resolve()
    link = LinkFile(data, port, make_link(address, token)) if token else None

    def announce() -> None:
        if link is not None and options.local_token is None and not options.is_on_terminal:
            print_line(f"ottla console: the link to sign in with is in {link.path} (ottla console link --data {data})")
        print_line(
            f"ottla console ready on {make_link(address, token) if token and options.is_on_terminal else address}"
        )

    try:
        await server.serve_until(listener, [stop_signal()], announce, console.end_streams)
    finally:
        if link is not None:
            link.remove()
        await console.stop_background()
        console.stop()


def create_first_admin(store: Store, print_line: Callable[[str], None]) -> None:
    """Create the first admin if there are no people yet."""
    if store.run_sync(Tables.people):
        return
    password = new_password()
    store.run_sync(Tables.put_person, Person(ADMIN, hash_password(password), list(FULL_GRANTS)))
    print_line(f"ottla console: sign in as {ADMIN} with the password {password} (shown only once)")
