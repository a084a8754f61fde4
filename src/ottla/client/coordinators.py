"""Coordinators of groups and transactions: lookup, and requests for many keys, each sent to its coordinator.

If a coordinator moves or is still loading, its keys are retried (Client.retry); keys with an answer are not sent again.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from enum import IntEnum
from typing import TypeVar

from ottla.client.client import Client
from ottla.client.errors import BrokerError, error_from_code, raise_for_error
from ottla.protocol.messages.groups import Coordinator, FindCoordinatorRequest, FindCoordinatorResponse

MANY_KEYS_VERSION = 4  # of FindCoordinator (KIP-699)

T = TypeVar("T")
Answers = dict[str, "T | BrokerError"]
# Asks one coordinator about its keys: returns a value or an error for each.
RequestToCoordinator = Callable[[int, Sequence[str]], Iterator[tuple[str, "T | BrokerError"]]]


class KeyType(IntEnum):
    """The type of a key, by its number on the wire."""

    GROUP = 0
    TRANSACTION = 1


def find_coordinators(client: Client, kind: KeyType, keys: Sequence[str]) -> list[Coordinator]:
    """The coordinator of each key; some may have an error code instead of an address."""
    if client.version_of(FindCoordinatorRequest) >= MANY_KEYS_VERSION:
        request = FindCoordinatorRequest(key_type=kind, coordinator_keys=list(keys))
        return client.call(request, FindCoordinatorResponse).coordinators
    return [_find_one(client, kind, key) for key in keys]


def find_coordinator(client: Client, kind: KeyType, key: str) -> int:
    """The id of the broker that coordinates one key."""
    (found,) = find_coordinators(client, kind, [key])
    raise_for_error(found.error_code, found.error_message)
    return found.node_id


def call_coordinators(client: Client, kind: KeyType, keys: Iterable[str], ask: RequestToCoordinator[T]) -> Answers[T]:
    """The coordinators' answers for their keys; retriable errors are retried until the time-out."""
    wanted = list(dict.fromkeys(keys))
    answers: Answers[T] = {}

    def attempt() -> None:
        passing = None
        for broker, led in _by_broker(client, kind, [key for key in wanted if key not in answers], answers).items():
            for key, answer in ask(broker, led):
                if isinstance(answer, BrokerError) and answer.is_retriable:
                    passing = answer
                else:
                    answers[key] = answer
        if passing is not None:
            raise passing

    client.retry(attempt)
    return answers


def call_coordinator(client: Client, kind: KeyType, key: str, ask: Callable[[int], T]) -> T:
    """Ask the coordinator of one key; `ask` raises its errors."""
    return client.retry(lambda: ask(find_coordinator(client, kind, key)))


def _by_broker(client: Client, kind: KeyType, keys: Sequence[str], answers: Answers[T]) -> dict[int, list[str]]:
    by_broker: defaultdict[int, list[str]] = defaultdict(list)
    for found in find_coordinators(client, kind, keys) if keys else ():
        if not found.error_code:
            by_broker[found.node_id].append(found.key)
            continue
        refused = error_from_code(found.error_code, found.error_message)
        if refused.is_retriable:
            raise refused
        answers[found.key] = refused
    return by_broker


def _find_one(client: Client, kind: KeyType, key: str) -> Coordinator:
    answer = client.call(FindCoordinatorRequest(key=key, key_type=kind), FindCoordinatorResponse)
    return Coordinator(
        key=key,
        node_id=answer.node_id,
        host=answer.host,
        port=answer.port,
        error_code=answer.error_code,
        error_message=answer.error_message,
    )
