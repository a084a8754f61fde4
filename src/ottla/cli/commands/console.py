"""`ottla console`: see and steer clusters in the browser."""

from __future__ import annotations

import errno
import os
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

from ottla.cli.arguments import Parser, add_connection, bootstrap_of
from ottla.cli.client_settings import command_properties, make_client
from ottla.cli.commands.up import port_number
from ottla.cli.running.console_beside import NEEDED, PORT
from ottla.cli.running.up_cluster import HOST
from ottla.cli.terminal import ToolError, UsageError, warn

EXAMPLES = """
ottla console --bootstrap-server 127.0.0.1:9092
ottla console --bootstrap-server kafka:9093 --command-config admin.properties --port 8090
ottla console --host 0.0.0.0 --ssl-certificate console.pem --ssl-key console.key
"""


def run(arguments: Sequence[str]) -> int:
    options = _parser().parse_args(arguments)
    if missing := [name for name in NEEDED if find_spec(name) is None]:
        raise ToolError(f"the console needs {', '.join(missing)}: pip install 'ottla[console]'")
    if (options.ssl_certificate is None) != (options.ssl_key is None):
        raise UsageError("--ssl-certificate and --ssl-key belong together")
    from ottla.console.clusters.cluster import Address, properties_text  # noqa: PLC0415 (only where they are installed)
    from ottla.console.clusters.metric_addresses import BadAddressError, parse_addresses  # noqa: PLC0415
    from ottla.console.serving import Options, serve  # noqa: PLC0415

    try:
        metrics = parse_addresses(options.metrics_url, is_trusted=True) if options.metrics_url else None
    except BadAddressError as problem:
        raise UsageError(f"--metrics-url: {problem}") from None
    properties = command_properties(getattr(options, "command_config", None))
    if options.schema_registry:
        properties.setdefault("schema.registry.url", options.schema_registry)
    bootstrap = bootstrap_of(options)
    make_client(bootstrap, properties).close()  # a wrong address or property is told here, before anything starts
    wanted = Options(
        data=Path(options.data) if options.data else default_data(),
        host=options.host,
        port=options.port,
        cluster=Address(options.cluster, bootstrap, properties_text(properties), is_stored=False),
        needs_sign_in=options.sign_in,
        allowed_hosts=tuple(options.allowed_host),
        certificate=options.ssl_certificate,
        key=options.ssl_key,
        pipelines=Path(options.pipelines) if options.pipelines else None,
        allows_private=options.allow_private_addresses,
        metrics=metrics,
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


def default_data() -> Path:
    """Where the console keeps clusters, people and its trail, as the XDG rules have it."""
    base = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    return Path(base) / "ottla"


def _parser() -> Parser:
    parser = Parser(prog="ottla console", description="See and steer clusters in the browser.", examples=EXAMPLES)
    add_connection(parser)
    parser.add_argument("--cluster", default="default", metavar="NAME", help="what to call this cluster (default)")
    parser.add_argument(
        "--metrics-url",
        metavar="URL",
        help="where its brokers tell their metrics: http://{host}:9404, http://{host}:8778/jolokia, or 1=URL,2=URL",
    )
    parser.add_argument("--host", default=HOST, help=f"where to listen (default: {HOST}); beyond it people sign in")
    parser.add_argument("--port", type=port_number, default=PORT, metavar="N", help=f"default: {PORT}; 0: any free one")
    parser.add_argument("--schema-registry", metavar="URL", help="of this cluster: messages are shown by its schemas")
    parser.add_argument("--data", metavar="DIR", help="folder for clusters and people (default: ~/.local/state/ottla)")
    parser.add_argument(
        "--pipelines", metavar="DIR", help="state folder of pipelines (default: ~/.local/state/ottla/pipelines)"
    )
    parser.add_argument("--sign-in", action="store_true", help="have people sign in on this machine, too")
    parser.add_argument(
        "--allowed-host", action="append", default=[], metavar="NAME", help="a name that leads here; can be repeated"
    )
    parser.add_argument(
        "--allow-private-addresses",
        action="store_true",
        help="registries, token endpoints, metrics and receivers of alerts named in a page may have private addresses",
    )
    parser.add_argument("--ssl-certificate", metavar="FILE", help="serve HTTPS with this certificate chain (PEM)")
    parser.add_argument("--ssl-key", metavar="FILE", help="and this key (PEM)")
    return parser


def _say(line: str) -> None:
    print(line, flush=True)
