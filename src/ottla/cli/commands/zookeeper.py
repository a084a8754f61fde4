"""`ottla zookeeper`: a real Apache ZooKeeper in the foreground.

This process becomes the server: the interpreter is replaced by Java, so signals to its process id reach ZooKeeper
itself. A small helper that stays behind says when it serves, and ends. The locks of the data folders are inherited by
Java: they last exactly as long as the server does.
"""

from __future__ import annotations

import os
import socket
import ssl
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from ottla.base import java
from ottla.base.properties import PropertiesError, read_properties
from ottla.cli.arguments import Parser, positive
from ottla.cli.terminal import ToolError, UsageError, warn
from ottla.cli.zookeeper.config import HOST, PORT, Config, ConfigError, Wish, jvm_options, make_config, to_text
from ottla.cli.zookeeper.jars import JAVA_VERSION_MIN, MAIN_CLASS, find_jars
from ottla.cli.zookeeper.lock import lock_folder
from ottla.cli.zookeeper.server_security import check_users, probe_context

EFFECTIVE_FILE: Final = "ottla.zookeeper.properties"
LOGGING_FILE: Final = "ottla.zookeeper.log4j2.properties"
ID_FILE: Final = "myid"
READY_SECONDS_MAX: Final = 600.0
LOOK_SECONDS: Final = 0.05
ANSWER_SECONDS_MAX: Final = 2.0
LOG_LEVELS: Final = ("ERROR", "WARN", "INFO", "DEBUG")
LOGGING: Final = """\
status = error
appender.stderr.type = Console
appender.stderr.name = stderr
appender.stderr.target = SYSTEM_ERR
appender.stderr.layout.type = PatternLayout
appender.stderr.layout.pattern = [%d] %p %m (%c)%n
logger.start.name = org.apache.zookeeper.server.quorum.QuorumPeerMain
logger.start.level = error
logger.limits.name = org.apache.zookeeper.server.ServerCnxnFactory
logger.limits.level = error
logger.early.name = org.apache.zookeeper.server.ServerCnxn
logger.early.level = off
rootLogger.level = {level}
rootLogger.appenderRef.stderr.ref = stderr
"""
EXAMPLES: Final = """
ottla zookeeper --data /var/lib/zookeeper
ottla zookeeper --port 2182 --data /tmp/zoo2
ottla zookeeper --config zookeeper.properties
ottla zookeeper --data /var/lib/zookeeper --jaas zookeeper_jaas.conf
ottla zookeeper --config zookeeper.properties --secure-port 2281
ottla zookeeper --host 0.0.0.0 --data /data/zoo --server-id 1 \\
    --ensemble zoo1:2888:3888,zoo2:2888:3888,zoo3:2888:3888
"""


def run(arguments: Sequence[str]) -> int:
    options = _parser().parse_args(arguments)
    wish = Wish(options.port, options.host, options.data, options.server_id, options.ensemble)
    wish = wish._replace(secure_port=options.secure_port, jaas=options.jaas)
    if options.config is None and options.data is None:
        raise UsageError("name the folder for the data: --data DIR (or a file: --config zookeeper.properties)")
    return start(wish, options.config, options.log_level)


def _parser() -> Parser:
    parser = Parser(
        prog="ottla zookeeper",
        description="Run one server of Apache ZooKeeper in the foreground. SIGTERM and Ctrl-C stop it.",
        examples=EXAMPLES,
    )
    parser.add_argument("--port", type=positive, metavar="N", help=f"for clients (default: {PORT})")
    parser.add_argument("--host", metavar="ADDRESS", help=f"address to bind (default: {HOST}, this machine only)")
    parser.add_argument("--data", metavar="DIR", help="folder for snapshots and logs of transactions")
    parser.add_argument("--config", metavar="FILE", help="zookeeper.properties (zoo.cfg); the options win over it")
    parser.add_argument("--server-id", type=positive, metavar="N", help="which server of the ensemble this is")
    parser.add_argument(
        "--ensemble", metavar="LIST", help="all servers, in the same order everywhere: host:2888:3888,..."
    )
    parser.add_argument(
        "--secure-port", type=positive, metavar="N", help="for clients over TLS (ssl.keyStore.* in FILE)"
    )
    parser.add_argument("--jaas", metavar="FILE", help="who may log in: a JAAS file with a section Server")
    parser.add_argument("--log-level", choices=LOG_LEVELS, default="WARN", help="of the log on stderr (default: WARN)")
    return parser


def start(wish: Wish, file: str | None, log_level: str = "WARN") -> int:
    """Become the server; returns only if that fails, by an exception."""
    try:
        config = make_config(wish, read_file(file))
    except ConfigError as problem:
        raise UsageError(str(problem)) from None
    if wish.jaas is not None:
        check_users(wish.jaas)
    context = probe_context(config.properties) if config.is_tls else None
    check_port(config)
    folder, locks = prepare_folder(config)
    try:
        runtime = java.choose(java.candidates(), "ZooKeeper", JAVA_VERSION_MIN)
    except java.NoJavaError as problem:
        raise ToolError(str(problem)) from None
    jars = find_jars(warn)
    if config.is_open and not config.asks_who:
        warn(f"ottla zookeeper: port {config.port} is open to the network, and ZooKeeper asks nobody for a password")
    command = [
        str(runtime.program),
        *jvm_options(os.environ),
        *([f"-Djava.security.auth.login.config={Path(wish.jaas).resolve()}"] if wish.jaas is not None else []),
        f"-Dlog4j2.configurationFile={folder / LOGGING_FILE}",
        f"-Dorg.slf4j.simpleLogger.defaultLogLevel={log_level.lower()}",
        "-cp",
        jars.class_path,
        MAIN_CLASS,
        str(folder / EFFECTIVE_FILE),
    ]
    (folder / LOGGING_FILE).write_text(LOGGING.format(level=log_level), encoding="utf-8")
    announce(config.host, config.port, locks, context)
    sys.stdout.flush()
    os.execv(command[0], command)  # noqa: S606 (a java program that the user has installed)


def read_file(file: str | None) -> dict[str, str] | None:
    if file is None:
        return None
    try:
        return read_properties(Path(file).read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise UsageError(f"there is no file {file}") from None
    except PropertiesError as problem:
        raise UsageError(f"{file}:{problem.line}: {problem.cause}") from None
    except (OSError, UnicodeDecodeError) as problem:
        raise UsageError(f"{file} cannot be read: {getattr(problem, 'strerror', None) or 'it is no text'}") from None


def check_port(config: Config) -> None:
    """ZooKeeper says so in a traceback; here it is one line."""
    for key, option in (("clientPort", "--port"), ("secureClientPort", "--secure-port")):
        if key not in config.properties:
            continue
        address = config.properties.get(f"{key}Address") or "0.0.0.0"  # noqa: S104 (as ZooKeeper does)
        port = int(config.properties[key])
        with socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((address, port))
            except OSError as problem:
                cause = (problem.strerror or str(problem)).lower()
                raise ToolError(f"cannot listen on {address}:{port}: {cause}. Choose another with {option}") from None


def prepare_folder(config: Config) -> tuple[Path, list[int]]:
    """The data folder with the configuration in it, and the number of the server in an ensemble; and its locks.

    Nothing in it is written before it is ours alone: another server may run on it.
    """
    folder = Path(config.data)
    folders = dict.fromkeys(Path(each).resolve() for each in (config.data, config.properties.get("dataLogDir")) if each)
    try:
        locks = [lock_folder(each) for each in folders]
        if config.server_id is not None:
            number = folder / ID_FILE
            if number.exists() and number.read_text(encoding="utf-8").strip() != str(config.server_id):
                raise UsageError(f"{number} says another number than --server-id {config.server_id}")
            number.write_text(f"{config.server_id}\n", encoding="utf-8")
        effective = folder / EFFECTIVE_FILE
        effective.touch(0o600)  # it may have passwords of key stores in it
        effective.chmod(0o600)
        effective.write_text(to_text(config.properties), encoding="utf-8")
    except OSError as problem:
        cause = (problem.strerror or str(problem)).lower()
        raise ToolError(f"cannot use {folder} as data folder: {cause}. Choose another with --data DIR") from None
    return folder.resolve(), locks


def announce(host: str, port: int, locks: Sequence[int] = (), context: ssl.SSLContext | None = None) -> None:
    """Leave a process behind that prints the ready line. Forked twice, so that Java has no child to care for."""
    server = os.getpid()
    child = os.fork()
    if child:
        os.waitpid(child, 0)
        return
    for lock in locks:
        os.close(lock)  # it must not outlive the server here
    if os.fork() == 0 and wait_until_serving(server, host, port, context):
        shown = f"[{host}]" if ":" in host else host
        os.write(sys.stdout.fileno(), f"ottla zookeeper ready on {shown}:{port}\n".encode())
    os._exit(0)


def wait_until_serving(server: int, host: str, port: int, context: ssl.SSLContext | None = None) -> bool:
    """A member of an ensemble serves when there is a majority; False if the server is gone before that."""
    deadline = time.monotonic() + READY_SECONDS_MAX
    while time.monotonic() < deadline:
        try:
            os.kill(server, 0)
        except OSError:
            return False
        try:
            if b"Mode: " in ask(host, port, b"srvr", context):
                return True
        except ssl.SSLError as problem:
            if "ALERT" in (problem.reason or ""):  # it serves, but not whoever shows its own certificate
                return True
        time.sleep(LOOK_SECONDS)
    return False


def ask(host: str, port: int, command: bytes, context: ssl.SSLContext | None = None) -> bytes:
    """One of ZooKeeper's four-letter commands; empty when nobody answers. SSLError if TLS goes wrong."""
    try:
        with socket.create_connection((host, port), ANSWER_SECONDS_MAX) as plain:
            connection = plain if context is None else context.wrap_socket(plain)
            with connection:
                connection.sendall(command)
                parts = []
                while part := connection.recv(65536):
                    parts.append(part)
                return b"".join(parts)
    except ssl.SSLError:
        raise
    except OSError:
        return b""
