"""`ottla zookeeper`: runs Apache ZooKeeper in the foreground.

This process becomes the server: Java replaces the interpreter, so signals to the process id reach ZooKeeper. A helper
process prints the ready line and ends. Java inherits the locks of the data folders, which last exactly as long as the
server.
"""

from __future__ import annotations

import os
import socket
import ssl
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from ottla.base import java
from ottla.base.broker_keys.security import TlsKeys
from ottla.base.properties import PropertiesError, read_properties
from ottla.cli.arguments import Argument, Parser, positive
from ottla.cli.ports import bind_error
from ottla.cli.terminal import ToolError, UsageError, warn
from ottla.cli.zookeeper.jars import JAVA_VERSION_MIN, MAIN_CLASS, find_jars
from ottla.cli.zookeeper.server import (
    HOST,
    PORT,
    Config,
    ServerOptions,
    jvm_options,
    lock_folder,
    make_config,
    to_text,
)
from ottla.security.jaas import JaasError, read_sections
from ottla.security.tls import TlsError, client_context

EFFECTIVE_FILE: Final = "ottla.zookeeper.properties"
LOGGING_FILE: Final = "ottla.zookeeper.log4j2.properties"
ID_FILE: Final = "myid"
READY_SECONDS_MAX: Final = 600.0
POLL_SECONDS: Final = 0.05
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
    requested = ServerOptions(options.port, options.host, options.data, options.server_id, options.ensemble)
    requested = requested._replace(secure_port=options.secure_port, jaas=options.jaas)
    if options.config is None and options.data is None:
        raise UsageError("name the folder for the data: --data DIR (or a file: --config zookeeper.properties)")
    return start(requested, options.config, options.log_level)


def _parser() -> Parser:
    return Parser(
        prog="ottla zookeeper",
        description="Run one server of Apache ZooKeeper in the foreground. SIGTERM and Ctrl-C stop it.",
        examples=EXAMPLES,
        arguments=(
            Argument("--port", type=positive, metavar="N", help=f"for clients (default: {PORT})"),
            Argument("--host", metavar="ADDRESS", help=f"address to bind (default: {HOST}, this machine only)"),
            Argument("--data", metavar="DIR", help="folder for snapshots and logs of transactions"),
            Argument("--config", metavar="FILE", help="zookeeper.properties (zoo.cfg); the options win over it"),
            Argument("--server-id", type=positive, metavar="N", help="which server of the ensemble this is"),
            Argument(
                "--ensemble", metavar="LIST", help="all servers, in the same order everywhere: host:2888:3888,..."
            ),
            Argument("--secure-port", type=positive, metavar="N", help="for clients over TLS (ssl.keyStore.* in FILE)"),
            Argument("--jaas", metavar="FILE", help="JAAS file with a section Server, which defines the users"),
            Argument("--log-level", choices=LOG_LEVELS, default="WARN", help="of the log on stderr (default: WARN)"),
        ),
    )


def start(wish: ServerOptions, file: str | None, log_level: str = "WARN") -> int:
    """Become the server; returns only by an exception."""
    config = make_config(wish, read_file(file))
    if wish.jaas is not None:
        check_jaas_file(wish.jaas)
    context = probe_context(config.properties) if config.is_tls else None
    check_port(config)
    folder, locks = prepare_folder(config)
    try:
        runtime = java.choose_java(java.candidates(), "ZooKeeper", JAVA_VERSION_MIN)
    except java.NoJavaError as problem:
        raise ToolError(str(problem)) from None
    jars = find_jars(warn)
    if config.is_open and not config.requires_login:
        warn(f"ottla zookeeper: port {config.port} is open to the network, and ZooKeeper requires no password")
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
    fork_ready_reporter(config.host, config.port, locks, context)
    sys.stdout.flush()
    os.execv(command[0], command)  # noqa: S606 (the user's Java)


def read_file(file: str | None) -> dict[str, str] | None:
    if file is None:
        return None
    try:
        return read_properties(Path(file).read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise UsageError(f"{file} does not exist") from None
    except PropertiesError as problem:
        raise UsageError(f"{file}:{problem.line}: {problem.cause}") from None
    except (OSError, UnicodeDecodeError) as problem:
        raise UsageError(f"{file} cannot be read: {getattr(problem, 'strerror', None) or 'it is no text'}") from None


def check_port(config: Config) -> None:
    """Check that the ports are free, because ZooKeeper would report it in a traceback."""
    for key, option in (("clientPort", "--port"), ("secureClientPort", "--secure-port")):
        if key not in config.properties:
            continue
        address = config.properties.get(f"{key}Address") or "0.0.0.0"  # noqa: S104 (as ZooKeeper does)
        port = int(config.properties[key])
        problem = bind_error(port, address)
        if problem is not None:
            cause = (problem.strerror or str(problem)).lower()
            raise ToolError(f"cannot listen on {address}:{port}: {cause}. Choose another with {option}")


def prepare_folder(config: Config) -> tuple[Path, list[int]]:
    """Lock the data folders and write the configuration and the server's number; returns the folder and the locks.

    Nothing is written before the locks are held: another server may use the folder.
    """
    folder = Path(config.data)
    folders = dict.fromkeys(Path(each).resolve() for each in (config.data, config.properties.get("dataLogDir")) if each)
    try:
        locks = [lock_folder(each) for each in folders]
        if config.server_id is not None:
            number = folder / ID_FILE
            if number.exists() and number.read_text(encoding="utf-8").strip() != str(config.server_id):
                raise UsageError(f"{number} has another number than --server-id {config.server_id}")
            number.write_text(f"{config.server_id}\n", encoding="utf-8")
        effective = folder / EFFECTIVE_FILE
        effective.touch(0o600)  # may contain passwords of key stores
        effective.chmod(0o600)
        effective.write_text(to_text(config.properties), encoding="utf-8")
    except OSError as problem:
        cause = (problem.strerror or str(problem)).lower()
        raise ToolError(f"cannot use {folder} as data folder: {cause}. Choose another with --data DIR") from None
    return folder.resolve(), locks


def fork_ready_reporter(host: str, port: int, locks: Sequence[int] = (), context: ssl.SSLContext | None = None) -> None:
    """Leave a process behind that prints the ready line. A double fork, so that Java has no child to reap."""
    server = os.getpid()
    child = os.fork()
    if child:
        os.waitpid(child, 0)
        return
    for lock in locks:
        os.close(lock)  # released only by the server
    if os.fork() == 0 and wait_until_serving(server, host, port, context):
        shown = f"[{host}]" if ":" in host else host
        os.write(sys.stdout.fileno(), f"ottla zookeeper ready on {shown}:{port}\n".encode())
    os._exit(0)


def wait_until_serving(server: int, host: str, port: int, context: ssl.SSLContext | None = None) -> bool:
    """Wait until the server answers, in an ensemble until there is a majority; False if it ends before."""
    deadline = time.monotonic() + READY_SECONDS_MAX
    while time.monotonic() < deadline:
        try:
            os.kill(server, 0)
        except OSError:
            return False
        try:
            if b"Mode: " in send_four_letter_word(host, port, b"srvr", context):
                return True
        except ssl.SSLError as problem:
            if "ALERT" in (problem.reason or ""):  # it serves, but rejects its own certificate as a client's
                return True
        time.sleep(POLL_SECONDS)
    return False


def send_four_letter_word(host: str, port: int, command: bytes, context: ssl.SSLContext | None = None) -> bytes:
    """Send one of ZooKeeper's four-letter commands; empty without an answer. Raises SSLError if TLS fails."""
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


# ---- checks before the start of Java, which would report problems in tracebacks
SECTION: Final = "Server"


def check_jaas_file(path: str) -> None:
    """Raises UsageError unless the JAAS file defines users."""
    try:
        sections = read_sections(path)
    except JaasError as problem:
        raise UsageError(f"--jaas: {problem}") from None
    if SECTION not in sections:
        raise UsageError(
            f"--jaas: {path} has no section {SECTION}: Server {{ org.apache.zookeeper.server.auth.DigestLoginModule "
            'required user_kafka="PASSWORD"; };'
        )


def probe_context(properties: Mapping[str, str]) -> ssl.SSLContext:
    """A TLS context to probe the server with its own certificate. Raises UsageError for an invalid key."""
    path = properties.get("ssl.keyStore.location")
    if not path:
        raise UsageError("a port for TLS needs a key: set ssl.keyStore.location in the file (--config FILE)")
    password = properties.get("ssl.keyStore.password", "")
    texts = {"ssl.keystore.location": path, "ssl.endpoint.identification.algorithm": ""}
    if password:
        texts |= {"ssl.keystore.password": password, "ssl.key.password": password}
    try:
        context = client_context(TlsKeys(texts)).context
    except TlsError as problem:
        raise UsageError(f"ssl.keyStore.location: {problem}") from None
    context.verify_mode = ssl.CERT_NONE  # a local readiness probe that sends no data
    return context
