"""The rows of the API about alerts; table.py has the others."""

from __future__ import annotations

from ottla.console.api import alerts, receivers
from ottla.console.api.routing import DELETE, GET, POST, PUT, Route
from ottla.console.people.rights import Role
from ottla.monitor.alerts.entries import ChannelEntry

CLUSTER = "/api/clusters/{cluster}"

ROUTES = [
    Route(
        GET,
        f"{CLUSTER}/alerts",
        alerts.list_open,
        Role.VIEWER,
        "open alerts, and messages that were not taken",
        alerts.AlertList,
        is_shared=False,
    ),
    Route(
        GET,
        f"{CLUSTER}/alert-history",
        alerts.list_history,
        Role.VIEWER,
        "alerts, newest first",
        alerts.AlertHistory,
        is_shared=False,
    ),
    Route(
        GET,
        f"{CLUSTER}/alert-rules",
        alerts.list_rules,
        Role.VIEWER,
        "rules and silences",
        alerts.RuleList,
        is_shared=False,
    ),
    Route(
        PUT,
        f"{CLUSTER}/alert-rules/{{rule}}",
        alerts.put_rule,
        Role.OPERATOR,
        "add or change a rule",
        alerts.RuleRow,
        alerts.RuleBody,
    ),
    Route(DELETE, f"{CLUSTER}/alert-rules/{{rule}}", alerts.drop_rule, Role.OPERATOR, "delete a rule"),
    Route(
        POST,
        f"{CLUSTER}/alert-silences",
        alerts.add_silence,
        Role.OPERATOR,
        "send nothing for a while",
        alerts.SilenceRow,
        alerts.SilenceBody,
    ),
    Route(DELETE, f"{CLUSTER}/alert-silences/{{silence}}", alerts.drop_silence, Role.OPERATOR, "end a silence"),
    Route(GET, "/api/receivers", receivers.list_receivers, Role.ADMIN, "who is told of alerts", receivers.ReceiverList),
    Route(
        PUT,
        "/api/receivers/{receiver}",
        receivers.put_receiver,
        Role.ADMIN,
        "add or change a receiver",
        receivers.ReceiverRow,
        ChannelEntry,
    ),
    Route(DELETE, "/api/receivers/{receiver}", receivers.drop_receiver, Role.ADMIN, "forget a receiver"),
    Route(POST, "/api/receivers/{receiver}/trials", receivers.try_receiver, Role.ADMIN, "send a message now"),
]
