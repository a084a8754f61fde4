"""The position of a message in the form of confluent-kafka (equal if topic and partition are, regardless of the
offset)."""

from collections.abc import Iterable

from confluent_kafka import KafkaException, Message, TopicPartition


def place_of(message: Message) -> TopicPartition:
    """The message itself: to start with it again."""
    topic, partition, offset = message.topic(), message.partition(), message.offset()
    assert topic is not None
    assert partition is not None
    assert offset is not None
    return TopicPartition(topic, partition, offset)


def place_after(message: Message) -> TopicPartition:
    """The position to commit for it: the offset of the next message to read."""
    place = place_of(message)
    place.offset += 1
    return place


def places_after(batch: Iterable[Message]) -> list[TopicPartition]:
    """One position for each partition that has messages in the batch."""
    newest = {place: place for place in map(place_after, batch)}
    return list(newest.values())


def checked(message: Message) -> Message:
    """A poll also returns errors that the client could not handle."""
    if error := message.error():
        raise KafkaException(error)
    return message


def headers_of(message: Message) -> dict[str, bytes]:
    return {name: value for name, value in dict(message.headers() or {}).items() if isinstance(value, bytes)}
