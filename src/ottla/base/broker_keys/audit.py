"""The audit trail, which Kafka has no keys for."""

from __future__ import annotations

from ottla.base.audit_events import events_problem
from ottla.base.broker_keys.security import principals_problem
from ottla.base.broker_keys.words import CLUSTER_WIDE
from ottla.base.settings import Boolean, Int, Items, Long, Settings, Short, Text


class AuditKeys(Settings):
    """The audit trail."""

    ottla_audit_enable = Boolean(
        False,
        mode=CLUSTER_WIDE,
        note="Whether logins, denials and administrative changes are written to the topic `__ottla_audit`.",
    )
    ottla_audit_events = Items(
        ("*",),
        check=events_problem,
        mode=CLUSTER_WIDE,
        note="Which of them: names of events and patterns such as `topic.*` ([all of them](audit.md#events)).",
    )
    ottla_audit_exclude_principals = Text(
        "",
        check=principals_problem,
        mode=CLUSTER_WIDE,
        note="Whose doings are left out: principals such as User:monitor, separated by semicolons.",
    )
    ottla_audit_topic_num_partitions = Int(1, at_least=1, note="Partitions of `__ottla_audit` when it is created.")
    ottla_audit_topic_replication_factor = Short(
        3, at_least=1, note="Replicas of `__ottla_audit` when it is created; a broker that is alone makes one."
    )
    ottla_audit_topic_retention_ms = Long(
        7_776_000_000, at_least=-1, note="How long `__ottla_audit` keeps events, when it is created; -1: for ever."
    )
