"""A letter is claimed by one, given back when it was refused, and claimed again only with a token."""

from __future__ import annotations

from pathlib import Path

import pytest

from ottla.console import resent
from ottla.console.resent import Claim, Origin, Sent
from ottla.console.store import Tables

ORIGIN = Origin("default", "shop-dead-letters", "id-1")
ONE, TWO = Claim(0, 1, "shop"), Claim(0, 2, "shop")


def test_a_letter_goes_to_a_topic_once(tmp_path: Path) -> None:
    tables = Tables(tmp_path / "console.db")
    assert resent.claim(tables, ORIGIN, [ONE, TWO], "", "ann", 5) == [ONE, TWO]
    assert resent.claim(tables, ORIGIN, [ONE, TWO], "", "bob", 6) == [], "the second click"
    resent.settle(tables, ORIGIN, [ONE], [TWO], "")
    assert resent.known(tables, ORIGIN, [(0, 1), (0, 2)]) == {(0, 1): [Sent("shop", "sent", 5, "ann")]}
    assert resent.claim(tables, ORIGIN, [ONE, TWO], "", "bob", 7) == [TWO], "what was refused is free again"
    assert resent.known(tables, ORIGIN, [(0, 2)])[0, 2][0].outcome == "unsure", "until it is settled"

    assert resent.claim(tables, ORIGIN, [ONE._replace(target="elsewhere")], "", "ann", 8)
    assert resent.claim(tables, ORIGIN._replace(topic_id="id-2"), [ONE], "", "ann", 8), "another topic of that name"
    assert resent.claim(tables, ORIGIN, [ONE], "token", "ann", 9) == [ONE]
    assert resent.claim(tables, ORIGIN, [ONE], "token", "ann", 9) == []


def test_old_ones_are_forgotten(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resent, "ROWS_MAX", 3)
    tables = Tables(tmp_path / "console.db")
    resent.claim(tables, ORIGIN, [Claim(0, number, "shop") for number in range(5)], "", "ann", 5)
    assert set(resent.known(tables, ORIGIN, [(0, number) for number in range(5)])) == {(0, 2), (0, 3), (0, 4)}
