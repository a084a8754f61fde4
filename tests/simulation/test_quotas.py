"""Seeds of the play about quotas, and mistakes that it must find."""

from __future__ import annotations

from types import FunctionType

import pytest
from tests.simulation.quotas import play

from ottla.broker import quota_manager
from ottla.broker.quota_manager import ClientQuotaManager
from ottla.quotas.meter import Meter

needs_source = pytest.mark.skipif(not isinstance(Meter.record, FunctionType), reason="compiled code cannot be changed")


@pytest.mark.parametrize("seed", range(6))
def test_no_client_exceeds_its_quota_or_waits_for_ever(seed: int) -> None:
    play(seed)


def is_found(seeds: int = 12) -> bool:
    return any(is_broken(seed) for seed in range(seeds))


def is_broken(seed: int) -> bool:
    try:
        play(seed)
    except ExceptionGroup as broken:
        return broken.subgroup(AssertionError) is not None
    return False


@needs_source
def test_a_gate_that_lets_other_connections_through_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ClientQuotaManager, "_produce_delay_seconds", lambda *_: 0.0)
    assert is_found()


@needs_source
def test_a_bug_that_never_unmutes_clients_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(quota_manager, "end_throttle", lambda _: None)
    assert is_found()


@needs_source
def test_a_meter_that_forgets_too_soon_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    forget = Meter._drop_old_windows
    monkeypatch.setattr(Meter, "_drop_old_windows", lambda self, now_ms: forget(self, now_ms + 5_000))
    assert is_found()
