from __future__ import annotations

import gc

import pytest

from ottla.broker.authorizing import FROZEN_MIN, CollectorPatience


def test_the_collector_leaves_only_very_many_rules_alone_and_seldom(monkeypatch: pytest.MonkeyPatch) -> None:
    frozen: list[int] = []
    patience = CollectorPatience()
    for patterns in (
        1,
        FROZEN_MIN - 1,
        FROZEN_MIN,
        FROZEN_MIN + 1,
        2 * FROZEN_MIN - 1,
        2 * FROZEN_MIN,
        1,
        3 * FROZEN_MIN,
    ):
        monkeypatch.setattr(gc, "freeze", lambda patterns=patterns: frozen.append(patterns))
        patience.note(patterns)
    assert frozen == [FROZEN_MIN, 2 * FROZEN_MIN]
