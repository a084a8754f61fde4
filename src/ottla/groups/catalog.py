"""What a group has to know about topics: which there are, their ids, how many partitions they have."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import NamedTuple, Protocol
from uuid import UUID


class TopicFacts(NamedTuple):
    name: str
    topic_id: UUID
    partition_count: int


class Catalog(Protocol):
    """The topics at one moment; `generation` is another number whenever something may have changed."""

    @property
    def generation(self) -> int: ...

    def topic(self, name: str) -> TopicFacts | None: ...

    def topic_by_id(self, topic_id: UUID) -> TopicFacts | None: ...

    def names(self) -> Iterable[str]: ...


def fingerprint(catalog: Catalog, names: Iterable[str]) -> int:
    """A signed 64-bit number that changes when one of these topics appears, goes, or gets more partitions."""
    facts = [catalog.topic(name) for name in sorted(names)]
    text = ";".join(f"{fact.name}:{fact.topic_id}:{fact.partition_count}" for fact in facts if fact is not None)
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "big", signed=True) if text else 0
