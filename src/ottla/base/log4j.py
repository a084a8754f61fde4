"""Kafka's own logging settings, as far as they are supported: levels of loggers and the folder of log files.

Kafka's scripts pass them as Java options: KAFKA_LOG4J_OPTS="-Dlog4j2.configurationFile=/etc/kafka/log4j2.yaml
-Dkafka.logs.dir=/var/log/kafka". Supported files are log4j.properties (both generations) and log4j2.yaml. Appenders,
patterns and filters are ignored. Pure but for read_log4j().
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import Final, NamedTuple

from ottla.base.environment import java_options
from ottla.base.logs import LEVELS
from ottla.base.properties import PropertiesError, read_properties

VARIABLE: Final = "KAFKA_LOG4J_OPTS"
FILE_BYTES_MAX: Final = 1024 * 1024
FOLDER_OPTION: Final = "kafka.logs.dir"
FILE_OPTIONS: Final = ("log4j2.configurationFile", "log4j.configurationFile", "log4j.configuration")
# Kafka's loggers and ours; the longest matching name wins.
LOGGERS: Final = {
    "kafka": "ottla",
    "org.apache.kafka": "ottla",
    "kafka.controller": "ottla.controller",
    "org.apache.kafka.controller": "ottla.controller",
    "state.change.logger": "ottla.controller",
    "kafka.network": "ottla.network",
    "kafka.log": "ottla.storage",
    "org.apache.kafka.storage.internals.log": "ottla.storage",
    "kafka.log.LogCleaner": "ottla.broker.log_manager.log_cleaner",
    "org.apache.kafka.storage.internals.log.LogCleaner": "ottla.broker.log_manager.log_cleaner",
    "kafka.server": "ottla.broker",
    "kafka.coordinator.group": "ottla.groups",
}


class Log4jConfig(NamedTuple):
    """The supported settings, and messages about the others."""

    root_level: str | None = None
    levels: Mapping[str, str] = {}  # by ottla's loggers
    folder: str | None = None
    warnings: tuple[str, ...] = ()


def read_log4j(environment: Mapping[str, str]) -> Log4jConfig:
    """Read KAFKA_LOG4J_OPTS and the file that it names."""
    options = java_options(environment.get(VARIABLE, ""))
    folder = options.get(FOLDER_OPTION)
    path = next((options[name] for name in FILE_OPTIONS if name in options), None)
    if path is None:
        return Log4jConfig(folder=folder)
    path = path.removeprefix("file://").removeprefix("file:")
    try:
        with open(path, "rb") as file:
            text = file.read(FILE_BYTES_MAX).decode("utf-8", "replace")
        wishes = parse_log4j(text, os.path.splitext(path)[1].lower())
    except (OSError, PropertiesError, ValueError) as problem:
        return Log4jConfig(folder=folder, warnings=(f"{VARIABLE}: {path} is not followed: {problem}",))
    return wishes._replace(folder=folder)


def parse_log4j(text: str, suffix: str) -> Log4jConfig:
    """The levels that a file sets. Raises ValueError for an unknown kind of file."""
    if suffix == ".properties":
        found = _from_properties(read_properties(text))
    elif suffix in (".yaml", ".yml"):
        found = _from_yaml(text)
    else:
        raise ValueError("only .properties and .yaml files are read; set levels with ottla.log.level")
    root_level = found.pop("", None)
    levels: dict[str, str] = {}
    unknown: list[str] = []
    for name, level in found.items():
        ours = LOGGERS.get(name)
        if ours is None:
            unknown.append(name)
        else:
            levels[ours] = level
    if "ottla" in levels:
        root_level = levels.pop("ottla")
    warnings = (f"log4j: no logger here for {', '.join(sorted(unknown))}",) if unknown else ()
    return Log4jConfig(root_level, levels, warnings=warnings)


def _from_properties(texts: Mapping[str, str]) -> dict[str, str]:
    """Both `log4j.logger.kafka=INFO, appender` and `logger.x.name=kafka` with `logger.x.level=INFO`."""
    found: dict[str, str] = {}
    for key, value in texts.items():
        level = value.partition(",")[0].strip().upper()
        if level not in LEVELS:
            continue
        if key in ("log4j.rootLogger", "rootLogger.level", "rootLogger"):
            found[""] = level
        elif key.startswith("log4j.logger."):
            found[key.removeprefix("log4j.logger.")] = level
        elif match := re.fullmatch(r"logger\.(\w+)\.level", key):
            found[texts.get(f"logger.{match[1]}.name", match[1])] = level
    return found


def _from_yaml(text: str) -> dict[str, str]:
    """The `name:` and `level:` under Loggers; two keys do not justify a dependency on a YAML parser."""
    found: dict[str, str] = {}
    name, is_inside = "", False
    for line in text.splitlines():
        word, colon, value = line.strip().removeprefix("- ").partition(":")
        value = value.strip().strip("\"'")
        if word == "Loggers" and colon:
            is_inside = True
        elif is_inside and word == "Root":
            name = ""
        elif is_inside and word == "name":
            name = value
        elif is_inside and word == "level" and value.upper() in LEVELS:
            found[name] = value.upper()
    return found
