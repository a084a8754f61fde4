"""`zookeeper-shell.sh HOST:PORT[/chroot] [COMMAND ...]`: ZooKeeper's own shell, under the name of Kafka's script."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import NoReturn

from ottla.base import java
from ottla.base.zookeeper_connect import parse_connect
from ottla.cli.terminal import EXIT_FAILED, ToolError, UsageError, warn
from ottla.cli.zookeeper.jars import JAVA_VERSION_MIN, find_jars

TOOL = "zookeeper-shell.sh"
USAGE = f"USAGE: {TOOL} zookeeper_host:port[/path] [args...]"
MAIN_CLASS = "org.apache.zookeeper.ZooKeeperMain"


def run(arguments: Sequence[str]) -> int:
    if arguments and not arguments[0].startswith("-"):
        become_shell(arguments)
    warn(USAGE)
    return EXIT_FAILED


def become_shell(arguments: Sequence[str]) -> NoReturn:
    try:
        address = parse_connect(arguments[0])
        runtime = java.choose(java.candidates(), "ZooKeeper", JAVA_VERSION_MIN)
    except ValueError as problem:
        raise UsageError(str(problem)) from None
    except java.NoJavaError as problem:
        raise ToolError(str(problem)) from None
    jars = find_jars(warn)
    options = ["-Xmx128m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Dlog4j2.level=ERROR"]
    options += ["-Dorg.slf4j.simpleLogger.defaultLogLevel=error"]
    words = ["-cp", jars.class_path, MAIN_CLASS, "-server", str(address), *arguments[1:]]
    sys.stdout.flush()
    os.execv(runtime.program, [str(runtime.program), *options, *words])  # noqa: S606 (the user's own Java)
