"""Checks from the brokers' metrics: lossy links, unsupported versions, throttled consumers, uncompiled
brokers. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Final, NamedTuple

from ottla.base.compiled import ADVICE
from ottla.client.quotas import number_text
from ottla.operations.doctor.cluster_facts import ClusterFacts
from ottla.operations.doctor.findings import Finding, Severity, case_finding, is_local, shorten_list
from ottla.operations.metric_readings import Reading
from ottla.operations.quotas import QuotaUse, Suggestion, quota_command
from ottla.quotas.entities import CONSUMER_BYTES, CONSUMER_MESSAGES, REQUEST_SHARE

# ---- unsupported versions
_UNSUPPORTED_METRIC = "ottla_unsupported_requests_total"


def check_unsupported(readings: Sequence[Reading]) -> Iterator[Finding]:
    """One finding for each client ID and library."""
    asked: dict[tuple[str, str], dict[str, int]] = {}
    for reading in readings:
        for sample in reading.samples_of(_UNSUPPORTED_METRIC):
            labels = sample.labels
            software = f"{labels.get('client_software_name', '')} {labels.get('client_software_version', '')}"
            client = (labels.get("client_id", ""), software)
            counts = asked.setdefault(client, {})
            request = f"{labels.get('request', '')} v{labels.get('version', '')}"
            counts[request] = counts.get(request, 0) + int(sample.value)
    for (client_id, software), counts in sorted(asked.items()):
        told = [f"{request} ({count} times)" for request, count in sorted(counts.items())]
        yield case_finding(
            Severity.WARNING,
            "F13",
            f"client {client_id!r} ({software_name(software)}) is disconnected, because it requests "
            f"{shorten_list(told)}",
        )


def software_name(software: str) -> str:
    """The client's software name. Clients older than Kafka 2.4 and those that skip ApiVersions send none."""
    return "an unnamed library" if software == "unknown unknown" else software


# ---- throttled consumers
THROTTLED_SHARE_MIN: Final = 0.05  # of the time: less does not explain lag
CONSUMER_QUOTAS: Final = (CONSUMER_BYTES, CONSUMER_MESSAGES, REQUEST_SHARE)


def check_throttled_consumers(facts: ClusterFacts, shares: Iterable[QuotaUse]) -> Iterator[Finding]:
    """Groups list the client IDs of members, not the users, so a quota of a user alone is reported with the user."""
    for share in shares:
        if share.key not in CONSUMER_QUOTAS or share.limit is None or share.throttled_share < THROTTLED_SHARE_MIN:
            continue
        behind = [
            f"{item.group.group_id} ({item.lag} records)"
            for item in facts.groups
            if item.lag and any(member.client_id == share.client_id for member in item.group.members)
        ]
        if share.client_id and not behind and share.key != REQUEST_SHARE:
            continue  # it is in no group, or has no lag
        who = f"client {share.client_id}" if share.client_id else f"clients of user {share.user}"
        late = f", and these groups are behind: {shorten_list(behind)}" if behind else ""
        verb = "would throttle it" if share.is_rehearsed else "throttles it"
        yield Finding(
            Severity.NOTE if share.is_rehearsed else Severity.WARNING,
            "F18",
            f"{who}: {share.key}={number_text(share.limit)} {verb} {min(share.throttled_share, 1.0):.0%} "
            "of the time on "
            f"broker {share.broker}{late}",
            f"it uses all of the quota {share.rule}",
            f"raise it, if capacity allows: {raise_quota_command(share)}; ottla quotas top shows it live",
        )


def raise_quota_command(share: QuotaUse) -> str:
    return quota_command(Suggestion(share.user, share.client_id, {share.key: share.estimated_demand}))


# ---- uncompiled brokers
UNCOMPILED_CAUSE = "it was installed without a C compiler, from a wheel without compiled files, or with OTTLA_PURE set"


def check_uncompiled(facts: ClusterFacts, readings: Sequence[Reading], *, is_own_compiled: bool) -> Iterator[Finding]:
    """Without metrics, this is checked only for local brokers, which mostly run from the same installation."""
    infos = [reading.info() for reading in readings]
    plain = [info.get("node_id", "?") for info in infos if info.get("compiled") == "false"]
    if plain:
        what = f"runs as plain Python, at several times the CPU: broker {shorten_list(sorted(plain))}"
        yield Finding(Severity.NOTE, "", what, UNCOMPILED_CAUSE, ADVICE)
    has_local = any(is_local(broker.address.host) for broker in facts.brokers.values())
    if not infos and not is_own_compiled and has_local:
        what = "the ottla installed here is plain Python, and so is each broker that runs from it"
        yield Finding(Severity.NOTE, "", what, UNCOMPILED_CAUSE, ADVICE)


# ---- packet loss
LOST_SHARE_MIN: Final = 0.002  # below it, pauses are not noticeable
UNACKNOWLEDGED_SECONDS_MIN: Final = 3.0
TCP_METRICS: Final = "ottla_tcp_worst_"
_BROKER: Final = re.compile(r"broker-(\d+)-")  # the client ID of a broker's connections to other brokers


class WorstConnection(NamedTuple):
    """The worst connection of one client at one address."""

    unacknowledged_s: float
    lost_share: float
    round_trip_s: float
    unsent_bytes: float
    broker: str


def check_packet_loss(readings: Sequence[Reading]) -> Iterator[Finding]:
    """One finding for each client and machine, however many connections it has."""
    worst: dict[tuple[str, str], WorstConnection] = {}
    for reading in readings:
        for sample in reading.samples_of(f"{TCP_METRICS}retransmitted_ratio"):
            labels = sample.labels
            link = WorstConnection(
                reading.value_or_zero(f"{TCP_METRICS}waits_seconds", **labels),
                sample.value,
                reading.value_or_zero(f"{TCP_METRICS}round_trip_seconds", **labels),
                reading.value_or_zero(f"{TCP_METRICS}unsent_bytes", **labels),
                reading.info().get("node_id", "?"),
            )
            client = (labels.get("client_id", ""), labels.get("address", "").rpartition(":")[0])
            worst[client] = max(link, worst.get(client, link))
    for (client_id, host), link in sorted(worst.items()):
        if link.unacknowledged_s >= UNACKNOWLEDGED_SECONDS_MIN or link.lost_share >= LOST_SHARE_MIN:
            yield _packet_loss_finding(_peer_text(client_id, host), link)


def _packet_loss_finding(who: str, link: WorstConnection) -> Finding:
    if link.unacknowledged_s >= UNACKNOWLEDGED_SECONDS_MIN:
        seen = f"nothing that was sent to it in the last {link.unacknowledged_s:.0f} s has been acknowledged"
        severity = Severity.PROBLEM
    else:
        seen = f"{link.lost_share:.1%} of the packets to it had to be sent again"
        severity = Severity.WARNING
    size = f", {link.unsent_bytes / 1024:.0f} KiB wait" if link.unsent_bytes else ""
    trip = f"round trip {link.round_trip_s * 1000:.0f} ms{size}"
    what = f"{who} gets no data for a while, then it goes on: {seen} by broker {link.broker} ({trip})"
    return case_finding(severity, "F15", what)


def _peer_text(client_id: str, host: str) -> str:
    broker = _BROKER.match(client_id)
    if broker is not None:
        return f"broker {broker[1]} at {host}"
    return f"client {client_id!r} at {host}" if client_id else f"a client at {host}"
