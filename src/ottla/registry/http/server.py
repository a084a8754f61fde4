"""/ and /v1: who answers here."""

from __future__ import annotations

from typing import Final

from ottla import __version__
from ottla.registry.http.calls import Call

API_VERSION: Final = "7.9.0"  # of Confluent's registry, whose answers these are


async def root(_: Call) -> object:
    return {}


async def version(_: Call) -> object:
    return {"version": API_VERSION, "commitId": f"ottla-{__version__}"}


async def cluster(call: Call) -> object:
    clusters = {"kafka-cluster": call.registry.cluster_id, "schema-registry-cluster": call.registry.group}
    return {"scope": {"path": [], "clusters": clusters}, "id": ""}
