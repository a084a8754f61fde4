"""What to change about a client, out of the metrics that it pushes (KIP-714), as a broker's /metrics tells them. Pure.

No API of Kafka tells them: Apache Kafka hands them to a plug-in. Clients are looked at twice, some seconds apart.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from ottla.base.counting import counted
from ottla.operations.advice.report import Advice, Figure, Report, number
from ottla.operations.metric_readings import Reading, Sample

PREFIX = "ottla_client_"
NEW_CLIENTS_MIN = 3
NEW_CLIENTS_PER_S_MIN = 0.5
BUSY_RATIO_MAX = 0.1  # of its time that a consumer waits for records: below, the application is the slow part
POLL_IDLE = f"{PREFIX}consumer_poll_idle_ratio_avg"
ASSIGNED = f"{PREFIX}consumer_coordinator_assigned_partitions"
TOLD = (POLL_IDLE, f"{PREFIX}producer_request_latency_avg", f"{PREFIX}producer_record_queue_time_avg")


class ClientFacts(NamedTuple):
    """A client id: who goes by that name, at two moments, and the groups in which it is a member."""

    client_id: str
    before: frozenset[str]  # ids of instances
    now: frozenset[str]
    seconds: float
    poll_idle: Sequence[float]  # of each consumer that reads something
    told: Sequence[tuple[str, float]]
    groups: Sequence[str]


def client_facts(
    client_id: str, before: Sequence[Reading], now: Sequence[Reading], groups: Sequence[str]
) -> ClientFacts | None:
    """None if nobody of that name has pushed anything."""
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
        for name in TOLD
        if (values := [sample.value for sample in _samples(client_id, now, name)])
    ]
    return ClientFacts(client_id, first, last, seconds, idle, told, groups)


def instances(client_id: str, readings: Sequence[Reading]) -> frozenset[str]:
    return frozenset(
        sample.labels.get("client_instance_id", "")
        for reading in readings
        for name in reading.samples
        if name.startswith(PREFIX)
        for sample in reading.all(name, client_id=client_id)
    )


def advise_client(facts: ClientFacts) -> Report:
    unknown = [f"its group {name}: ottla advise --group {name}" for name in facts.groups]
    advice = [*check_short_lives(facts), *check_busy(facts)]
    return Report(f"client {facts.client_id}", figures(facts), advice, unknown)


def check_short_lives(facts: ClientFacts) -> Iterator[Advice]:
    came = len(facts.now - facts.before)
    if came < NEW_CLIENTS_MIN or came / facts.seconds < NEW_CLIENTS_PER_S_MIN:
        return
    yield Advice(
        "short-lives",
        f"{counted(came, 'new client')} of this name came in {facts.seconds:.0f} s",
        "make one producer or consumer when the application starts, and keep it: each opens connections, logs in and "
        "asks for metadata before its first record",
        f"no new connections instead of at least {number(2 * came / facts.seconds)} a second",
        {"new_clients_per_s": 0.0},
    )


def check_busy(facts: ClientFacts) -> Iterator[Advice]:
    if not facts.poll_idle or max(facts.poll_idle) > BUSY_RATIO_MAX:
        return
    idle = sum(facts.poll_idle) / len(facts.poll_idle)
    yield Advice(
        "busy-application",
        f"the consumer waits for records {idle:.0%} of its time: the application works on them in the rest",
        "more members in its group, or less work for each record (many at once, writes together)",
        "settings of fetches bring nothing here; twice the members have twice the time for the same records",
        {"poll_idle_ratio": idle},
    )


def figures(facts: ClientFacts) -> list[Figure]:
    came = len(facts.now - facts.before)
    found = [
        Figure("clients of this name", f"{len(facts.now):,}, {came} of them new in {facts.seconds:.0f} s"),
        *(Figure(name, number(value)) for name, value in facts.told),
    ]
    return [*found, Figure("groups", ", ".join(facts.groups))] if facts.groups else found


def _samples(client_id: str, readings: Sequence[Reading], name: str) -> Iterator[Sample]:
    return (sample for reading in readings for sample in reading.all(name, client_id=client_id))
