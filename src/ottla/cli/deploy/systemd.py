"""A cluster as services of systemd: units, settings of each broker and ZooKeeper, and how to install them. Pure."""

from __future__ import annotations

from ottla.cli.deploy.monitoring import grafana_files, prometheus_files
from ottla.cli.deploy.plan import ELECTION_PORT, PEER_PORT, Place, Plan, bracketed
from ottla.cli.deploy.settings import REPLICAS_REASON, counted, rack_of, zookeeper_properties
from ottla.cli.deploy.templates import fill, template
from ottla.cli.running.replicas import replica_settings
from ottla.cli.zookeeper.config import PORT as ZOOKEEPER_PORT
from ottla.operations.metric_readings import METRICS_PORT

UNITS = "etc/systemd/system"
SETTINGS = "etc/ottla"


def systemd_files(plan: Plan, command: str) -> dict[str, str]:
    """All files of the folder, by their names."""
    values = {
        "hardening": template("systemd/hardening.conf"),
        "bootstrap": _bootstrap(plan),
        "metrics": ",".join(f"{place.number}=http://{_metrics_target(plan, place)}" for place in plan.broker_places),
    }
    units = ["ottla-registry.service", "ottla-console.service", "ottla.target"]
    units += ["ottla-zookeeper@.service"] if plan.zookeepers else []
    written = {f"{UNITS}/{name}": fill(template(f"systemd/{name}"), values) for name in units}
    written[f"{UNITS}/ottla@.service"] = _broker_unit(plan)
    for place in plan.broker_places:
        written[f"{SETTINGS}/broker-{place.number}.properties"] = _broker(plan, place)
    for place in plan.zookeeper_places:
        written[f"{SETTINGS}/zookeeper-{place.number}.properties"] = _zookeeper(plan, place)
    written["README.md"] = _readme(plan, command)
    targets = [_metrics_target(plan, place) for place in plan.broker_places]
    return {**written, **prometheus_files(targets), **grafana_files("http://127.0.0.1:9090")}


def _broker_unit(plan: Plan) -> str:
    # After the ZooKeepers of its machine, so that it stops before them: without them nobody takes over what it leads.
    servers = [f"ottla-zookeeper@{place.number}.service" for place in plan.zookeeper_places]
    return fill(
        template("systemd/broker.service"),
        {
            "header": "# ottla@1 is a broker with the settings /etc/ottla/broker-1.properties.",
            "which": " %i",
            "order": f"After={' '.join(['network-online.target', *servers])}\nPartOf=ottla.target",
            "config": "broker-%i.properties",
            "folder": "ottla-%i",
            "hardening": template("systemd/hardening.conf"),
            "target": "ottla.target",
        },
    )


def _broker(plan: Plan, place: Place) -> str:
    rack = rack_of(plan, place)
    connect = f"zookeeper.connect={plan.zookeeper_connect}" if plan.zookeepers else ""
    return fill(
        template("config/broker.properties"),
        {
            "number": place.number,
            "where": f" on {place.host}" if len(plan.hosts) > 1 else "",
            "rack": f"# Replicas of a partition are put into different racks.\nbroker.rack={rack}" if rack else "",
            "zookeeper": connect or "# A broker that is alone keeps its metadata itself, in its folder.",
            "bind": plan.own_address if plan.is_local else "",
            "host": bracketed(place.host),
            "port": place.port(plan.port),
            "replicas_reason": REPLICAS_REASON[min(plan.brokers, 3)],
            "replicas": "\n".join(f"{key}={value}" for key, value in replica_settings(plan.brokers).items()),
            "metrics": "\n".join(_metrics(plan, place)),
        },
    )


def _metrics(plan: Plan, place: Place) -> list[str]:
    port = f"ottla.metrics.port={place.port(METRICS_PORT)}"
    if len(plan.hosts) == 1:
        return [port, "ottla.metrics.host=127.0.0.1"]
    reason = "# Prometheus is on another machine: let it in, and nobody else (a firewall), or use TLS and a password."
    return [reason, port, "ottla.metrics.host=0.0.0.0", "ottla.metrics.insecure=true"]


def _metrics_target(plan: Plan, place: Place) -> str:
    """On one machine it is open to that machine alone."""
    host = bracketed(place.host) if len(plan.hosts) > 1 else "127.0.0.1"
    return f"{host}:{place.port(METRICS_PORT)}"


def _zookeeper(plan: Plan, place: Place) -> str:
    servers = [
        f"{bracketed(each.host)}:{each.port(PEER_PORT)}:{each.port(ELECTION_PORT)}" for each in plan.zookeeper_places
    ]
    address = "127.0.0.1" if len(plan.hosts) == 1 else "0.0.0.0"  # noqa: S104 (brokers of other machines need it)
    data = f"/var/lib/ottla-zookeeper-{place.number}"
    whom = f"all servers but for {'folder and port' if len(plan.hosts) == 1 else 'the folder'}"
    return zookeeper_properties(servers, data, place.port(ZOOKEEPER_PORT), address, whom)


def _readme(plan: Plan, command: str) -> str:
    size = f"{counted(plan.brokers, 'broker')} and {counted(plan.zookeepers, 'ZooKeeper')}"
    values = {"size": size, "command": command, "bootstrap": _bootstrap(plan), "machines": _machines(plan)}
    return fill(template("systemd/README.md"), values)


def _machines(plan: Plan) -> str:
    if len(plan.hosts) == 1:
        return f"    systemctl enable --now {' '.join(_units(plan, None))} ottla-registry ottla-console ottla.target"
    lines = []
    for host in dict.fromkeys(plan.hosts):
        guests = ["ottla-registry", "ottla-console"] if host == plan.hosts[0] else []
        lines.append(f"    {host}: systemctl enable --now {' '.join([*_units(plan, host), *guests, 'ottla.target'])}")
    return "\n".join(lines)


def _units(plan: Plan, host: str | None) -> list[str]:
    """The units of a machine; of the only one if no host is named."""
    here = [f"ottla-zookeeper@{place.number}" for place in plan.zookeeper_places if host in (None, place.host)]
    return here + [f"ottla@{place.number}" for place in plan.broker_places if host in (None, place.host)]


def _bootstrap(plan: Plan) -> str:
    return ",".join(f"{bracketed(place.host)}:{place.port(plan.port)}" for place in plan.broker_places)
