"""Persistence of alerts over a restart."""

import sqlite3
import stat
from pathlib import Path

import pytest

from ottla.monitor.alerts import ledger as ledger_module
from ottla.monitor.alerts.alert_states import Alert, Event, Transition
from ottla.monitor.alerts.ledger import AlertStore, AlertStoreError

ALERT = Alert("stuck", "default", "group g", "ERR", 1_000, 2_000, True)
OPENED = Event(Transition.OPENED, ALERT, 2_000, True)
CLOSED = Event(Transition.CLOSED, ALERT, 9_000, True)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "monitor.db"


def test_only_the_owner_can_read_the_file(path: Path) -> None:
    path.touch(0o644)
    AlertStore(path).close()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_open_alerts_and_unsent_messages_survive(path: Path) -> None:
    ledger = AlertStore(path)
    ledger.record([OPENED], [("ops", [OPENED]), ("mail", [OPENED])], 2_000)
    (first, _) = ledger.due_messages(2_000)
    ledger.mark_sent(first, 2_100)
    ledger.close()
    ledger = AlertStore(path)
    assert ledger.open_alerts() == [ALERT]
    (left,) = ledger.due_messages(3_000)
    assert (left.channel, left.events, left.attempts) == ("mail", (OPENED,), 0)
    ledger.record([CLOSED], [], 9_000)
    assert ledger.open_alerts() == []
    assert [(row["subject"], row["closed_ms"]) for row in ledger.history(10)] == [("group g", 9_000)]


def test_an_alert_sent_later_stays_open(path: Path) -> None:
    ledger = AlertStore(path)
    quiet = OPENED._replace(alert=ALERT._replace(is_told=False), is_message=False)
    ledger.record([quiet], [], 2_000)
    ledger.record([Event(Transition.NOTIFIED, ALERT, 3_000, True)], [], 3_000)
    assert ledger.open_alerts() == [ALERT]


def test_messages_that_fail_wait_and_are_given_up(path: Path) -> None:
    ledger = AlertStore(path)
    ledger.record([], [("ops", [OPENED])], 0)
    (message,) = ledger.due_messages(0)
    ledger.mark_failed(message, "answers 500", 5_000, 100)
    assert ledger.due_messages(4_999) == []
    (message,) = ledger.due_messages(5_000)
    assert message.attempts == 1
    ledger.mark_failed(message, "answers 500", None, 5_000)
    assert ledger.due_messages(10**15) == []
    assert [(row["channel"], row["problem"], row["attempts"]) for row in ledger.failed_messages(10)] == [
        ("ops", "answers 500", 2)
    ]


def test_the_file_is_bounded(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ledger_module, "KEPT_MAX", 3)
    ledger = AlertStore(path)
    for number in range(10):
        alert = ALERT._replace(subject=f"group {number}")
        ledger.record([OPENED._replace(alert=alert)], [("ops", [OPENED])], number)
        if number:
            ledger.record([CLOSED._replace(alert=alert)], [], number)
    for message in ledger.due_messages(100, 9):
        ledger.mark_sent(message, 100)
    ledger.prune()
    assert [row["subject"] for row in ledger.history(100)] == ["group 9", "group 8", "group 7", "group 0"]
    assert len(ledger.due_messages(100)) == 1


def test_files_of_others_are_refused(path: Path, tmp_path: Path) -> None:
    path.write_bytes(b"not a database, but long enough to be looked at" * 100)
    with pytest.raises(AlertStoreError, match="is not a file of alerts"):
        AlertStore(path)
    with pytest.raises(AlertStoreError, match="no such file or directory"):
        AlertStore(tmp_path / "none" / "monitor.db")
    newer = tmp_path / "newer.db"
    with sqlite3.connect(newer) as database:
        database.execute("PRAGMA user_version = 99")
    database.close()
    with pytest.raises(AlertStoreError, match="another version"):
        AlertStore(newer)


def test_notified_channels_survive_and_version_1_files_are_read(path: Path) -> None:
    told = ALERT._replace(channels=("ops", "night"))
    ledger = AlertStore(path)
    ledger.record([OPENED._replace(alert=told)], [], 2_000)
    assert ledger.open_alerts() == [told]
    ledger.close()
    database = sqlite3.connect(path)  # as version 1 wrote it
    database.executescript("ALTER TABLE alerts DROP COLUMN channels; DROP TABLE entries; PRAGMA user_version = 1;")
    database.close()
    ledger = AlertStore(path)
    assert ledger.open_alerts() == [ALERT]
    ledger.put_entry("rule", "default/r", "{}")
    ledger.close()
    assert AlertStore(path).entries("rule") == {"default/r": "{}"}


def test_the_past_of_one_cluster(path: Path) -> None:
    ledger = AlertStore(path)
    others = [OPENED._replace(alert=ALERT._replace(cluster=name)) for name in ("a", "b", "-")]
    ledger.record([OPENED, *others], [], 2_000)
    assert [row["cluster"] for row in ledger.history(10, ("b", "-"))] == ["-", "b"]
    assert len(ledger.history(3)) == 3
