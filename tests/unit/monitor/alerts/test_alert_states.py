"""Opening, sending and closing of alerts; time is an argument."""

import pytest

from ottla.monitor.alerts import alert_states as machine_module
from ottla.monitor.alerts.alert_states import Alert, AlertStates, Condition, Event, Rule, Transition

RULE = Rule("stuck", Condition.VERDICT, for_ms=30_000)
AT_ONCE = Rule("gone", Condition.BROKER_GONE)


def steps(events: list[Event]) -> list[tuple[str, str, bool]]:
    return [(event.step.value, event.alert.subject, event.is_message) for event in events]


def test_one_message_at_opening_and_one_at_closing() -> None:
    machine = AlertStates()
    assert steps(machine.update(AT_ONCE, "c", {"broker 1": "gone"}, 0)) == [("opened", "broker 1", True)]
    for second in range(1, 10):
        assert machine.update(AT_ONCE, "c", {"broker 1": f"gone for {second} s"}, second * 1_000) == []
    (closed,) = machine.update(AT_ONCE, "c", {}, 10_000)
    assert (closed.step, closed.is_message, closed.alert.text) == (Transition.CLOSED, True, "gone for 9 s")
    assert machine.update(AT_ONCE, "c", {}, 11_000) == []


def test_a_finding_must_last_as_long_as_the_rule_requires() -> None:
    machine = AlertStates()
    assert machine.update(RULE, "c", {"g": "x"}, 0) == []
    assert machine.update(RULE, "c", {"g": "x"}, 29_999) == []
    (opened,) = machine.update(RULE, "c", {"g": "x"}, 30_000)
    assert (opened.alert.since_ms, opened.alert.opened_ms) == (0, 30_000)


def test_a_healthy_moment_restarts_the_period() -> None:
    machine = AlertStates()
    machine.update(RULE, "c", {"g": "x"}, 0)
    assert machine.update(RULE, "c", {}, 10_000) == []
    assert machine.update(RULE, "c", {"g": "x"}, 20_000) == []
    assert machine.update(RULE, "c", {"g": "x"}, 49_000) == []
    assert len(machine.update(RULE, "c", {"g": "x"}, 50_000)) == 1


def test_what_cannot_be_seen_changes_nothing() -> None:
    machine = AlertStates()
    machine.update(AT_ONCE, "c", {"g": "x"}, 0)
    machine.update(RULE, "c", {"h": "x"}, 0)
    assert machine.update(AT_ONCE, "c", None, 1_000) == machine.update(RULE, "c", None, 60_000) == []
    assert len(machine.open) == 1
    assert len(machine.update(RULE, "c", {"h": "x"}, 61_000)) == 1


def test_rules_and_clusters_do_not_disturb_one_another() -> None:
    machine = AlertStates()
    machine.update(AT_ONCE, "c", {"g": "x"}, 0)
    assert machine.update(AT_ONCE, "other", {}, 1) == []
    assert machine.update(RULE, "c", {}, 1) == []
    assert steps(machine.update(AT_ONCE, "c", {"h": "x"}, 2)) == [("opened", "h", True), ("closed", "g", True)]


def test_during_a_silence_nothing_is_sent_until_it_ends() -> None:
    machine = AlertStates()
    assert steps(machine.update(AT_ONCE, "c", {"g": "x"}, 0, lambda _: True)) == [("opened", "g", False)]
    assert machine.update(AT_ONCE, "c", {"g": "x"}, 1_000, lambda _: True) == []
    assert steps(machine.update(AT_ONCE, "c", {"g": "x"}, 2_000)) == [("told", "g", True)]
    assert machine.update(AT_ONCE, "c", {"g": "x"}, 3_000) == []
    assert steps(machine.update(AT_ONCE, "c", {}, 4_000, lambda _: True)) == [("closed", "g", True)]


def test_an_unsent_opening_has_no_closing() -> None:
    machine = AlertStates()
    machine.update(AT_ONCE, "c", {"g": "x"}, 0, lambda _: True)
    assert steps(machine.update(AT_ONCE, "c", {}, 1_000)) == [("closed", "g", False)]


def test_alerts_go_on_after_a_restart() -> None:
    kept = [Alert("gone", "c", "g", "x", 0, 0, True), Alert("old rule", "c", "h", "x", 0, 0, True)]
    machine = AlertStates(kept)
    assert machine.update(AT_ONCE, "c", {"g": "y"}, 5_000) == []
    (removed,) = machine.close_removed({("gone", "c")}, 6_000)
    assert (removed.alert.rule, removed.alert.text, removed.is_message) == (
        "old rule",
        "the rule or cluster was removed",
        True,
    )
    assert steps(machine.update(AT_ONCE, "c", {}, 7_000)) == [("closed", "g", True)]
    assert machine.open == {}


def test_alerts_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine_module, "OPEN_MAX", 3)
    machine = AlertStates()
    found = {f"g{number}": "x" for number in range(5)}
    assert len(machine.update(AT_ONCE, "c", found, 0)) == 3
    assert (len(machine.open), machine.ignored_count) == (3, 2)
