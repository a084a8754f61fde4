"""Topics in one call: bounds as options."""

from __future__ import annotations

import subprocess
import sys
from datetime import UTC, datetime

import pytest

from ottla.pipelines.source.dataframes import _bound_options
from ottla.pipelines.source.options import OptionError


def test_places() -> None:
    assert _bound_options("t", "Earliest", "starting") == {"startingOffsets": "earliest"}
    assert _bound_options("t", {0: 5, 1: -1}, "ending") == {"endingOffsets": '{"t": {"0": 5, "1": -1}}'}
    moment = datetime(2026, 1, 31, 12, tzinfo=UTC)
    assert _bound_options("t", moment, "starting") == {"startingTimestamp": "1769860800000"}
    assert _bound_options("t", "2026-01-31T12:00:00+00:00", "starting") == {"startingTimestamp": "1769860800000"}
    with pytest.raises(OptionError, match="starting is earliest, latest, a time"):
        _bound_options("t", "some day", "starting")


def test_nothing_of_spark_is_imported_before_it_is_needed() -> None:
    code = "import sys, ottla.pipelines.source; print([m for m in ('pyspark', 'pyarrow', 'numpy') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
