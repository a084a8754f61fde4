"""Checks the files of a deployment. Pure: facts in, findings out.

A problem certainly fails, at the start or at the first use; a warning fails when something else fails. Each check
answers one question for all brokers, so a common mistake is reported once.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from typing import Final

from ottla.base.broker_checks import is_loopback
from ottla.base.listeners import ALL_INTERFACES
from ottla.cli.deploy.compose import variable_of
from ottla.cli.deploy.deployment import BrokerFacts, Deployment, Finding
from ottla.cli.deploy.helm import split_image
from ottla.operations.doctor.findings import Severity, shorten_list

OPEN_FILES_MIN: Final = 10_000
STOP_SECONDS_MIN: Final = 30.0
PORT_MIN: Final = 1_024
REPLICATION_KEYS: Final = {
    "default.replication.factor": "min.insync.replicas",
    "offsets.topic.replication.factor": None,
    "transaction.state.log.replication.factor": "transaction.state.log.min.isr",
    "share.coordinator.state.topic.replication.factor": "share.coordinator.state.topic.min.isr",
}
TEMPORARY_FOLDERS: Final = ("/tmp", "/var/tmp", "/run", "/dev/shm")  # noqa: S108 (listed as unsuitable)


def check_deployment(deployment: Deployment) -> list[Finding]:
    """All findings, problems first."""
    found = list(deployment.findings)
    for check in CHECKS:
        found += check(deployment)
    return sorted(found, key=lambda finding: finding.severity is not Severity.PROBLEM)


def check_ids(deployment: Deployment) -> Iterator[Finding]:
    by_id: dict[int, list[str]] = defaultdict(list)
    for broker in deployment.brokers:
        by_id[broker.settings.node_id].append(broker.place)
    for node_id, places in by_id.items():
        if len(places) > 1 and node_id >= 0:
            yield problem(
                shorten_list(places),
                f"they have the same node.id {node_id}: only the first to start joins",
                f"Give each broker its own ({setting_name(deployment, 'node.id')})",
            )


def check_zookeeper_connect(deployment: Deployment) -> Iterator[Finding]:
    by_servers: dict[tuple[str, ...], list[BrokerFacts]] = defaultdict(list)
    for broker in deployment.brokers:
        servers, root = connect_parts(broker.settings.zookeeper_connect)
        by_servers[(*sorted(servers), root)].append(broker)
    if len(deployment.brokers) > 1:
        without = [broker.place for broker in deployment.brokers if not broker.settings.zookeeper_connect]
        if without:
            yield problem(
                shorten_list(without),
                f"no {setting_name(deployment, 'zookeeper.connect')}: each would be its own cluster",
                "Name the ZooKeepers, the same for all brokers",
            )
        elif len(by_servers) > 1:
            texts = dict.fromkeys(broker.settings.zookeeper_connect for broker in deployment.brokers)
            yield problem(
                shorten_list(brokers[0].place for brokers in by_servers.values()),
                f"they name different ZooKeepers ({' and '.join(map(str, texts))}): they would not form one cluster",
                f"Set {setting_name(deployment, 'zookeeper.connect')} to the same value for all",
            )
    if not deployment.is_zookeeper_here:
        return
    known = {address for server in deployment.zookeepers for address in server.addresses}
    for broker in deployment.brokers:
        foreign = [each for each in connect_parts(broker.settings.zookeeper_connect)[0] if each not in known]
        if foreign:
            yield warning(
                broker.place,
                f"it names the ZooKeeper {shorten_list(foreign)}, and this folder has {shorten_list(sorted(known))}",
                f"Correct {setting_name(deployment, 'zookeeper.connect')}, unless that is another ensemble",
            )


def check_ensemble(deployment: Deployment) -> Iterator[Finding]:
    servers = deployment.zookeepers
    lists = [
        {key: value for key, value in server.properties.items() if key.startswith("server.")} for server in servers
    ]
    numbers: dict[int | None, list[str]] = defaultdict(list)
    for server, listed in zip(servers, lists, strict=True):
        numbers[server.number].append(server.place)
        if len(servers) > 1 and listed != lists[0]:
            yield problem(
                server.place, f"its list of servers differs from that of {servers[0].place}", "Make them equal"
            )
        if listed and server.number is not None and f"server.{server.number}" not in listed:
            yield problem(
                server.place, f"it is number {server.number}, and its list lacks server.{server.number}", "Add it"
            )
    for number, places in numbers.items():
        if len(places) > 1:
            which = "no number" if number is None else f"the same number, {number}"
            yield problem(
                shorten_list(places), f"these ZooKeepers have {which}", "Give each its own, as in the list of servers"
            )
    if servers and len(lists[0]) not in (0, len(servers)):
        yield warning(
            servers[0].place,
            f"the list has {len(lists[0])} servers, and {len(servers)} are deployed here",
            "Also deploy the others, or remove them from the list",
        )
    if servers and len(servers) % 2 == 0:
        yield warning(
            servers[0].place,
            f"{len(servers)} ZooKeepers tolerate as many failures as {len(servers) - 1}, as a majority must survive",
            f"Run {len(servers) + 1} or {len(servers) - 1}",
        )
    if len(servers) == 1 and deployment.broker_count > 1:
        yield warning(servers[0].place, "one ZooKeeper: without it, no broker can take over from another", "Run 3")


def check_replication(deployment: Deployment) -> Iterator[Finding]:
    """Replication factors above the number of brokers, and unreachable min.insync.replicas."""
    count = deployment.broker_count
    for key, in_sync_key in REPLICATION_KEYS.items():
        for factor, places in _places_by_value(deployment, key):
            if factor > count:
                yield problem(
                    places,
                    f"{setting_name(deployment, key)} is {factor}, and there are {count} brokers: "
                    "creating topics fails",
                    f"Set it to {count} at most",
                )
            elif factor == 1 and count > 1:
                yield warning(
                    places,
                    f"{setting_name(deployment, key)} is 1: records are lost with their only broker",
                    f"Set it to {min(3, count)}",
                )
        if in_sync_key is not None:
            yield from _check_in_sync(deployment, key, in_sync_key)


def _check_in_sync(deployment: Deployment, key: str, in_sync_key: str) -> Iterator[Finding]:
    for broker in deployment.brokers:
        factor, in_sync = _number(broker, key), _number(broker, in_sync_key)
        words = f"{setting_name(deployment, in_sync_key)} is {in_sync} and {setting_name(deployment, key)} {factor}"
        if in_sync > factor:
            yield problem(
                broker.place,
                f"{words}: no producer could write with acks=all",
                f"Set the first to {max(1, factor - 1)}",
            )
        elif in_sync == factor > 1:
            yield warning(
                broker.place,
                f"{words}: while one broker is offline no producer can write with acks=all",
                f"Set the first to {factor - 1}",
            )
        else:
            continue
        return  # the other brokers usually have the same values


def check_differences(deployment: Deployment) -> Iterator[Finding]:
    for key in ("default.replication.factor", "min.insync.replicas", "inter.broker.listener.name"):
        values = {str(broker.settings.texts.get(key)) for broker in deployment.brokers}
        if len(values) > 1:
            yield warning(
                deployment.kind,
                f"brokers differ in {setting_name(deployment, key)} ({', '.join(sorted(values))}): the result "
                "depends on the broker",
                "Set it to the same value for all",
            )
    racks = {broker.name for broker in deployment.brokers if broker.settings.broker_rack}
    without = [broker.place for broker in deployment.brokers if broker.name not in racks]
    if racks and without:
        yield problem(
            shorten_list(without),
            "no broker.rack, and others have one: topics cannot be created while some lack it",
            f"Set {setting_name(deployment, 'broker.rack')} for all, or for none",
        )


def check_addresses(deployment: Deployment) -> Iterator[Finding]:
    """Advertised addresses that are wrong from every viewpoint."""
    advertised: dict[tuple[str, int], list[str]] = defaultdict(list)
    machines = {broker.machine for broker in deployment.brokers if broker.machine}
    has_several = len(machines) > 1 or deployment.kind != "systemd"
    for broker in deployment.brokers:
        settings = broker.settings
        among = settings.inter_broker_listener_name or settings.advertised_listeners[0].name
        for listener in settings.advertised_listeners:
            advertised[(listener.host, listener.port)].append(broker.place)
            if listener.host in (ALL_INTERFACES, "::", ""):
                yield problem(broker.place, f"it advertises {listener} to clients", "Name a host that they can reach")
            elif is_loopback(listener.host) and has_several and deployment.broker_count > 1:
                yield from _loopback(deployment, broker, str(listener), is_among=listener.name == among.upper())
    for (host, port), places in advertised.items():
        if len(places) > 1:
            yield problem(
                shorten_list(places),
                f"they advertise the same address, {host}:{port}",
                f"Give each its own in {setting_name(deployment, 'advertised.listeners')}",
            )


def _loopback(deployment: Deployment, broker: BrokerFacts, listener: str, *, is_among: bool) -> Iterator[Finding]:
    if is_among:
        yield problem(
            broker.place,
            f"it advertises {listener} to other brokers, which is each of them itself",
            f"Name a host that they can reach in {setting_name(deployment, 'advertised.listeners')}",
        )
    elif deployment.kind != "compose":
        yield problem(
            broker.place,
            f"it advertises {listener} to clients, which on every other machine is that machine",
            f"Name a host that they can reach in {setting_name(deployment, 'advertised.listeners')}",
        )


def check_ports(deployment: Deployment) -> Iterator[Finding]:
    owners: dict[tuple[str, int], list[str]] = defaultdict(list)
    others = {each.machine for each in deployment.published if each.machine and not is_loopback(each.machine)}
    only = next(iter(others)) if len(others) == 1 else ""  # ports without a machine are then on this one
    for each in deployment.published:
        machine = each.machine if each.machine in others else only
        owners[(machine, each.port)].append(each.owner)
        if not 0 < each.port <= 65_535:
            yield problem(each.owner, f"port {each.port} is invalid", "Choose one from 1024 to 65535")
        elif each.port < PORT_MIN and deployment.kind == "systemd":
            yield problem(
                each.owner,
                f"port {each.port} needs a privilege that its unit does not have",
                "Choose one from 1024 on, or add AmbientCapabilities=CAP_NET_BIND_SERVICE",
            )
    for (machine, port), names in owners.items():
        if len(names) > 1:
            where = f" of {machine}" if machine else ""
            yield problem(shorten_list(names), f"all of them use port {port}{where}", "Give each its own")


def check_folders(deployment: Deployment) -> Iterator[Finding]:
    owners: dict[tuple[str, str], list[str]] = defaultdict(list)
    for folder in deployment.folders:
        owners[(folder.machine, folder.path.rstrip("/"))].append(folder.owner)
        if any(folder.path == each or folder.path.startswith(f"{each}/") for each in TEMPORARY_FOLDERS):
            yield warning(
                folder.owner, f"{folder.path} is emptied when the machine starts again", "Choose a folder that stays"
            )
    for (_, path), names in owners.items():
        if len(set(names)) > 1 or len(names) > 1:
            yield problem(
                shorten_list(names), f"they share {path}: only the first to start gets it", "Give each its own"
            )


def check_limits(deployment: Deployment) -> Iterator[Finding]:
    for limit, brokers in _grouped(deployment, lambda broker: broker.open_files):
        if limit is not None and limit < OPEN_FILES_MIN:
            yield warning(
                brokers,
                f"it may have {limit:.0f} files open, and each segment and connection is one",
                f"Set it to at least {OPEN_FILES_MIN} (init writes 100000)",
            )
        elif limit is None and deployment.kind != "helm":
            how = "LimitNOFILE=100000 to the unit" if deployment.kind == "systemd" else "ulimits: {nofile: 100000}"
            yield warning(brokers, "it sets no limit of open files", f"Add {how}")
    for seconds, brokers in _grouped(deployment, lambda broker: broker.stop_seconds):
        if seconds is not None and seconds < STOP_SECONDS_MIN:
            yield warning(
                brokers,
                f"it is killed {seconds:.0f} s after the stop signal: it may still be handing over and "
                "writing, and then its logs are checked at the next start",
                "Give it 180 s (TimeoutStopSec, stop_grace_period, terminationGracePeriodSeconds)",
            )


def check_images(deployment: Deployment) -> Iterator[Finding]:
    """The tag is the version; images with other names (for example with Spark) may have the same one."""
    by_tag: dict[str, list[str]] = defaultdict(list)
    for name, image in deployment.images.items():
        by_tag[split_image(image)[1]].append(name)
    if len(by_tag) > 1:
        shown = "; ".join(f"{tag} of {shorten_list(names)}" for tag, names in by_tag.items())
        yield warning("images", f"their versions differ: {shown}", "Use one version for all, except during an upgrade")


def check_settings_warnings(deployment: Deployment) -> Iterator[Finding]:
    """The warnings that each broker would log at its start; open access is reported once for all."""
    by_warning: dict[str, list[str]] = defaultdict(list)
    for broker in deployment.brokers:
        for text in broker.settings.warnings:
            if "without a password" not in text:
                by_warning[text].append(broker.place)
    for text, places in by_warning.items():
        yield warning(shorten_list(places), text, "The broker would start and log the same warning")
    opened = [
        each for each in deployment.published if not is_loopback(each.address) and _is_plaintext(deployment, each.owner)
    ]
    if opened:
        ports = shorten_list(dict.fromkeys(str(each.port) for each in opened))
        yield warning(
            shorten_list(dict.fromkeys(each.owner for each in opened)),
            f"every client that reaches port {ports} can read and write everything: no login is required",
            "Restrict access with a firewall, or use logins and TLS (docs/security.md)",
        )


def _is_plaintext(deployment: Deployment, owner: str) -> bool:
    for broker in deployment.brokers:
        if broker.name == owner:
            return any(listener.protocol == "PLAINTEXT" for listener in broker.settings.listeners)
    return False


def setting_name(deployment: Deployment, key: str) -> str:
    """A setting as it is written in these files."""
    if deployment.kind == "compose":
        return variable_of(key)
    return f"brokers.settings {key}" if deployment.kind == "helm" and not key.startswith("advertised") else key


def connect_parts(text: str | None) -> tuple[list[str], str]:
    """The servers and the chroot of a connect string."""
    servers, slash, root = (text or "").partition("/")
    return [each.strip() for each in servers.split(",") if each.strip()], f"{slash}{root}".rstrip("/")


def problem(place: str, cause: str, cure: str) -> Finding:
    return Finding(Severity.PROBLEM, place, cause, cure)


def warning(place: str, cause: str, cure: str) -> Finding:
    return Finding(Severity.WARNING, place, cause, cure)


def _number(broker: BrokerFacts, key: str) -> int:
    return int(broker.settings.keys[key].effective(broker.settings))


def _places_by_value(deployment: Deployment, key: str) -> Iterator[tuple[int, str]]:
    """Each value of a key with the places that have it."""
    found: dict[int, list[str]] = defaultdict(list)
    for broker in deployment.brokers:
        found[_number(broker, key)].append(broker.place)
    return ((value, shorten_list(dict.fromkeys(places))) for value, places in found.items())


def _grouped(
    deployment: Deployment, value: Callable[[BrokerFacts], float | None]
) -> Iterable[tuple[float | None, str]]:
    found: dict[float | None, list[str]] = defaultdict(list)
    for broker in deployment.brokers:
        found[value(broker)].append(broker.place)
    return ((each, shorten_list(dict.fromkeys(places))) for each, places in found.items())


CHECKS: Final[tuple[Callable[[Deployment], Iterator[Finding]], ...]] = (
    check_ids,
    check_zookeeper_connect,
    check_ensemble,
    check_replication,
    check_differences,
    check_addresses,
    check_ports,
    check_folders,
    check_limits,
    check_images,
    check_settings_warnings,
)
