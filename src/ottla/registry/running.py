"""A node as a program of its own: the topic is read, HTTP is served, until a signal ends it.

Rules:
1. Says one line on stdout when it serves: `ottla registry ready on http://HOST:PORT`. Nobody is answered before all
   that stands in the topic has been read.
2. A cluster that is not there yet is waited for, `kafkastore.init.timeout.ms` at most.
3. A topic that is lost while the node runs ends it: it would answer from memory what is not true any more.
"""

from __future__ import annotations

import asyncio
import contextlib
import resource
import signal
import socket
from collections.abc import Callable
from functools import partial
from typing import Any, Final

from ottla.base.tasks import ask
from ottla.base.uncollected import settle_garbage_collector
from ottla.client.client import PATIENCE_MS as USUAL_PATIENCE_MS
from ottla.client.client import Client
from ottla.client.errors import ClientError
from ottla.client.opening import open_client
from ottla.monitor.http.limits import make_server
from ottla.registry.access import Access
from ottla.registry.candidates import Candidate
from ottla.registry.config import RegistryConfig
from ottla.registry.election import Election
from ottla.registry.errors import RegistryError
from ottla.registry.forwarding import Forwarding
from ottla.registry.http.app import LOCAL_HOSTS, RegistryApp
from ottla.registry.http.quick import QuickAnswers, quick_protocol
from ottla.registry.leadership import Leadership
from ottla.registry.log import SchemaLog
from ottla.registry.log_topic import LogError
from ottla.registry.registry import Registry
from ottla.registry.subjects.state import State

EVERYWHERE: Final = frozenset({"0.0.0.0", "::"})  # noqa: S104 (told apart, not bound)
SIGNALS: Final = (signal.SIGTERM, signal.SIGINT)
CLIENT_ID: Final = "schema-registry"
TIMEOUT_MS: Final = 10_000
PATIENCE_MS: Final = 5_000  # a broker that restarts is waited for so long
RETRY_SECONDS: Final = 0.5
CONNECTIONS_MAX: Final = 4_000
FILES_BESIDE: Final = 200


class RegistryStopped(Exception):  # noqa: N818 (what happened, not an accident of ours)
    """The node cannot go on; str() is one line for a person."""


async def run_registry(
    config: RegistryConfig, listener: socket.socket, say: Callable[[str], None], warn: Callable[[str], None]
) -> None:
    """Returns after SIGTERM or SIGINT; raises RegistryStopped."""
    stopping = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in SIGNALS:
        loop.add_signal_handler(number, stopping.set)
    port: int = listener.getsockname()[1]
    election = make_election(config, port)
    registry = make_registry(config, election)
    forwarding = Forwarding(config.peers_tls)
    stopped = ask(stopping.wait(), "signal")
    try:
        opening = ask(_open(registry, config, warn), "reading of the schemas")
        await asyncio.wait([opening, stopped], return_when=asyncio.FIRST_COMPLETED)
        if stopped.done():
            opening.cancel()
            return
        await opening
        election.start()
        await _serve(registry, config, listener, stopped, say, forwarding)
    finally:
        await loop.run_in_executor(None, election.close)
        forwarding.close()
        await registry.close()


def make_election(config: RegistryConfig, port: int) -> Election:
    """`host.name` is where the other nodes find this one; alone on a machine they share its loopback."""
    host = config.advertised_host or (socket.getfqdn() if config.host in EVERYWHERE else config.host)
    candidate = Candidate(host, port, config.is_eligible, config.scheme, config.topic)
    return Election(partial(make_client, config), config.group, candidate)


def make_client(config: RegistryConfig, timeout_ms: int, patience_ms: int = USUAL_PATIENCE_MS) -> Client:
    return open_client(config.bootstrap, config.properties, CLIENT_ID, timeout_ms=timeout_ms, patience_ms=patience_ms)


def make_registry(config: RegistryConfig, leadership: Leadership) -> Registry:
    state = State()
    make = partial(make_client, config, config.timeout_ms or TIMEOUT_MS, PATIENCE_MS)
    log = SchemaLog(make, config.topic, config.replication_factor, config.group, state.apply)
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
        except (LogError, RegistryError) as problem:
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
    settle_garbage_collector()
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
    forwarding: Forwarding,
) -> None:
    host, port = listener.getsockname()[:2]
    hosts = {host, *config.allowed_hosts} if host in LOCAL_HOSTS else None
    _raise_file_limit()
    access = Access(config.users) if config.users is not None else None
    app = RegistryApp(registry, hosts, forwarding, access)
    server = make_server(app)
    server.config.limit_concurrency = CONNECTIONS_MAX
    server.config.http = quick_protocol(QuickAnswers(app, registry.state))
    if config.tls is not None:
        server.config.load()
        server.config.ssl = config.tls
    serving = ask(server.serve([listener]), "HTTP server of the registry")
    while not server.started and not serving.done():
        await asyncio.sleep(0.01)
    say(f"ottla registry ready on {config.scheme}://{f'[{host}]' if ':' in host else host}:{port}")
    assert registry.log.failure is not None
    ends: list[asyncio.Future[Any]] = [serving, stopped, registry.log.failure]
    await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
    server.should_exit = True
    await serving
    if registry.log.failure.done():
        raise RegistryStopped(registry.log.failure.result())


def _raise_file_limit() -> None:
    """A connection is a file, and the usual limit is lower than what slow clients could take."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = CONNECTIONS_MAX + FILES_BESIDE
    if soft != resource.RLIM_INFINITY and soft < wanted:
        most = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        with contextlib.suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
