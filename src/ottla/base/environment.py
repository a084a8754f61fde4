"""Environment variables as settings, by the rules of Kafka's container images, and as Java options.

KAFKA_LOG_RETENTION_HOURS is log.retention.hours: one underscore is a dot, two are an underscore, three are a hyphen
(apache/kafka). KAFKA_CFG_LOG_RETENTION_HOURS is the same key (Bitnami) and takes precedence.

Rule 1: only a name that is a key is used. Variables such as KAFKA_HOME are common and have no effect.
Rule 2: an empty variable counts as not set, as `${VARIABLE:-}` in a compose file means it.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from typing import Final, NamedTuple

PREFIX: Final = "KAFKA_"
LONGER_PREFIX: Final = "KAFKA_CFG_"
# Variables of Kafka's start scripts and images that are no broker settings.
NOT_SETTINGS: Final = frozenset(
    {
        "KAFKA_CFG_CLUSTER_ID",
        "KAFKA_CLUSTER_ID",
        "KAFKA_DEBUG",
        "KAFKA_ENABLE_KRAFT",
        "KAFKA_GC_LOG_OPTS",
        "KAFKA_HEAP_OPTS",
        "KAFKA_HOME",
        "KAFKA_JMX_HOSTNAME",
        "KAFKA_JMX_OPTS",
        "KAFKA_JMX_PORT",
        "KAFKA_JVM_PERFORMANCE_OPTS",
        "KAFKA_KRAFT_CLUSTER_ID",
        "KAFKA_LOG4J_CMD_OPTS",
        "KAFKA_LOG4J_LOGGERS",
        "KAFKA_LOG4J_OPTS",
        "KAFKA_LOG4J_ROOT_LOGLEVEL",
        "KAFKA_LOG4J_TOOLS_ROOT_LOGLEVEL",
        "KAFKA_MODE",
        "KAFKA_OPTS",
        "KAFKA_TOOLS_LOG4J_LOGLEVEL",
        "KAFKA_VERSION",
    }
)
# Kubernetes sets these in every container when a service is called kafka.
KUBERNETES_PREFIXES: Final = ("KAFKA_SERVICE_", "KAFKA_PORT_")
KUBERNETES_ADDRESS: Final = "tcp://"
# Variables with names of their own; the last one of a key wins. Kafka's start script reads the first.
SCRIPT_ALIASES: Final = {"JMX_PORT": "ottla.metrics.port"}
IMAGE_ALIASES: Final = {
    **SCRIPT_ALIASES,
    "KAFKA_JMX_PORT": "ottla.metrics.port",
    "KAFKA_LOG4J_ROOT_LOGLEVEL": "ottla.log.level",
}
# Bitnami's rule cannot express an underscore, and these two names need one.
UNDERSCORED: Final = {"sasl.ssl": "sasl_ssl", "sasl.plaintext": "sasl_plaintext"}


class EnvironmentSetting(NamedTuple):
    """A key with its value and the variable that it came from."""

    name: str
    value: str
    variable: str


def settings_of_container(environment: Mapping[str, str]) -> list[EnvironmentSetting]:
    """Every variable that has the form of a setting; the last one of a key wins."""
    found = [
        EnvironmentSetting(key_of_variable(variable), value, variable)
        for variable, value in environment.items()
        if value and _is_setting(variable, value)
    ]
    found.sort(key=lambda item: item.variable.startswith(LONGER_PREFIX))
    return [*_aliased(environment, IMAGE_ALIASES), *found]


def settings_of_script(environment: Mapping[str, str]) -> list[EnvironmentSetting]:
    """The variables that Kafka's start script reads, outside of containers."""
    return _aliased(environment, SCRIPT_ALIASES)


def _aliased(environment: Mapping[str, str], aliases: Mapping[str, str]) -> list[EnvironmentSetting]:
    return [
        EnvironmentSetting(key, environment[variable], variable)
        for variable, key in aliases.items()
        if environment.get(variable)
    ]


def key_of_variable(variable: str) -> str:
    """The key that a variable sets."""
    prefix = LONGER_PREFIX if variable.startswith(LONGER_PREFIX) else PREFIX
    # The order matters: replace three dots by a hyphen before two dots by an underscore.
    key = variable[len(prefix) :].lower().replace("_", ".").replace("...", "-").replace("..", "_")
    if prefix == LONGER_PREFIX and key.startswith("listener.name."):
        for dotted, underscored in UNDERSCORED.items():
            key = key.replace(dotted, underscored)
    return key


def _is_setting(variable: str, value: str) -> bool:
    if not variable.startswith(PREFIX) or variable in NOT_SETTINGS or variable.startswith(KUBERNETES_PREFIXES):
        return False
    return not value.startswith(KUBERNETES_ADDRESS)


def java_options(text: str) -> dict[str, str]:
    """The Java system properties (`-Dname=value`) in a variable such as KAFKA_OPTS; the last value of a name counts."""
    try:
        words = shlex.split(text)
    except ValueError:  # an unclosed quote: Java gets the words as the shell splits them
        words = text.split()
    pairs = (word[2:].partition("=") for word in words if word.startswith("-D"))
    return {name: value for name, _, value in pairs}
