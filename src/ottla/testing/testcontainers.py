"""testcontainers' KafkaContainer without a container: with one changed import, tests need no Docker.

    from ottla.testing.testcontainers import KafkaContainer

    with KafkaContainer() as kafka:
        connection = kafka.get_bootstrap_server()

The names and arguments are those of testcontainers for Python. Environment variables `KAFKA_...` become settings, as in
the container. Features that need a container (contents of the image, networks, volumes, commands inside it) raise an
error with the reason: a test that relies on them would not test what it says.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NoReturn, Self

from ottla.base.environment import settings_of_container
from ottla.testing.broker import Broker
from ottla.testing.child import HOST, BrokerError

IMAGE = "confluentinc/cp-kafka:7.6.0"  # the default of testcontainers; the image is never downloaded
PLAINTEXT = "PLAINTEXT"

# The listeners and the controller connection are set here, not by a container's environment.
OWN_SETTINGS = frozenset(
    {
        "advertised.listeners",
        "controller.listener.names",
        "controller.quorum.voters",
        "inter.broker.listener.name",
        "listener.security.protocol.map",
        "listeners",
        "log.dirs",
        "process.roles",
        "zookeeper.connect",
    }
)
# The environment with which testcontainers starts Kafka.
ENVIRONMENT = {
    "KAFKA_BROKER_ID": "1",
    "KAFKA_OFFSETS_TOPIC_REPLICATION_FACTOR": "1",
    "KAFKA_OFFSETS_TOPIC_NUM_PARTITIONS": "1",
    "KAFKA_LOG_FLUSH_INTERVAL_MESSAGES": "10000000",
    "KAFKA_GROUP_INITIAL_REBALANCE_DELAY_MS": "0",
}


class KafkaContainer:
    """A broker behind the interface of testcontainers' class."""

    def __init__(
        self,
        image: str = IMAGE,
        port: int = 9093,
        wait_strategy_check_string: str = "",
        listener_name: str = PLAINTEXT,
        security_protocol: str = PLAINTEXT,
        *,
        env: Mapping[str, str] | None = None,
        name: str | None = None,
        **details: Any,
    ) -> None:
        if security_protocol != PLAINTEXT:
            raise ValueError(f"security_protocol={security_protocol}: this broker has PLAINTEXT listeners only")
        if details:
            _raise_unsupported(", ".join(sorted(details)))
        self.image = image
        self.port = port
        self.wait_strategy_check_string = wait_strategy_check_string  # not used: the broker reports when it is ready
        self.listener_name = listener_name
        self.security_protocol = security_protocol
        self.env = {**ENVIRONMENT, **(env or {})}
        self.name = name
        self.kraft_enabled = False
        self._listeners: dict[str, str] = {}  # only if the test requests a port
        self._broker: Broker | None = None

    # ---- before the start

    def with_kraft(self) -> Self:
        """No effect: there is no ZooKeeper in any case."""
        self.kraft_enabled = True
        return self

    def with_cluster_id(self, cluster_id: str) -> Self:  # noqa: ARG002 (the signature of testcontainers)
        _raise_unsupported("with_cluster_id", "a new broker chooses an id of its own")

    def with_env(self, key: str, value: str) -> Self:
        self.env[key] = value
        return self

    def with_envs(self, **variables: str) -> Self:
        self.env.update(variables)
        return self

    def with_name(self, name: str) -> Self:
        self.name = name
        return self

    def with_exposed_ports(self, *ports: str | int) -> Self:
        """The broker's own port is always available; there are no others."""
        for port in ports:
            if str(port).partition("/")[0] != str(self.port):
                _raise_unsupported(f"port {port}")
        return self

    def with_bind_ports(self, container: str | int, host: str | int | None = None) -> Self:
        """Use a fixed port of this machine for the broker."""
        self.with_exposed_ports(container)
        if host is not None:
            self._listeners = {"listeners": f"{PLAINTEXT}://{HOST}:{host}"}
        return self

    def with_kwargs(self, **details: Any) -> Self:
        return _raise_unsupported(", ".join(sorted(details))) if details else self

    def with_command(self, command: str | list[str]) -> Self:
        _raise_unsupported("with_command", f"there is no shell for {command!r}")

    def with_network(self, network: object) -> Self:  # noqa: ARG002
        _raise_unsupported("with_network")

    def with_network_aliases(self, *aliases: str) -> Self:  # noqa: ARG002
        _raise_unsupported("with_network_aliases")

    def with_volume_mapping(self, host: object, container: str, mode: str = "ro") -> Self:  # noqa: ARG002
        _raise_unsupported("with_volume_mapping")

    def maybe_emulate_amd64(self) -> Self:
        return self

    # ---- start and stop

    def start(self, timeout: int = 30) -> Self:
        if self._broker is None:
            self._broker = Broker(self.settings(), start_seconds_max=timeout, ignores_unknown=True)  # as the image does
            self._broker.start()
        return self

    def stop(self, force: bool = True, delete_volume: bool = True) -> None:  # noqa: ARG002
        if self._broker is not None:
            self._broker.close()
            self._broker = None

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    def settings(self) -> dict[str, str]:
        """The broker settings in the environment."""
        texts = {name: str(value) for name, value in self.env.items()}
        found = {item.name: item.value for item in settings_of_container(texts)}
        return {name: value for name, value in found.items() if name not in OWN_SETTINGS} | self._listeners

    # ---- after the start

    def get_bootstrap_server(self) -> str:
        return self.broker.bootstrap_servers

    def get_container_host_ip(self) -> str:
        return self.broker.host

    def get_exposed_port(self, port: int) -> int:
        if port != self.port:
            _raise_unsupported(f"port {port}")
        return self.broker.port

    def get_logs(self) -> tuple[bytes, bytes]:
        """Standard output and standard error; the broker writes both to one file."""
        return self.broker.logs.encode(), b""

    def get_wrapped_container(self) -> NoReturn:
        _raise_unsupported("get_wrapped_container")

    def exec(self, command: str | list[str]) -> NoReturn:
        _raise_unsupported(
            "exec", f"run {command!r} on this machine, with --bootstrap-server {self.get_bootstrap_server()}"
        )

    @property
    def broker(self) -> Broker:
        """The underlying test broker, with features that a container does not have."""
        if self._broker is None:
            raise BrokerError("the broker is not started: call start(), or use it as a context manager")
        return self._broker

    def __repr__(self) -> str:
        return f"<KafkaContainer {self._broker or 'not started'}>"


def _raise_unsupported(what: str, reason: str = "there is no container around this broker") -> NoReturn:
    raise NotImplementedError(f"ottla.testing.testcontainers.KafkaContainer cannot do {what}: {reason}")
