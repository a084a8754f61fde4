"""Data loss: records that aged out, and topics that were deleted or recreated while a query reads them.

With failOnDataLoss=true the query stops with a sentence that names topic, partition and offsets. With false it logs the
same sentence as a warning and continues. Planner and readers run in Spark's processes, whose logs users rarely see, so
the sentence is also written to a folder, from which the pipeline runner reports it.
"""

from __future__ import annotations

import logging
import zlib
from contextlib import suppress
from pathlib import Path
from typing import Protocol

LOSS_HINT = (
    "If this is intended, use a new checkpoint, or set failOnDataLoss to false to continue with what is available"
)

logger = logging.getLogger(__name__)


class SourceError(Exception):
    """The source cannot continue; str() is a sentence with the cause."""


class DataLossError(SourceError):
    """Records that the query should have read are gone, and failOnDataLoss is true."""


class LossOptions(Protocol):
    """The source options for data loss."""

    @property
    def fails_on_data_loss(self) -> bool: ...
    @property
    def loss_folder(self) -> str | None: ...


def report_loss(options: LossOptions, sentence: str) -> None:
    """Raise DataLossError, or log a warning."""
    if options.fails_on_data_loss:
        raise DataLossError(f"{sentence}. {LOSS_HINT}")
    logger.warning("%s. Continuing, because failOnDataLoss is false", sentence)
    if options.loss_folder:
        with suppress(OSError):  # failing to write the warning must not stop the query
            _write_loss_file(Path(options.loss_folder), sentence)


def take_reported_losses(folder: str) -> list[str]:
    """Return and remove the reports since the last call."""
    found: list[str] = []
    with suppress(OSError):
        for note in sorted(Path(folder).glob("*.loss")) if folder else ():
            found.append(note.read_text(encoding="utf-8"))
            note.unlink(missing_ok=True)
    return found


def _write_loss_file(folder: Path, sentence: str) -> None:
    """The same sentence always has the same file name."""
    folder.mkdir(parents=True, exist_ok=True)
    name = f"{zlib.crc32(sentence.encode()):08x}"
    unfinished = folder / f"{name}.new"
    unfinished.write_text(sentence, encoding="utf-8")
    unfinished.replace(folder / f"{name}.loss")
