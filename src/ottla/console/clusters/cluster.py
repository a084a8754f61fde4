"""One cluster that the console knows: how to reach it, what is known of it, and the way to change something there."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar
from urllib.parse import urlsplit

from ottla.base import tasks
from ottla.base.clock import Clock
from ottla.base.properties import read_properties
from ottla.client.client import Client
from ottla.client.errors import BadPropertyError, ClientError
from ottla.client.opening import open_client
from ottla.console.clusters.metrics import Metrics
from ottla.console.clusters.reader import Reader
from ottla.console.clusters.shared_monitor import SharedMonitor
from ottla.console.clusters.snapshot import Part, Snapshot
from ottla.console.clusters.watching import Watch
from ottla.operations.public_addresses import check_public, connect_public

if TYPE_CHECKING:
    from ottla.monitor.cluster_monitor import ClusterMonitor

READER_TIMEOUT_MS = 2_000  # a dead broker must not hide the others for longer
CHANGE_TIMEOUT_MS = 15_000
CLIENT_ID = "ottla-console"
SECRETS = (
    "password",
    "secret",
    "jaas",
    "keystore.key",
    "key.pem",
    "token",
    "user.info",
)  # what a property's name holds if its value is nobody's business
MASKED = "********"
TOKEN_URL = "sasl.oauthbearer.token.endpoint.url"  # noqa: S105 (the name of a property)
# What runs a program, loads a library or sends what a file or the cloud's machine says: librdkafka, which reads commits
# for verdicts, gets all properties.
DANGEROUS = (
    "sasl.kerberos.kinit.cmd",
    "plugin.library.paths",
    "ssl.engine.",
    "ssl.providers",
    "sasl.oauthbearer.assertion.",
    "sasl.oauthbearer.metadata.",
)
KEEP_MS = 5_000  # answers to questions that are only asked when somebody looks: so long they serve others
SEEN_SECONDS_MAX = 1.5
T = TypeVar("T")


class SecretMovedError(ValueError):
    """A secret was to go to another address than the one that it was given for."""


class Address(NamedTuple):
    """How a cluster is reached: as `kafka-*.sh --bootstrap-server … --command-config …` would."""

    name: str
    bootstrap: str
    properties: str = ""  # as in a client's properties file
    is_stored: bool = True  # False: the command line named it
    allows_inside: bool = False  # its token endpoint may have an address inside; whoever starts us knows what he names

    def client(self, timeout_ms: int, patience_ms: int = 0) -> Client:
        """Raises BadPropertyError, PropertiesError or ClientError where no client can be made of this."""
        return open_client(
            self.bootstrap,
            self.checked(),
            CLIENT_ID,
            timeout_ms=timeout_ms,
            patience_ms=patience_ms,
            token_connect=connect_public if self.is_bounded else None,
        )

    @property
    def is_bounded(self) -> bool:
        return self.is_stored and not self.allows_inside

    def checked(self) -> dict[str, str]:
        """The properties for whoever connects. Raises BadPropertyError or PropertiesError."""
        properties = read_properties(self.properties)
        if self.is_stored:
            _check_typed(properties)
        return properties

    def masked(self) -> str:
        """The properties without their secrets, a line each."""
        shown = {key: MASKED if is_secret(key) else value for key, value in read_properties(self.properties).items()}
        return properties_text(shown)

    def unmasked(self, text: str, bootstrap: str) -> str:
        """What somebody has typed over masked properties: a secret that he left alone is the old one. Raises
        SecretMovedError if it would go elsewhere then: whoever may change an address need not know the secret.
        """
        old = read_properties(self.properties)
        typed = read_properties(text)
        kept = [key for key, value in typed.items() if value == MASKED and key in old]
        if kept and (bootstrap != self.bootstrap or _urls(typed) != _urls(old)):
            raise SecretMovedError(f"write {', '.join(kept)} again: a secret is kept for the addresses that it had")
        return properties_text({key: old[key] if key in kept else value for key, value in typed.items()})


class Cluster:
    """The reader of a cluster and a second client, in a thread of its own, for what people ask for."""

    def __init__(self, address: Address, clock: Clock, on_news: Callable[[], None]) -> None:
        self.address = address
        self.clock = clock
        self.reader = Reader(address.client(READER_TIMEOUT_MS), clock, on_news)
        self.client = address.client(CHANGE_TIMEOUT_MS)
        self.thread = ThreadPoolExecutor(1, thread_name_prefix="console-changes")
        self.changes = 0  # made through this console
        self.kept: dict[tuple[Any, ...], tuple[int, Any]] = {}
        self.task: asyncio.Task[None] | None = None
        self.monitor = SharedMonitor(lambda: open_monitor(address, clock))
        self.metrics = Metrics(address.name, clock, lambda: self.reader.snapshot, on_news)
        self.watch = Watch(address.name, clock, self.ask, self.monitor, on_news)

    def __repr__(self) -> str:
        return f"<Cluster {self.address.name} {self.reader}>"

    @property
    def name(self) -> str:
        return self.address.name

    @property
    def snapshot(self) -> Snapshot:
        return self.reader.snapshot

    @property
    def version(self) -> str:
        """Changes with everything that an answer about this cluster may depend on."""
        return f"{self.snapshot.version}.{self.changes}.{self.watch.seen.version}"

    def start(self) -> None:
        self.task = tasks.keep_running(self.reader.run, f"reader of cluster {self.name}")

    def stop(self) -> None:
        if self.task is not None:
            self.task.cancel()
        self.watch.stop()
        self.metrics.stop()
        self.reader.close()
        self.thread.submit(self.client.close)
        self.thread.shutdown(wait=False)

    async def ask(self, question: Callable[..., T], *arguments: Any) -> T:
        """Ask the cluster now, in a thread; `question` gets a client first."""
        known = self.snapshot.brokers.values()
        if known:  # any broker will do, should those of the address be gone
            self.client.bootstrap = list(self.reader.client.bootstrap)
        return await asyncio.get_running_loop().run_in_executor(self.thread, question, self.client, *arguments)

    async def ask_seldom(self, question: Callable[..., T], *arguments: Any) -> T:
        """The same for what many look at: an answer serves all who ask within the next seconds."""
        key = (question, *arguments)
        now_ms = self.clock.monotonic_ms()
        self.kept = {each: item for each, item in self.kept.items() if now_ms - item[0] < KEEP_MS}
        if key not in self.kept:
            self.kept[key] = now_ms, tasks.ask(self.ask(question, *arguments), f"question to cluster {self.name}")
        _, asked = self.kept[key]
        answer: T = await asyncio.shield(asked)
        return answer

    async def change(self, change: Callable[..., T], *arguments: Any, hurries: tuple[Part, ...] = ()) -> T:
        """Change something, and have the snapshot show it before this returns, unless the cluster is slow to."""
        try:
            return await self.ask(change, *arguments)
        finally:
            self.kept.clear()
            self.changes += 1
            since_ms = self.clock.now_ms()
            self.reader.hurry(*hurries)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self.reader.has_seen(hurries, since_ms), SEEN_SECONDS_MAX)


def _check_typed(properties: Mapping[str, str]) -> None:
    """Whoever types properties into a page must not have the console send its files or run programs thereby (the class
    of CVE-2025-27817): whoever starts it may. Raises BadPropertyError.
    """
    if TOKEN_URL in properties and not _is_web(properties[TOKEN_URL]):
        raise BadPropertyError(f"{TOKEN_URL} names no web server: only the --command-config of the console may")
    for key in properties:
        if key.lower().startswith(DANGEROUS):
            raise BadPropertyError(f"{key} stands only in the --command-config of the console, not in a page")


def _is_web(url: str) -> bool:
    """As those who will open it read it: they ignore what stands before the scheme and is no letter."""
    try:
        return urlsplit(url).scheme in ("http", "https")
    except ValueError:
        return False


def open_monitor(address: Address, clock: Clock) -> ClusterMonitor:
    """Raises ClientError where the commits of this cluster cannot be read by the library for that."""
    from ottla.monitor.cluster_monitor import ClusterMonitor, ClusterSettings  # noqa: PLC0415 (see Watch)

    properties = address.checked()
    if address.is_bounded and TOKEN_URL in properties:
        _check_endpoint(properties[TOKEN_URL])
    settings = ClusterSettings(address.name, address.bootstrap, properties)
    settings.check()
    return ClusterMonitor(settings, clock=clock)


def _check_endpoint(url: str) -> None:
    """For the library that reads commits, which asks the endpoint itself, and looks its name up again."""
    parts = urlsplit(url)
    try:
        check_public(parts.hostname or "", parts.port or 443)
    except (OSError, ValueError) as problem:
        raise ClientError(f"{TOKEN_URL}: {problem}") from None


def is_secret(key: str) -> bool:
    return any(word in key.lower() for word in SECRETS)


def _urls(properties: Mapping[str, str]) -> dict[str, str]:
    return {key: value for key, value in properties.items() if key.endswith(".url")}


def properties_text(properties: Mapping[str, str]) -> str:
    """Properties as a file would hold them."""
    return "\n".join(
        f"{key}={value.replace(chr(92), chr(92) * 2)}".replace("\n", "\\n") for key, value in properties.items()
    )
