"""The contents of a new session."""

from __future__ import annotations

from unittest.mock import MagicMock

import pytest

from ottla.pipelines.source.data_source import OttlaDataSource
from ottla.pipelines.spark import session


def test_a_session_has_the_source_registered(monkeypatch: pytest.MonkeyPatch) -> None:
    """By default Spark searches all packages for sources, which is slow and disabled in our Java."""
    spark = MagicMock(version="4.2.1")
    monkeypatch.setattr(session, "_running", lambda _say: None)
    monkeypatch.setattr(session, "_launch", lambda *_: spark)
    assert session.start_session("my-job", "local[2]") is spark
    spark.dataSource.register.assert_called_once_with(OttlaDataSource)
