"""Topics as groups see them: a view of the metadata image, and regular expressions over their names."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final
from uuid import UUID

from ottla.base.errors import Error, KafkaError
from ottla.broker.coordinators.patterns import PatternError, compile_pattern
from ottla.controller.image import MetadataImage, TopicImage
from ottla.groups.catalog import Catalog, TopicFacts

KAFKAS_WORDS: Final = {
    "missing )": "missing closing )",
    "missing ]": "missing closing ]",
    "unexpected )": "regexp/syntax: internal error",
    "bad repetition operator": "invalid nested repetition operator",
    "no argument for repetition operator": "missing argument to repetition operator",
    "trailing \\": "trailing backslash at end of expression",
    "invalid repetition size": "invalid repeat count",
    "invalid named capture group": "invalid named capture",
    "invalid perl operator": "invalid or unsupported Perl syntax",
}


class ImageCatalog:
    """The topics of one metadata image; the number tells it from all others that this broker has had.

    `sees` tells which of them whoever asks may know of: patterns match no others.
    """

    def __init__(self, image: MetadataImage, generation: int, sees: Callable[[str], bool] | None = None) -> None:
        self._image = image
        self._sees = sees
        self.generation = generation

    def topic(self, name: str) -> TopicFacts | None:
        return _facts(self._image.topics.get(name))

    def topic_by_id(self, topic_id: UUID) -> TopicFacts | None:
        return _facts(self._image.topics_by_id.get(topic_id))

    def names(self) -> Iterable[str]:
        return self._image.topics if self._sees is None else filter(self._sees, self._image.topics)


def matching_topics(pattern: str, catalog: Catalog) -> frozenset[str]:
    """RE2, as Kafka uses it: time grows with the text, never faster, so a client cannot stall the broker."""
    try:
        compiled = compile_pattern(pattern)
    except PatternError as error:
        problem = f"SubscribedTopicRegex `{pattern}` is not a valid regular expression: {in_kafkas_words(error)}."
        raise KafkaError(Error.INVALID_REGULAR_EXPRESSION, problem) from None
    return frozenset(name for name in catalog.names() if compiled.fullmatch(name) is not None)


def in_kafkas_words(error: PatternError) -> str:
    """Kafka's Java library says the same things in other words than ours."""
    said = str(error).partition(":")[0]
    return KAFKAS_WORDS.get(said, said)


def _facts(topic: TopicImage | None) -> TopicFacts | None:
    return None if topic is None else TopicFacts(topic.name, topic.topic_id, len(topic.partitions))
