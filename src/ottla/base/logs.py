"""Log lines as Kafka's operators know them: time, level, text, and in brackets who says it."""

from __future__ import annotations

import logging
import sys

FORMAT = "[%(asctime)s,%(msecs)03d] %(levelname)s %(message)s (%(name)s)"
TIME_FORMAT = "%Y-%m-%d %H:%M:%S"


class OneLineFormatter(logging.Formatter):
    """Control characters in what clients sent are escaped, so that nobody can forge a line or move the cursor."""

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 (the name is logging's)
        record.message = "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in record.message)
        return super().formatMessage(record)


def log_to_stderr(level: int = logging.INFO) -> None:
    """Send everything that ottla says to the standard error stream."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(OneLineFormatter(FORMAT, TIME_FORMAT))
    root = logging.getLogger("ottla")
    root.handlers[:] = [handler]
    root.setLevel(level)
    root.propagate = False
