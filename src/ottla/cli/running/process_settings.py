"""What each process of `ottla broker --processes N` runs with. Pure: a file's settings come in, overrides go out.

Rules, for process k (0, 1, 2, ...) of a file with `broker.id=101`:
1. Its id is broker.id + k. Each port of `listeners` and of `advertised.listeners` is the file's + k; 0 stays 0.
2. Its data lies in `broker.ID` inside each folder of `log.dirs`, its log files in `broker.ID` inside `ottla.log.dir`.
3. `ottla.metrics.port` is the port on which all are told together; process k tells its own on that port + 1 + k,
   on 127.0.0.1 if the file names a certificate for the metrics.
4. `broker.rack` is the machine's name unless the file says another, so that replicas are put on different machines.
5. Everything else is as in the file, and counts for each process.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from ottla.base.broker_checks import ALL_FOLDERS
from ottla.base.broker_settings import OTHER_NAMES, BrokerSettings
from ottla.base.listeners import LOOPBACK, PORT_MAX, Listener
from ottla.cli.running.process_folders import own_folder
from ottla.cli.terminal import UsageError

ADVERTISED_KEYS: Final = frozenset({"advertised.listeners", "advertised.host.name", "advertised.port"})


class Use(NamedTuple):
    """A port that a process takes, or tells clients."""

    host: str
    port: int
    owner: str
    process: int


def settings_of(settings: BrokerSettings, process: int, machine: str) -> dict[str, str]:
    """What process number `process` has instead of the file's values, or as well."""
    broker_id = settings.node_id + process
    own = {
        "broker.id": str(broker_id),
        "listeners": _moved(settings.listeners, process),
        "log.dirs": ",".join(_folders(settings.log_dirs, broker_id)),
        "broker.rack": settings.broker_rack or machine,
    }
    if not ADVERTISED_KEYS.isdisjoint(settings.explicit):
        own["advertised.listeners"] = _moved(settings.advertised_listeners, process)
    if settings.cordoned_log_dirs and ALL_FOLDERS not in settings.cordoned_log_dirs:
        own["cordoned.log.dirs"] = ",".join(_folders(settings.cordoned_log_dirs, broker_id))
    if settings.ottla_metrics_port > 0:
        own["ottla.metrics.port"] = str(metrics_port(settings, process))
        if settings.ottla_metrics_ssl_keystore_location is not None:
            # Only whoever tells the metrics of all reads them there, and it is on this machine.
            own |= {"ottla.metrics.host": LOOPBACK, "ottla.metrics.ssl.keystore.location": ""}
    if settings.ottla_log_dir is not None:
        own["ottla.log.dir"] = own_folder(settings.ottla_log_dir, broker_id)
    return own


def put_over(overrides: Mapping[str, str], own: Mapping[str, str]) -> dict[str, str]:
    """What a person overrides with what is a process's own, which wins, also over other names of the same."""
    names = {name for key in own for name in (key, *OTHER_NAMES.get(key, ()))}
    return {name: value for name, value in overrides.items() if name not in names} | dict(own)


def metrics_port(settings: BrokerSettings, process: int) -> int:
    return settings.ottla_metrics_port + 1 + process


def check_processes(settings: BrokerSettings, count: int) -> None:
    """Raises UsageError for a file that several processes cannot share, with what is in the way and the cure."""
    if not settings.zookeeper_connect:
        raise UsageError(
            "--processes: brokers of a cluster agree in ZooKeeper, and the settings have no zookeeper.connect. "
            "For one machine alone `ottla up --brokers auto` starts one, too"
        )
    if settings.node_id < 0:
        raise UsageError("--processes: set broker.id: it is that of the first process, and the others count on from it")
    if settings.ottla_metrics_port == 0:
        raise UsageError("--processes: ottla.metrics.port=0 is another port for each process: choose a number, or -1")
    for what, uses in (("listen on", list(_bound(settings, count))), ("advertise", list(_advertised(settings, count)))):
        _check_ports(uses, count, what)


def _check_ports(uses: Sequence[Use], count: int, what: str) -> None:
    seen: dict[tuple[str, int], Use] = {}
    for use in uses:
        if use.port > PORT_MAX:
            raise UsageError(f"--processes {count}: {use.owner} would have port {use.port}: {PORT_MAX} is the last")
        other = seen.setdefault((use.host, use.port), use)
        if other.process != use.process:
            raise UsageError(
                f"--processes {count}: {other.owner} and {use.owner} would both {what} port {use.port}. "
                f"Each listener takes {count} ports in a row, and metrics one more: choose ports further apart"
            )


def _bound(settings: BrokerSettings, count: int) -> Iterator[Use]:
    """By number alone: a listener without a host takes its port on all addresses."""
    if settings.ottla_metrics_port > 0:
        yield Use("", settings.ottla_metrics_port, "the metrics of all", -1)
    for process in range(count):
        broker = f"broker {settings.node_id + process}"
        for listener in settings.listeners:
            if listener.port:
                yield Use("", listener.port + process, f"{listener.name} of {broker}", process)
        if settings.ottla_metrics_port > 0:
            yield Use("", metrics_port(settings, process), f"the metrics of {broker}", process)


def _advertised(settings: BrokerSettings, count: int) -> Iterator[Use]:
    for process in range(count):
        for listener in settings.advertised_listeners:
            if listener.port:
                owner = f"{listener.name} of broker {settings.node_id + process}"
                yield Use(listener.host, listener.port + process, owner, process)


def _moved(listeners: Iterable[Listener], process: int) -> str:
    return ",".join(str(each._replace(port=each.port + process if each.port else 0)) for each in listeners)


def _folders(folders: Iterable[str], broker_id: int) -> Iterator[str]:
    return (own_folder(folder, broker_id) for folder in folders)
