"""Columns that stay under one another whatever is written in them."""

from __future__ import annotations

import pytest

from ottla.base.text_width import column_widths, filled, row_text, shortened, width_of


@pytest.mark.parametrize(
    ("text", "width"), [("", 0), ("abc", 3), ("ä…", 2), ("机", 2), ("🎉x", 3), ("e\u0301", 1), ("ﾊ", 1)]
)
def test_widths(text: str, width: int) -> None:
    assert width_of(text) == width
    assert filled(text, 5) == text + " " * (5 - width)


def test_rows_stand_under_one_another() -> None:
    table = [["机机机", "a"], ["chair", "bb"], ["", "b"]]
    assert column_widths(table) == [6, 2]
    rows = [row_text(cells, [6, 2]) for cells in (["机机机", "a"], ["chair", "b"])]
    assert rows == ["机机机  a", "chair   b"]


def test_what_does_not_fit_is_cut_at_a_character() -> None:
    assert shortened("机机机", 6) == "机机机"
    assert shortened("机机机", 5) == "机机…"
    assert shortened("机机机", 4) == "机…"
    assert shortened("abcd", 3) == "ab…"
