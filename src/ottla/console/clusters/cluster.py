"""One cluster that the console knows: how to reach it, what is known of it, and the way to change something there."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from ottla.base import tasks
from ottla.base.clock import Clock
from ottla.base.properties import read_properties
from ottla.client.client import Client
from ottla.client.errors import BadPropertyError
from ottla.client.opening import open_client
from ottla.console.clusters.metrics import Metrics
from ottla.console.clusters.reader import Reader
from ottla.console.clusters.snapshot import Part, Snapshot
from ottla.console.clusters.watching import Watch

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
TOKEN_URL, COMMAND = "sasl.oauthbearer.token.endpoint.url", "sasl.kerberos.kinit.cmd"
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

    def client(self, timeout_ms: int, patience_ms: int = 0) -> Client:
        """Raises BadPropertyError, PropertiesError or ClientError where no client can be made of this."""
        properties = self.checked()
        return open_client(self.bootstrap, properties, CLIENT_ID, timeout_ms=timeout_ms, patience_ms=patience_ms)

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
        self.metrics = Metrics(address.name, clock, lambda: self.reader.snapshot, on_news)
        self.watch = Watch(address.name, clock, self.ask, lambda: open_monitor(address, clock), on_news)

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
    if properties.get(TOKEN_URL, "").lower().startswith("file:"):
        raise BadPropertyError(f"{TOKEN_URL} names a file: only the --command-config of the console may")
    if COMMAND in properties:
        raise BadPropertyError(f"{COMMAND} names a program: only the --command-config of the console may")


def open_monitor(address: Address, clock: Clock) -> ClusterMonitor:
    """Raises ClientError where the commits of this cluster cannot be read by the library for that."""
    from ottla.monitor.cluster_monitor import ClusterMonitor, ClusterSettings  # noqa: PLC0415 (see Watch)

    settings = ClusterSettings(address.name, address.bootstrap, address.checked())
    settings.check()
    return ClusterMonitor(settings, clock=clock)


def is_secret(key: str) -> bool:
    return any(word in key.lower() for word in SECRETS)


def _urls(properties: Mapping[str, str]) -> dict[str, str]:
    return {key: value for key, value in properties.items() if key.endswith(".url")}


def properties_text(properties: Mapping[str, str]) -> str:
    """Properties as a file would hold them."""
    return "\n".join(
        f"{key}={value.replace(chr(92), chr(92) * 2)}".replace("\n", "\\n") for key, value in properties.items()
    )
