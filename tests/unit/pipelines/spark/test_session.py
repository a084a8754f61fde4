"""What a session of ours brings with it."""

from __future__ import annotations

from unittest.mock import MagicMock

import pytest

from ottla.pipelines.source.data_source import OttlaDataSource
from ottla.pipelines.spark import session


def test_a_session_knows_the_source_without_being_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """Spark looks for sources in all packages, if it can: in a Java of ours it cannot, for that takes long."""
    spark = MagicMock(version="4.2.1")
    monkeypatch.setattr(session, "_running", lambda _say: None)
    monkeypatch.setattr(session, "_launch", lambda *_: spark)
    assert session.start_session("my-job", "local[2]") is spark
    spark.dataSource.register.assert_called_once_with(OttlaDataSource)
