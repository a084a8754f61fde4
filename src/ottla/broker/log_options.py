"""Logging as the settings want it, and as Kafka's own variable does where the settings say nothing."""

from __future__ import annotations

import logging
from collections.abc import Mapping

from ottla.base.broker_settings import BrokerSettings
from ottla.base.log4j import Log4jWishes, read_log4j
from ottla.base.log_files import Rotation
from ottla.base.logs import LogOptions, start_logging

logger = logging.getLogger(__name__)


def start_broker_logging(settings: BrokerSettings, environment: Mapping[str, str]) -> None:
    wishes = read_log4j(environment)
    start_logging(log_options(settings, wishes))
    for warning in wishes.warnings:
        logger.warning("%s", warning)


def log_options(settings: BrokerSettings, wishes: Log4jWishes) -> LogOptions:
    """The keys ottla.log.* win over KAFKA_LOG4J_OPTS."""
    is_level_set = "ottla.log.level" in settings.explicit
    return LogOptions(
        folder=settings.ottla_log_dir or wishes.folder,
        is_json=settings.ottla_log_format == "json",
        level=settings.ottla_log_level if is_level_set or wishes.root_level is None else wishes.root_level,
        levels=wishes.levels,
        rotation=Rotation(
            settings.ottla_log_file_max_bytes, settings.ottla_log_file_max_ms, settings.ottla_log_files_kept
        ),
        node_id=settings.node_id,
    )
