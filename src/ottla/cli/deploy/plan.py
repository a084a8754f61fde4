"""What a deployment is to be: how many, where, on which ports. Pure: names and numbers are checked here, once.

Rule 1: nothing is written for a plan that cannot work; the first thing that is wrong with it is one line with its cure.
Rule 2: a port belongs to one process of a machine. All of them are listed here, so that a collision is found here.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from ipaddress import ip_address
from typing import Final, NamedTuple

from ottla.base.broker_checks import is_loopback
from ottla.cli.terminal import UsageError
from ottla.cli.zookeeper.config import PORT as ZOOKEEPER_PORT
from ottla.operations.metric_readings import METRICS_PORT

COMPOSE, SYSTEMD, HELM = "compose", "systemd", "helm"
KINDS: Final = (COMPOSE, SYSTEMD, HELM)
IMAGE: Final = "ottla:latest"
LOCALHOST: Final = "localhost"
PORT: Final = 9092
NODE_PORT: Final = 30_092
NODE_PORTS: Final = range(30_000, 32_768)  # what Kubernetes gives away unless its own settings say otherwise
PORT_MIN: Final = 1_024  # below it a process needs rights that no broker should have
PORT_MAX: Final = 65_535
INNER_PORT: Final = 19_092  # among containers
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


class Place(NamedTuple):
    """Where one server is: its number in the cluster, its machine, and which of its kind it is there, from 0."""

    number: int
    host: str
    position: int

    def port(self, first: int) -> int:
        return first + self.position


class TakenPort(NamedTuple):
    """A port of a machine, and whose it is."""

    host: str
    port: int
    owner: str


@dataclass(frozen=True, slots=True)
class Plan:
    """What a person has asked for. `hosts` is one name for all brokers, or one for each; none: Kubernetes' nodes."""

    kind: str
    brokers: int = 3
    zookeepers: int = 3
    hosts: tuple[str, ...] = (LOCALHOST,)
    port: int = PORT
    image: str = IMAGE

    @property
    def is_local(self) -> bool:
        """Only this machine is meant to connect."""
        return all(is_loopback(host) for host in self.hosts)

    @property
    def own_address(self) -> str:
        """What stands before a port that only this machine reaches."""
        return "[::1]" if self.hosts[:1] == ("::1",) else "127.0.0.1"

    @property
    def broker_places(self) -> list[Place]:
        return _places(self.brokers, self.hosts)

    @property
    def zookeeper_places(self) -> list[Place]:
        # On one machine its servers are nobody's business but that machine's.
        return _places(self.zookeepers, self.hosts if len(self.hosts) > 1 else ("127.0.0.1",))

    @property
    def zookeeper_connect(self) -> str:
        return ",".join(f"{bracketed(place.host)}:{place.port(ZOOKEEPER_PORT)}" for place in self.zookeeper_places)


def check_plan(plan: Plan) -> list[str]:
    """What is doubtful about a plan, a line each. Raises UsageError for one that cannot work."""
    _check_numbers(plan)
    if not _IMAGE.fullmatch(plan.image):
        raise UsageError(f"--image {plan.image!r} is no name of an image (registry.example/ottla:1.0)")
    _check_hosts(plan)
    _check_ports(plan)
    return list(_doubts(plan))


def taken_ports(plan: Plan) -> Iterator[TakenPort]:
    """All ports that the processes of a plan take, each on its machine."""
    if plan.kind == HELM:
        for place in plan.broker_places:
            yield TakenPort("every node", plan.port + place.number - 1, f"broker {place.number}")
        return
    first = plan.hosts[0]
    for place in plan.broker_places:
        yield TakenPort(place.host, place.port(plan.port), f"broker {place.number}")
        if plan.kind == SYSTEMD:
            yield TakenPort(place.host, place.port(METRICS_PORT), f"the metrics of broker {place.number}")
    if plan.kind == SYSTEMD:
        for place in plan.zookeeper_places:
            host = place.host if len(plan.hosts) > 1 else first
            for port in (ZOOKEEPER_PORT, PEER_PORT, ELECTION_PORT):
                yield TakenPort(host, place.port(port), f"ZooKeeper {place.number}")
    else:
        yield TakenPort(first, INNER_PORT, "brokers among themselves")
        yield TakenPort(first, METRICS_PORT, "the metrics of brokers")
    yield TakenPort(first, CONSOLE_PORT, "the console")
    yield TakenPort(first, REGISTRY_PORT, "the registry")
    yield TakenPort(first, PROMETHEUS_PORT, "Prometheus")
    yield TakenPort(first, GRAFANA_PORT, "Grafana")


def bracketed(host: str) -> str:
    """As a host stands before a port: an IPv6 address has colons of its own."""
    return f"[{host}]" if ":" in host else host


def _places(count: int, hosts: tuple[str, ...]) -> list[Place]:
    names = hosts or ("",)
    return [Place(index + 1, names[index % len(names)], index // len(names)) for index in range(count)]


def _check_numbers(plan: Plan) -> None:
    if not 1 <= plan.brokers <= BROKERS_MAX:
        raise UsageError(f"--brokers {plan.brokers}: a cluster has 1 to {BROKERS_MAX} of them here")
    if not 0 <= plan.zookeepers <= ZOOKEEPERS_MAX:
        raise UsageError(
            f"--zookeeper {plan.zookeepers}: 3 or 5 is what people run, {ZOOKEEPERS_MAX} at most; "
            "each more makes every change slower"
        )
    if plan.zookeepers == 0 and plan.brokers > 1:
        raise UsageError(
            f"--zookeeper 0: {plan.brokers} brokers need a ZooKeeper to agree in: --zookeeper 3 (or --brokers 1)"
        )


def _check_hosts(plan: Plan) -> None:
    for host in plan.hosts:
        if not _is_host(host):
            raise UsageError(f"--host {host!r} is no name or address of a machine (no port, no http://)")
        if host in ("0.0.0.0", "::"):  # noqa: S104 (refused)
            raise UsageError(f"--host {host} means every address, and no client can connect to that: give a name")
    if len(plan.hosts) > 1:
        _check_several(plan)
    if plan.kind == HELM and any(map(is_loopback, plan.hosts)):
        raise UsageError(
            f"--host {plan.hosts[0]}: clients outside of Kubernetes would be told to connect to themselves: name a "
            "node, a balancer, or leave it out (then each broker tells its node's address)"
        )


def _check_several(plan: Plan) -> None:
    if plan.kind == COMPOSE:
        raise UsageError("--host: compose runs on one machine: give one name, or use --as systemd")
    if len(plan.hosts) != plan.brokers:
        raise UsageError(
            f"--host names {len(plan.hosts)} machines for {plan.brokers} brokers: give one for all, or one for each"
        )
    local = [host for host in plan.hosts if is_loopback(host)]
    if local:
        raise UsageError(f"--host: {local[0]} among several machines is another one on each of them: give its name")
    if plan.kind == HELM and len(set(plan.hosts)) != len(plan.hosts):
        raise UsageError("--host names a machine twice: each broker has an address of its own")


def _check_ports(plan: Plan) -> None:
    last = max((taken for taken in taken_ports(plan) if "broker " in taken.owner), key=lambda taken: taken.port)
    if plan.kind == HELM and not (plan.port in NODE_PORTS and last.port in NODE_PORTS):
        raise UsageError(
            f"--port {plan.port}: the brokers would have {plan.port} to {last.port}, and Kubernetes gives nodes the "
            f"ports {NODE_PORTS.start} to {NODE_PORTS.stop - 1}"
        )
    if not PORT_MIN <= plan.port <= PORT_MAX:
        raise UsageError(f"--port {plan.port}: a broker takes one from {PORT_MIN} to {PORT_MAX}")
    if last.port > PORT_MAX:
        raise UsageError(
            f"--port {plan.port}: the ports of {plan.brokers} brokers go past {PORT_MAX}: choose a lower one"
        )
    seen: dict[tuple[str, int], str] = {}
    for taken in taken_ports(plan):
        other = seen.setdefault((taken.host, taken.port), taken.owner)
        if other != taken.owner:
            raise UsageError(
                f"--port {plan.port}: {other} and {taken.owner} would both take port {taken.port}: choose another"
            )


def _doubts(plan: Plan) -> Iterator[str]:
    if plan.zookeepers and plan.zookeepers % 2 == 0:
        yield (
            f"{plan.zookeepers} ZooKeepers survive as many deaths as {plan.zookeepers - 1} do, because a majority must "
            f"live: {plan.zookeepers + 1} would survive one more"
        )
    if plan.zookeepers == 1 and plan.brokers > 1:
        yield "a single ZooKeeper is what all brokers depend on: --zookeeper 3 survives the death of one"
    if plan.brokers == 2:
        yield "of 2 brokers one alone must acknowledge: what it has not copied yet is lost with it. 3 lose nothing"
    if plan.kind == SYSTEMD and len(plan.hosts) == 1 and plan.brokers > 1:
        yield "all brokers are on one machine and die with it: --host a.example,b.example,... puts each on its own"


def _is_host(host: str) -> bool:
    if _HOST.fullmatch(host) and len(host) <= 253:
        return True
    try:
        ip_address(host)
    except ValueError:
        return False
    return True
