"""Data that is gone: records aged out, topics deleted or made anew while a query reads them.

failOnDataLoss decides: true stops the query with a sentence that names topic, partition and offsets; false says the
same as a warning and goes on with what is there.
"""

from __future__ import annotations

import logging

CURE = "If that was meant, begin with a new checkpoint, or set failOnDataLoss to false to go on with what is there"

logger = logging.getLogger(__name__)


class SourceError(Exception):
    """A source that cannot go on; str() is a sentence with the cause."""


class DataLossError(SourceError):
    """Records that the query should have read are gone, and failOnDataLoss is true."""


def report_loss(fails: bool, sentence: str) -> None:
    """Raise DataLossError, or only warn."""
    if fails:
        raise DataLossError(f"{sentence}. {CURE}")
    logger.warning("%s. Going on, because failOnDataLoss is false", sentence)
