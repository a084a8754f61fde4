"""`ottla registry`: runs a schema registry with the API of Confluent's Schema Registry."""

from __future__ import annotations

import asyncio
import errno
import signal
import ssl
import sys
from argparse import Namespace
from collections.abc import Sequence
from dataclasses import replace
from getpass import getpass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from ottla.base.logs import LogOptions, start_logging, stop_logging
from ottla.base.passwords import (
    PASSWORD_LENGTH_MAX,
    PASSWORD_LENGTH_MIN,
    hash_password,
    new_token,
    token_digest,
)
from ottla.cli.arguments import CONNECTION, Argument, Parser, bootstrap_of, flag
from ottla.cli.client_settings import command_properties, load_properties, make_client
from ottla.cli.commands.up import port_number
from ottla.cli.processes.sidecars import REGISTRY_MODULES as NEEDED
from ottla.cli.processes.sidecars import REGISTRY_PORT as PORT
from ottla.cli.terminal import ToolError, UsageError, warn

if TYPE_CHECKING:
    from ottla.registry.config import RegistryConfig

EXAMPLES = """
ottla registry --bootstrap-server 127.0.0.1:9092
ottla registry --config schema-registry.properties
ottla registry --new-user alice >> users
ottla registry --host 0.0.0.0 --users users --ssl-certificate node.pem --ssl-key node.key
curl http://127.0.0.1:8081/subjects
"""
LEVELS = ("ERROR", "WARN", "INFO", "DEBUG")


def run(arguments: Sequence[str]) -> int:
    options = _parser().parse_args(arguments)
    if options.new_user is not None:
        return _print_user(options.new_user, is_token=options.token)
    if missing := [name for name in NEEDED if find_spec(name) is None]:
        raise ToolError(f"the registry needs {', '.join(missing)}: pip install 'ottla[registry]'")
    from ottla.registry.main import RegistryStopped, run_registry  # noqa: PLC0415  (only where they are installed)
    from ottla.web.hosts import LOOPBACK_NAMES  # noqa: PLC0415
    from ottla.web.server import listen  # noqa: PLC0415

    config = _secured(_read_config(options), options)
    if config.host not in LOOPBACK_NAMES and (config.users is None or config.tls is None) and not options.insecure:
        raise UsageError(
            f"other machines could change schemas at {config.host}, or read passwords in transit: give --users, "
            "--ssl-certificate and --ssl-key, or use --insecure"
        )
    try:
        listener = listen(config.host, config.port)
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
        signal.signal(signal.SIGTERM, signal.SIG_IGN)  # shutdown is already in progress
    return 0


def _read_config(options: Namespace) -> RegistryConfig:
    """The configuration of the file, overridden by the command line."""
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
    make_client(config.bootstrap, dict(config.properties)).close()  # reports a wrong property
    return config


def _secured(config: RegistryConfig, options: Namespace) -> RegistryConfig:
    """The configuration with users and TLS certificate."""
    from ottla.registry.access import AccessError, read_users  # noqa: PLC0415
    from ottla.web.server import server_tls  # noqa: PLC0415

    if options.users:
        try:
            users = read_users(Path(options.users).read_text(encoding="utf-8").splitlines())
        except (OSError, UnicodeDecodeError) as problem:
            words = getattr(problem, "strerror", None) or "not UTF-8 text"
            raise UsageError(f"cannot read {options.users}: {words.lower()}") from None
        except AccessError as problem:
            raise UsageError(f"{options.users}: {problem}") from None
        config = replace(config, users=users)
    if bool(options.ssl_certificate) != bool(options.ssl_key):
        raise UsageError("--ssl-certificate and --ssl-key belong together")
    if not options.ssl_certificate:
        return config
    peers = ssl.create_default_context()
    try:
        tls = server_tls(options.ssl_certificate, options.ssl_key, lambda: "")
        peers.load_verify_locations(options.ssl_ca or options.ssl_certificate)
    except (OSError, ssl.SSLError) as problem:
        words = problem.strerror or str(problem)
        raise UsageError(f"the certificate or its key cannot be used: {words.lower()}") from None
    return replace(config, tls=tls, peers_tls=peers)


def _print_user(name: str, *, is_token: bool) -> int:
    """Print a line for the file of --users; reads the password from the terminal, or a line of stdin."""
    if not name or any(each in ": \t#" for each in name):
        raise UsageError(f"{name!r} is not a valid user name: use letters, digits, - and _")
    if is_token:
        token = new_token()
        print(f"{name}:sha256${token_digest(token)}:read=*")
        warn(f"the token, shown once: {token}")
        return 0
    password = getpass(f"password of {name}: ") if sys.stdin.isatty() else sys.stdin.readline().rstrip("\n")
    if not PASSWORD_LENGTH_MIN <= len(password) <= PASSWORD_LENGTH_MAX:
        raise UsageError(f"a password has {PASSWORD_LENGTH_MIN} characters or more")
    print(f"{name}:{hash_password(password)}:read=*")
    return 0


def _parser() -> Parser:
    return Parser(
        prog="ottla registry",
        description="Keep schemas of Avro, JSON Schema and Protobuf in a topic of the cluster, with the API of "
        "Confluent's Schema Registry. SIGTERM and Ctrl-C stop it.",
        examples=EXAMPLES,
        arguments=(
            *CONNECTION,
            Argument("--config", metavar="FILE", help="schema-registry.properties, with Confluent's keys"),
            Argument("--host", metavar="ADDRESS", help="address to bind (default: 127.0.0.1, this machine only)"),
            Argument("--port", type=port_number, metavar="N", help=f"for HTTP (default: {PORT}; 0: any)"),
            Argument("--topic", metavar="NAME", help="that holds the schemas (default: _schemas)"),
            Argument(
                "--allow-host",
                action="append",
                default=[],
                metavar="NAME",
                help="also answer requests for this host name",
            ),
            Argument("--users", metavar="FILE", help="users and the subjects they may read and write, one per line"),
            Argument(
                "--new-user",
                metavar="NAME",
                help="print a line for that file; the password comes from the terminal or stdin",
            ),
            flag("--token", help="with --new-user: a token instead of a password"),
            Argument("--ssl-certificate", metavar="FILE", help="serve HTTPS with this certificate chain (PEM)"),
            Argument("--ssl-key", metavar="FILE", help="and this key (PEM)"),
            Argument("--ssl-ca", metavar="FILE", help="CA of the other nodes' certificates (PEM)"),
            flag("--insecure", help="allow other machines without a login or without TLS"),
            Argument("--log-level", choices=LEVELS, default="WARN", help="of the log on stderr (default: WARN)"),
        ),
    )
