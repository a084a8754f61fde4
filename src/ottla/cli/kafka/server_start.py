"""`kafka-server-start.sh [-daemon] server.properties [--override property=value]*`."""

from __future__ import annotations

import os
import shlex
from collections.abc import Sequence
from pathlib import Path

from ottla import __version__
from ottla.base.log4j import VARIABLE as LOG4J_VARIABLE
from ottla.cli.arguments import parse_pairs
from ottla.cli.commands import broker
from ottla.cli.java.options import KAFKA_VERSION
from ottla.cli.kafka.start_script import log_folder, start_in_background, take_flags
from ottla.cli.terminal import EXIT_FAILED, ToolError, warn

TOOL = "kafka-server-start.sh"
USAGE = f"USAGE: {TOOL} [-daemon] server.properties [--override property=value]*"
LOG_FILE = "kafkaServer.out"


def run(arguments: Sequence[str]) -> int:
    words = list(arguments)
    is_daemon = take_flags(words)
    if words and words[0] in ("--help", "-help"):
        print(USAGE)
        return 0
    if words and words[0] == "--version":
        print(f"{KAFKA_VERSION} (ottla {__version__})")
        return 0
    if not words or words[0].startswith("-"):
        warn(USAGE)
        return EXIT_FAILED
    overrides = parse_overrides(words[1:])
    if not Path(words[0]).is_file():
        raise ToolError(f"there is no file {words[0]}: name the broker's server.properties")
    if is_daemon:
        return start_in_background(TOOL, words, LOG_FILE, {LOG4J_VARIABLE: log4j_options(log_folder())})
    return broker.start(words[0], overrides, os.environ)


def parse_overrides(words: Sequence[str]) -> dict[str, str]:
    """`--override a=b --override c=d` or `--override=a=b` as a dictionary."""
    pairs, left = [], list(words)
    while left:
        word = left.pop(0)
        if word.startswith("--override="):
            pairs.append(word.partition("=")[2])
        elif word == "--override" and left:
            pairs.append(left.pop(0))
        else:
            raise ToolError(f"{word} is not understood. {USAGE}")
    return parse_pairs(pairs, allow_bare=False)


def log4j_options(folder: Path) -> str:
    """Kafka's own scripts pass the folder of log files on like this; a folder that is given already stays."""
    given = os.environ.get(LOG4J_VARIABLE, "")
    return f"-Dkafka.logs.dir={shlex.quote(str(folder))} {given}".strip()
