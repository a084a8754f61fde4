"""The broker of a test.

Rules:
1. Each broker has its own data, which is removed at the end; stop(), kill() and restart() keep it.
2. The address stays the same after a restart, so that clients reconnect.
3. After every failure that a test can cause (kill, pause) the broker can be started or closed.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Self

from ottla.testing.child import BrokerError, BrokerProcess
from ottla.testing.folders import Folder
from ottla.testing.security import Security, make_security

if TYPE_CHECKING:
    from ottla.client.admin import Admin
    from ottla.client.quotas import Quota

START_SECONDS_MAX = 120.0  # an upper limit: a broker that fails to start reports it earlier
DATA = "data"
OUTPUT = "broker.log"

# Settings for one broker in a test; all others are Kafka's defaults.
DEFAULTS = {
    "node.id": "1",
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
    "group.initial.rebalance.delay.ms": "0",
}

Value = str | int | float | bool
Settings = Mapping[str, Value]
Topics = Mapping[str, int | Settings] | Iterable[str]
Quotas = Iterable[Mapping[str, Value]]


class Broker:
    """One broker process. Use it as a context manager, plain or async, or call start() and close().

    `settings` are broker settings under Kafka's names. `topics` are created at the start: names only, names with a
    number of partitions, or names with topic settings (`partitions` among them); the default number is num.partitions.
    The data folder is created in `folder`. An unknown setting is an error, unless `ignores_unknown`. `environment` adds
    variables to the current environment. `security` is SSL, SASL_PLAINTEXT or SASL_SSL: clients then need the settings
    in `broker.security`. `quotas` are limits in the terms of kafka-configs.sh:
    `[{"client": "greedy", "producer_byte_rate": 1_000_000}, {"user-defaults": True, "request_percentage": 50}]`.
    """

    def __init__(
        self,
        settings: Settings | None = None,
        *,
        topics: Topics = (),
        folder: Path | None = None,
        start_seconds_max: float = START_SECONDS_MAX,
        ignores_unknown: bool = False,
        environment: Mapping[str, str] | None = None,
        security: str | Security | None = None,
        quotas: Quotas = (),
    ) -> None:
        if settings and not ignores_unknown:
            check_names(settings)
        self.topics = topics
        self._quotas = checked_quotas(quotas)
        self.start_seconds_max = start_seconds_max
        self._folder = Folder(folder)
        self._process = BrokerProcess(self._folder.path / OUTPUT, environment)
        self.security = make_security(security, self._folder.path) if isinstance(security, str | None) else security
        listener = "PLAINTEXT" if self.security is None else self.security.protocol
        self.settings = {
            "listeners": f"{listener}://{self._process.reserved_address}",
            "log.dirs": str(self.data_folder),
            **DEFAULTS,
            **{key: as_text(value) for key, value in (settings or {}).items()},
        }
        if "broker.id" in self.settings:  # a synonym of node.id
            self.settings.pop("node.id")
        if self.security is not None:
            broker_id = self.settings.get("broker.id") or self.settings["node.id"]
            self._process.config = self.security.broker_file(int(broker_id))
        self._last_output = ""
        self._was_started = False

    # ---- information

    @property
    def bootstrap_servers(self) -> str:
        """host:port, for a client's bootstrap.servers."""
        return self._process.address or self._process.reserved_address

    @property
    def host(self) -> str:
        return self.bootstrap_servers.rpartition(":")[0]

    @property
    def port(self) -> int:
        return int(self.bootstrap_servers.rpartition(":")[2])

    @property
    def data_folder(self) -> Path:
        """The folder of the logs; removed by close()."""
        return self._folder.path / DATA

    @property
    def is_running(self) -> bool:
        return self._process.is_running

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def environment(self) -> dict[str, str]:
        """Additional environment variables; changes take effect at the next start."""
        return self._process.environment

    @property
    def logs(self) -> str:
        """All output of the broker since its first start."""
        return self._last_output or self._process.text()

    def log_position(self) -> int:
        """A position for logs_since()."""
        return self._process.size()

    def logs_since(self, position: int) -> str:
        return self._process.text(position)

    # ---- start and end

    def start(self) -> Self:
        """Start the process and wait until it serves; the first start also creates topics and quotas."""
        if self.is_running:
            return self
        try:
            self._process.start(self.settings, self.start_seconds_max)
            if not self._was_started:
                self._create_topics()
                if self._quotas:
                    self._alter_quotas(self._quotas)
        except BaseException:
            if not self._was_started:  # the caller has no broker to close yet
                self.close()
            raise
        self._was_started = True
        return self

    def close(self) -> None:
        """Kill the process and remove its data."""
        self._process.close()
        self._last_output = self._last_output or self._process.text()
        self._folder.remove()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        return await asyncio.to_thread(self.start)

    async def __aexit__(self, *_: object) -> None:
        await asyncio.to_thread(self.close)

    # ---- failures

    def stop(self) -> None:
        """A clean stop (SIGTERM); the data stays, and start() runs the broker again."""
        self._process.stop()

    def kill(self) -> None:
        """A crash (SIGKILL); the data stays, and start() runs the broker again."""
        self._process.kill()

    def restart(self) -> Self:
        """Stop cleanly if running, and start again at the same address with the same data."""
        if self.is_running:
            self._process.stop()
        return self.start()

    def pause(self) -> None:
        """Freeze the process (SIGSTOP): connections stay open, but requests get no response."""
        self._process.pause()

    def resume(self) -> None:
        self._process.resume()

    # ---- topics

    def create_topic(self, name: str, partitions: int | None = None, settings: Settings | None = None) -> str:
        """Create a topic and return its name; it is ready for writes. Partitions: None is num.partitions."""
        configs = {key: as_text(value) for key, value in (settings or {}).items()}
        with self._admin(f"cannot create topic {name!r}") as admin:
            admin.create_topic(name, partitions=-1 if partitions is None else partitions, configs=configs)
        return name

    def delete_topic(self, name: str) -> None:
        with self._admin(f"cannot delete topic {name!r}") as admin:
            admin.delete_topics([name])

    @contextlib.contextmanager
    def _admin(self, complaint: str) -> Iterator[Admin]:
        from ottla.client.admin import Admin  # noqa: PLC0415 (many tests let their client make the topics)
        from ottla.client.client import open_client  # noqa: PLC0415
        from ottla.client.errors import ClientError  # noqa: PLC0415

        properties = {} if self.security is None else self.security.properties
        with open_client(self.bootstrap_servers, properties, "ottla-testing") as client:
            try:
                yield Admin(client)
            except ClientError as problem:
                raise BrokerError(f"{complaint}: {problem}") from None

    def _create_topics(self) -> None:
        topics = self.topics if isinstance(self.topics, Mapping) else {name: {} for name in self.topics}
        for name, wanted in topics.items():
            if isinstance(wanted, int):
                self.create_topic(name, wanted)
            else:
                settings = dict(wanted)
                partitions = settings.pop("partitions", None)
                self.create_topic(name, None if partitions is None else int(partitions), settings)

    def set_quotas(self, quotas: Quotas) -> None:
        """Set quotas on the running broker; those of other entities are unchanged."""
        self._alter_quotas(checked_quotas(quotas))

    def _alter_quotas(self, quotas: list[Quota]) -> None:
        from ottla.client.quotas import Alteration, alter_quotas  # noqa: PLC0415 (few tests have quotas)

        with self._admin("cannot set quotas") as admin:
            alter_quotas(admin.client, [Alteration(quota.entity, quota.limits) for quota in quotas])

    def __repr__(self) -> str:
        return f"<Broker {self.bootstrap_servers} {self._process}>"


def broker(
    settings: Settings | None = None,
    *,
    topics: Topics = (),
    folder: Path | None = None,
    start_seconds_max: float = START_SECONDS_MAX,
    security: str | None = None,
    quotas: Quotas = (),
) -> Broker:
    """A broker for one `with` or `async with` block."""
    return Broker(
        settings,
        topics=topics,
        folder=folder,
        start_seconds_max=start_seconds_max,
        security=security,
        quotas=quotas,
    )


def checked_quotas(quotas: Quotas) -> list[Quota]:
    """Checked, because a misspelt quota would have no effect."""
    given = list(quotas)
    if not given:
        return []
    from ottla.client.quotas import QuotaError, parse_quota  # noqa: PLC0415 (few tests have quotas)

    try:
        return [parse_quota(words) for words in given]
    except QuotaError as problem:
        raise BrokerError(f"quotas: {problem}") from None


def check_names(settings: Settings) -> None:
    """Checked, because a misspelt setting would have no effect, and the test would not test what it says."""
    from ottla.base.broker_settings import BrokerSettings  # noqa: PLC0415 (25 ms, and most tests have no settings)
    from ottla.base.legacy_keys import is_known_key, nearest_key  # noqa: PLC0415

    for name in settings:
        if not is_known_key(name, BrokerSettings.keys):
            raise BrokerError(f"no setting of a broker is called {name}{nearest_key(name, BrokerSettings.keys)}")


def as_text(value: Value) -> str:
    """A value in the form of a properties file."""
    return str(value).lower() if isinstance(value, bool) else str(value)
