"""`ottla console`: shows and manages clusters in the browser."""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

from ottla.cli.arguments import CONNECTION, Argument, Parser, bootstrap_of, flag
from ottla.cli.client_settings import command_properties, make_client
from ottla.cli.commands.up import DATA, port_number
from ottla.cli.processes.sidecars import CONSOLE_FOLDER, CONSOLE_MODULES, CONSOLE_PORT, TOKEN_VARIABLE
from ottla.cli.processes.up_cluster import HOST
from ottla.cli.terminal import ToolError, UsageError, is_terminal, warn

EXAMPLES = """
ottla console --bootstrap-server 127.0.0.1:9092
ottla console --bootstrap-server kafka:9093 --command-config admin.properties --port 8090
ottla console --host 0.0.0.0 --ssl-certificate console.pem --ssl-key console.key
ottla console link
"""
LINK = "link"
LINK_EXAMPLES = """
ottla console link
ottla console link --data ottla-data --port 8080
"""


def run(arguments: Sequence[str]) -> int:
    if arguments and arguments[0] == LINK:
        return print_links(arguments[1:])
    token = os.environ.pop(TOKEN_VARIABLE, None)  # not inherited by child processes
    options = _parser().parse_args(arguments)
    if missing := [name for name in CONSOLE_MODULES if find_spec(name) is None]:
        raise ToolError(f"the console needs {', '.join(missing)}: pip install 'ottla[console]'")
    if (options.ssl_certificate is None) != (options.ssl_key is None):
        raise UsageError("--ssl-certificate and --ssl-key belong together")
    from ottla.console.clusters.cluster import ClusterAddress, properties_text  # noqa: PLC0415 (only where they are installed)
    from ottla.console.clusters.metrics import InvalidAddressError, parse_addresses  # noqa: PLC0415
    from ottla.console.server import Options, serve  # noqa: PLC0415

    try:
        metrics = parse_addresses(options.metrics_url, is_trusted=True) if options.metrics_url else None
    except InvalidAddressError as problem:
        raise UsageError(f"--metrics-url: {problem}") from None
    properties = command_properties(getattr(options, "command_config", None))
    if options.schema_registry:
        properties.setdefault("schema.registry.url", options.schema_registry)
    bootstrap = bootstrap_of(options)
    make_client(bootstrap, properties).close()  # reports a wrong address or property before anything starts
    wanted = Options(
        data=Path(options.data) if options.data else default_data(),
        host=options.host,
        port=options.port,
        cluster=ClusterAddress(options.cluster, bootstrap, properties_text(properties), is_stored=False),
        needs_sign_in=options.sign_in,
        allowed_hosts=tuple(options.allowed_host),
        certificate=options.ssl_certificate,
        key=options.ssl_key,
        pipelines=Path(options.pipelines) if options.pipelines else None,
        allows_private=options.allow_private_addresses,
        metrics=metrics,
        local_token=token or None,
        is_on_terminal=is_terminal(sys.stdout),
    )
    try:
        serve(wanted, _say, warn)
    except OSError as problem:
        if problem.errno == errno.EADDRINUSE:
            raise ToolError(
                f"port {options.port} on {options.host} is in use: choose another with ottla console --port "
                f"{options.port + 1}"
            ) from None
        raise
    return 0


def print_links(arguments: Sequence[str]) -> int:
    """`ottla console link`: prints the address with the token of consoles without sign-in."""
    from ottla.console.auth.local_link import read_links  # noqa: PLC0415 (only needed here)

    parser = Parser(
        prog="ottla console link",
        description="Print the link that opens a console which runs on this machine without sign-in.",
        examples=LINK_EXAMPLES,
        arguments=(
            Argument("--data", metavar="DIR", help="of the console, or of ottla up (default: that of either)"),
            Argument("--port", type=port_number, metavar="N", help="of the console (default: all of them)"),
        ),
    )
    options = parser.parse_args(arguments)
    folders = [Path(options.data)] if options.data else [default_data(), Path(DATA)]
    found: dict[int, str] = {}
    for folder in [inner for each in folders for inner in (each, each / CONSOLE_FOLDER)]:
        try:
            found |= read_links(folder)
        except PermissionError as problem:
            raise ToolError(f"{problem.filename} belongs to another user: only that user can read it") from None
    links = [link for port, link in found.items() if options.port in (None, port)]
    if not links:
        named = " or ".join(str(each) for each in folders)
        port = f" on port {options.port}" if options.port is not None else ""
        raise ToolError(
            f"no console runs with its data in {named}{port} that opens by a link: name its folder with --data DIR "
            "(consoles with --sign-in, or beyond loopback, have no link)"
        )
    for link in links:
        print(link)
    return 0


def default_data() -> Path:
    """The default folder for clusters, users and the console's audit trail, according to XDG."""
    base = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    return Path(base) / "ottla"


def _parser() -> Parser:
    return Parser(
        prog="ottla console",
        description="See and steer clusters in the browser.",
        examples=EXAMPLES,
        arguments=(
            *CONNECTION,
            Argument("--cluster", default="default", metavar="NAME", help="name of this cluster (default)"),
            Argument(
                "--metrics-url",
                metavar="URL",
                help="metrics of the brokers: http://{host}:9404, http://{host}:8778/jolokia, or 1=URL,2=URL",
            ),
            Argument(
                "--host", default=HOST, help=f"address to bind (default: {HOST}); other addresses require sign-in"
            ),
            Argument(
                "--port",
                type=port_number,
                default=CONSOLE_PORT,
                metavar="N",
                help=f"default: {CONSOLE_PORT}; 0: any free one",
            ),
            Argument("--schema-registry", metavar="URL", help="of this cluster: messages are shown by its schemas"),
            Argument("--data", metavar="DIR", help="folder for clusters and users (default: ~/.local/state/ottla)"),
            Argument(
                "--pipelines", metavar="DIR", help="state folder of pipelines (default: ~/.local/state/ottla/pipelines)"
            ),
            flag("--sign-in", help="require sign-in on this machine, too"),
            Argument(
                "--allowed-host",
                action="append",
                default=[],
                metavar="NAME",
                help="a name that leads here; can be repeated",
            ),
            flag(
                "--allow-private-addresses",
                help="allow private addresses for registries, token endpoints, metrics and alert receivers named in a "
                "page",
            ),
            Argument("--ssl-certificate", metavar="FILE", help="serve HTTPS with this certificate chain (PEM)"),
            Argument("--ssl-key", metavar="FILE", help="and this key (PEM)"),
        ),
    )


def _say(line: str) -> None:
    print(line, flush=True)
