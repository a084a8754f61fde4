"""Error codes against those that kio generated from Kafka's sources."""

from __future__ import annotations

from kio.schema.errors import ErrorCode

from ottla.base.errors import Error


def test_names_and_numbers_are_kafkas() -> None:
    assert {name: each.value for name, each in Error.__members__.items()} == {
        each.name.upper(): each.value for each in ErrorCode
    }
