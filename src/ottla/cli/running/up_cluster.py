"""`ottla up --brokers N`: a whole cluster on this machine, a real ZooKeeper among it.

Its data lies in `zookeeper` and in `broker-1`, `broker-2`, ... inside the data folder. Topics have three replicas (or
as many as there are brokers) and, from three on, two of them must have a record before it is acknowledged: so any one
broker may die, and nothing is lost.
"""

from __future__ import annotations

import argparse
import re
import shlex
import socket
import sys
from collections.abc import Callable, Container, Mapping
from pathlib import Path

from ottla import __version__
from ottla.cli.arguments import parse_pairs
from ottla.cli.running.broker_processes import PROC, find_brokers
from ottla.cli.running.replicas import replica_settings
from ottla.cli.running.secure_up import ADMIN_FILE, LISTENER, client_lines, secure_config, zookeeper_login
from ottla.cli.running.supervisor import Child
from ottla.cli.terminal import ToolError, is_terminal
from ottla.security.secure_folder import SecureFolder

HOST = "127.0.0.1"
PORT = 9092
PORT_MAX = 65_535
BROKERS_MAX = 32
ZOOKEEPER_FOLDER = "zookeeper"
ZOOKEEPER_PORT = 2181
BROKER_FOLDER = re.compile(r"broker-([1-9]\d*)")
READY = re.compile(r"ottla (broker|zookeeper)(?: (-?\d+))? ready on (\S+)")
METRICS = re.compile(r".* metrics on (http://\S+)(?: .*)?")
METRICS_PORT_KEY = "ottla.metrics.port"
CHATTER = re.compile(r"\[[^]]*\] (INFO|DEBUG|TRACE) ")
STOPPED_JAVA = frozenset({0, 143, -15})  # what SIGTERM makes of a Java process


class ClusterPlan:
    """Who listens where. Ports that a person has not chosen are the usual ones, or free ones if those are in use."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.data = Path(options.data)
        self.brokers: int = options.brokers
        self.ports: list[int] = []
        for index in range(self.brokers):
            self.ports.append(options.port + index if options.port else free_port(self.ports))
        has_usual_port = ZOOKEEPER_PORT not in self.ports and is_free(ZOOKEEPER_PORT)
        self.zookeeper_port = options.zookeeper_port or (ZOOKEEPER_PORT if has_usual_port else free_port(self.ports))
        # Free ones, and the same after a restart: the console goes on reading there.
        self.metrics_ports: list[int] = []
        for _ in range(self.brokers):
            self.metrics_ports.append(free_port([*self.ports, *self.metrics_ports, self.zookeeper_port]))
        self.may_auto_create = not options.no_auto_create
        self.overrides = parse_pairs(options.override, allow_bare=False)
        self.listener_name = LISTENER if options.secure else "PLAINTEXT"
        self.security: SecureFolder | None = None  # once the data folder is there
        self.console: str | None = None  # its address, if there is one
        self.registry: str | None = None  # likewise

    @property
    def bootstrap(self) -> str:
        return ",".join(f"{HOST}:{port}" for port in self.ports)

    @property
    def zookeeper(self) -> str:
        return f"{HOST}:{self.zookeeper_port}"

    def settings(self, index: int) -> dict[str, str]:
        """What a broker runs with; what a person overrides wins."""
        settings = {
            "broker.id": str(index + 1),
            "zookeeper.connect": self.zookeeper,
            "listeners": f"{self.listener_name}://{HOST}:{self.ports[index]}",
            "log.dirs": str(self.data.resolve() / f"broker-{index + 1}"),
            "auto.create.topics.enable": "true" if self.may_auto_create else "false",
            "max.connections": "2000",
            "max.connections.per.ip": "200",
            **replica_settings(self.brokers),
            "group.initial.rebalance.delay.ms": "0",
            METRICS_PORT_KEY: str(self.metrics_ports[index]),
        }
        if self.security is not None:
            settings["zookeeper.set.acl"] = "true"
        settings |= self.overrides
        wanted = self.overrides.get(METRICS_PORT_KEY, "")
        if wanted.isdecimal() and int(wanted):
            settings[METRICS_PORT_KEY] = str(int(wanted) + index)  # one cannot serve them all
        return settings

    def command(self, index: int) -> list[str]:
        config = None if self.security is None else secure_config(self.security, index + 1)
        return broker_command(self.settings(index), config)

    def __repr__(self) -> str:
        return f"<ClusterPlan {self.bootstrap} zookeeper={self.zookeeper} data={self.data}>"


def children(plan: ClusterPlan) -> list[Child]:
    """ZooKeeper, and the brokers that need it."""
    zookeeper = Child("ZooKeeper", zookeeper_command(plan), good_codes=STOPPED_JAVA)
    login = None if plan.security is None else zookeeper_login(plan.security)
    return [
        zookeeper,
        *(
            Child(f"broker {index + 1}", plan.command(index), is_one_of_many=True, needs=zookeeper, environment=login)
            for index in range(plan.brokers)
        ),
    ]


def broker_command(settings: Mapping[str, str], config: Path | None = None) -> list[str]:
    """`config` is a file with what is not to be seen on a command line."""
    overrides = [word for name, value in settings.items() for word in ("--override", f"{name}={value}")]
    file = [] if config is None else ["--config", str(config)]
    return [sys.executable, "-m", "ottla.cli.main", "broker", *file, *overrides]


def zookeeper_command(plan: ClusterPlan) -> list[str]:
    folder = str(plan.data.resolve() / ZOOKEEPER_FOLDER)
    options = ["--host", HOST, "--port", str(plan.zookeeper_port), "--data", folder, "--log-level", "ERROR"]
    if plan.security is not None:
        options += ["--jaas", str(plan.security.zookeeper_login_file())]
    return [sys.executable, "-m", "ottla.cli.main", "zookeeper", *options]


def brokers_in(data: Path) -> int:
    """The highest number of a broker whose data lies in this folder; 0 if it is not the folder of a cluster."""
    if not data.is_dir():
        return 0
    found = (BROKER_FOLDER.fullmatch(path.name) for path in data.iterdir())
    return max((int(match[1]) for match in found if match), default=0)


def prepare_cluster_folder(data: Path, brokers: int, alone: str) -> None:
    """Make the folders, or refuse a data folder that belongs to something else; `alone` is that of a lone broker."""
    if data.exists() and not data.is_dir():
        raise ToolError(f"{data} is not a folder: choose another with --data DIR")
    try:
        found = sorted(path.name for path in data.iterdir()) if data.exists() else []
        there = brokers_in(data)
        if alone in found:
            raise ToolError(
                f"{data} holds the data of a single broker, which has no ZooKeeper: choose another folder with "
                "--data DIR, or bring its topics into a cluster with ottla migrate"
            )
        if found and not there:
            raise ToolError(f"{data} holds other files ({', '.join(found[:3])}): choose an empty or new folder")
        if there > brokers:
            raise ToolError(f"{data} holds a cluster of {there} brokers: ottla up --brokers {there}")
        for name in (ZOOKEEPER_FOLDER, *(f"broker-{index + 1}" for index in range(brokers))):
            (data / name).mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as problem:
        cause = (problem.strerror or str(problem)).lower()
        raise ToolError(f"cannot use {data} as data folder: {cause}. Choose another with --data DIR") from None


def check_ports(plan: ClusterPlan) -> None:
    """Say at once, and with the cure, which ports cannot be had."""
    first, last = plan.ports[0], plan.ports[-1]
    if last > PORT_MAX:
        raise ToolError(
            f"the ports {first} to {last} of {plan.brokers} brokers go past {PORT_MAX}: choose a lower --port, "
            f"{PORT_MAX - plan.brokers + 1} at most"
        )
    if plan.zookeeper_port in plan.ports:
        raise ToolError(
            f"--zookeeper-port {plan.zookeeper_port} is one of the brokers' ports ({first} to {last}): choose another"
        )
    for port in plan.ports:
        if not is_free(port):
            raise ToolError(_taken(plan, port))
    if not is_free(plan.zookeeper_port):
        raise ToolError(f"port {plan.zookeeper_port} on {HOST} is not free: choose another with --zookeeper-port N")


def _taken(plan: ClusterPlan, port: int) -> str:
    """Whose it is, if it is ours: nobody is invited to stop the brokers of others."""
    if PROC.is_dir() and find_brokers(PROC, data=plan.data):
        return f"port {port} on {HOST} is not free: brokers of {plan.data} run already. To stop them: {stop(plan.data)}"
    other = plan.ports[0] + 100 if plan.ports[-1] + 100 <= PORT_MAX else PORT
    return f"port {port} on {HOST} is not free. Choose others: ottla up --brokers {plan.brokers} --port {other}"


def stop(data: Path) -> str:
    """The command that stops the brokers of this cluster, and no others."""
    return f"ottla stop --data {shlex.quote(str(data.resolve()))}"


class ClusterScreen:
    """What a person sees: the banner once all brokers are ready, and with their names everybody's warnings, or all."""

    def __init__(self, plan: ClusterPlan, *, shows_all: bool = False) -> None:
        self.plan = plan
        self.shows_all = shows_all
        self.ready: set[str] = set()
        self.metrics: dict[str, str] = {}
        self.is_greeted = False
        self.on_ready: Callable[[], None] | None = None

    def on_line(self, child: Child, line: str) -> bool:
        ready = READY.fullmatch(line.strip())
        if ready is None:
            metrics = METRICS.fullmatch(line)
            if metrics is not None:
                self.metrics[child.name] = metrics[1]
            is_news = metrics is not None and self.is_greeted  # after a restart it is another port
            if self.shows_all or is_news or not CHATTER.match(line):
                print(f"{child.name}: {line}", file=sys.stderr, flush=True)
            return False
        if not is_terminal(sys.stdout) or self.is_greeted:
            print(line, flush=True)
        self.ready.add(child.name)
        if len(self.ready) > self.plan.brokers and not self.is_greeted:
            self.is_greeted = True
            print(cluster_banner(self.plan, self.metrics, is_coloured=is_terminal(sys.stdout)), flush=True)
            if self.on_ready is not None:
                self.on_ready()
        return True

    def metrics_urls(self) -> str:
        """For the console: which broker tells its metrics where."""
        return ",".join(f"{name.removeprefix('broker ')}={url}" for name, url in self.metrics.items())

    def __repr__(self) -> str:
        return f"<ClusterScreen ready={sorted(self.ready)} is_greeted={self.is_greeted}>"


def cluster_banner(plan: ClusterPlan, metrics: Mapping[str, str], *, is_coloured: bool) -> str:
    addresses = [metrics[name] for name in sorted(metrics, key=lambda name: (len(name), name))]
    bold, plain = ("\x1b[1m", "\x1b[0m") if is_coloured else ("", "")
    security = plan.security
    return "\n".join(
        [
            "",
            f"{bold}ottla {__version__} is up: a cluster of {plan.brokers} brokers.{plain}",
            "",
            f"  brokers    {bold}{plan.bootstrap}{plain}",
            f"  zookeeper  {plan.zookeeper}",
            *([f"  console    {bold}{plan.console}{plain}"] if plan.console is not None else []),
            *([f"  schemas    {plan.registry}"] if plan.registry is not None else []),
            f"  data       {plan.data.resolve()}",
            *(f"  {'' if index else 'metrics':9}  {address}" for index, address in enumerate(addresses)),
            f"  stop       Ctrl-C (one broker: {stop(plan.data)} --node-id 2)",
            "",
            "Next, in another terminal:",
            f"  export OTTLA_BOOTSTRAP_SERVER={plan.bootstrap}",
            *([f"  export OTTLA_COMMAND_CONFIG={security.path / ADMIN_FILE}"] if security is not None else []),
            "  ottla topics create orders --partitions 3",
            "  ottla topics describe orders",
            "  ottla produce orders 'first order'",
            "  ottla consume orders --from-beginning",
            *(f"  ottla top --url {address}" for address in addresses[:1]),
            "",
            *([*client_lines(security, plan.bootstrap), ""] if security is not None else []),
        ]
    )


def is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except (OSError, OverflowError):
            return False
    return True


def free_port(taken: Container[int] = ()) -> int:
    while True:
        with socket.socket() as probe:
            probe.bind((HOST, 0))
            port = int(probe.getsockname()[1])
        if port not in taken:
            return port
