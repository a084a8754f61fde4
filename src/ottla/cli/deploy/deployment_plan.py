"""The size, hosts and ports of a deployment, validated before files are written. Pure.

Rule 1: an invalid plan writes nothing; the first problem is reported in one line with its remedy.
Rule 2: a port belongs to one process of a machine. All ports are listed here, so collisions are found here.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from ipaddress import ip_address
from typing import Final, NamedTuple

from ottla.base.broker_checks import is_loopback
from ottla.cli.terminal import UsageError
from ottla.cli.zookeeper.server import PORT as ZOOKEEPER_PORT
from ottla.operations.metric_readings import METRICS_PORT

COMPOSE, SYSTEMD, HELM = "compose", "systemd", "helm"
KINDS: Final = (COMPOSE, SYSTEMD, HELM)
IMAGE: Final = "ottla:latest"
LOCALHOST: Final = "localhost"
PORT: Final = 9092
NODE_PORT: Final = 30_092
NODE_PORTS: Final = range(30_000, 32_768)  # Kubernetes' default node port range
PORT_MIN: Final = 1_024  # lower ports need privileges that a broker should not have
PORT_MAX: Final = 65_535
INNER_PORT: Final = 19_092  # between containers
PEER_PORT: Final = 2_888
ELECTION_PORT: Final = 3_888
CONSOLE_PORT: Final = 8_080
REGISTRY_PORT: Final = 8_081
PROMETHEUS_PORT: Final = 9_090
GRAFANA_PORT: Final = 3_000
BROKERS_MAX: Final = 100
ZOOKEEPERS_MAX: Final = 9
_HOST: Final = re.compile(r"(?!-)[A-Za-z0-9_-]{1,63}(?:\.[A-Za-z0-9_-]{1,63})*\.?")
_IMAGE: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._/:@-]*")


class ServerPlacement(NamedTuple):
    """One server: its number in the cluster, its machine, and its index among its kind there, from 0."""

    number: int
    host: str
    position: int

    def port(self, first: int) -> int:
        return first + self.position


class UsedPort(NamedTuple):
    """A port of a machine and its owner."""

    host: str
    port: int
    owner: str


@dataclass(frozen=True, slots=True)
class DeploymentPlan:
    """The requested deployment. `hosts` is one name for all brokers or one for each; empty: the Kubernetes nodes."""

    kind: str
    brokers: int = 3
    zookeepers: int = 3
    hosts: tuple[str, ...] = (LOCALHOST,)
    port: int = PORT
    image: str = IMAGE

    @property
    def is_local(self) -> bool:
        """Whether only this machine connects."""
        return all(is_loopback(host) for host in self.hosts)

    @property
    def local_address(self) -> str:
        """The address for ports that only this machine reaches."""
        return "[::1]" if self.hosts[:1] == ("::1",) else "127.0.0.1"

    @property
    def broker_placements(self) -> list[ServerPlacement]:
        return _placements(self.brokers, self.hosts)

    @property
    def zookeeper_placements(self) -> list[ServerPlacement]:
        # On a single machine ZooKeeper is reachable only locally.
        return _placements(self.zookeepers, self.hosts if len(self.hosts) > 1 else ("127.0.0.1",))

    @property
    def zookeeper_connect(self) -> str:
        return ",".join(
            f"{url_host(server.host)}:{server.port(ZOOKEEPER_PORT)}" for server in self.zookeeper_placements
        )


def check_plan(plan: DeploymentPlan) -> list[str]:
    """Validate a plan; returns warnings. Raises UsageError for a plan that cannot work."""
    _check_numbers(plan)
    if not _IMAGE.fullmatch(plan.image):
        raise UsageError(f"--image {plan.image!r} is not an image name (registry.example/ottla:1.0)")
    _check_hosts(plan)
    _check_ports(plan)
    return list(_warnings(plan))


def used_ports(plan: DeploymentPlan) -> Iterator[UsedPort]:
    """All ports of a plan's processes, each with its machine."""
    if plan.kind == HELM:
        for server in plan.broker_placements:
            yield UsedPort("every node", plan.port + server.number - 1, f"broker {server.number}")
        return
    first = plan.hosts[0]
    for server in plan.broker_placements:
        yield UsedPort(server.host, server.port(plan.port), f"broker {server.number}")
        if plan.kind == SYSTEMD:
            yield UsedPort(server.host, server.port(METRICS_PORT), f"the metrics of broker {server.number}")
    if plan.kind == SYSTEMD:
        for server in plan.zookeeper_placements:
            host = server.host if len(plan.hosts) > 1 else first
            for port in (ZOOKEEPER_PORT, PEER_PORT, ELECTION_PORT):
                yield UsedPort(host, server.port(port), f"ZooKeeper {server.number}")
    else:
        yield UsedPort(first, INNER_PORT, "brokers among themselves")
        yield UsedPort(first, METRICS_PORT, "the metrics of brokers")
    yield UsedPort(first, CONSOLE_PORT, "the console")
    yield UsedPort(first, REGISTRY_PORT, "the registry")
    yield UsedPort(first, PROMETHEUS_PORT, "Prometheus")
    yield UsedPort(first, GRAFANA_PORT, "Grafana")


def url_host(host: str) -> str:
    """The host as it precedes a port: an IPv6 address needs brackets."""
    return f"[{host}]" if ":" in host else host


def _placements(count: int, hosts: tuple[str, ...]) -> list[ServerPlacement]:
    names = hosts or ("",)
    return [ServerPlacement(index + 1, names[index % len(names)], index // len(names)) for index in range(count)]


def _check_numbers(plan: DeploymentPlan) -> None:
    if not 1 <= plan.brokers <= BROKERS_MAX:
        raise UsageError(f"--brokers {plan.brokers}: a cluster has 1 to {BROKERS_MAX} brokers")
    if not 0 <= plan.zookeepers <= ZOOKEEPERS_MAX:
        raise UsageError(
            f"--zookeeper {plan.zookeepers}: 3 or 5 are usual, {ZOOKEEPERS_MAX} the maximum; "
            "each further server slows every change"
        )
    if plan.zookeepers == 0 and plan.brokers > 1:
        raise UsageError(
            f"--zookeeper 0: {plan.brokers} brokers need a ZooKeeper to agree in: --zookeeper 3 (or --brokers 1)"
        )


def _check_hosts(plan: DeploymentPlan) -> None:
    for host in plan.hosts:
        if not _is_host(host):
            raise UsageError(f"--host {host!r} is not a host name or address (no port, no http://)")
        if host in ("0.0.0.0", "::"):  # noqa: S104 (refused)
            raise UsageError(f"--host {host} means every address, and clients cannot connect to that: give a name")
    if len(plan.hosts) > 1:
        _check_several(plan)
    if plan.kind == HELM and any(map(is_loopback, plan.hosts)):
        raise UsageError(
            f"--host {plan.hosts[0]}: clients outside of Kubernetes would connect to themselves: name a "
            "node or a load balancer, or omit it (then each broker advertises its node's address)"
        )


def _check_several(plan: DeploymentPlan) -> None:
    if plan.kind == COMPOSE:
        raise UsageError("--host: compose runs on one machine: give one name, or use --as systemd")
    if len(plan.hosts) != plan.brokers:
        raise UsageError(
            f"--host names {len(plan.hosts)} machines for {plan.brokers} brokers: give one for all, or one for each"
        )
    local = [host for host in plan.hosts if is_loopback(host)]
    if local:
        raise UsageError(f"--host: {local[0]} is a different machine on each of several machines: give its name")
    if plan.kind == HELM and len(set(plan.hosts)) != len(plan.hosts):
        raise UsageError("--host names a machine twice: each broker needs its own address")


def _check_ports(plan: DeploymentPlan) -> None:
    last = max((taken for taken in used_ports(plan) if "broker " in taken.owner), key=lambda taken: taken.port)
    if plan.kind == HELM and not (plan.port in NODE_PORTS and last.port in NODE_PORTS):
        raise UsageError(
            f"--port {plan.port}: the brokers would have {plan.port} to {last.port}, and Kubernetes' node ports are "
            f"ports {NODE_PORTS.start} to {NODE_PORTS.stop - 1}"
        )
    if not PORT_MIN <= plan.port <= PORT_MAX:
        raise UsageError(f"--port {plan.port}: a broker's port is {PORT_MIN} to {PORT_MAX}")
    if last.port > PORT_MAX:
        raise UsageError(
            f"--port {plan.port}: the ports of {plan.brokers} brokers go past {PORT_MAX}: choose a lower one"
        )
    seen: dict[tuple[str, int], str] = {}
    for taken in used_ports(plan):
        other = seen.setdefault((taken.host, taken.port), taken.owner)
        if other != taken.owner:
            raise UsageError(
                f"--port {plan.port}: {other} and {taken.owner} would both use port {taken.port}: choose another"
            )


def _warnings(plan: DeploymentPlan) -> Iterator[str]:
    if plan.zookeepers and plan.zookeepers % 2 == 0:
        yield (
            f"{plan.zookeepers} ZooKeepers survive as many deaths as {plan.zookeepers - 1} do, because a majority must "
            f"survive: {plan.zookeepers + 1} tolerate one more failure"
        )
    if plan.zookeepers == 1 and plan.brokers > 1:
        yield "a single ZooKeeper is a single point of failure: --zookeeper 3 tolerates one failure"
    if plan.brokers == 2:
        yield "with 2 brokers one must acknowledge alone, and loses unreplicated records when it fails; 3 lose nothing"
    if plan.kind == SYSTEMD and len(plan.hosts) == 1 and plan.brokers > 1:
        yield "all brokers share one machine and fail with it: --host a.example,b.example,... places each on its own"


def _is_host(host: str) -> bool:
    if _HOST.fullmatch(host) and len(host) <= 253:
        return True
    try:
        ip_address(host)
    except ValueError:
        return False
    return True
