"""Event names of the audit trail, and the parser for lists of event patterns. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from fnmatch import fnmatchcase
from typing import Final

from ottla.base.setting_types import invalid_value

LOGIN: Final = "login"
LOGIN_FAILED: Final = "login.failed"
DENIED: Final = "denied"
LOST: Final = "audit.lost"  # events that could not be written

EVENTS: Final = {
    LOGIN: "a client has logged in, with SASL or a certificate",
    LOGIN_FAILED: "a login with SASL, or a handshake of TLS, has failed",
    DENIED: "a change that an access rule, or the lack of one, does not allow",
    "topic.create": "a topic was created, also automatically by a metadata request",
    "topic.delete": "a topic was deleted",
    "topic.partitions": "a topic got more partitions",
    "records.delete": "records below an offset were deleted",
    "config.alter": "settings of a topic, broker, group, logger or client-metrics subscription were changed",
    "acl.create": "an access rule was added",
    "acl.delete": "an access rule was removed",
    "user.alter": "a user got, or lost, a SCRAM password",
    "quota.alter": "a quota was set or removed",
    "token.create": "a delegation token was created",
    "token.renew": "a delegation token was renewed",
    "token.expire": "a delegation token was expired, or its expiry was changed",
    "reassignment.alter": "replicas were moved to other brokers, or such a move was cancelled",
    "leader.elect": "partitions got another leader on request",
    "log.dir.alter": "replicas were moved to another log directory of their broker",
    "group.delete": "a consumer group was deleted",
    "group.offsets.alter": "offsets of a consumer group were set by a client that is not a member",
    "group.offsets.delete": "offsets of a consumer group were deleted",
    "transaction.abort": "an administrator has aborted a hanging transaction",
    "feature.update": "a feature of the cluster got another level",
    "broker.unregister": "a broker was unregistered on request",
    LOST: "the number of events that could not be written",
}


def select_events(patterns: Iterable[str]) -> frozenset[str]:
    """The events that a list of names and patterns (`topic.*`) matches."""
    wanted = tuple(patterns)
    return frozenset(event for event in EVENTS if any(fnmatchcase(event, pattern) for pattern in wanted))


def unknown_event(patterns: Iterable[str]) -> str | None:
    """The first pattern that matches no event, or None."""
    return next((pattern for pattern in patterns if not select_events([pattern])), None)


def events_problem(name: str, value: object) -> str | None:
    assert isinstance(value, tuple)
    unknown = unknown_event(value)
    if unknown is None:
        return None
    return invalid_value(name, value, f"There is no event {unknown}; known are {', '.join(EVENTS)}, and patterns: *")
