"""What brokers and ZooKeepers are told, whichever way they are deployed. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from ottla.cli.deploy.plan import COMPOSE, Place, Plan
from ottla.cli.deploy.templates import fill, template
from ottla.cli.running.replicas import REPLICAS_MAX
from ottla.cli.zookeeper.config import DEFAULTS

# Why there are as many replicas as there are, by the number of brokers.
REPLICAS_REASON: Final = {
    1: "One broker, one copy: what its disk loses is lost.",
    2: "Two copies, of which one is enough to go on when the other broker is away.",
    3: "Three copies, of which two have what was acknowledged: any one broker may die, and nothing is lost.",
}


def rack_of(plan: Plan, place: Place) -> str:
    """Replicas of a partition are put into different racks: on several machines each is one."""
    if len(plan.hosts) > 1:
        return place.host
    if plan.kind == COMPOSE and plan.brokers > 1:
        return f"rack-{(place.number - 1) % REPLICAS_MAX + 1}"
    return ""


def zookeeper_properties(servers: Sequence[str], data: str, port: int, address: str, whom: str) -> str:
    """zoo.cfg; what `ottla zookeeper` would fill in stands there, because other ZooKeepers would not."""
    values = {
        "whom": whom,
        "data": data,
        "port": port,
        "address": f"clientPortAddress={address}" if address else "",
        "servers": "\n".join(f"server.{number}={server}" for number, server in enumerate(servers, 1)),
        "defaults": "\n".join(f"{key}={value}" for key, value in DEFAULTS.items()),
    }
    return fill(template("config/zookeeper.properties"), values)


def counted(number: int, noun: str) -> str:
    return f"{number or 'no'} {noun}{'' if number == 1 else 's'}"
