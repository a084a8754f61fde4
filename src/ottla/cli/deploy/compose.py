"""A cluster as a compose file, with Prometheus and Grafana beside it. Pure: a plan in, files out."""

from __future__ import annotations

from ottla.cli.deploy.monitoring import grafana_files, prometheus_files
from ottla.cli.deploy.plan import ELECTION_PORT, INNER_PORT, PEER_PORT, Place, Plan, bracketed
from ottla.cli.deploy.settings import REPLICAS_REASON, counted, rack_of, zookeeper_properties
from ottla.cli.deploy.templates import fill, template
from ottla.cli.running.replicas import replica_settings
from ottla.cli.zookeeper.config import PORT as ZOOKEEPER_PORT
from ottla.operations.metric_readings import METRICS_PORT

FILE = "compose.yaml"
VARIABLE_PREFIX = "KAFKA_"


def compose_files(plan: Plan, command: str) -> dict[str, str]:
    """All files of the folder, by their names."""
    written = {FILE: _compose(plan, command)}
    if plan.zookeepers:
        servers = [f"zookeeper-{place.number}:{PEER_PORT}:{ELECTION_PORT}" for place in plan.zookeeper_places]
        written["zookeeper/zoo.cfg"] = zookeeper_properties(servers, "/data", ZOOKEEPER_PORT, "", "all servers")
    targets = [f"broker-{place.number}:{METRICS_PORT}" for place in plan.broker_places]
    return {**written, **prometheus_files(targets), **grafana_files("http://prometheus:9090")}


def variable_of(key: str) -> str:
    """The variable of a setting, as Kafka's images read it (`base/environment.py` reads it back)."""
    return VARIABLE_PREFIX + key.replace("_", "__").replace("-", "___").replace(".", "_").upper()


def _compose(plan: Plan, command: str) -> str:
    host = bracketed(plan.hosts[0])
    zookeepers = [f"zookeeper-{place.number}" for place in plan.zookeeper_places]
    brokers = [f"broker-{place.number}" for place in plan.broker_places]
    replicas = [f"{variable_of(key)}: {value}" for key, value in replica_settings(plan.brokers).items()]
    values = {
        "command": command,
        "size": f"{counted(plan.brokers, 'broker')} and {counted(plan.zookeepers, 'ZooKeeper')}",
        "image": plan.image,
        "clients": "on this machine" if plan.is_local else "outside",
        "bootstrap": ",".join(f"{host}:{place.port(plan.port)}" for place in plan.broker_places),
        "inner_bootstrap": ",".join(f"{name}:{INNER_PORT}" for name in brokers),
        "reach": _reach(plan),
        "zookeeper_common": template("compose/zookeeper_common.yaml") if zookeepers else "",
        "zookeeper_connect": _connect(zookeepers),
        "broker_depends": "\n".join(["depends_on:", *_depends(zookeepers, 2)]) if zookeepers else "",
        "guests_depend": "\n".join(_depends(brokers, 0)),
        "replicas_reason": REPLICAS_REASON[min(plan.brokers, 3)],
        "replicas": "\n".join(replicas),
        "zookeepers": "".join(_zookeeper(place) for place in plan.zookeeper_places),
        "brokers": "".join(_broker(plan, place) for place in plan.broker_places),
        "volumes": "\n".join(f"{name}:" for name in (*zookeepers, *brokers)),
    }
    return fill(template("compose/compose.yaml"), values)


def _zookeeper(place: Place) -> str:
    return fill(template("compose/zookeeper.yaml"), {"number": place.number})


def _broker(plan: Plan, place: Place) -> str:
    rack = rack_of(plan, place)
    values = {
        "number": place.number,
        "port": place.port(plan.port),
        "host": bracketed(place.host),
        "published": plan.own_address if plan.is_local else "0.0.0.0",  # noqa: S104 (clients outside are asked for)
        "rack": f"KAFKA_BROKER_RACK: {rack}" if rack else "",
    }
    return fill(template("compose/broker.yaml"), values)


def _reach(plan: Plan) -> str:
    if plan.is_local:
        return "So the ports are those of 127.0.0.1. For other machines: ottla deploy init --host NAME"
    return "The brokers' ports are open to other machines, all others to this one: a firewall says who may come."


def _connect(zookeepers: list[str]) -> str:
    if not zookeepers:
        return "# A broker that is alone keeps its metadata itself, in its folder."
    return f"KAFKA_ZOOKEEPER_CONNECT: {','.join(f'{name}:{ZOOKEEPER_PORT}' for name in zookeepers)}"


def _depends(names: list[str], indent: int) -> list[str]:
    return [f"{' ' * indent}{name}: {{condition: service_started}}" for name in names]
