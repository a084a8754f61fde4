"""Why a record was not stored, in words that lead to a cure."""

from __future__ import annotations

from ottla.cli.records.line_reader import Line
from ottla.cli.records.producing import _why


class FakeError:
    def name(self) -> str:
        return "_UNKNOWN_PARTITION"

    def str(self) -> str:
        return "Local: Unknown partition"


def test_a_partition_that_the_topic_lacks_is_named() -> None:
    assert (
        _why(Line(None, b"x", [], partition=2), FakeError()) == "it is for partition 2, which the topic does not have"
    )
    assert _why(Line(None, b"x", []), FakeError()) == "Unknown partition"
