"""Clients that ask for versions which a broker does not speak: from the brokers' metrics. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ottla.operations.doctor.findings import Finding, Severity, known, some
from ottla.operations.metric_readings import Reading

METRIC = "ottla_unsupported_requests_total"


def check_unsupported(readings: Sequence[Reading]) -> Iterator[Finding]:
    """One finding a client and library, whatever it asked for, and of whom."""
    asked: dict[tuple[str, str], dict[str, int]] = {}
    for reading in readings:
        for sample in reading.all(METRIC):
            labels = sample.labels
            software = f"{labels.get('client_software_name', '')} {labels.get('client_software_version', '')}"
            client = (labels.get("client_id", ""), software)
            counts = asked.setdefault(client, {})
            request = f"{labels.get('request', '')} v{labels.get('version', '')}"
            counts[request] = counts.get(request, 0) + int(sample.value)
    for (client_id, software), counts in sorted(asked.items()):
        told = [f"{request} ({count} times)" for request, count in sorted(counts.items())]
        yield known(
            Severity.WARNING,
            "F13",
            f"client {client_id!r} ({library(software)}) is cut off, because it asks for {some(told)}",
        )


def library(software: str) -> str:
    """What a client says that it is; who says nothing is older than Kafka 2.4, or asks for no versions at all."""
    return "a library that does not tell its name" if software == "unknown unknown" else software
