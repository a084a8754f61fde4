"""How a log line looks: as Kafka's operators know it, or as JSON with the field names of Elastic Common Schema.

Whatever clients sent is escaped: nobody can forge a line, move the cursor of a terminal or break the JSON.
"""

from __future__ import annotations

import json
import logging
import os
import time
from typing import Final

TRACE: Final = 5
LEVELS: Final = {  # as Kafka names them
    "TRACE": TRACE,
    "DEBUG": logging.DEBUG,
    "INFO": logging.INFO,
    "WARN": logging.WARNING,
    "ERROR": logging.ERROR,
    "FATAL": logging.CRITICAL,
    "OFF": logging.CRITICAL + 10,
}
TEXT_FORMAT: Final = "[%(asctime)s,%(msecs)03d] %(kafka_level)s %(message)s (%(name)s)"
TIME_FORMAT: Final = "%Y-%m-%d %H:%M:%S"
ECS_VERSION: Final = "8.11.0"
_NAMES: Final = {number: name for name, number in LEVELS.items()}


class TextFormatter(logging.Formatter):
    """Time, level, text, and in brackets who says it; a traceback follows on lines of its own."""

    def __init__(self) -> None:
        super().__init__(TEXT_FORMAT, TIME_FORMAT)

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 (the name is logging's)
        record.message = escaped(record.message)
        record.kafka_level = level_name(record)
        return super().formatMessage(record)


class JsonFormatter(logging.Formatter):
    """One JSON object a line, tracebacks included: Filebeat and Splunk take it as it is."""

    def __init__(self, node_id: int) -> None:
        super().__init__()
        self._node = str(node_id)

    def format(self, record: logging.LogRecord) -> str:
        seconds = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
        fields: dict[str, object] = {
            "@timestamp": f"{seconds}.{int(record.msecs):03d}Z",
            "log.level": level_name(record),
            "message": record.getMessage(),
            "ecs.version": ECS_VERSION,
            "log.logger": record.name,
            "process.pid": os.getpid(),
            "process.thread.name": record.threadName,
            "service.name": "ottla",
            "service.node.name": self._node,
            "event.dataset": "ottla.server",
        }
        if record.exc_info and record.exc_info[0] is not None:
            fields["error.type"] = record.exc_info[0].__name__
            fields["error.message"] = str(record.exc_info[1])
            fields["error.stack_trace"] = self.formatException(record.exc_info)
        return json.dumps(fields)


def escaped(text: str) -> str:
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def level_name(record: logging.LogRecord) -> str:
    return _NAMES.get(record.levelno) or record.levelname
