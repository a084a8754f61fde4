"""Alerts of a cluster: open ones, history, rules and silences.

Rules and silences apply to all names of a cluster, so changing them requires the role for all names.
"""

from __future__ import annotations

import re
import uuid
from datetime import UTC, datetime, timedelta

import msgspec

from ottla.console.alerts import PIPELINE_CLUSTER, RULE, RULES_MAX, SILENCE, SILENCES_MAX
from ottla.console.api.call import Call
from ottla.console.api.errors import ApiError, bad_request, not_found
from ottla.console.auth.rights import ALL, Role
from ottla.monitor.alerts.alert_states import Condition, Silence
from ottla.monitor.alerts.rule_entries import ConfigError, RuleFields, SilenceEntry, rule_of

NAME = re.compile(r"[^/\x00-\x1f\x7f]{1,100}")
TEXT_MAX = 300
LIST_MAX = 50
ROWS_MAX = 500
MINUTES_MAX = 30 * 24 * 60
NAMED_SUBJECTS = ("group ", "topic ", "pipeline ")  # prefixes of subjects with a name


class AlertRow(msgspec.Struct, frozen=True):
    """`closed_ms` None: open. `kind` is empty if the rule was deleted."""

    rule: str
    kind: str
    subject: str
    text: str
    since_ms: int
    opened_ms: int
    closed_ms: int | None
    is_told: bool
    is_silenced: bool = False


class UnsentRow(msgspec.Struct, frozen=True):
    """A message that was not delivered; `done_ms`: the time of the last attempt, if no more follow."""

    channel: str
    made_ms: int
    attempts: int
    problem: str
    done_ms: int | None


class AlertList(msgspec.Struct, frozen=True):
    """`count` includes alerts beyond the limit; `problem` is why the rules cannot be evaluated."""

    count: int
    alerts: list[AlertRow]
    rules: int
    problem: str
    unsent: list[UnsentRow]


class AlertHistory(msgspec.Struct, frozen=True):
    alerts: list[AlertRow]


class RuleRow(msgspec.Struct, frozen=True):
    name: str
    rule: RuleFields
    open: int


class SilenceRow(msgspec.Struct, frozen=True):
    """A rule and a subject, or * for all, whose alerts are not sent until then."""

    id: str
    rule: str
    subject: str
    until_ms: int


class RuleList(msgspec.Struct, frozen=True):
    rules: list[RuleRow]
    silences: list[SilenceRow]
    receivers: list[str]
    has_pipelines: bool


class RuleBody(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """`before` is the rule that the caller has seen; None: a new rule."""

    rule: RuleFields
    before: RuleFields | None = None


class SilenceBody(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """A rule, and one of its subjects or all of them (*)."""

    rule: str
    subject: str = ALL
    minutes: int


async def list_open(call: Call) -> AlertList:
    alerts, cluster = call.console.alerts, call.parameters["cluster"]
    found = [each for each in alerts.open_alerts_of(cluster) if _sees_subject(call, each.subject)]
    limit = call.int_query("limit", 200, ROWS_MAX)
    silences = _silences(call)
    now = datetime.fromtimestamp(call.console.clock.now_ms() / 1000, UTC)
    rows = [
        _alert_row(
            call,
            {**each._asdict(), "closed_ms": None},
            is_silenced=_is_silenced(silences, each.rule, each.subject, now),
        )
        for each in found[:limit]
    ]
    unsent = await alerts.unsent(limit) if limit and call.sees_all else []
    return AlertList(
        len(found),
        rows,
        sum(key[0] == cluster for key in alerts.rules),
        alerts.problem(cluster),
        [msgspec.convert(each, UnsentRow) for each in unsent],
    )


async def list_history(call: Call) -> AlertHistory:
    limit = call.int_query("limit", 200, ROWS_MAX)
    found = await call.console.alerts.history(call.parameters["cluster"], limit)
    return AlertHistory([_alert_row(call, each) for each in found if _sees_subject(call, str(each["subject"]))])


async def list_rules(call: Call) -> RuleList:
    alerts, cluster = call.console.alerts, call.parameters["cluster"]
    opened = [each.rule for each in alerts.open_alerts_of(cluster)]
    rules = [
        RuleRow(name, rule, opened.count(name))
        for (place, name), rule in sorted(alerts.rules.items())
        if place == cluster
    ]
    has_pipelines = cluster == call.console.pipelines_cluster
    return RuleList(rules, _silences(call), sorted(alerts.receivers), has_pipelines)


async def put_rule(call: Call) -> RuleRow:
    call.require_role(Role.OPERATOR, ALL)
    alerts, cluster, name = call.console.alerts, call.parameters["cluster"], call.parameters["rule"]
    body: RuleBody = call.body
    old = alerts.rules.get((cluster, name))
    call.audit(name, old, body.rule)
    _check_rule(call, name, body.rule)
    if body.before is None and old is not None:
        raise ApiError(409, "RULE_ALREADY_EXISTS", f"the rule {name} already exists")
    if body.before is not None and body.before != old:
        raise ApiError(409, "CHANGED_MEANWHILE", f"the rule {name} was changed meanwhile: reload it")
    if old is None and len(alerts.rules) >= RULES_MAX:
        raise ApiError(409, "TOO_MANY", f"there are {RULES_MAX} rules already")
    await alerts.put(RULE, f"{cluster}/{name}", body.rule)
    return RuleRow(name, body.rule, 0)


async def drop_rule(call: Call) -> None:
    call.require_role(Role.OPERATOR, ALL)
    alerts, key = call.console.alerts, (call.parameters["cluster"], call.parameters["rule"])
    if key not in alerts.rules:
        raise not_found(f"there is no rule {key[1]}")
    call.audit(key[1], alerts.rules[key])
    await alerts.delete(RULE, "/".join(key))


async def add_silence(call: Call) -> SilenceRow:
    call.require_role(Role.OPERATOR, ALL)
    alerts, cluster = call.console.alerts, call.parameters["cluster"]
    body: SilenceBody = call.body
    if not 0 < body.minutes <= MINUTES_MAX:
        raise bad_request(f"a silence must last 1 to {MINUTES_MAX} minutes")
    if (cluster, body.rule) not in alerts.rules:
        raise not_found(f"there is no rule {body.rule}")
    for name in alerts.silences.keys() - alerts.active_silences().keys():
        await alerts.delete(SILENCE, name)
    if len(alerts.silences) >= SILENCES_MAX:
        raise ApiError(409, "TOO_MANY", f"there are {SILENCES_MAX} silences already")
    until = datetime.fromtimestamp(call.console.clock.now_ms() / 1000, UTC) + timedelta(minutes=body.minutes)
    # Alerts of pipelines have another cluster name. Rules of the same name in other clusters must not be silenced.
    where = PIPELINE_CLUSTER if alerts.rules[cluster, body.rule].when is Condition.PIPELINE else cluster
    entry = SilenceEntry(
        alert=_escaped(body.rule), cluster=where, subject=_escaped(body.subject[:TEXT_MAX]), until=until
    )
    name = f"{cluster}/{uuid.uuid4().hex}"
    call.audit(body.rule, after={"subject": body.subject, "until": until})
    await alerts.put(SILENCE, name, entry)
    return _silence_row(name, entry)


async def drop_silence(call: Call) -> None:
    call.require_role(Role.OPERATOR, ALL)
    alerts, name = call.console.alerts, f"{call.parameters['cluster']}/{call.parameters['silence']}"
    if name not in alerts.silences:
        raise not_found("there is no such silence")
    call.audit(alerts.silences[name].alert, alerts.silences[name])
    await alerts.delete(SILENCE, name)


def _check_rule(call: Call, name: str, rule: RuleFields) -> None:
    """Validate a rule beyond its types. Raises ApiError."""
    if not NAME.fullmatch(name) or name == ALL:
        raise bad_request("the name of a rule must have 1 to 100 characters, without / and control characters")
    if rule.when is Condition.PIPELINE and call.parameters["cluster"] != call.console.pipelines_cluster:
        raise bad_request(f"rules for pipelines belong to the cluster {call.console.pipelines_cluster}")
    if any(len(text) > TEXT_MAX for text in (rule.group, rule.topic, rule.pipeline, rule.below)) or rule.above < 0:
        raise bad_request(f"a pattern has at most {TEXT_MAX} characters, and a limit must not be negative")
    if len(rule.to) > LIST_MAX or not rule.status:
        raise bad_request(f"a rule has at most {LIST_MAX} receivers, and a verdict must be WARN or ERR")
    try:
        rule_of(name, call.parameters["cluster"], rule, call.console.alerts.receivers, has_pipelines=True)
    except ConfigError as problem:
        raise bad_request(str(problem).replace("there is no channel", "there is no receiver")) from None


def _sees_subject(call: Call, subject: str) -> bool:
    """Callers who see some names only get neither alerts of other names nor alerts about several names."""
    if call.sees_all:
        return True
    for word in NAMED_SUBJECTS:
        if subject.startswith(word):
            return call.sees(subject.removeprefix(word))
    return subject != "partitions"


def _alert_row(call: Call, alert: dict[str, object], *, is_silenced: bool = False) -> AlertRow:
    rule = call.console.alerts.rules.get((call.parameters["cluster"], str(alert["rule"])))
    kind = rule.when.value if rule is not None else ""
    shown = {key: alert[key] for key in AlertRow.__struct_fields__ if key in alert}
    return msgspec.convert({**shown, "kind": kind, "is_silenced": is_silenced}, AlertRow)


def _silences(call: Call) -> list[SilenceRow]:
    prefix = f"{call.parameters['cluster']}/"
    live = call.console.alerts.active_silences()
    return [_silence_row(name, entry) for name, entry in live.items() if name.startswith(prefix)]


def _silence_row(name: str, entry: SilenceEntry) -> SilenceRow:
    assert entry.until is not None
    until_ms = int(entry.until.timestamp() * 1000)
    return SilenceRow(name.partition("/")[2], _unescaped(entry.alert), _unescaped(entry.subject), until_ms)


def _is_silenced(silences: list[SilenceRow], rule: str, subject: str, now: datetime) -> bool:
    return any(
        Silence(_escaped(each.rule), ALL, _escaped(each.subject)).matches(rule, "", subject, now) for each in silences
    )


def _escaped(text: str) -> str:
    """A pattern that matches only this name; * stays a wildcard."""
    return text if text == ALL else re.sub(r"([*?[])", r"[\1]", text)


def _unescaped(pattern: str) -> str:
    return pattern if pattern == ALL else re.sub(r"\[([*?[])\]", r"\1", pattern)
