"""What all unit tests need."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True)
def logging_as_it_was() -> Iterator[None]:
    """A test that starts the logging of a program leaves no level behind: the next one may look at what was said."""
    logger = logging.getLogger("ottla")
    level = logger.level
    yield
    logger.setLevel(level)
