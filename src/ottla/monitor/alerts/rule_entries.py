"""Parsing of rules, silences and channels from the monitor's file and the console.

An error is one sentence without secrets.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from datetime import UTC, datetime
from typing import Final, Literal

import msgspec

from ottla.monitor.alerts.alert_states import Condition, Rule, Silence
from ottla.monitor.alerts.delivery import Channel, DeliveryError, Mail, Webhook, check_url

_DURATION: Final = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|s|m|h|d)?")
_UNITS_MS: Final = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_DURATION_MS_MAX: Final = 3_650 * _UNITS_MS["d"]
_BYTES: Final = re.compile(r"(\d{1,15}(?:\.\d+)?)\s*(%|[KMGT]i?B|B)?")
_SIZES: Final = {"B": 1, **{f"{letter}{i}B": 1024**n for n, letter in enumerate("KMGT", 1) for i in ("", "i")}}
_MAIL_PORTS: Final = {"tls": 465, "starttls": 587, "none": 25}


class ConfigError(Exception):
    """Invalid configuration: one sentence."""


class Entry(msgspec.Struct, forbid_unknown_fields=True, rename="kebab", frozen=True):
    """Base of all entries: kebab-case names, unknown fields are errors."""


class RuleFields(Entry, frozen=True, kw_only=True):
    """A rule without its name."""

    when: Condition
    to: list[str] = []
    for_: str | int = msgspec.field(name="for", default="0s")
    group: str = "*"
    topic: str = ""
    pipeline: str = "*"
    status: tuple[Literal["WARN", "ERR"], ...] = ("ERR",)
    above: float = 0.0
    below: str = "10 %"
    within: str | int = "5m"


class RuleEntry(RuleFields, frozen=True, kw_only=True):
    """A rule of the file, for clusters that match a pattern."""

    name: str
    cluster: str = "*"


class SilenceEntry(Entry, frozen=True, kw_only=True):
    """Alerts to suppress, and when."""

    alert: str = "*"
    cluster: str = "*"
    subject: str = "*"
    from_: datetime | None = msgspec.field(name="from", default=None)
    until: datetime | None = None


class ChannelEntry(Entry, frozen=True, kw_only=True):
    """A recipient: a webhook in the format of a service, or mail."""

    type: Literal["slack", "dingtalk", "feishu", "wecom", "webhook", "mail"]
    url: str = ""
    secret: str = ""
    allow_private: bool = False
    server: str = ""
    port: int = 0
    from_: str = msgspec.field(name="from", default="")
    to: list[str] = []
    security: Literal["tls", "starttls", "none"] = "starttls"
    username: str = ""
    password: str = ""


def duration_ms(name: str, text: str | int) -> int:
    """`30s`, `5m`, `1h`, `250ms`; a bare number is seconds. Raises ConfigError."""
    match = _DURATION.fullmatch(str(text).strip())
    if match is None:
        raise ConfigError(f"{name}: {text!r} is not a duration: write 30s, 5m or 1h")
    found = float(match[1]) * _UNITS_MS[match[2] or "s"]
    if found > _DURATION_MS_MAX:
        raise ConfigError(f"{name} is longer than ten years")
    return int(found)


def rule_of(name: str, cluster: str, entry: RuleFields, channels: Collection[str], *, has_pipelines: bool) -> Rule:
    """Raises ConfigError."""
    where = f"alert {name}"
    for channel in entry.to:
        if channel not in channels:
            raise ConfigError(f"{where}: there is no channel {channel}")
    if entry.when is Condition.PIPELINE and not has_pipelines:
        raise ConfigError(f"{where}: name the state folders of the pipelines, pipelines: [/var/lib/ottla/pipelines]")
    match = _BYTES.fullmatch(entry.below.strip())
    if match is None:
        raise ConfigError(f"{where}: below: {entry.below!r} is neither a share (10 %) nor a size (5 GiB)")
    is_share = match[2] == "%"
    return Rule(
        name,
        entry.when,
        tuple(entry.to),
        duration_ms(f"{where}: for", entry.for_),
        cluster,
        entry.group,
        entry.topic or ("*-dead-letters" if entry.when is Condition.DEAD_LETTERS else "*"),
        entry.pipeline,
        entry.status,
        entry.above,
        float(match[1]) / 100 if is_share else 0.0,
        0 if is_share else int(float(match[1]) * _SIZES[match[2] or "B"]),
        duration_ms(f"{where}: within", entry.within),
    )


def silence_of(entry: SilenceEntry) -> Silence:
    def aware(time: datetime | None) -> datetime | None:
        return time.replace(tzinfo=UTC) if time is not None and time.tzinfo is None else time

    return Silence(entry.alert, entry.cluster, entry.subject, aware(entry.from_), aware(entry.until))


def channel_of(name: str, entry: ChannelEntry) -> Channel:
    """Raises ConfigError."""
    if entry.type == "mail":
        if not entry.server or not entry.from_ or not entry.to:
            raise ConfigError(f"channel {name}: mail needs server, from and to")
        if any(character in "\r\n" for address in (entry.from_, *entry.to) for character in address):
            raise ConfigError(f"channel {name}: an address contains a line break")
        if entry.username and entry.security == "none":
            raise ConfigError(f"channel {name}: a password is sent over tls or starttls only")
        port = entry.port or _MAIL_PORTS[entry.security]
        return Mail(
            entry.server,
            port,
            entry.from_,
            tuple(entry.to),
            entry.security,
            entry.username,
            entry.password,
            entry.allow_private,
        )
    try:
        check_url(entry.url)
    except DeliveryError as problem:
        raise ConfigError(f"channel {name}: {problem}") from None
    return Webhook(entry.type, entry.url, entry.secret, entry.allow_private)
