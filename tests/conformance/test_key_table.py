"""Every key of a broker and of a topic, compared with tables that were read from Apache Kafka 4.3.1.

The tables (kafka_keys/*.tsv) hold facts: name, type, default, for whom a running broker's value can be changed (all
brokers, one, or one of its listeners), the broker key behind a topic key, the range. "-" is nothing, '""' an empty
text. These tests pass against Apache Kafka too; intended differences are listed here and described in
docs/settings.md.
"""

import csv
from pathlib import Path
from typing import Any

import pytest
from tests.conformance.config_requests import (
    BROKER,
    DEFAULT,
    DELETE,
    DYNAMIC_BROKER,
    OK,
    SET,
    TOPIC,
    change,
    describe,
    entries,
    synonyms_of,
    wait_for,
)
from tests.conformance.peer import Peer

TABLES = Path(__file__).parent / "kafka_keys"
TYPES = ("", "boolean", "string", "int", "short", "long", "double", "list", "class", "password")
NUMBERS = ("int", "short", "long", "double")
NOTHING, EMPTY = "-", '""'
OWN_PREFIX = "ottla."  # keys that Kafka does not have
LISTENER = "listener.name.plaintext."
DYNAMIC = (
    "Invalid value org.apache.kafka.common.config.ConfigException: {} for configuration Invalid dynamic configuration"
)
# Changed in the file only.
NOT_CHANGEABLE_HERE = ("config.providers", "listener.security.protocol.map", "listeners", "metric.reporters")


def table(name: str) -> dict[str, dict[str, str]]:
    with open(TABLES / f"{name}.tsv", newline="") as file:
        rows = csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE)
        return {row["key"]: row for row in rows}


BROKER_KEYS, TOPIC_KEYS = table("broker"), table("topic")


def text(cell: str) -> str | None:
    return {NOTHING: None, EMPTY: ""}.get(cell, cell)


def own_default(entry: Any) -> str | None:
    return next((value for key, value, source in synonyms_of(entry) if (key, source) == (entry.name, DEFAULT)), None)


def expected_change(key: str, broker: object) -> str:
    """A foreign broker (None) is held to the table."""
    if broker is not None and key.startswith(NOT_CHANGEABLE_HERE):
        return NOTHING
    return BROKER_KEYS[key]["change"]


def test_a_brokers_keys_have_kafkas_names_types_and_defaults(peer: Peer) -> None:
    found = {name: entry for name, entry in entries(peer, BROKER, "1").items() if not name.startswith(OWN_PREFIX)}
    shown = {name: (TYPES[entry.config_type], own_default(entry)) for name, entry in found.items()}
    assert shown == {name: (row["type"], text(row["default"])) for name, row in BROKER_KEYS.items()}
    assert {name for name, entry in found.items() if entry.is_sensitive} == {
        name for name, row in BROKER_KEYS.items() if row["type"] == "password"
    }


def test_the_same_keys_can_be_changed(peer: Peer, broker: object) -> None:
    found = entries(peer, BROKER, "1")
    assert {name for name in BROKER_KEYS if not found[name].read_only} == {
        name for name in BROKER_KEYS if expected_change(name, broker) != NOTHING
    }


def test_a_topics_keys_have_kafkas_names_types_defaults_and_broker_keys(peer: Peer, topic: str) -> None:
    found = {name: entry for name, entry in entries(peer, TOPIC, topic).items() if not name.startswith(OWN_PREFIX)}
    assert {name: (TYPES[entry.config_type], entry.value) for name, entry in found.items()} == {
        name: (row["type"], text(row["default"])) for name, row in TOPIC_KEYS.items()
    }
    behind = {name: synonyms_of(entry)[-1][0] for name, entry in found.items() if synonyms_of(entry)}
    assert behind == {name: row["broker key"] for name, row in TOPIC_KEYS.items() if row["broker key"] != NOTHING}


@pytest.mark.parametrize("name", ["1", ""])
def test_a_read_only_key_is_refused_and_keeps_its_value(peer: Peer, broker: object, name: str) -> None:
    for key in BROKER_KEYS:
        changed = expected_change(key, broker)
        if changed == NOTHING:
            message = f"Cannot update these configs dynamically: [{key}]"
            assert change(peer, (BROKER, name, [(key, SET, "1")])) == [(42, message)]
        elif changed == "one" and not name and key not in ("listeners", "cordoned.log.dirs"):
            ((code, said),) = change(peer, (BROKER, "", [(key, SET, valid_value(key))]), validate_only=True)
            assert (code, said) == (
                42,
                f"Cannot update these configs at default cluster level, broker id must be specified: [{key}]",
            )
    assert [entry.name for entry in describe(peer, BROKER, "").configs] == ["min.insync.replicas"]


def test_stores_are_changed_for_one_listener_only(peer: Peer) -> None:
    for key, row in BROKER_KEYS.items():
        if row["change"] == "listener" and row["type"] != "class":
            message = "These security configs can be dynamically updated only per-listener using the listener prefix"
            assert change(peer, (BROKER, "1", [(key, SET, "1")])) == [(42, f"{message}: [{key}]")]
    key = f"{LISTENER}ssl.keystore.password"
    message = f"Cannot update these configs at default cluster level, broker id must be specified: [{key}]"
    assert change(peer, (BROKER, "", [(key, SET, "1")])) == [(42, message)]


def valid_value(key: str) -> str:
    """The default, or a text where a key has none."""
    return text(BROKER_KEYS[key]["default"]) or "1"


def test_every_changeable_key_takes_its_default(peer: Peer, broker: object) -> None:
    for key, row in BROKER_KEYS.items():
        default = text(row["default"])
        if expected_change(key, broker) == "all" and default and key != "min.insync.replicas":
            for name in ("1", ""):
                assert change(peer, (BROKER, name, [(key, SET, default)]), validate_only=True) == [OK], key


@pytest.mark.parametrize("kind", ["broker", "topic"])
def test_every_number_is_checked_against_kafkas_range(peer: Peer, topic: str, broker: object, kind: str) -> None:
    rows, resource, code = (BROKER_KEYS, (BROKER, "1"), 42) if kind == "broker" else (TOPIC_KEYS, (TOPIC, topic), 40)
    for key, row in rows.items():
        if row["type"] not in NUMBERS or (kind == "broker" and expected_change(key, broker) == NOTHING):
            continue
        wrong = {"abc": ("abc", f"Not a number of type {row['type'].upper()}")}
        for column, step in (("at least", -1), ("at most", 1)):
            limit = text(row[column])
            if limit is not None:
                number = int(limit) + step
                shown = f"{number}.0" if row["type"] == "double" else str(number)
                bound = f"{'at least' if step < 0 else 'no more than'} {limit}"
                wrong[str(number)] = (shown, f"Value must be {bound}")
        for value, (shown, reason) in wrong.items():
            sentence = f"Invalid value {shown} for configuration {key}: {reason}"
            assert change(peer, (*resource, [(key, SET, value)])) == [(code, sentence)]


def test_a_refused_value_changes_nothing(peer: Peer, topic: str) -> None:
    before = {name: (entry.value, entry.config_source) for name, entry in entries(peer, TOPIC, topic).items()}
    for key in TOPIC_KEYS:
        good_and_bad = [("retention.ms" if key != "retention.ms" else "flush.ms", SET, "1000"), (key, SET, "?")]
        ((code, message),) = change(peer, (TOPIC, topic, good_and_bad))
        assert (code, bool(message)) == (40, True), key
    after = {name: (entry.value, entry.config_source) for name, entry in entries(peer, TOPIC, topic).items()}
    assert after == before


@pytest.mark.parametrize("name", ["1", ""])
@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        (f"{LISTENER}max.connections", "5", None),
        (f"{LISTENER}max.connection.creation.rate", "5", None),
        (f"{LISTENER}num.network.threads", "2", None),
        ("listener.name.elsewhere.max.connections", "5", None),
        (f"{LISTENER}max.connections", "0", DYNAMIC.format("Invalid max.connections 0")),
        (
            f"{LISTENER}max.connections",
            "x",
            "Invalid value x for configuration max.connections: Not a number of type INT",
        ),
        ("max.connections", "0", DYNAMIC.format("Invalid max.connections 0")),
        ("num.network.threads", "1", None),
        ("max.connections.per.ip.overrides", "127.0.0.1:5,::1:7", None),
        (
            "max.connections.per.ip.overrides",
            "no such host:7",
            "max.connections.per.ip.overrides contains invalid addresses : no such host",
        ),
        ("max.connections.per.ip.overrides", "127.0.0.1:x", 'For input string: "x"'),
        (
            "log.local.retention.ms",
            "-1",
            DYNAMIC.format(
                "Invalid value -1 for configuration log.local.retention.ms: "
                "Value must not be -1 as log.retention.ms value is set as 604800000."
            ),
        ),
        (
            "log.cleanup.policy",
            "a,,b",
            "Invalid value a for configuration log.cleanup.policy: String must be one of: compact, delete",
        ),
    ],
)
def test_changes_that_have_rules_of_their_own(peer: Peer, name: str, key: str, value: str, message: str | None) -> None:
    expected = (0 if message is None else 42, message)
    assert change(peer, (BROKER, name, [(key, SET, value)]), validate_only=True) == [expected]


def test_a_closed_folder_must_be_one_of_the_brokers(peer: Peer) -> None:
    def close(folders: str) -> list[tuple[int, str | None]]:
        return change(peer, (BROKER, "1", [("cordoned.log.dirs", SET, folders)]), validate_only=True)

    assert close("*") == [OK]
    ((code, message),) = close("/a,/b")
    assert code == 42
    assert message == (
        "requirement failed: All entries in cordoned.log.dirs must be present in log.dirs or log.dir. "
        "Missing entries : /a, /b"
    )


def test_a_listeners_own_setting_is_shown_before_the_brokers(peer: Peer) -> None:
    key = f"{LISTENER}max.connections"
    assert change(peer, (BROKER, "1", [(key, SET, "5000")])) == [OK]
    try:
        entry = wait_for(peer, BROKER, "1", key, "5000")
        assert (TYPES[entry.config_type], entry.read_only, entry.config_source) == ("int", True, DYNAMIC_BROKER)
        assert synonyms_of(entry) == [(key, "5000", DYNAMIC_BROKER), ("max.connections", "2147483647", DEFAULT)]
    finally:
        assert change(peer, (BROKER, "1", [(key, DELETE, None)])) == [OK]
