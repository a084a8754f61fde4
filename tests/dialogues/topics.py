"""The topics of dialogues: one, `t`, whose partition count can be raised."""

from __future__ import annotations

from uuid import UUID

from ottla.groups.consumer_group import TopicInfo

TOPIC, TOPIC_ID = "t", UUID(int=1)


class OneTopic:
    def __init__(self, partition_count: int = 4) -> None:
        self.generation = self.new_topics_generation = 1
        self._facts = TopicInfo(TOPIC, TOPIC_ID, partition_count)

    def grow(self, partition_count: int) -> None:
        self.generation += 1
        self._facts = self._facts._replace(partition_count=partition_count)

    def topic(self, name: str) -> TopicInfo | None:
        return self._facts if name == TOPIC else None

    def topic_by_id(self, topic_id: UUID) -> TopicInfo | None:
        return self._facts if topic_id == TOPIC_ID else None
