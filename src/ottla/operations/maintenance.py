"""Broker maintenance: begin, end and list it. The controller moves the leaders.

Maintenance is a setting of the broker (ottla.maintenance.until.ms), but the controller is asked, since the broker may
be down.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Final, NamedTuple

from ottla.base.errors import Error
from ottla.base.names import TopicPartition
from ottla.client.admin import Topic
from ottla.client.client import Client
from ottla.client.configs import DELETE, SET, Resource, Source
from ottla.client.errors import BrokerError, error_from_code
from ottla.client.reassignments import Election, elect_leaders
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

MAINTENANCE_UNTIL: Final = "ottla.maintenance.until.ms"
TOO_OLD: Final = (
    "the cluster has brokers of a version that knows no maintenance: upgrade them all, then raise the feature "
    "(ottla features upgrade ottla.version=2)"
)


class NoMaintenanceError(OperationError):
    """At least one broker of the cluster does not support maintenance."""


def begin_maintenance(client: Client, broker_id: int, until_ms: int) -> None:
    """Move leadership away until `until_ms` (milliseconds since the epoch). Raises NoMaintenanceError."""
    _alter(
        client, broker_id, IncrementalAlterableConfig(name=MAINTENANCE_UNTIL, config_operation=SET, value=str(until_ms))
    )


def end_maintenance(client: Client, broker_id: int) -> None:
    """Let the broker lead again. Raises NoMaintenanceError."""
    _alter(client, broker_id, IncrementalAlterableConfig(name=MAINTENANCE_UNTIL, config_operation=DELETE, value=""))


def maintenance_ends(client: Client, broker_ids: Iterable[int]) -> dict[int, int]:
    """The end of maintenance by broker, future or past. Empty if the brokers do not support it."""
    wanted = [
        DescribeConfigsResource(
            resource_type=Resource.BROKER, resource_name=str(id_), configuration_keys=[MAINTENANCE_UNTIL]
        )
        for id_ in broker_ids
    ]
    answer = client.call_controller(DescribeConfigsRequest(resources=wanted), DescribeConfigsResponse)
    found = {}
    for result in answer.results:
        if result.error_code == Error.INVALID_REQUEST:  # an older broker only describes itself
            continue
        if result.error_code:
            raise error_from_code(result.error_code, result.error_message)
        for item in result.configs:
            if item.config_source == Source.DYNAMIC_BROKER_CONFIG and (item.value or "").isdecimal():
                found[int(result.resource_name)] = int(item.value or 0)
    return found


def elect_preferred_leaders(client: Client, broker_id: int, topics: Iterable[Topic]) -> int:
    """Run a preferred election for a broker; returns the number of partitions whose leader changed."""
    wanted = partitions_not_led(broker_id, topics)
    if not wanted:
        return 0
    results = elect_leaders(client, Election.PREFERRED, wanted)
    return sum(problem is None for problem in results.values())


def partitions_not_led(broker_id: int, topics: Iterable[Topic]) -> list[TopicPartition]:
    """Partitions that prefer this broker but have another leader or none."""
    return [
        TopicPartition(topic.name, partition.number)
        for topic in topics
        for partition in topic.partitions
        if partition.replicas[:1] == [broker_id] and partition.leader != broker_id
    ]


class RemainingLeaders(NamedTuple):
    """The partitions that a broker in maintenance still leads, counted by reason."""

    sole_in_sync: int  # no other replica is in sync
    others_in_maintenance: int  # the other in-sync replicas are in maintenance, too
    movable: int  # others can lead and will soon

    def messages(self) -> list[str]:
        found = [
            (self.sole_in_sync, "no other replica is in sync"),
            (self.others_in_maintenance, "the other replicas in sync are in maintenance, too"),
            (self.movable, "other replicas can lead, but do not lead yet; the controller's log has the reason"),
        ]
        return [f"It still leads {count} partition{'' if count == 1 else 's'}: {why}." for count, why in found if count]


def remaining_leaders(broker_id: int, topics: Iterable[Topic], in_maintenance: Collection[int]) -> RemainingLeaders:
    """`in_maintenance`: all brokers in maintenance. Pure."""
    led = [partition for topic in topics for partition in topic.partitions if partition.leader == broker_id]
    others = [set(partition.isr) - {broker_id} for partition in led]
    movable = sum(bool(each - set(in_maintenance)) for each in others)
    alone = sum(not each for each in others)
    return RemainingLeaders(alone, len(led) - alone - movable, movable)


def _alter(client: Client, broker_id: int, change: IncrementalAlterableConfig) -> None:
    target = IncrementalAlterConfigsResource(
        resource_type=Resource.BROKER, resource_name=str(broker_id), configs=[change]
    )
    request = IncrementalAlterConfigsRequest(resources=[target])

    def check(answer: IncrementalAlterConfigsResponse) -> None:
        for result in answer.responses:
            if result.error_code:
                raise error_from_code(result.error_code, result.error_message)

    try:
        client.call_controller(request, IncrementalAlterConfigsResponse, check)
    except BrokerError as problem:
        if problem.error is Error.INVALID_CONFIG:
            raise NoMaintenanceError(str(problem)) from None
        if problem.error is Error.INVALID_REQUEST:  # the controller does not know the setting
            raise NoMaintenanceError(TOO_OLD) from None
        raise
