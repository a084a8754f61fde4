"""All checks, in the order in which their findings are shown: problems first, then warnings, then notes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from ottla.operations.doctor import cluster, inside
from ottla.operations.doctor.facts import Facts
from ottla.operations.doctor.findings import Finding, Severity

CHECKS: tuple[Callable[[Facts], Iterator[Finding]], ...] = (
    cluster.check_controller,
    cluster.check_reachable,
    cluster.check_missing,
    cluster.check_leaders,
    cluster.check_min_isr,
    cluster.check_replicas,
    cluster.check_views,
    inside.check_folders,
    inside.check_hanging,
    cluster.check_advertised,
    cluster.check_speed,
    cluster.check_clocks,
    cluster.check_flapping,
    cluster.check_moves,
    inside.check_factors,
    inside.check_min_isr_settings,
    inside.check_unclean,
    inside.check_broker_settings,
    cluster.check_versions,
    inside.check_groups,
    cluster.check_balance,
    inside.check_unknown,
)


def diagnose(facts: Facts) -> list[Finding]:
    return in_order(finding for check in CHECKS for finding in check(facts))


def in_order(findings: Iterable[Finding]) -> list[Finding]:
    order = list(Severity)
    return sorted(findings, key=lambda finding: order.index(finding.severity))
