"""The configuration file: its meaning, and the messages for mistakes."""

from datetime import UTC, datetime
from pathlib import Path

import pytest

from ottla.monitor.alerts.alert_states import Condition, Silence
from ottla.monitor.alerts.delivery import Mail, Webhook
from ottla.monitor.alerts.rule_entries import ConfigError, duration_ms
from ottla.monitor.config import MonitorConfig, read_config, settings_of

FILE = """
intervals: 5
min-distance: 2
offset-refresh: 3s
topic-refresh: 1
expire-group: 1d
group-denylist: '^console-'
clusters:
  main: {bootstrap-server: 'a:9092,b:9092', command-config: client.properties, brokers: [1, 2]}
http: {port: 8001, allow-hosts: [monitor.example]}
state: /var/lib/ottla/monitor.db
pipelines: [/var/lib/ottla/pipelines]
channels:
  ops: {type: dingtalk, url: 'https://oapi.dingtalk.com/robot/send?access_token=${env:TOKEN}', secret: '${file:SECRET}'}
  boss: {type: mail, server: smtp.example.com, from: ottla@example.com, to: [a@example.com], username: u, password: p}
alerts:
  - {name: stuck, when: verdict, status: [WARN, ERR], group: 'billing*', for: 1m, to: [ops, boss]}
  - {name: full, when: disk, below: 5 GiB}
  - {name: dead, when: dead-letters, within: 10m}
  - {name: isr, when: under-min-isr}
  - {name: run, when: pipeline}
silences:
  - {alert: stuck, from: 2026-11-17T22:00:00, until: 2026-11-18T06:00:00+01:00}
"""


def read(text: str, tmp_path: Path) -> MonitorConfig:
    secret = tmp_path / "secret"
    secret.write_text("key\n")
    entry = read_config(text.replace("SECRET", str(secret)).encode(), {"TOKEN": "t0k3n"})
    return settings_of(entry, entry.clusters, lambda path: {"client.id": path})


def test_what_a_file_means(tmp_path: Path) -> None:
    config = read(FILE, tmp_path)
    (cluster,) = config.clusters
    assert (cluster.name, cluster.bootstrap, cluster.properties) == (
        "main",
        "a:9092,b:9092",
        {"client.id": "client.properties"},
    )
    assert cluster.limits[:3] == (5, 2_000, 86_400_000)
    assert (cluster.offset_refresh_ms, cluster.topic_refresh_ms) == (3_000, 1_000)
    assert (cluster.groups.accepts("billing"), cluster.groups.accepts("console-1")) == (True, False)
    assert (cluster.with_log_dirs, cluster.with_min_isr, cluster.watched_topics) == (True, True, ("*-dead-letters",))
    assert (config.http.port, config.http.allow_hosts) == (8001, ["monitor.example"])
    stuck, full, dead, *_ = config.alerts.rules
    assert (stuck.kind, stuck.for_ms, stuck.channels, stuck.statuses) == (
        Condition.VERDICT,
        60_000,
        ("ops", "boss"),
        ("WARN", "ERR"),
    )
    assert (full.below_bytes, full.below_share, dead.within_ms) == (5 * 2**30, 0.0, 600_000)
    url = "https://oapi.dingtalk.com/robot/send?access_token=t0k3n"
    assert config.alerts.channels["ops"] == Webhook("dingtalk", url, "key")
    assert config.alerts.channels["boss"] == Mail(
        "smtp.example.com", 587, "ottla@example.com", ("a@example.com",), "starttls", "u", "p"
    )
    (silence,) = config.alerts.silences
    assert silence.matches("stuck", "main", "group g", datetime(2026, 11, 17, 23, tzinfo=UTC))
    assert not silence.matches("stuck", "main", "group g", datetime(2026, 11, 18, 5, tzinfo=UTC))
    assert not silence.matches("full", "main", "group g", datetime(2026, 11, 17, 23, tzinfo=UTC))
    assert config.alerts.brokers_wanted == {"main": [1, 2]}


def test_an_empty_file_has_burrows_defaults(tmp_path: Path) -> None:
    config = read("clusters: {default: {bootstrap-server: x}}", tmp_path)
    assert config.clusters[0].limits[:2] == (10, 1_000)
    assert (config.http.host, config.http.port, config.state) == ("127.0.0.1", 8000, None)
    assert read("", tmp_path).clusters == ()
    assert Silence().matches("a", "b", "c", datetime.now(UTC))


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("a: [", "line 1: invalid YAML"),
        ("intervalls: 3", "Object contains unknown field `intervalls`"),
        ("intervals: many", "Expected `int`, got `str` in `intervals`"),
        ("intervals: 1", "intervals must be between"),
        ("- 1", "Expected `object`, got `array`"),
        ("clusters: {a: {}}", "missing required field `bootstrap-server` in `clusters"),
        ("offset-refresh: soon", "offset-refresh: 'soon' is not a duration"),
        ("offset-refresh: 1ms", "offset-refresh must be between"),
        ("group-allowlist: '('", "group-allowlist: "),
        ("alerts: [{name: a, when: moon}]", "Invalid enum value 'moon' in `alerts"),
        ("alerts: [{name: a, when: lag}]", "alerts need a file for their state"),
        ("alerts: [{name: a, when: lag, to: [x]}]", "alert a: there is no channel x"),
        ("alerts: [{name: a, when: pipeline}]", "alert a: name the state folders"),
        ("alerts: [{name: a, when: disk, below: little}]", "alert a: below: 'little' is neither"),
        ("state: x\nalerts: [{name: a, when: lag}, {name: a, when: disk}]", "two alerts are called a"),
        ("channels: {a: {type: pigeon}}", "Invalid enum value 'pigeon'"),
        ("channels: {a: {type: slack}}", "channel a: the url must begin with"),
        ("channels: {a: {type: slack, url: 'file:///etc/passwd'}}", "channel a: the url must begin with"),
        ("channels: {a: {type: mail}}", "channel a: mail needs server, from and to"),
        ('channels: {a: {type: mail, server: s, from: "a\\nBcc: x", to: [b]}}', "contains a line break"),
        ("channels: {a: {type: mail, server: s, from: f, to: [t], username: u, security: none}}", "over tls"),
        ("channels: {a: {type: slack, url: '${env:NONE}'}}", "there is no variable NONE"),
        ("a: &x [1]\nb: *x", "anchors and aliases"),
        ("[" * 5_000, "invalid YAML"),
        ("x: \x00", "invalid YAML"),
    ],
)
def test_mistakes_are_reported_in_one_line(text: str, problem: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as found:
        read(text, tmp_path)
    assert problem in str(found.value)
    assert "\n" not in str(found.value)


def test_large_files_are_not_read(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="larger than"):
        read(" " * (1 << 20) + "x", tmp_path)


@pytest.mark.parametrize(
    ("text", "ms"),
    [("250ms", 250), ("30s", 30_000), (5, 5_000), ("1.5m", 90_000), ("2h", 7_200_000), ("1d", 86_400_000)],
)
def test_durations(text: str | int, ms: int) -> None:
    assert duration_ms("x", text) == ms
