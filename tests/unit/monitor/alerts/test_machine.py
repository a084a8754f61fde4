"""When alerts open, are told and close; time is an argument."""

import pytest

from ottla.monitor.alerts import machine as machine_module
from ottla.monitor.alerts.machine import Alert, AlertMachine, Event, Step
from ottla.monitor.alerts.rules import Kind, Rule

RULE = Rule("stuck", Kind.VERDICT, for_ms=30_000)
AT_ONCE = Rule("gone", Kind.BROKER_GONE)


def steps(events: list[Event]) -> list[tuple[str, str, bool]]:
    return [(event.step.value, event.alert.subject, event.is_message) for event in events]


def test_one_message_at_opening_and_one_at_closing() -> None:
    machine = AlertMachine()
    assert steps(machine.decide(AT_ONCE, "c", {"broker 1": "gone"}, 0)) == [("opened", "broker 1", True)]
    for second in range(1, 10):
        assert machine.decide(AT_ONCE, "c", {"broker 1": f"gone for {second} s"}, second * 1_000) == []
    (closed,) = machine.decide(AT_ONCE, "c", {}, 10_000)
    assert (closed.step, closed.is_message, closed.alert.text) == (Step.CLOSED, True, "gone for 9 s")
    assert machine.decide(AT_ONCE, "c", {}, 11_000) == []


def test_it_must_last_as_long_as_the_rule_says() -> None:
    machine = AlertMachine()
    assert machine.decide(RULE, "c", {"g": "x"}, 0) == []
    assert machine.decide(RULE, "c", {"g": "x"}, 29_999) == []
    (opened,) = machine.decide(RULE, "c", {"g": "x"}, 30_000)
    assert (opened.alert.since_ms, opened.alert.opened_ms) == (0, 30_000)


def test_a_moment_of_health_begins_the_count_anew() -> None:
    machine = AlertMachine()
    machine.decide(RULE, "c", {"g": "x"}, 0)
    assert machine.decide(RULE, "c", {}, 10_000) == []
    assert machine.decide(RULE, "c", {"g": "x"}, 20_000) == []
    assert machine.decide(RULE, "c", {"g": "x"}, 49_000) == []
    assert len(machine.decide(RULE, "c", {"g": "x"}, 50_000)) == 1


def test_what_cannot_be_seen_changes_nothing() -> None:
    machine = AlertMachine()
    machine.decide(AT_ONCE, "c", {"g": "x"}, 0)
    machine.decide(RULE, "c", {"h": "x"}, 0)
    assert machine.decide(AT_ONCE, "c", None, 1_000) == machine.decide(RULE, "c", None, 60_000) == []
    assert len(machine.open) == 1
    assert len(machine.decide(RULE, "c", {"h": "x"}, 61_000)) == 1


def test_rules_and_clusters_do_not_disturb_one_another() -> None:
    machine = AlertMachine()
    machine.decide(AT_ONCE, "c", {"g": "x"}, 0)
    assert machine.decide(AT_ONCE, "other", {}, 1) == []
    assert machine.decide(RULE, "c", {}, 1) == []
    assert steps(machine.decide(AT_ONCE, "c", {"h": "x"}, 2)) == [("opened", "h", True), ("closed", "g", True)]


def test_in_a_silence_nothing_is_told_until_it_ends() -> None:
    machine = AlertMachine()
    assert steps(machine.decide(AT_ONCE, "c", {"g": "x"}, 0, lambda _: True)) == [("opened", "g", False)]
    assert machine.decide(AT_ONCE, "c", {"g": "x"}, 1_000, lambda _: True) == []
    assert steps(machine.decide(AT_ONCE, "c", {"g": "x"}, 2_000)) == [("told", "g", True)]
    assert machine.decide(AT_ONCE, "c", {"g": "x"}, 3_000) == []
    assert steps(machine.decide(AT_ONCE, "c", {}, 4_000, lambda _: True)) == [("closed", "g", True)]


def test_what_was_never_told_is_not_told_to_be_over() -> None:
    machine = AlertMachine()
    machine.decide(AT_ONCE, "c", {"g": "x"}, 0, lambda _: True)
    assert steps(machine.decide(AT_ONCE, "c", {}, 1_000)) == [("closed", "g", False)]


def test_alerts_go_on_after_a_restart() -> None:
    kept = [Alert("gone", "c", "g", "x", 0, 0, True), Alert("old rule", "c", "h", "x", 0, 0, True)]
    machine = AlertMachine(kept)
    assert machine.decide(AT_ONCE, "c", {"g": "y"}, 5_000) == []
    (removed,) = machine.forget_others({("gone", "c")}, 6_000)
    assert (removed.alert.rule, removed.alert.text, removed.is_message) == (
        "old rule",
        "nobody looks at it any more",
        True,
    )
    assert steps(machine.decide(AT_ONCE, "c", {}, 7_000)) == [("closed", "g", True)]
    assert machine.open == {}


def test_there_is_an_end_to_alerts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine_module, "OPEN_MAX", 3)
    machine = AlertMachine()
    found = {f"g{number}": "x" for number in range(5)}
    assert len(machine.decide(AT_ONCE, "c", found, 0)) == 3
    assert (len(machine.open), machine.left_out) == (3, 2)
