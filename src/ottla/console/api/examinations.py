"""`ottla doctor` in the console: problems of a cluster, with cause and remedy.

It is expensive, so it runs on request only; callers within half a minute share the result.
"""

from __future__ import annotations

import asyncio

import msgspec

from ottla.base import tasks
from ottla.console.api.call import Call
from ottla.console.api.errors import forbidden
from ottla.console.clusters.cluster import Cluster

TIMEOUT_MS = 8_000
SAMPLE_SECONDS = 1.0
CACHE_MS = 30_000


class FindingRow(msgspec.Struct, frozen=True):
    severity: str
    case: str | None
    what: str
    cause: str
    cure: str


class Findings(msgspec.Struct, frozen=True):
    at_ms: int
    findings: list[FindingRow]


class Examinations:
    """The last examination of each cluster."""

    def __init__(self) -> None:
        self.cached: dict[str, tuple[int, asyncio.Task[Findings]]] = {}

    def __repr__(self) -> str:
        return f"<Examinations {list(self.cached)}>"

    async def get(self, cluster: Cluster) -> Findings:
        now_ms = cluster.clock.now_ms()
        began_ms, examining = self.cached.get(cluster.name, (0, None))
        if (
            examining is None
            or now_ms - began_ms > CACHE_MS
            or (examining.done() and examining.exception() is not None)
        ):
            examining = tasks.spawn_awaited(
                asyncio.to_thread(_examine, cluster, now_ms), f"examination of {cluster.name}"
            )
            self.cached[cluster.name] = now_ms, examining
        return await asyncio.shield(examining)


async def examine(call: Call) -> Findings:
    if not call.sees_all:
        raise forbidden("findings name all topics and groups, and {0} may see only some of them", call.caller.person)
    return await call.console.examinations.get(call.cluster)


def _examine(cluster: Cluster, now_ms: int) -> Findings:
    from ottla.operations.doctor.checks import diagnose, sort_by_severity  # noqa: PLC0415 (memory: few ever ask)
    from ottla.operations.doctor.cluster_facts import collect_facts  # noqa: PLC0415

    with cluster.address.make_client(TIMEOUT_MS) as client:
        found = sort_by_severity(diagnose(collect_facts(client, SAMPLE_SECONDS)))
    return Findings(
        now_ms, [FindingRow(each.severity.value, each.case, each.what, each.cause, each.cure) for each in found]
    )
