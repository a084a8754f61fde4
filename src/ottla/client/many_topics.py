"""Many topics in one request: made, grown, deleted. Each is done or refused by itself, and it is told which.

A request whose answer was lost is sent again for those that nobody has answered for. Then "it is there already" (or
"there is no such topic") is what we have asked for, and no refusal.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple, Protocol

from ottla.base.errors import Error
from ottla.client.client import Client
from ottla.client.errors import RefusedError, refusal
from ottla.protocol.messages import topics as wire


class NewTopic(NamedTuple):
    """-1: the cluster decides."""

    partitions: int
    replication_factor: int
    configs: Mapping[str, str]


class _Result(Protocol):
    error_code: int
    error_message: str | None


def create_topics(
    client: Client, wanted: Mapping[str, NewTopic], *, validate_only: bool = False
) -> dict[str, RefusedError]:
    def ask(names: Sequence[str]) -> Iterable[tuple[str, _Result]]:
        request = wire.CreateTopicsRequest(
            topics=[_creatable(name, wanted[name]) for name in names],
            timeout_ms=client.timeout_ms,
            validate_only=validate_only,
        )
        answer = client.call_controller(request, wire.CreateTopicsResponse)
        return ((result.name, result) for result in answer.topics)

    return _for_each(client, wanted, ask, None if validate_only else Error.TOPIC_ALREADY_EXISTS)


def grow_topics(client: Client, wanted: Mapping[str, int], *, validate_only: bool = False) -> dict[str, RefusedError]:
    """Give topics as many partitions."""

    def ask(names: Sequence[str]) -> Iterable[tuple[str, _Result]]:
        request = wire.CreatePartitionsRequest(
            topics=[wire.CreatePartitionsTopic(name=name, count=wanted[name]) for name in names],
            timeout_ms=client.timeout_ms,
            validate_only=validate_only,
        )
        answer = client.call_controller(request, wire.CreatePartitionsResponse)
        return ((result.name, result) for result in answer.results)

    # Kafka says so for a topic that has as many already.
    return _for_each(client, wanted, ask, None if validate_only else Error.INVALID_PARTITIONS)


def delete_topics(client: Client, wanted: Sequence[str]) -> dict[str, RefusedError]:
    def ask(names: Sequence[str]) -> Iterable[tuple[str, _Result]]:
        request = wire.DeleteTopicsRequest(
            topics=[wire.DeleteTopicState(name=name) for name in names],
            topic_names=list(names),
            timeout_ms=client.timeout_ms,
        )
        answer = client.call_controller(request, wire.DeleteTopicsResponse)
        return ((result.name or "", result) for result in answer.responses)

    return _for_each(client, wanted, ask, Error.UNKNOWN_TOPIC_OR_PARTITION)


def _for_each(
    client: Client,
    wanted: Iterable[str],
    ask: Callable[[Sequence[str]], Iterable[tuple[str, _Result]]],
    done_before: Error | None,
) -> dict[str, RefusedError]:
    left = dict.fromkeys(wanted)
    refused: dict[str, RefusedError] = {}
    tries = 0

    def attempt() -> None:
        nonlocal tries
        client.cluster()  # known before we count: a call that is sent twice shows in the number of requests
        sent = client.requests
        try:
            results = ask(list(left))
        finally:  # also where a call gives up: what it has sent may have been done
            tries += client.requests - sent
        again: RefusedError | None = None
        for name, result in results:
            problem = refusal(result.error_code, result.error_message) if result.error_code else None
            if problem is not None and problem.is_retriable:
                again = problem
                continue
            left.pop(name, None)
            if problem is not None and not (tries > 1 and problem.error is done_before):
                refused[name] = problem
        if again is not None:
            raise again

    if left:
        client.retry(attempt)
    return refused


def _creatable(name: str, topic: NewTopic) -> wire.CreatableTopic:
    return wire.CreatableTopic(
        name=name,
        num_partitions=topic.partitions,
        replication_factor=topic.replication_factor,
        configs=[wire.CreatableTopicConfig(name=key, value=value) for key, value in topic.configs.items()],
    )
