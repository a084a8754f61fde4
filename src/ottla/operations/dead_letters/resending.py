"""Letters are sent again: each becomes the record that it was, in its source topic or in another one.

Rules:
1. In its source topic a record goes to the partition that it came from, if there is one; elsewhere its key decides, as
   with Kafka's producers; without a key partitions take turns. Letters keep their order in a partition.
2. A batch is written whole or not at all. What a broker refuses as too large is tried in halves; what it refuses for
   good is told for each letter, and the others are sent.
3. Nothing is sent twice here: if an answer is lost, the letters count as unsure, and are left alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from enum import StrEnum
from typing import NamedTuple

from ottla.base.errors import Error
from ottla.client.client import Client
from ottla.client.errors import ClientError
from ottla.operations.dead_letters.letter import Letter
from ottla.operations.dead_letters.reading import size_of
from ottla.operations.messages.producing import NewMessage, is_unsure, partition_of_key, produce_batch
from ottla.operations.messages.windows import partitions_of

BATCH_RECORDS = 200
BATCH_BYTES = 500_000
TOO_LARGE = frozenset({Error.MESSAGE_TOO_LARGE, Error.RECORD_LIST_TOO_LARGE})


class Outcome(StrEnum):
    SENT = "sent"
    REFUSED = "refused"
    UNSURE = "unsure"


class Resent(NamedTuple):
    """What became of one letter; `problem` is a sentence, unless it was sent."""

    letter: Letter
    topic: str
    outcome: Outcome
    partition: int = -1
    offset: int = -1
    problem: str = ""


def target_of(letter: Letter, to: str | None) -> str | None:
    """The topic that a letter goes to; None: its headers do not tell."""
    return to or (None if letter.source is None else letter.source.topic)


def resend(
    client: Client, letters: Sequence[Letter], to: str | None, is_over: Callable[[], bool] = lambda: False
) -> Iterator[Resent]:
    """Each letter with what became of it, batch by batch."""
    for topic, chosen in _by_target(letters, to).items():
        try:
            numbers = partitions_of(client, topic)
        except ClientError as problem:
            yield from (Resent(letter, topic, Outcome.REFUSED, problem=str(problem)) for letter in chosen)
            continue
        for partition, own in _by_partition(chosen, topic, numbers).items():
            for batch in _batches(own):
                if is_over():
                    yield from (Resent(each, topic, Outcome.REFUSED, problem="it was stopped") for each in batch)
                else:
                    yield from _send(client, topic, partition, batch)


def _send(client: Client, topic: str, partition: int, batch: Sequence[Letter]) -> Iterator[Resent]:
    messages = [NewMessage(each.record.key, each.record.value, each.original.headers) for each in batch]
    try:
        written = produce_batch(client, topic, partition, messages)
    except ClientError as problem:
        if problem.error in TOO_LARGE and len(batch) > 1:
            middle = len(batch) // 2
            yield from _send(client, topic, partition, batch[:middle])
            yield from _send(client, topic, partition, batch[middle:])
            return
        outcome = Outcome.UNSURE if is_unsure(problem) else Outcome.REFUSED
        yield from (Resent(each, topic, outcome, partition, problem=str(problem)) for each in batch)
        return
    for place, each in enumerate(batch):
        yield Resent(each, topic, Outcome.SENT, partition, written.offset + place)


def _by_target(letters: Sequence[Letter], to: str | None) -> Mapping[str, list[Letter]]:
    found: dict[str, list[Letter]] = {}
    for letter in letters:
        topic = target_of(letter, to)
        if topic is not None:
            found.setdefault(topic, []).append(letter)
    return found


def _by_partition(letters: Sequence[Letter], topic: str, numbers: Sequence[int]) -> Mapping[int, list[Letter]]:
    found: dict[int, list[Letter]] = {}
    for place, letter in enumerate(letters):
        source, key = letter.source, letter.record.key
        if source is not None and source.topic == topic and source.partition in numbers:
            partition = source.partition
        elif key is not None:
            partition = partition_of_key(key, numbers)
        else:
            partition = numbers[place % len(numbers)]
        found.setdefault(partition, []).append(letter)
    return found


def _batches(letters: Sequence[Letter]) -> Iterator[list[Letter]]:
    batch: list[Letter] = []
    size = 0
    for letter in letters:
        own = size_of(letter)
        if batch and (len(batch) >= BATCH_RECORDS or size + own > BATCH_BYTES):
            yield batch
            batch, size = [], 0
        batch.append(letter)
        size += own
    if batch:
        yield batch
