"""The settings of each process of `ottla broker --processes N`. Pure: a file's settings in, overrides out.

Rules for process k (0, 1, 2, ...) of a file with `broker.id=101`:
1. Its id is broker.id + k. Each port of `listeners` and `advertised.listeners` is the file's + k; 0 stays 0.
2. Its data is in `broker.ID` inside each folder of `log.dirs`, its log files in `broker.ID` inside `ottla.log.dir`. The
   dot distinguishes the folder from a partition's. A single broker uses the folder itself: mixing both would start
   without data, so it is rejected.
3. `ottla.metrics.port` serves the merged metrics; process k serves its own on that port + 1 + k, on 127.0.0.1 if the
   file names a certificate for the metrics.
4. `broker.rack` defaults to the machine's name, so that replicas are spread over machines.
5. All other settings apply to each process.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from ottla.base.broker_checks import ALL_FOLDERS
from ottla.base.broker_settings import OTHER_NAMES, BrokerSettings
from ottla.base.listeners import LOOPBACK, PORT_MAX, Listener
from ottla.cli.terminal import ToolError, UsageError

ADVERTISED_KEYS: Final = frozenset({"advertised.listeners", "advertised.host.name", "advertised.port"})


class PortUse(NamedTuple):
    """A port that a process binds or advertises."""

    host: str
    port: int
    owner: str
    process: int


def process_overrides(settings: BrokerSettings, process: int, machine: str) -> dict[str, str]:
    """The overrides of process number `process`."""
    broker_id = settings.node_id + process
    own = {
        "broker.id": str(broker_id),
        "listeners": _shift_ports(settings.listeners, process),
        "log.dirs": ",".join(_process_folders(settings.log_dirs, broker_id)),
        "broker.rack": settings.broker_rack or machine,
    }
    if not ADVERTISED_KEYS.isdisjoint(settings.explicit):
        own["advertised.listeners"] = _shift_ports(settings.advertised_listeners, process)
    if settings.cordoned_log_dirs and ALL_FOLDERS not in settings.cordoned_log_dirs:
        own["cordoned.log.dirs"] = ",".join(_process_folders(settings.cordoned_log_dirs, broker_id))
    if settings.ottla_metrics_port > 0:
        own["ottla.metrics.port"] = str(metrics_port(settings, process))
        if settings.ottla_metrics_ssl_keystore_location is not None:
            # Only the local metrics process reads this endpoint.
            own |= {"ottla.metrics.host": LOOPBACK, "ottla.metrics.ssl.keystore.location": ""}
    if settings.ottla_log_dir is not None:
        own["ottla.log.dir"] = process_folder(settings.ottla_log_dir, broker_id)
    return own


def merge_overrides(overrides: Mapping[str, str], own: Mapping[str, str]) -> dict[str, str]:
    """The user's overrides, replaced by a process's own under any name of the setting."""
    names = {name for key in own for name in (key, *OTHER_NAMES.get(key, ()))}
    return {name: value for name, value in overrides.items() if name not in names} | dict(own)


def metrics_port(settings: BrokerSettings, process: int) -> int:
    return settings.ottla_metrics_port + 1 + process


def check_processes(settings: BrokerSettings, count: int) -> None:
    """Raises UsageError, with the remedy, for a file that several processes cannot share."""
    if not settings.zookeeper_connect:
        raise UsageError(
            "--processes: the brokers of a cluster need ZooKeeper, and the settings have no zookeeper.connect. "
            "On a single machine `ottla up --brokers auto` also starts one"
        )
    if settings.node_id < 0:
        raise UsageError("--processes: set broker.id: the first process uses it, and the others count up from it")
    if settings.ottla_metrics_port == 0:
        raise UsageError(
            "--processes: ottla.metrics.port=0 would be a random port for each process: choose a number, or -1"
        )
    for what, uses in (
        ("listen on", list(_listening_ports(settings, count))),
        ("advertise", list(_advertised_ports(settings, count))),
    ):
        _check_ports(uses, count, what)


def _check_ports(uses: Sequence[PortUse], count: int, what: str) -> None:
    seen: dict[tuple[str, int], PortUse] = {}
    for use in uses:
        if use.port > PORT_MAX:
            raise UsageError(f"--processes {count}: {use.owner} would have port {use.port}: {PORT_MAX} is the last")
        other = seen.setdefault((use.host, use.port), use)
        if other.process != use.process:
            raise UsageError(
                f"--processes {count}: {other.owner} and {use.owner} would both {what} port {use.port}. "
                f"Each listener takes {count} consecutive ports, and metrics one more: choose ports further apart"
            )


def _listening_ports(settings: BrokerSettings, count: int) -> Iterator[PortUse]:
    """Compare ports only: a listener without a host binds all addresses."""
    if settings.ottla_metrics_port > 0:
        yield PortUse("", settings.ottla_metrics_port, "the metrics of all", -1)
    for process in range(count):
        broker = f"broker {settings.node_id + process}"
        for listener in settings.listeners:
            if listener.port:
                yield PortUse("", listener.port + process, f"{listener.name} of {broker}", process)
        if settings.ottla_metrics_port > 0:
            yield PortUse("", metrics_port(settings, process), f"the metrics of {broker}", process)


def _advertised_ports(settings: BrokerSettings, count: int) -> Iterator[PortUse]:
    for process in range(count):
        for listener in settings.advertised_listeners:
            if listener.port:
                owner = f"{listener.name} of broker {settings.node_id + process}"
                yield PortUse(listener.host, listener.port + process, owner, process)


def _shift_ports(listeners: Iterable[Listener], process: int) -> str:
    return ",".join(str(each._replace(port=each.port + process if each.port else 0)) for each in listeners)


def _process_folders(folders: Iterable[str], broker_id: int) -> Iterator[str]:
    return (process_folder(folder, broker_id) for folder in folders)


# ---- folders of the processes
PREFIX: Final = "broker."
META_FILE: Final = "meta.properties"  # in each folder that a broker has used
NAMED_MAX: Final = 3


def process_folder(folder: str, broker_id: int) -> str:
    return str(Path(folder) / f"{PREFIX}{broker_id}")


def check_folders(folders: Iterable[str], broker_id: int) -> None:
    """Raises ToolError for the folders of a single broker; `broker_id` is that of the first process."""
    for folder in folders:
        if (Path(folder) / META_FILE).exists():
            raise ToolError(
                f"{folder} holds the data of a single broker; with --processes each broker has a folder inside it. "
                f"To keep that data: stop the broker, and move everything in {folder} into "
                f"{process_folder(folder, broker_id)}"
            )


def check_single_broker_folders(folders: Iterable[str]) -> None:
    """Raises ToolError if a single broker would start in the folders of several."""
    for folder in map(Path, folders):
        if (folder / META_FILE).exists():
            continue
        owners = sorted(path.parent.name for path in folder.glob(f"{PREFIX}*/{META_FILE}"))
        if owners:
            named = ", ".join(owners[:NAMED_MAX]) + (", ..." if len(owners) > NAMED_MAX else "")
            raise ToolError(
                f"{folder} holds the data of several processes ({named}): start them with --processes {len(owners)}, "
                f"or one of them alone with --override log.dirs={folder / owners[0]}"
            )
