"""A cluster of the console: its address, its snapshot, and the client for queries and changes."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar
from urllib.parse import urlsplit

from ottla.base import tasks
from ottla.base.clock import Clock
from ottla.base.properties import read_properties
from ottla.client.client import Client, open_client
from ottla.client.errors import BadPropertyError, ClientError
from ottla.console.clusters.group_verdicts import SharedMonitor, VerdictWatch
from ottla.console.clusters.metrics import ClusterMetrics
from ottla.console.clusters.reader import Reader
from ottla.console.clusters.snapshot import Part, Snapshot
from ottla.operations.public_addresses import check_public, connect_public

if TYPE_CHECKING:
    from ottla.monitor.cluster_monitor import ClusterMonitor

READER_TIMEOUT_MS = 2_000  # limits how long a dead broker delays reading the others
CHANGE_TIMEOUT_MS = 15_000
CLIENT_ID = "ottla-console"
SECRET_WORDS = (
    "passphrase",
    "password",
    "secret",
    "jaas",
    "keystore.key",
    "key.pem",
    "token",
    "user.info",
)  # a property is secret if its name contains one of these
MASK = "********"
TOKEN_URL = "sasl.oauthbearer.token.endpoint.url"  # noqa: S105 (the name of a property)
# Properties that run programs, load libraries, or send the contents of files or of cloud metadata. librdkafka, which
# reads commits for verdicts, gets all properties.
FORBIDDEN_PROPERTIES = (
    "sasl.kerberos.kinit.cmd",
    "plugin.library.paths",
    "ssl.engine.",
    "ssl.providers",
    "sasl.oauthbearer.assertion.",
    "sasl.oauthbearer.metadata.",
)
CACHE_MS = 5_000  # lifetime of cached query results
VISIBLE_SECONDS_MAX = 1.5
T = TypeVar("T")


class SecretMovedError(ValueError):
    """A masked secret cannot be reused for another address."""


class ClusterAddress(NamedTuple):
    """How to connect to a cluster, as with `kafka-*.sh --bootstrap-server … --command-config …`."""

    name: str
    bootstrap: str
    properties: str = ""  # as in a client's properties file
    is_stored: bool = True  # False: the command line named it
    allows_private: bool = False  # for its token endpoint

    def make_client(self, timeout_ms: int, patience_ms: int = 0) -> Client:
        """Raises BadPropertyError, PropertiesError or ClientError if the configuration is invalid."""
        return open_client(
            self.bootstrap,
            self.checked_properties(),
            CLIENT_ID,
            timeout_ms=timeout_ms,
            connect_retry_ms=patience_ms,
            token_connect=connect_public if self.is_restricted else None,
        )

    @property
    def is_restricted(self) -> bool:
        return self.is_stored and not self.allows_private

    def checked_properties(self) -> dict[str, str]:
        """The properties for a client. Raises BadPropertyError or PropertiesError."""
        properties = read_properties(self.properties)
        if self.is_stored:
            _check_page_properties(properties)
        return properties

    def masked_properties(self) -> str:
        """The properties as lines, with masked secrets."""
        shown = {key: MASK if is_secret(key) else value for key, value in read_properties(self.properties).items()}
        return properties_text(shown)

    def unmask_properties(self, text: str, bootstrap: str) -> str:
        """The edited properties, in which a masked value stands for the old secret.

        Raises SecretMovedError if an address changed: an editor of the address need not know the secret, and must not
        be able to send it elsewhere.
        """
        old = read_properties(self.properties)
        typed = read_properties(text)
        kept = [key for key, value in typed.items() if value == MASK and key in old]
        if kept and (bootstrap != self.bootstrap or _urls(typed) != _urls(old)):
            raise SecretMovedError(f"enter {', '.join(kept)} again: a secret is stored for its old addresses only")
        return properties_text({key: old[key] if key in kept else value for key, value in typed.items()})


class Cluster:
    """The reader of a cluster, and a second client in its own thread for queries and changes."""

    def __init__(self, address: ClusterAddress, clock: Clock, on_news: Callable[[], None]) -> None:
        self.address = address
        self.clock = clock
        self.reader = Reader(address.make_client(READER_TIMEOUT_MS), clock, on_news)
        self.client = address.make_client(CHANGE_TIMEOUT_MS)
        self.thread = ThreadPoolExecutor(1, thread_name_prefix="console-changes")
        self.changes = 0  # made through this console since its start
        self.cached_answers: dict[tuple[Any, ...], tuple[int, Any]] = {}
        self.reader_task: asyncio.Task[None] | None = None
        self.monitor = SharedMonitor(lambda: open_monitor(address, clock))
        self.metrics = ClusterMetrics(address.name, clock, lambda: self.reader.snapshot, on_news)
        self.verdict_watch = VerdictWatch(address.name, clock, self.query, self.monitor, on_news)

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
        """A version of all data that answers about this cluster depend on."""
        return f"{self.snapshot.version}.{self.changes}.{self.verdict_watch.state.version}"

    def start(self) -> None:
        self.reader_task = tasks.spawn_restarting(self.reader.run, f"reader of cluster {self.name}")

    def stop(self) -> None:
        if self.reader_task is not None:
            self.reader_task.cancel()
        self.verdict_watch.stop()
        self.metrics.stop()
        self.reader.close()
        self.thread.submit(self.client.close)
        self.thread.shutdown(wait=False)

    async def query(self, function: Callable[..., T], *arguments: Any) -> T:
        """Call `question(client, *arguments)` in a thread."""
        known = self.snapshot.brokers.values()
        if known:  # in case the configured bootstrap servers are down
            self.client.bootstrap = list(self.reader.client.bootstrap)
        return await asyncio.get_running_loop().run_in_executor(self.thread, function, self.client, *arguments)

    async def query_cached(self, function: Callable[..., T], *arguments: Any) -> T:
        """The same with a cache: the result serves all callers for KEEP_MS."""
        key = (function, *arguments)
        now_ms = self.clock.monotonic_ms()
        self.cached_answers = {each: item for each, item in self.cached_answers.items() if now_ms - item[0] < CACHE_MS}
        if key not in self.cached_answers:
            self.cached_answers[key] = (
                now_ms,
                tasks.spawn_awaited(self.query(function, *arguments), f"question to cluster {self.name}"),
            )
        _, asked = self.cached_answers[key]
        answer: T = await asyncio.shield(asked)
        return answer

    async def change(self, change: Callable[..., T], *arguments: Any, refresh: tuple[Part, ...] = ()) -> T:
        """Make a change, then wait a limited time until the snapshot shows it."""
        try:
            return await self.query(change, *arguments)
        finally:
            self.cached_answers.clear()
            self.changes += 1
            since_ms = self.clock.now_ms()
            self.reader.refresh(*refresh)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self.reader.wait_until_read(refresh, since_ms), VISIBLE_SECONDS_MAX)


def _check_page_properties(properties: Mapping[str, str]) -> None:
    """Reject properties from a page that could read files or run programs (the class of CVE-2025-27817).

    The command line is trusted. Raises BadPropertyError.
    """
    if TOKEN_URL in properties and not _is_http_url(properties[TOKEN_URL]):
        raise BadPropertyError(
            f"{TOKEN_URL} must be an HTTP URL; only the --command-config of the console may use others"
        )
    for key in properties:
        if key.lower().startswith(FORBIDDEN_PROPERTIES):
            raise BadPropertyError(f"{key} is allowed only in the --command-config of the console, not in a page")


def _is_http_url(url: str) -> bool:
    """Uses the parser of the HTTP client, which ignores leading characters that are no letters."""
    try:
        return urlsplit(url).scheme in ("http", "https")
    except ValueError:
        return False


def open_monitor(address: ClusterAddress, clock: Clock) -> ClusterMonitor:
    """Raises ClientError if librdkafka cannot read the commits of this cluster."""
    from ottla.monitor.cluster_monitor import ClusterMonitor, ClusterSettings  # noqa: PLC0415 (see Watch)

    properties = address.checked_properties()
    if address.is_restricted and TOKEN_URL in properties:
        _check_token_endpoint(properties[TOKEN_URL])
    settings = ClusterSettings(address.name, address.bootstrap, properties)
    settings.check_properties()
    return ClusterMonitor(settings, clock=clock)


def _check_token_endpoint(url: str) -> None:
    """For librdkafka, which calls the endpoint itself and resolves its name again."""
    parts = urlsplit(url)
    try:
        check_public(parts.hostname or "", parts.port or 443)
    except (OSError, ValueError) as problem:
        raise ClientError(f"{TOKEN_URL}: {problem}") from None


def is_secret(key: str) -> bool:
    return any(word in key.lower() for word in SECRET_WORDS)


def _urls(properties: Mapping[str, str]) -> dict[str, str]:
    return {key: value for key, value in properties.items() if key.endswith(".url")}


def properties_text(properties: Mapping[str, str]) -> str:
    """Properties in the format of a file."""
    return "\n".join(
        f"{key}={value.replace(chr(92), chr(92) * 2)}".replace("\n", "\\n") for key, value in properties.items()
    )


POLL_SECONDS = 0.05


def wait_until(is_seen: Callable[[], bool]) -> None:
    """Wait a limited time until a change is visible; for the thread of `Cluster.change`.

    Apache Kafka answers when its controller has the change; the brokers apply it later.
    """
    deadline = time.monotonic() + VISIBLE_SECONDS_MAX
    while not is_seen() and time.monotonic() < deadline:
        time.sleep(POLL_SECONDS)
