"""How far a group is behind: the end of each partition minus the group's committed position (`consumer_lag`)."""

from confluent_kafka import Consumer, TopicPartition

from ottla.operations.lag import PartitionLag


def lag(bootstrap: str, group: str, topic: str) -> dict[int, int | None]:
    """Messages that the group has not read, for each partition. It only looks: it does not join the group."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group, "enable.auto.commit": False})
    try:
        partitions = [TopicPartition(topic, number) for number in consumer.list_topics(topic).topics[topic].partitions]
        return {each.partition: behind(consumer, each) for each in consumer.committed(partitions)}
    finally:
        consumer.close()


def behind(consumer: Consumer, committed: TopicPartition) -> int | None:
    start, end = consumer.get_watermark_offsets(committed)
    place = committed.offset if committed.offset >= 0 else start  # without a commit all of it is to be read
    return PartitionLag(place, end, start).records
