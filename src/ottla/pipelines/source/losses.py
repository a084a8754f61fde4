"""Data that is gone: records aged out, topics deleted or made anew while a query reads them.

failOnDataLoss decides: true stops the query with a sentence that names topic, partition and offsets; false says the
same as a warning and goes on with what is there. Who plans and who reads are processes of Spark, whose words nobody
sees: so the sentence is also put into a folder, if one is named, from which whoever runs the query tells it.
"""

from __future__ import annotations

import logging
import zlib
from contextlib import suppress
from pathlib import Path
from typing import Protocol

CURE = "If that was meant, begin with a new checkpoint, or set failOnDataLoss to false to go on with what is there"

logger = logging.getLogger(__name__)


class SourceError(Exception):
    """A source that cannot go on; str() is a sentence with the cause."""


class DataLossError(SourceError):
    """Records that the query should have read are gone, and failOnDataLoss is true."""


class LossOptions(Protocol):
    """What the source's options say about losses."""

    @property
    def fails_on_data_loss(self) -> bool: ...
    @property
    def loss_folder(self) -> str | None: ...


def report_loss(options: LossOptions, sentence: str) -> None:
    """Raise DataLossError, or only warn."""
    if options.fails_on_data_loss:
        raise DataLossError(f"{sentence}. {CURE}")
    logger.warning("%s. Going on, because failOnDataLoss is false", sentence)
    if options.loss_folder:
        with suppress(OSError):  # a warning that cannot be left behind is no reason to stop
            _leave(Path(options.loss_folder), sentence)


def collect_losses(folder: str) -> list[str]:
    """What was reported since the last look."""
    found: list[str] = []
    with suppress(OSError):
        for note in sorted(Path(folder).glob("*.loss")) if folder else ():
            found.append(note.read_text(encoding="utf-8"))
            note.unlink(missing_ok=True)
    return found


def _leave(folder: Path, sentence: str) -> None:
    """The same sentence has one file, however often it is said."""
    folder.mkdir(parents=True, exist_ok=True)
    name = f"{zlib.crc32(sentence.encode()):08x}"
    unfinished = folder / f"{name}.new"
    unfinished.write_text(sentence, encoding="utf-8")
    unfinished.replace(folder / f"{name}.loss")
