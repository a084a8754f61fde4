"""Consumers that are behind because a quota holds them up: from groups and from the brokers' metrics. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from ottla.client.quota_words import number_text
from ottla.operations.doctor.facts import Facts
from ottla.operations.doctor.findings import Finding, Severity, some
from ottla.operations.quota_shares import Share, Suggestion, command
from ottla.quotas.entities import CONSUMER_BYTES, CONSUMER_MESSAGES, REQUEST_SHARE

HELD_SHARE_MIN: Final = 0.05  # of the time: less is nobody's reason to be behind
READING: Final = (CONSUMER_BYTES, CONSUMER_MESSAGES, REQUEST_SHARE)


def check_held_up(facts: Facts, shares: Iterable[Share]) -> Iterator[Finding]:
    """Groups tell the client ids of their members, not the users: a rule of a user alone names its user."""
    for share in shares:
        if share.key not in READING or share.limit is None or share.held_share < HELD_SHARE_MIN:
            continue
        behind = [
            f"{item.group.group_id} ({item.lag} records)"
            for item in facts.groups
            if item.lag and any(member.client_id == share.client_id for member in item.group.members)
        ]
        if share.client_id and not behind and share.key != REQUEST_SHARE:
            continue  # it reads for no group, or is not behind
        who = f"client {share.client_id}" if share.client_id else f"clients of user {share.user}"
        late = f", and these groups are behind: {some(behind)}" if behind else ""
        verb = "would hold it up" if share.is_rehearsed else "holds it up"
        yield Finding(
            Severity.NOTE if share.is_rehearsed else Severity.WARNING,
            "F18",
            f"{who}: {share.key}={number_text(share.limit)} {verb} {min(share.held_share, 1.0):.0%} of the time on "
            f"broker {share.broker}{late}",
            f"it uses all that the rule {share.rule} gives it",
            f"give it more, if there is more: {cure(share)}; ottla quotas top shows it live",
        )


def cure(share: Share) -> str:
    return command(Suggestion(share.user, share.client_id, {share.key: share.needed}))
