"""`ottla up`: runs everything on this machine, for development.

The broker listens on 127.0.0.1 only, limits the number of connections, keeps one replica, and creates topics
automatically, as Kafka's tutorials expect (`--no-auto-create` disables that). Its data is in `broker` inside the data
folder. `--brokers 3` runs a whole cluster (`up_cluster.py`).
"""

from __future__ import annotations

import argparse
import errno
import os
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final

from ottla import __version__
from ottla.base.bootstrap import DEFAULT_BOOTSTRAP
from ottla.cli.arguments import Argument, Parser, flag, parse_pairs
from ottla.cli.ports import bind_error, is_free
from ottla.cli.processes.cluster_defaults import count_or_auto_type
from ottla.cli.processes.sidecars import CONSOLE_NAME as CONSOLE
from ottla.cli.processes.sidecars import REGISTRY_NAME as REGISTRY
from ottla.cli.processes.sidecars import ConsoleSidecar, RegistrySidecar, make_console_sidecar, make_registry_sidecar
from ottla.cli.processes.supervisor import Child, Supervisor
from ottla.cli.processes.up_cluster import (
    ADMIN_FILE,
    BROKERS_MAX,
    LISTENER,
    ZOOKEEPER_FOLDER,
    ClusterPlan,
    ClusterScreen,
    broker_command,
    broker_config_file,
    check_ports,
    client_settings_lines,
    cluster_children,
    highest_broker_number,
    prepare_cluster_folder,
    secure_folder,
)
from ottla.cli.terminal import ToolError, is_terminal
from ottla.cli.zookeeper.server import check_unlocked
from ottla.operations.metric_readings import METRICS_PORT
from ottla.security.secure_folder import SecurityDir

HOST = "127.0.0.1"
PORT = 9092
DATA = "ottla-data"
BROKER_FOLDER = "broker"
FILES_NAMED_MAX = 3
READY = re.compile(r"ottla broker (-?\d+) ready on (\S+)")
SIDECAR_READY = re.compile(r"ottla (?:console|registry) ready on (\S+)")
NO_METRICS = (
    f"No metrics endpoint: port {METRICS_PORT} is in use. To use another: ottla up --override ottla.metrics.port=PORT"
)
EXAMPLES = """
ottla up
ottla up --port 9192 --data /tmp/playground
ottla up --no-auto-create --override num.partitions=3
ottla up --brokers 3
ottla up --brokers auto
ottla up --secure
ottla up --no-console --no-registry
"""


def run(arguments: Sequence[str]) -> int:
    options = _parser().parse_args(arguments)
    if options.brokers > 1:
        return run_cluster(options)
    if count := highest_broker_number(Path(options.data)):
        raise ToolError(f"{options.data} holds a cluster of {count} brokers: ottla up --brokers {count}")
    overrides = metrics_settings() | broker_settings(options)
    prepare_folder(Path(options.data))
    check_port(options.port)
    security = secure_folder(Path(options.data), is_enabled=options.secure)
    if "ottla.metrics.port" not in overrides:
        _print_stderr(NO_METRICS)
    console = console_sidecar(options, Path(options.data))
    registry = registry_sidecar(options)
    screen = Screen(Path(options.data), metrics_address(overrides), security, console, registry)
    command = broker_command(overrides, broker_config_file(security, 1) if security is not None else None)
    supervisor = Supervisor([Child("broker", command)], screen.on_line, _print_stderr)
    config = security.path / ADMIN_FILE if security is not None else None
    screen.on_ready = lambda address: start_sidecars(supervisor, address, console, registry, config, screen.metrics)
    return supervisor.run()


def run_cluster(options: argparse.Namespace) -> int:
    plan = ClusterPlan(options)
    check_ports(plan)
    check_unlocked(plan.data / ZOOKEEPER_FOLDER)
    prepare_cluster_folder(plan.data, plan.brokers, BROKER_FOLDER)
    plan.security = secure_folder(plan.data, is_enabled=options.secure)
    console = console_sidecar(options, plan.data)
    screen = ClusterScreen(plan, shows_all=options.verbose)
    supervisor = Supervisor(cluster_children(plan), screen.on_line, _print_stderr)
    registry = registry_sidecar(options)
    plan.console = console.link if console is not None else None
    plan.registry = registry.address if registry is not None else None
    config = plan.security.path / ADMIN_FILE if plan.security is not None else None
    screen.on_ready = lambda: start_sidecars(
        supervisor, plan.bootstrap, console, registry, config, screen.metrics_urls()
    )
    return supervisor.run()


def console_sidecar(options: argparse.Namespace, data: Path) -> ConsoleSidecar | None:
    return make_console_sidecar(
        data, options.console_port, _print_stderr, is_enabled=not options.no_console, needs_sign_in=options.secure
    )


def registry_sidecar(options: argparse.Namespace) -> RegistrySidecar | None:
    return make_registry_sidecar(
        options.registry_port,
        _print_stderr,
        is_enabled=not options.no_registry,
        is_secure=getattr(options, "secure", False),
    )


def start_sidecars(
    supervisor: Supervisor,
    bootstrap: str,
    console: ConsoleSidecar | None,
    registry: RegistrySidecar | None,
    config: Path | None = None,
    metrics: str | None = None,
) -> None:
    """Start the registry first, because the console needs its address."""
    if registry is not None:
        registry.start(supervisor, bootstrap)
    if console is not None:
        console.start(supervisor, bootstrap, config, registry.address if registry is not None else None, metrics)


def _parser() -> Parser:
    return Parser(
        prog="ottla up",
        description="Run a broker, or a cluster, on this machine, for development. Ctrl-C stops it.",
        examples=EXAMPLES,
        arguments=(
            Argument("--data", default=DATA, metavar="DIR", help=f"folder for all data (default: ./{DATA})"),
            Argument(
                "--port",
                type=port_number,
                default=PORT,
                metavar="N",
                help=f"of the first broker (default: {PORT}; 0: any free one)",
            ),
            Argument(
                "--brokers",
                type=count_or_auto_type("brokers", BROKERS_MAX),
                default=1,
                metavar="N",
                help="more than one: with ZooKeeper; auto: one for each core",
            ),
            Argument("--zookeeper-port", type=port_number, default=0, metavar="N", help="default: 2181, or a free one"),
            flag("--secure", help="use TLS, logins and ACLs; creates the keys and passwords"),
            flag("--no-console", help="without the web console"),
            Argument(
                "--console-port",
                type=port_number,
                metavar="N",
                help="of the web console (default: 8080, or a free one)",
            ),
            *REGISTRY_ARGUMENTS,
            flag("--verbose", help="of a cluster: all that brokers log, not only warnings"),
            flag("--no-auto-create", help="no new topic just because a client names it"),
            Argument(
                "--override",
                action="append",
                default=[],
                metavar="KEY=VALUE",
                help="a setting of the broker; can be repeated",
            ),
        ),
    )


def port_number(text: str) -> int:
    if not (text.isascii() and text.isdecimal()) or int(text) > 65_535:
        raise argparse.ArgumentTypeError(f"{text!r} is not a port: 0 to 65535")
    return int(text)


REGISTRY_ARGUMENTS: Final = (
    flag("--no-registry", help="without the schema registry"),
    Argument(
        "--registry-port", type=port_number, metavar="N", help="of the schema registry (default: 8081, or a free one)"
    ),
)


def broker_settings(options: argparse.Namespace) -> dict[str, str]:
    """The settings of the broker; the user's overrides win."""
    settings = {
        "node.id": "1",
        "listeners": f"{listener_name(options)}://{HOST}:{options.port}",
        "log.dirs": str(Path(options.data).resolve() / BROKER_FOLDER),
        "auto.create.topics.enable": "false" if options.no_auto_create else "true",
        "max.connections": "2000",
        "max.connections.per.ip": "200",
        "offsets.topic.replication.factor": "1",
        "transaction.state.log.replication.factor": "1",
        "transaction.state.log.min.isr": "1",
        "share.coordinator.state.topic.replication.factor": "1",
        "share.coordinator.state.topic.min.isr": "1",
        "group.initial.rebalance.delay.ms": "0",
    }
    return settings | parse_pairs(options.override, allow_bare=False)


def listener_name(options: argparse.Namespace) -> str:
    return LISTENER if getattr(options, "secure", False) else "PLAINTEXT"


def metrics_settings() -> dict[str, str]:
    """The metrics endpoint on its default port; none if the port is in use."""
    return {"ottla.metrics.port": str(METRICS_PORT)} if is_free(METRICS_PORT) else {}


def metrics_address(settings: Mapping[str, str]) -> str | None:
    """The metrics URL; None without an endpoint, or if only the broker knows its port."""
    port = settings.get("ottla.metrics.port", "-1")
    scheme = "https" if "ottla.metrics.ssl.keystore.location" in settings else "http"
    return f"{scheme}://{settings.get('ottla.metrics.host', HOST)}:{port}/metrics" if port not in ("-1", "0") else None


def prepare_folder(data: Path) -> None:
    """Create the data folder, or reject one with other content."""
    if data.exists() and not data.is_dir():
        raise ToolError(f"{data} is not a folder: choose another with --data DIR")
    try:
        found = sorted(path.name for path in data.iterdir()) if data.exists() else []
        if found and BROKER_FOLDER not in found:
            raise ToolError(_foreign_folder_message(data, found))
        (data / BROKER_FOLDER).mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as problem:
        cause = (problem.strerror or str(problem)).lower()
        raise ToolError(f"cannot use {data} as data folder: {cause}. Choose another with --data DIR") from None


def check_port(port: int) -> None:
    """Check that the port is free, and name the remedy if not."""
    problem = bind_error(port)
    if problem is None:
        return
    if problem.errno == errno.EADDRINUSE:
        raise ToolError(
            f"port {port} on {HOST} is in use: a broker may be running already. "
            f"Stop it, or choose another port: ottla up --port {port + 100 if port < 65_000 else PORT}"
        )
    cause = (problem.strerror or str(problem)).lower()
    raise ToolError(f"cannot listen on {HOST}:{port}: {cause}. Choose another port with --port")


class Screen:
    """The terminal output: the banner once the broker is ready, and the broker's own lines."""

    def __init__(
        self,
        data: Path,
        metrics: str | None = None,
        security: SecurityDir | None = None,
        console: ConsoleSidecar | None = None,
        registry: RegistrySidecar | None = None,
    ) -> None:
        self.data = data
        self.metrics = metrics
        self.security = security
        self.console = console
        self.registry = registry
        self.on_ready: Callable[[str], None] | None = None
        self.has_printed_banner = False

    def on_line(self, child: Child, line: str) -> bool:
        if child.name in (CONSOLE, REGISTRY):
            return print_sidecar_line(line)
        ready = READY.fullmatch(line.strip())
        if ready is None or not is_terminal(sys.stdout) or self.has_printed_banner:
            print(line, flush=True)
        if ready is not None and not self.has_printed_banner:
            self.has_printed_banner = True
            is_coloured = is_terminal(sys.stdout)
            text = banner(
                ready.group(2),
                self.data,
                self.metrics,
                self.security,
                self.console.link if self.console is not None else None,
                self.registry.address if self.registry is not None else None,
                is_coloured=is_coloured,
            )
            print(text, flush=True)
            if self.on_ready is not None:
                self.on_ready(ready.group(2))
        return ready is not None

    def __repr__(self) -> str:
        return f"<Screen {self.data} is_greeted={self.has_printed_banner}>"


def print_sidecar_line(line: str) -> bool:
    """Print a sidecar's line. On a terminal the banner already names its address; programs read its ready line."""
    is_ready = SIDECAR_READY.fullmatch(line.strip()) is not None
    if not is_ready or not is_terminal(sys.stdout):
        print(line, flush=True)
    return is_ready


def banner(
    address: str,
    data: Path,
    metrics: str | None = None,
    security: SecurityDir | None = None,
    console: str | None = None,
    registry: str | None = None,
    *,
    is_coloured: bool,
) -> str:
    bold, plain = ("\x1b[1m", "\x1b[0m") if is_coloured and "NO_COLOR" not in os.environ else ("", "")
    lines = [
        "",
        f"{bold}ottla {__version__} is up.{plain}",
        "",
        f"  broker  {bold}{address}{plain}",
        *([f"  console {bold}{console}{plain}"] if console is not None else []),
        *([f"  schemas {registry}"] if registry is not None else []),
        f"  data    {data.resolve()}",
        *([f"  metrics {metrics}"] if metrics is not None else []),
        "  stop    Ctrl-C",
        "",
        "Next, in another terminal:",
    ]
    if address != DEFAULT_BOOTSTRAP:
        lines.append(f"  export OTTLA_BOOTSTRAP_SERVER={address}")
    if security is not None:
        lines.append(f"  export OTTLA_COMMAND_CONFIG={security.path / ADMIN_FILE}")
    lines += [
        "  ottla topics create orders --partitions 3",
        "  ottla produce orders 'first order'",
        "  ottla consume orders --from-beginning",
        *(["  ottla top"] if metrics is not None else []),
        "",
    ]
    if security is not None:
        lines += [*client_settings_lines(security, address), ""]
    return "\n".join(lines)


def _foreign_folder_message(data: Path, found: list[str]) -> str:
    if "meta.properties" in found:
        return (
            f"{data} is the log directory of a broker: start it with "
            f"ottla broker --override log.dirs={data}, or choose another folder with --data DIR"
        )
    named = ", ".join(found[:FILES_NAMED_MAX]) + (", ..." if len(found) > FILES_NAMED_MAX else "")
    return f"{data} holds other files ({named}): choose an empty or new folder with --data DIR"


def _print_stderr(line: str) -> None:
    print(line, file=sys.stderr, flush=True)
