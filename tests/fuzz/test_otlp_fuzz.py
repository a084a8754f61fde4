"""Metrics pushed by clients that lie: whatever comes, it is read or refused, quickly."""

import contextlib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.base.errors import KafkaError
from ottla.broker.telemetry.otlp import FIELDS_MAX, Point, read_metrics

# Tags and small lengths that lead far into the format, mixed with anything.
PIECES = st.one_of(st.sampled_from([b"\x0a\x04", b"\x12\x06", b"\x2a\x03", b"\x3a\x09", b"\x21", b"\x31"]), st.binary())


@settings(max_examples=500)
@given(st.lists(PIECES, max_size=30).map(b"".join))
def test_any_bytes_are_read_or_refused(data: bytes) -> None:
    with contextlib.suppress(KafkaError):
        assert all(isinstance(point, Point) for point in read_metrics(data))


def test_a_push_of_nothing_but_tiny_fields_is_given_up() -> None:
    with pytest.raises(KafkaError, match="too many fields"):
        read_metrics(b"\x08\x00" * (FIELDS_MAX + 1))
