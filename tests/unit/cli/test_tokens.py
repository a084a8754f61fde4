"""Times of `ottla tokens` and `kafka-delegation-tokens.sh`; other tests need a broker."""

from __future__ import annotations

import argparse

import pytest

from ottla.cli.commands import tokens
from ottla.cli.kafka import delegation_tokens


@pytest.mark.parametrize(
    ("text", "time_ms"), [("5ms", 5), ("2s", 2000), ("30m", 1_800_000), ("12h", 43_200_000), ("7d", 604_800_000)]
)
def test_times_have_a_unit(text: str, time_ms: int) -> None:
    assert tokens._time(text) == time_ms


@pytest.mark.parametrize("text", ["", "12", "-1d", "1.5h", "1w", "d", "1 d", "1" * 16 + "d"])
def test_other_texts_are_not_times(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match="is not a time such as 30m, 12h or 7d"):
        tokens._time(text)


def test_times_that_no_calendar_has_are_shown_all_the_same() -> None:
    assert tokens._time_text(1_700_000_000_000) == "2023-11-14 22:13:20 UTC"
    assert tokens._time_text(2**63 - 1) == "for ever"
    assert delegation_tokens._date(2**63 - 1) == str(2**63 - 1)
    assert len(delegation_tokens._date(1_700_000_000_000)) == len("2023-11-14T22:13")
