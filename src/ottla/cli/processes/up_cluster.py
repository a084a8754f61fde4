"""`ottla up --brokers N`: a cluster with ZooKeeper on this machine, optionally secured.

The data is in `zookeeper` and in `broker-1`, `broker-2`, ... inside the data folder. Topics have up to three replicas;
with three or more brokers, min.insync.replicas is 2, so any one broker may fail without data loss. `--secure` adds TLS,
logins and ACLs from the first start.
"""

from __future__ import annotations

import argparse
import re
import shlex
import sys
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path

from ottla import __version__
from ottla.cli.arguments import parse_pairs
from ottla.cli.ports import free_port, is_free
from ottla.cli.processes.broker_processes import PROC, find_brokers
from ottla.cli.processes.cluster_defaults import replica_settings
from ottla.cli.processes.supervisor import Child
from ottla.cli.terminal import ToolError, is_terminal
from ottla.security.secure_folder import ADMIN, SecurityDir

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
ROUTINE_LOG_LINE = re.compile(r"\[[^]]*\] (INFO|DEBUG|TRACE) ")
JAVA_STOP_EXIT_CODES = frozenset({0, 143, -15})  # exit codes of a Java process after SIGTERM


class ClusterPlan:
    """The ports and settings of a cluster. Ports that the user has not chosen are the default or free ones."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.data = Path(options.data)
        self.brokers: int = options.brokers
        self.ports: list[int] = []
        for index in range(self.brokers):
            self.ports.append(options.port + index if options.port else free_port(self.ports))
        has_usual_port = ZOOKEEPER_PORT not in self.ports and is_free(ZOOKEEPER_PORT)
        self.zookeeper_port = options.zookeeper_port or (ZOOKEEPER_PORT if has_usual_port else free_port(self.ports))
        # Free ports that stay the same after a restart, so that the console keeps reading there.
        self.metrics_ports: list[int] = []
        for _ in range(self.brokers):
            self.metrics_ports.append(free_port([*self.ports, *self.metrics_ports, self.zookeeper_port]))
        self.may_auto_create = not options.no_auto_create
        self.overrides = parse_pairs(options.override, allow_bare=False)
        self.listener_name = LISTENER if options.secure else "PLAINTEXT"
        self.security: SecurityDir | None = None  # set when the data folder exists
        self.console: str | None = None  # its address, if enabled
        self.registry: str | None = None  # likewise

    @property
    def bootstrap(self) -> str:
        return ",".join(f"{HOST}:{port}" for port in self.ports)

    @property
    def zookeeper(self) -> str:
        return f"{HOST}:{self.zookeeper_port}"

    def settings(self, index: int) -> dict[str, str]:
        """The settings of a broker; the user's overrides win."""
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
            settings[METRICS_PORT_KEY] = str(int(wanted) + index)  # one port cannot serve all brokers
        return settings

    def command(self, index: int) -> list[str]:
        config = None if self.security is None else broker_config_file(self.security, index + 1)
        return broker_command(self.settings(index), config)

    def __repr__(self) -> str:
        return f"<ClusterPlan {self.bootstrap} zookeeper={self.zookeeper} data={self.data}>"


def cluster_children(plan: ClusterPlan) -> list[Child]:
    """ZooKeeper, and the brokers that need it."""
    zookeeper = Child("ZooKeeper", zookeeper_command(plan), good_codes=JAVA_STOP_EXIT_CODES)
    login = None if plan.security is None else zookeeper_login_environment(plan.security)
    return [
        zookeeper,
        *(
            Child(f"broker {index + 1}", plan.command(index), is_one_of_many=True, needs=zookeeper, environment=login)
            for index in range(plan.brokers)
        ),
    ]


def broker_command(settings: Mapping[str, str], config: Path | None = None) -> list[str]:
    """The command of a broker; `config` is a file with secret settings, which must not appear on a command line."""
    overrides = [word for name, value in settings.items() for word in ("--override", f"{name}={value}")]
    file = [] if config is None else ["--config", str(config)]
    return [sys.executable, "-m", "ottla.cli.main", "broker", *file, *overrides]


def zookeeper_command(plan: ClusterPlan) -> list[str]:
    folder = str(plan.data.resolve() / ZOOKEEPER_FOLDER)
    options = ["--host", HOST, "--port", str(plan.zookeeper_port), "--data", folder, "--log-level", "ERROR"]
    if plan.security is not None:
        options += ["--jaas", str(plan.security.zookeeper_login_file())]
    return [sys.executable, "-m", "ottla.cli.main", "zookeeper", *options]


def highest_broker_number(data: Path) -> int:
    """The highest broker number with data in this folder; 0 if it is not a cluster's folder."""
    if not data.is_dir():
        return 0
    found = (BROKER_FOLDER.fullmatch(path.name) for path in data.iterdir())
    return max((int(match[1]) for match in found if match), default=0)


def prepare_cluster_folder(data: Path, brokers: int, single_broker_folder: str) -> None:
    """Create the folders, or reject a data folder with other content. `single_broker_folder` is that of one broker."""
    if data.exists() and not data.is_dir():
        raise ToolError(f"{data} is not a folder: choose another with --data DIR")
    try:
        found = sorted(path.name for path in data.iterdir()) if data.exists() else []
        existing = highest_broker_number(data)
        if single_broker_folder in found:
            raise ToolError(
                f"{data} holds the data of a single broker, which has no ZooKeeper: choose another folder with "
                "--data DIR, or bring its topics into a cluster with ottla migrate"
            )
        if found and not existing:
            raise ToolError(f"{data} holds other files ({', '.join(found[:3])}): choose an empty or new folder")
        if existing > brokers:
            raise ToolError(f"{data} holds a cluster of {existing} brokers: ottla up --brokers {existing}")
        for name in (ZOOKEEPER_FOLDER, *(f"broker-{index + 1}" for index in range(brokers))):
            (data / name).mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as problem:
        cause = (problem.strerror or str(problem)).lower()
        raise ToolError(f"cannot use {data} as data folder: {cause}. Choose another with --data DIR") from None


def check_ports(plan: ClusterPlan) -> None:
    """Check that all ports are free, and name the remedy if not."""
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
            raise ToolError(_port_in_use_message(plan, port))
    if not is_free(plan.zookeeper_port):
        raise ToolError(f"port {plan.zookeeper_port} on {HOST} is in use: choose another with --zookeeper-port N")


def _port_in_use_message(plan: ClusterPlan, port: int) -> str:
    """Who uses the port, if it is this cluster: the message must not suggest stopping other brokers."""
    if PROC.is_dir() and find_brokers(PROC, data=plan.data):
        return (
            f"port {port} on {HOST} is in use: brokers of {plan.data} are running. To stop them: "
            f"{stop_command(plan.data)}"
        )
    other = plan.ports[0] + 100 if plan.ports[-1] + 100 <= PORT_MAX else PORT
    return f"port {port} on {HOST} is in use. Choose others: ottla up --brokers {plan.brokers} --port {other}"


def stop_command(data: Path) -> str:
    """The command that stops only the brokers of this cluster."""
    return f"ottla stop --data {shlex.quote(str(data.resolve()))}"


class ClusterScreen:
    """The terminal output of a cluster: the banner once all brokers are ready, and warnings with the broker's name."""

    def __init__(self, plan: ClusterPlan, *, shows_all: bool = False) -> None:
        self.plan = plan
        self.shows_all = shows_all
        self.ready: set[str] = set()
        self.metrics: dict[str, str] = {}
        self.has_printed_banner = False
        self.on_ready: Callable[[], None] | None = None

    def on_line(self, child: Child, line: str) -> bool:
        ready = READY.fullmatch(line.strip())
        if ready is None:
            metrics = METRICS.fullmatch(line)
            if metrics is not None:
                self.metrics[child.name] = metrics[1]
            # a restarted broker may have another metrics port
            is_news = metrics is not None and self.has_printed_banner
            if self.shows_all or is_news or not ROUTINE_LOG_LINE.match(line):
                print(f"{child.name}: {line}", file=sys.stderr, flush=True)
            return False
        if not is_terminal(sys.stdout) or self.has_printed_banner:
            print(line, flush=True)
        self.ready.add(child.name)
        if len(self.ready) > self.plan.brokers and not self.has_printed_banner:
            self.has_printed_banner = True
            print(cluster_banner(self.plan, self.metrics, is_coloured=is_terminal(sys.stdout)), flush=True)
            if self.on_ready is not None:
                self.on_ready()
        return True

    def metrics_urls(self) -> str:
        """The metrics URL of each broker, for the console."""
        return ",".join(f"{name.removeprefix('broker ')}={url}" for name, url in self.metrics.items())

    def __repr__(self) -> str:
        return f"<ClusterScreen ready={sorted(self.ready)} is_greeted={self.has_printed_banner}>"


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
            f"  stop       Ctrl-C (one broker: {stop_command(plan.data)} --node-id 2)",
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
            *([*client_settings_lines(security, plan.bootstrap), ""] if security is not None else []),
        ]
    )


# ---- --secure
FOLDER = "security"
LISTENER = "SASL_SSL"
HOSTS = ("127.0.0.1", "localhost", "::1")
ADMIN_FILE = f"{ADMIN}.properties"


def secure_folder(data: Path, *, is_enabled: bool) -> SecurityDir | None:
    """The folder of keys and passwords; None without --secure. A secured folder is never opened without --secure."""
    folder = data / FOLDER
    if not is_enabled:
        if folder.exists():
            raise ToolError(
                f"{data} was secured with --secure, and without it all users could read and write: start it with "
                f"ottla up --secure, or remove {folder} first"
            )
        return None
    try:
        found = SecurityDir(folder.resolve(), HOSTS, datetime.now(UTC))
        found.write_settings(ADMIN_FILE, found.client_settings())
    except OSError as problem:
        cause = (problem.strerror or str(problem)).lower()
        raise ToolError(f"cannot keep keys and passwords in {folder}: {cause}") from None
    return found


def broker_config_file(folder: SecurityDir, broker: int) -> Path:
    """A settings file for this broker, which keeps passwords out of the process list."""
    return folder.write_settings(f"broker-{broker}.properties", folder.broker_settings(broker))


def zookeeper_login_environment(folder: SecurityDir) -> dict[str, str]:
    """The environment for a broker's login to ZooKeeper, as in Kafka's scripts."""
    return {"KAFKA_OPTS": f"-Djava.security.auth.login.config={shlex.quote(str(folder.zookeeper_login_file()))}"}


def client_settings_lines(folder: SecurityDir, bootstrap: str) -> list[str]:
    """Client settings for the banner, ready to be pasted."""
    authority, password = folder.authority_file, folder.password_file(ADMIN)
    read_password = f'open("{password}").read().strip()'
    return [
        "Clients need TLS and a login. For tools of ottla and of Kafka (--command-config, --producer.config, ...):",
        f"  {folder.path / ADMIN_FILE}",
        "kafka-python:",
        f'  security_protocol="SASL_SSL", ssl_cafile="{authority}", sasl_mechanism="PLAIN",',
        f'  sasl_plain_username="{ADMIN}", sasl_plain_password={read_password}',
        "librdkafka (confluent-kafka):",
        f'  "security.protocol": "SASL_SSL", "ssl.ca.location": "{authority}", "sasl.mechanism": "PLAIN",',
        f'  "sasl.username": "{ADMIN}", "sasl.password": {read_password}',
        "To add a user with its own rights:",
        f"  ottla users add alice --write alice.properties --bootstrap-server {bootstrap}",
        f"  ottla acls add --allow User:alice --producer --topic orders --bootstrap-server {bootstrap}",
    ]
