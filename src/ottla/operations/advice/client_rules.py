"""Advice for a client, from the metrics that it pushes (KIP-714), as a broker's /metrics exposes them. Pure.

No Kafka API returns these metrics: Apache Kafka hands them to a plug-in. Clients are measured twice, some seconds
apart.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from ottla.base.text import format_count
from ottla.operations.advice.advice import Advice, Figure, Report, number_text
from ottla.operations.metric_readings import Reading, Sample

PREFIX = "ottla_client_"
NEW_CLIENTS_MIN = 3
NEW_CLIENTS_PER_S_MIN = 0.5
BUSY_RATIO_MAX = 0.1  # share of time spent waiting for records; below it, the application is the bottleneck
POLL_IDLE = f"{PREFIX}consumer_poll_idle_ratio_avg"
ASSIGNED = f"{PREFIX}consumer_coordinator_assigned_partitions"
SHOWN_METRICS = (POLL_IDLE, f"{PREFIX}producer_request_latency_avg", f"{PREFIX}producer_record_queue_time_avg")


class ClientFacts(NamedTuple):
    """The instances of one client ID at two moments, and the groups of which it is a member."""

    client_id: str
    instances_before: frozenset[str]  # client instance IDs
    instances_now: frozenset[str]
    seconds: float
    poll_idle: Sequence[float]  # of each consumer with assigned partitions
    metrics: Sequence[tuple[str, float]]
    groups: Sequence[str]


def client_facts(
    client_id: str, before: Sequence[Reading], now: Sequence[Reading], groups: Sequence[str]
) -> ClientFacts | None:
    """None if no client of this ID has pushed metrics."""
    first, last = instances(client_id, before), instances(client_id, now)
    if not first and not last:
        return None
    seconds = now[0].taken_s - before[0].taken_s
    reading = {sample.labels.get("client_instance_id") for sample in _samples(client_id, now, ASSIGNED) if sample.value}
    idle = [
        sample.value
        for sample in _samples(client_id, now, POLL_IDLE)
        if sample.labels.get("client_instance_id") in reading
    ]
    told = [
        (name.removeprefix(PREFIX), sum(values) / len(values))
        for name in SHOWN_METRICS
        if (values := [sample.value for sample in _samples(client_id, now, name)])
    ]
    return ClientFacts(client_id, first, last, seconds, idle, told, groups)


def instances(client_id: str, readings: Sequence[Reading]) -> frozenset[str]:
    return frozenset(
        sample.labels.get("client_instance_id", "")
        for reading in readings
        for name in reading.samples
        if name.startswith(PREFIX)
        for sample in reading.samples_of(name, client_id=client_id)
    )


def advise_client(facts: ClientFacts) -> Report:
    unknown = [f"its group {name}: ottla advise --group {name}" for name in facts.groups]
    advice = [*check_short_lived(facts), *check_slow_application(facts)]
    return Report(f"client {facts.client_id}", figures(facts), advice, unknown)


def check_short_lived(facts: ClientFacts) -> Iterator[Advice]:
    came = len(facts.instances_now - facts.instances_before)
    if came < NEW_CLIENTS_MIN or came / facts.seconds < NEW_CLIENTS_PER_S_MIN:
        return
    yield Advice(
        "short-lives",
        f"{format_count(came, 'new client')} of this name connected in {facts.seconds:.0f} s",
        "create one producer or consumer when the application starts, and keep it: each opens connections, logs in "
        "and asks for metadata before its first record",
        f"no new connections instead of at least {number_text(2 * came / facts.seconds)} a second",
        {"new_clients_per_s": 0.0},
    )


def check_slow_application(facts: ClientFacts) -> Iterator[Advice]:
    if not facts.poll_idle or max(facts.poll_idle) > BUSY_RATIO_MAX:
        return
    idle = sum(facts.poll_idle) / len(facts.poll_idle)
    yield Advice(
        "busy-application",
        f"the consumer waits for records {idle:.0%} of its time: the application works on them in the rest",
        "more members in its group, or less work for each record (many at once, writes together)",
        "fetch settings do not help here; twice the members have twice the time for the same records",
        {"poll_idle_ratio": idle},
    )


def figures(facts: ClientFacts) -> list[Figure]:
    came = len(facts.instances_now - facts.instances_before)
    found = [
        Figure("clients of this name", f"{len(facts.instances_now):,}, {came} of them new in {facts.seconds:.0f} s"),
        *(Figure(name, number_text(value)) for name, value in facts.metrics),
    ]
    return [*found, Figure("groups", ", ".join(facts.groups))] if facts.groups else found


def _samples(client_id: str, readings: Sequence[Reading], name: str) -> Iterator[Sample]:
    return (sample for reading in readings for sample in reading.samples_of(name, client_id=client_id))
