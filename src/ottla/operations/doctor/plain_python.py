"""Brokers that run as plain Python, though compiled files cost less: from metrics, or from what runs here. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ottla.base.compiled import CURE
from ottla.operations.doctor.facts import Facts
from ottla.operations.doctor.findings import Finding, Severity, is_local, some
from ottla.operations.metric_readings import Reading

CAUSE = "it was installed without a C compiler, from a wheel without compiled files, or with OTTLA_PURE set"


def check_plain_python(facts: Facts, readings: Sequence[Reading], *, is_own_compiled: bool) -> Iterator[Finding]:
    """Without metrics nobody can tell from outside; brokers of this machine mostly run from the same installation."""
    infos = [reading.info() for reading in readings]
    plain = [info.get("node_id", "?") for info in infos if info.get("compiled") == "false"]
    if plain:
        what = f"runs as plain Python, at several times the CPU: broker {some(sorted(plain))}"
        yield Finding(Severity.NOTE, "", what, CAUSE, CURE)
    has_local = any(is_local(broker.address.host) for broker in facts.brokers.values())
    if not infos and not is_own_compiled and has_local:
        what = "the ottla that is installed here is plain Python, and so is each broker that runs from it"
        yield Finding(Severity.NOTE, "", what, CAUSE, CURE)
