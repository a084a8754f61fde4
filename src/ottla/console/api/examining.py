"""What is wrong with a cluster, with cause and cure: `ottla doctor` for whoever presses the button.

It asks for everything in one go, so it is not done in the background; all who ask within half a minute share an answer.
"""

from __future__ import annotations

import asyncio

import msgspec

from ottla.base import tasks
from ottla.console.api.call import Call
from ottla.console.api.errors import forbidden
from ottla.console.clusters.cluster import Cluster

TIMEOUT_MS = 8_000
PAUSE_SECONDS = 1.0
KEPT_MS = 30_000


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
        self.kept: dict[str, tuple[int, asyncio.Task[Findings]]] = {}

    def __repr__(self) -> str:
        return f"<Examinations {list(self.kept)}>"

    async def of(self, cluster: Cluster) -> Findings:
        now_ms = cluster.clock.now_ms()
        began_ms, examining = self.kept.get(cluster.name, (0, None))
        if examining is None or now_ms - began_ms > KEPT_MS or (examining.done() and examining.exception() is not None):
            examining = tasks.ask(asyncio.to_thread(_examine, cluster, now_ms), f"examination of {cluster.name}")
            self.kept[cluster.name] = now_ms, examining
        return await asyncio.shield(examining)


async def examine(call: Call) -> Findings:
    if not call.sees_all:
        raise forbidden("findings name all topics and groups: {0} sees only some", call.caller.person)
    return await call.console.examinations.of(call.cluster)


def _examine(cluster: Cluster, now_ms: int) -> Findings:
    from ottla.operations.doctor.checks import diagnose, in_order  # noqa: PLC0415 (memory: few ever ask)
    from ottla.operations.doctor.facts import gather  # noqa: PLC0415

    with cluster.address.client(TIMEOUT_MS) as client:
        found = in_order(diagnose(gather(client, PAUSE_SECONDS)))
    return Findings(
        now_ms, [FindingRow(each.severity.value, each.case, each.what, each.cause, each.cure) for each in found]
    )
