"""The broker's loggers as a thing with settings: names and levels, which can be changed while it runs.

"root" is the logger above all of the broker's own; a package, such as `ottla.storage`, stands for all loggers below it.
Other packages' loggers are nobody's business here.
"""

from __future__ import annotations

import logging
from typing import Final

from ottla.base import log_formats
from ottla.base.errors import Error, KafkaError

ROOT: Final = "root"
PACKAGE: Final = "ottla"
LEVELS: Final = {name: number for name, number in log_formats.LEVELS.items() if name != "OFF"}


def logger_levels() -> dict[str, str]:
    """The level that counts for each logger."""
    return {name: _level_name(logger.getEffectiveLevel()) for name, logger in sorted(_loggers().items())}


def check_logger(name: str, level: str | None) -> None:
    """Raises KafkaError unless the logger exists and can have the level (None: that of the logger above it)."""
    if name not in _loggers():
        raise KafkaError(Error.INVALID_CONFIG, f"Logger {name} does not exist!")
    if level is None:
        if name == ROOT:
            raise KafkaError(Error.INVALID_REQUEST, "Removing the log level of the root logger is not allowed")
    elif level not in LEVELS:
        raise KafkaError(
            Error.INVALID_CONFIG,
            f"Cannot set the log level of {name} to {level} as it is not a supported log level. "
            f"Valid log levels are {', '.join(sorted(LEVELS))}",
        )


def set_logger(name: str, level: str | None) -> None:
    """Change a level until the broker stops."""
    _loggers()[name].setLevel(LEVELS[level] if level is not None else logging.NOTSET)


def _loggers() -> dict[str, logging.Logger]:
    """A package that only stands above others is no logger yet: asking for it makes it one."""
    names = [name for name in logging.Logger.manager.loggerDict if name.startswith(f"{PACKAGE}.")]
    return {ROOT: logging.getLogger(PACKAGE), **{name: logging.getLogger(name) for name in names}}


def _level_name(level: int) -> str:
    at_most = [name for name, number in LEVELS.items() if number <= level]
    return max(at_most, key=LEVELS.__getitem__, default="TRACE")
