"""Restarts, without starting anything."""

from __future__ import annotations

import signal

import pytest

from ottla.cli.supervisor import RESTARTS_MAX, STEADY_MS, TICK_SECONDS, Child, RestartPolicy, Supervisor


class ManualClock:
    time_ms = 0

    def now_ms(self) -> int:
        return self.time_ms

    def monotonic_ms(self) -> int:
        return self.time_ms


def supervised(was_ready: bool) -> tuple[Supervisor, Child, list[str]]:
    child = Child("broker", ["true"])
    child.was_ready = was_ready
    said: list[str] = []
    return Supervisor([child], lambda *_: False, said.append, ManualClock()), child, said


def test_pauses_double_up_to_a_bound_and_end() -> None:
    policy = RestartPolicy()
    pauses = [policy.pause_ms(0) for _ in range(RESTARTS_MAX + 1)]
    assert pauses == [500, 1000, 2000, 4000, 8000, 10_000, 10_000, 10_000, 10_000, 10_000, None]


def test_a_steady_run_starts_the_count_anew() -> None:
    policy = RestartPolicy()
    for _ in range(RESTARTS_MAX):
        policy.pause_ms(0)
    policy.started(1000)
    assert policy.pause_ms(1000 + STEADY_MS) == 500


@pytest.mark.parametrize(("code", "how"), [(-9, "by signal 9"), (3, "with exit code 3")])
def test_a_crash_is_told_and_followed_by_a_restart(code: int, how: str) -> None:
    supervisor, child, said = supervised(was_ready=True)
    supervisor._ended(child, code)
    assert child.restart_at_ms == 500
    assert supervisor.code is None
    assert said == [f"The broker ended {how}: starting it again in 0.5 s."]


def test_a_child_that_never_was_ready_ends_everything_with_its_code() -> None:
    supervisor, child, said = supervised(was_ready=False)
    supervisor._ended(child, 1)
    assert supervisor.code == 1
    assert child.restart_at_ms is None
    assert said == []


def test_a_child_that_somebody_stopped_ends_everything_well() -> None:
    supervisor, child, said = supervised(was_ready=True)
    supervisor._ended(child, 0)
    assert supervisor.code == 0
    assert said == ["The broker was stopped."]


def test_a_child_that_crashes_for_ever_is_given_up() -> None:
    supervisor, child, said = supervised(was_ready=True)
    for _ in range(RESTARTS_MAX + 1):
        supervisor._ended(child, 1)
    assert supervisor.code == 1
    assert said[-1] == "The broker has crashed 10 times in a row: giving up."


def test_nothing_is_restarted_while_stopping() -> None:
    supervisor, child, said = supervised(was_ready=True)
    supervisor.stops = 1
    supervisor._ended(child, -15)
    assert child.restart_at_ms is None
    assert supervisor.code == 1
    assert said == []


def test_a_guest_may_end_as_it_likes() -> None:
    supervisor, broker, said = supervised(was_ready=True)
    codes: list[int] = []
    guest = Child("guest", ["false"], codes.append)
    supervisor.children.append(guest)
    supervisor._ended(guest, 1)
    assert codes == [1]
    assert supervisor.code is None
    assert supervisor.children == [broker]
    assert said == []


def test_nobody_is_invited_while_everything_ends() -> None:
    supervisor, broker, _ = supervised(was_ready=True)
    supervisor.stops = 1
    supervisor.start(Child("guest", ["true"], lambda _: None))
    assert supervisor.children == [broker]


def test_guests_are_stopped_before_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    supervisor, _, _ = supervised(was_ready=True)
    guest = Child("guest", ["true"], lambda _: None)
    guest.process = object()  # type: ignore[assignment]
    supervisor.children.append(guest)
    sent: list[tuple[str, int]] = []
    monkeypatch.setattr(Child, "send", lambda child, number: sent.append((child.name, number)))
    supervisor.stops = 1
    supervisor.stop()
    assert sent == [("guest", signal.SIGTERM)]
    guest.process = None
    supervisor._ended(guest, 0)
    assert sent[1:] == [("broker", signal.SIGTERM)]
    supervisor.stops = 2
    supervisor.stop()
    assert sent[2:] == [("broker", signal.SIGKILL)]


def test_who_wants_to_draw_is_called_now_and_then() -> None:
    supervisor, _, _ = supervised(was_ready=True)
    assert supervisor._seconds_to_wait() is None
    supervisor.on_tick = lambda: None
    assert supervisor._seconds_to_wait() == TICK_SECONDS
