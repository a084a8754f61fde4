"""`ottla registry`: schemas for every client, with the API of Confluent's Schema Registry."""

from __future__ import annotations

import asyncio
import errno
import signal
from argparse import Namespace
from collections.abc import Sequence
from dataclasses import replace
from importlib.util import find_spec
from typing import TYPE_CHECKING

from ottla.base.logs import LogOptions, start_logging, stop_logging
from ottla.cli.arguments import Parser, add_connection, bootstrap_of
from ottla.cli.client_settings import command_properties, load_properties, make_client
from ottla.cli.commands.up import port_number
from ottla.cli.running.registry_beside import NEEDED, PORT
from ottla.cli.terminal import ToolError, UsageError, warn

if TYPE_CHECKING:
    from ottla.registry.config import RegistryConfig

EXAMPLES = """
ottla registry --bootstrap-server 127.0.0.1:9092
ottla registry --config schema-registry.properties
ottla registry --host 0.0.0.0 --insecure                 for other machines, too
curl http://127.0.0.1:8081/subjects
"""
LEVELS = ("ERROR", "WARN", "INFO", "DEBUG")
LOOPBACK = ("127.0.0.1", "localhost", "::1")


def run(arguments: Sequence[str]) -> int:
    options = _parser().parse_args(arguments)
    if missing := [name for name in NEEDED if find_spec(name) is None]:
        raise ToolError(f"the registry needs {', '.join(missing)}: pip install 'ottla[registry]'")
    from ottla.monitor.http.limits import bind  # noqa: PLC0415 (only where they are installed)
    from ottla.registry.running import RegistryStopped, run_registry  # noqa: PLC0415

    config = _config(options)
    if config.host not in LOOPBACK and not options.insecure:
        raise UsageError(
            f"other machines could change schemas at {config.host}, for the registry knows no login yet: put a proxy "
            "with one in front of 127.0.0.1, or say --insecure"
        )
    try:
        listener = bind(config.host, config.port)
    except OSError as problem:
        if problem.errno == errno.EADDRINUSE:
            raise ToolError(
                f"port {config.port} on {config.host} is in use: choose another with ottla registry --port "
                f"{config.port + 1}"
            ) from None
        raise ToolError(f"cannot listen on {config.host}:{config.port}: {(problem.strerror or '').lower()}") from None
    start_logging(LogOptions(level=options.log_level))
    try:
        asyncio.run(run_registry(config, listener, lambda line: print(line, flush=True), warn))
    except RegistryStopped as problem:
        raise ToolError(str(problem)) from None
    finally:
        stop_logging()
        signal.signal(signal.SIGTERM, signal.SIG_IGN)  # the end has begun
    return 0


def _config(options: Namespace) -> RegistryConfig:
    """The file, with what the command line says instead."""
    from ottla.registry.config import ConfigError, RegistryConfig, read_config  # noqa: PLC0415

    config = RegistryConfig(bootstrap_of(options))
    if options.config:
        try:
            config = read_config(load_properties(options.config), config)
        except ConfigError as problem:
            raise UsageError(f"{options.config}: {problem}") from None
        if config.unknown:
            warn(f"warning: {options.config}: without an effect here: {', '.join(config.unknown)}")
    if getattr(options, "bootstrap_server", None):
        config = replace(config, bootstrap=bootstrap_of(options))
    given = command_properties(getattr(options, "command_config", None))
    config = replace(
        config,
        host=options.host if options.host is not None else config.host,
        port=options.port if options.port is not None else config.port,
        topic=options.topic or config.topic,
        allowed_hosts=tuple(options.allow_host),
        properties={**config.properties, **given},
    )
    make_client(config.bootstrap, dict(config.properties)).close()  # a wrong property is told here
    return config


def _parser() -> Parser:
    parser = Parser(
        prog="ottla registry",
        description="Keep schemas of Avro, JSON Schema and Protobuf in a topic of the cluster, with the API of "
        "Confluent's Schema Registry. SIGTERM and Ctrl-C stop it.",
        examples=EXAMPLES,
    )
    add_connection(parser)
    parser.add_argument("--config", metavar="FILE", help="schema-registry.properties, with Confluent's keys")
    parser.add_argument("--host", metavar="ADDRESS", help="address to bind (default: 127.0.0.1, this machine only)")
    parser.add_argument("--port", type=port_number, metavar="N", help=f"for HTTP (default: {PORT}; 0: any)")
    parser.add_argument("--topic", metavar="NAME", help="that holds the schemas (default: _schemas)")
    parser.add_argument("--allow-host", action="append", default=[], metavar="NAME", help="answer to this name, too")
    parser.add_argument(
        "--insecure",
        action="store_true",
        help="let other machines in: the API knows no login, anybody may change schemas",
    )
    parser.add_argument("--log-level", choices=LEVELS, default="WARN", help="of the log on stderr (default: WARN)")
    return parser
