"""Brokers that somebody works at: say so, take it back, see who is. The controller does the rest.

It is a setting of the broker (ottla.maintenance.until.ms), but the controller is asked and not the broker, which may be
off already.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Final, NamedTuple

from ottla.base.errors import Error
from ottla.base.names import TopicPartition
from ottla.client.admin import Topic
from ottla.client.client import Client
from ottla.client.configs import DELETE, SET, Resource, Source
from ottla.client.elections import Election, elect_leaders
from ottla.client.errors import RefusedError, refusal
from ottla.operations.errors import OperationError
from ottla.protocol.messages.configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResponse,
    IncrementalAlterableConfig,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResource,
    IncrementalAlterConfigsResponse,
)

UNTIL: Final = "ottla.maintenance.until.ms"
TOO_OLD: Final = (
    "the cluster has brokers of a version that knows no maintenance: upgrade them all, then raise the feature "
    "(ottla features upgrade ottla.version=2)"
)


class NoMaintenanceError(OperationError):
    """Not all brokers of the cluster can do it."""


def begin_maintenance(client: Client, broker_id: int, until_ms: int) -> None:
    """Others lead from now on, until then (milliseconds since 1970). Raises NoMaintenanceError."""
    _alter(client, broker_id, IncrementalAlterableConfig(name=UNTIL, config_operation=SET, value=str(until_ms)))


def end_maintenance(client: Client, broker_id: int) -> None:
    """It may lead again. Raises NoMaintenanceError."""
    _alter(client, broker_id, IncrementalAlterableConfig(name=UNTIL, config_operation=DELETE, value=""))


def maintenance_ends(client: Client, broker_ids: Iterable[int]) -> dict[int, int]:
    """By broker: until when its maintenance is to last, or has lasted. Empty where brokers know no maintenance."""
    wanted = [
        DescribeConfigsResource(resource_type=Resource.BROKER, resource_name=str(id_), configuration_keys=[UNTIL])
        for id_ in broker_ids
    ]
    answer = client.call_controller(DescribeConfigsRequest(resources=wanted), DescribeConfigsResponse)
    found = {}
    for result in answer.results:
        if result.error_code == Error.INVALID_REQUEST:  # an older broker tells only about itself
            continue
        if result.error_code:
            raise refusal(result.error_code, result.error_message)
        for item in result.configs:
            if item.config_source == Source.DYNAMIC_BROKER_CONFIG and (item.value or "").isdecimal():
                found[int(result.resource_name)] = int(item.value or 0)
    return found


def give_leaders_back(client: Client, broker_id: int, topics: Iterable[Topic]) -> int:
    """Elect a broker wherever it is preferred and does not lead; how many partitions it leads now that it did not."""
    wanted = strayed_from(broker_id, topics)
    if not wanted:
        return 0
    results = elect_leaders(client, Election.PREFERRED, wanted)
    return sum(problem is None for problem in results.values())


def strayed_from(broker_id: int, topics: Iterable[Topic]) -> list[TopicPartition]:
    """Partitions that prefer a broker and are led by another one, or by nobody."""
    return [
        TopicPartition(topic.name, partition.number)
        for topic in topics
        for partition in topic.partitions
        if partition.replicas[:1] == [broker_id] and partition.leader != broker_id
    ]


class StillLed(NamedTuple):
    """What a broker in maintenance leads, counted by why nobody else does."""

    alone: int  # no other replica is in sync
    beside_maintained: int  # the others in sync are in maintenance, too
    movable: int  # others could, and will in a moment

    def sentences(self) -> list[str]:
        found = [
            (self.alone, "no other replica is in sync"),
            (self.beside_maintained, "the other replicas in sync are in maintenance, too"),
            (self.movable, "others could lead, and have not yet begun to; the controller's log says why"),
        ]
        return [
            f"It goes on leading {count} partition{'' if count == 1 else 's'}: {why}." for count, why in found if count
        ]


def still_led(broker_id: int, topics: Iterable[Topic], maintained: Collection[int]) -> StillLed:
    """`maintained`: all brokers in maintenance. Pure."""
    led = [partition for topic in topics for partition in topic.partitions if partition.leader == broker_id]
    others = [set(partition.isr) - {broker_id} for partition in led]
    movable = sum(bool(each - set(maintained)) for each in others)
    alone = sum(not each for each in others)
    return StillLed(alone, len(led) - alone - movable, movable)


def _alter(client: Client, broker_id: int, change: IncrementalAlterableConfig) -> None:
    target = IncrementalAlterConfigsResource(
        resource_type=Resource.BROKER, resource_name=str(broker_id), configs=[change]
    )
    request = IncrementalAlterConfigsRequest(resources=[target])

    def check(answer: IncrementalAlterConfigsResponse) -> None:
        for result in answer.responses:
            if result.error_code:
                raise refusal(result.error_code, result.error_message)

    try:
        client.call_controller(request, IncrementalAlterConfigsResponse, check)
    except RefusedError as problem:
        if problem.error is Error.INVALID_CONFIG:
            raise NoMaintenanceError(str(problem)) from None
        if problem.error is Error.INVALID_REQUEST:  # the controller does not know the key
            raise NoMaintenanceError(TOO_OLD) from None
        raise
