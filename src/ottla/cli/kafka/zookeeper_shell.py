"""`zookeeper-shell.sh HOST:PORT[/chroot] [-zk-tls-config-file FILE] [COMMAND ...]`: runs ZooKeeper's own shell.

Logins and TLS are configured as for every tool: KAFKA_OPTS, and a file with `zookeeper.ssl.*`.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import NoReturn

from ottla.base import java
from ottla.base.zookeeper_connect import parse_connect
from ottla.cli.terminal import EXIT_FAILED, ToolError, UsageError, warn
from ottla.cli.zookeeper.jars import JAVA_VERSION_MIN, find_jars
from ottla.cli.zookeeper.server import to_text
from ottla.security.jaas import configured_file
from ottla.security.zookeeper import ZooKeeperSecurityError, java_client_properties

TOOL = "zookeeper-shell.sh"
USAGE = f"USAGE: {TOOL} zookeeper_host:port[/path] [-zk-tls-config-file file] [args...]"
TLS_FILE = "-zk-tls-config-file"
MAIN_CLASS = "org.apache.zookeeper.ZooKeeperMain"


def run(arguments: Sequence[str]) -> int:
    if arguments and not arguments[0].startswith("-"):
        become_shell(arguments)
    warn(USAGE)
    return EXIT_FAILED


def become_shell(arguments: Sequence[str]) -> NoReturn:
    try:
        address = parse_connect(arguments[0])
        runtime = java.choose_java(java.candidates(), "ZooKeeper", JAVA_VERSION_MIN)
    except ValueError as problem:
        raise UsageError(str(problem)) from None
    except java.NoJavaError as problem:
        raise ToolError(str(problem)) from None
    jars = find_jars(warn)
    options = ["-Xmx128m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Dlog4j2.level=ERROR"]
    options += ["-Dorg.slf4j.simpleLogger.defaultLogLevel=error"]
    if configured_file() is not None:
        options.append("-Dzookeeper.fips-mode=false")  # required for DIGEST-MD5
    options += os.environ.get("KAFKA_OPTS", "").split()
    commands = list(arguments[1:])
    words = ["-cp", jars.class_path, MAIN_CLASS, "-server", str(address)]
    if commands[:1] == [TLS_FILE] and len(commands) > 1:
        words += ["-client-configuration", tls_configuration(commands[1])]
        commands = commands[2:]
    words += commands
    sys.stdout.flush()
    os.execv(runtime.program, [str(runtime.program), *options, *words])  # noqa: S606 (the user's own Java)


def tls_configuration(file: str) -> str:
    """Translate Kafka's TLS file for ZooKeeper's client, in memory only because it may hold passwords."""
    try:
        properties = java_client_properties(file)
    except ZooKeeperSecurityError as problem:
        raise UsageError(str(problem)) from None
    descriptor = os.memfd_create("zookeeper client", 0)  # inherited by Java
    with open(descriptor, "w", encoding="utf-8", closefd=False) as text:
        text.write(to_text(properties))
    return f"/proc/self/fd/{descriptor}"
