"""The registry process: reads the topic and serves HTTP until a signal.

Rules:
1. It prints one line on stdout once it serves: `ottla registry ready on http://HOST:PORT`. No request is answered
   before the whole topic has been read.
2. It waits for an unreachable cluster, at most `kafkastore.init.timeout.ms`.
3. It stops if the topic is lost, because its state in memory would be outdated.
"""

from __future__ import annotations

import asyncio
import contextlib
import resource
import socket
from collections.abc import Callable
from functools import partial
from typing import Any, Final

from ottla.base.gc_pause import configure_collector
from ottla.base.tasks import spawn_awaited
from ottla.client.client import CONNECT_RETRY_MS as USUAL_PATIENCE_MS
from ottla.client.client import Client, open_client
from ottla.client.errors import ClientError
from ottla.registry.access import Authenticator
from ottla.registry.config import RegistryConfig
from ottla.registry.election import Election
from ottla.registry.election_protocol import Leadership, RegistryIdentity
from ottla.registry.errors import RegistryError
from ottla.registry.forwarder import Forwarder
from ottla.registry.http.app import RegistryApp
from ottla.registry.http.fast_path import FastPath, fast_path_protocol
from ottla.registry.kafka_store import KafkaStore, KafkaStoreError
from ottla.registry.registry import Registry
from ottla.registry.subjects.state import RegistryState
from ottla.web.hosts import LOOPBACK_NAMES, AllowedHosts
from ottla.web.server import HttpServer, ServerLimits, listen_address, stop_signal

WILDCARD_HOSTS: Final = frozenset({"0.0.0.0", "::"})  # noqa: S104 (told apart, not bound)
CLIENT_ID: Final = "schema-registry"
TIMEOUT_MS: Final = 10_000
CONNECT_RETRY_MS: Final = 5_000  # time for a broker to restart
RETRY_SECONDS: Final = 0.5
CONNECTIONS_MAX: Final = 4_000
OTHER_FILES: Final = 200


class RegistryStopped(Exception):  # noqa: N818 (what happened, not an accident of ours)
    """The node cannot continue; str() is one line."""


async def run_registry(
    config: RegistryConfig, listener: socket.socket, print_line: Callable[[str], None], warn: Callable[[str], None]
) -> None:
    """Run until SIGTERM or SIGINT. Raises RegistryStopped."""
    stopped = stop_signal()
    port: int = listener.getsockname()[1]
    election = make_election(config, port)
    registry = make_registry(config, election)
    forwarding = Forwarder(config.peers_tls)
    try:
        opening = spawn_awaited(_open(registry, config, warn), "reading of the schemas")
        await asyncio.wait([opening, stopped], return_when=asyncio.FIRST_COMPLETED)
        if stopped.done():
            opening.cancel()
            return
        await opening
        election.start()
        await _serve(registry, config, listener, stopped, print_line, forwarding)
    finally:
        await asyncio.to_thread(election.close)
        forwarding.close()
        await registry.close()


def make_election(config: RegistryConfig, port: int) -> Election:
    """The election of this node. Other nodes reach it at `host.name`; by default they share its loopback address."""
    host = config.advertised_host or (socket.getfqdn() if config.host in WILDCARD_HOSTS else config.host)
    candidate = RegistryIdentity(host, port, config.is_eligible, config.scheme, config.topic)
    return Election(partial(make_client, config), config.group, candidate)


def make_client(config: RegistryConfig, timeout_ms: int, patience_ms: int = USUAL_PATIENCE_MS) -> Client:
    return open_client(
        config.bootstrap, config.properties, CLIENT_ID, timeout_ms=timeout_ms, connect_retry_ms=patience_ms
    )


def make_registry(config: RegistryConfig, leadership: Leadership) -> Registry:
    state = RegistryState()
    make = partial(make_client, config, config.timeout_ms or TIMEOUT_MS, CONNECT_RETRY_MS)
    log = KafkaStore(make, config.topic, config.replication_factor, config.group, state.apply)
    return Registry(
        log,
        state,
        default_level=config.default_level,
        has_mode_changes=config.has_mode_changes,
        group=config.group,
        leadership=leadership,
    )


async def _open(registry: Registry, config: RegistryConfig, warn: Callable[[str], None]) -> None:
    loop = asyncio.get_running_loop()
    until = loop.time() + config.start_timeout_ms / 1000
    is_told = False
    while True:
        try:
            await registry.open()
        except (KafkaStoreError, RegistryError) as problem:
            raise RegistryStopped(str(problem)) from None
        except ClientError as problem:
            if loop.time() >= until:
                raise RegistryStopped(str(problem)) from None
            if not is_told:
                warn(f"waiting for the cluster: {problem}")
            is_told = True
            await asyncio.sleep(RETRY_SECONDS)
        else:
            break
    configure_collector()
    if registry.log.unreadable:
        warn(
            f"warning: {registry.log.unreadable} records of {registry.log.topic} could not be read and are skipped, "
            f"the last one: {registry.log.unreadable_names[-1]}"
        )


async def _serve(
    registry: Registry,
    config: RegistryConfig,
    listener: socket.socket,
    stopped: asyncio.Task[object],
    say: Callable[[str], None],
    forwarding: Forwarder,
) -> None:
    host: str = listener.getsockname()[0]
    hosts = AllowedHosts([host, *config.allowed_hosts]) if host in LOOPBACK_NAMES else None
    _raise_file_limit()
    access = Authenticator(config.users) if config.users is not None else None
    app = RegistryApp(registry, hosts, forwarding, access)
    protocol = fast_path_protocol(FastPath(app, registry.state))
    server = HttpServer(app, ServerLimits(CONNECTIONS_MAX), protocol=protocol, tls=config.tls)
    assert registry.log.failure is not None
    address = listen_address(listener, config.scheme)
    ends: list[asyncio.Future[Any]] = [stopped, registry.log.failure]
    await server.serve_until(listener, ends, lambda: say(f"ottla registry ready on {address}"))
    if registry.log.failure.done():
        raise RegistryStopped(registry.log.failure.result())


def _raise_file_limit() -> None:
    """Raise the limit of open files, since each connection is one."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = CONNECTIONS_MAX + OTHER_FILES
    if soft != resource.RLIM_INFINITY and soft < wanted:
        most = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        with contextlib.suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
