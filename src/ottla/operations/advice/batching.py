"""What other settings of a producer would have made of the batches that were sampled. Pure.

Rules:
1. Batches are put together, never taken apart: all that a longer wait can do.
2. A batch takes in what the same producer sends to the same partition until linger.ms after its first record, up to
   batch.size. Producers without an id cannot be told apart and count as one.
3. Sizes are those of the bytes themselves, compressed here with the levels that clients use by default.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from ottla.operations.advice.topic_facts import SampledBatch
from ottla.protocol.batches import HEADER_BYTES
from ottla.protocol.compression import compress

LINGERS_MS = (5, 20, 100)
BATCH_BYTES = 16_384  # Java's default; librdkafka's is 1,000,000
TIMES_ENOUGH = 5.0  # so many times fewer batches: a longer wait is not worth more

Group = list[SampledBatch]


class Lingering(NamedTuple):
    """What a wait brings: so many records a batch, in these groups of the batches that are there now."""

    linger_ms: int
    records_per_batch: float
    groups: Sequence[Group]


def merged(batches: Iterable[SampledBatch], linger_ms: int, batch_bytes: int = BATCH_BYTES) -> list[Group]:
    """Batches in the order of the log, put together."""
    groups: list[Group] = []
    last: dict[tuple[int, int], tuple[Group, int]] = {}  # by producer: its open batch, and its bytes
    for batch in batches:
        key = (batch.partition, batch.producer_id)
        group, size = last.get(key, (None, 0))
        size += len(batch.payload)
        if group is None or size > batch_bytes or batch.first_ms > group[0].first_ms + linger_ms:
            group, size = [], len(batch.payload)
            groups.append(group)
        group.append(batch)
        last[key] = (group, size)
    return groups


def best_linger(batches: Sequence[SampledBatch]) -> Lingering:
    """The shortest wait that brings much, else the longest."""
    records = sum(batch.records for batch in batches)
    found = Lingering(0, 0.0, ())
    for linger_ms in LINGERS_MS:
        groups = merged(batches, linger_ms)
        found = Lingering(linger_ms, records / len(groups), groups)
        if len(batches) / len(groups) >= TIMES_ENOUGH:
            break
    return found


def compressed_bytes(groups: Iterable[Group], codec: int | None = None) -> int:
    """Bytes of all groups, each as one batch; without a codec under that of its first batch."""
    total = 0
    for group in groups:
        payload = b"".join(batch.payload for batch in group)
        total += HEADER_BYTES + len(compress(group[0].codec if codec is None else codec, payload))
    return total
