"""Topics of a cluster when not all brokers are up."""

import uuid
from collections.abc import Callable

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from tests.faults.loads import LIBRDKAFKA, read_everything

from ottla.testing.cluster import Cluster

SEND_SECONDS = 30.0


@pytest.fixture
def topic() -> str:
    return f"topic-{uuid.uuid4().hex[:8]}"


def send(
    bootstrap: str, topic: str, values: list[bytes], seconds_max: float = SEND_SECONDS, **settings: object
) -> None:
    """All values, acknowledged by all in-sync replicas, or KafkaException."""
    problems: list[KafkaError] = []
    wanted: dict[str, object] = {"bootstrap.servers": bootstrap, "acks": "all", "linger.ms": 0, **LIBRDKAFKA}
    producer = Producer(wanted | {"message.timeout.ms": int(seconds_max * 1000)} | settings)
    for value in values:
        producer.produce(topic, value, partition=0, on_delivery=lambda error, _: error and problems.append(error))
        producer.flush(seconds_max + 5)
    if problems:
        raise KafkaException(problems[0])


def values_of(bootstrap: str, topic: str) -> list[bytes]:
    return [value for _, value in read_everything(bootstrap, [(topic, 0)])[topic, 0]]


def test_a_topic_that_was_deleted_while_a_broker_was_down_does_not_come_back(cluster: Cluster, topic: str) -> None:
    cluster.create_topic(topic)
    send(cluster.bootstrap, topic, [b"old %d" % number for number in range(10)])
    away = cluster.leader_of(topic)
    away.kill()
    cluster.wait_for_leader(topic, other_than=away)
    cluster.delete_topic(topic)
    cluster.wait_for(lambda: all(not names_of(answer, topic) for answer in cluster.metadata().values()), "no topic")
    cluster.create_topic(topic, replicas=2)
    send(cluster.bootstrap, topic, [b"new"])
    away.start()
    cluster.wait_until_whole()
    assert values_of(cluster.bootstrap, topic) == [b"new"]
    gone = away.partition_folder(topic, 0)
    replicas = cluster.partition(topic)
    assert replicas is not None
    if away.id not in replicas.replica_nodes:
        cluster.wait_for(lambda: away.partition_folder(topic, 0) is None, f"an end of {gone}")


def test_a_broker_starts_when_all_its_topics_were_deleted_while_it_was_down(cluster: Cluster) -> None:
    """In a cluster that is no sign of a lost store: the folders become strays, and say nothing about transactions."""
    topics = [f"gone-{uuid.uuid4().hex[:8]}" for _ in range(3)]
    for topic in topics:
        cluster.create_topic(topic)
    away = cluster.leader_of(topics[0])
    data = away.partition_folder(topics[0], 0)
    assert data is not None
    away.kill()
    cluster.wait_for_leader(topics[0], other_than=away)
    for topic in topics:
        cluster.delete_topic(topic)
    away.start()
    cluster.wait_until_whole()
    names = [path.name for path in data.parent.iterdir()]
    for topic in topics:
        assert away.partition_folder(topic, 0) is None
        assert [name for name in names if name.startswith(topic) and name.endswith("-stray")]
    assert "ottla.metadata.transaction" not in names


def names_of(answer: object, topic: str) -> list[object]:
    return [each for each in answer.topics if each.name == topic and not each.error_code]  # type: ignore[attr-defined]


@pytest.mark.parametrize("is_unclean", [False, True])
def test_a_replica_that_was_left_behind_leads_only_if_that_is_allowed(
    cluster: Cluster, topic: str, is_unclean: bool
) -> None:
    """R15 and R16: the whole ISR is dead, and a replica that lacks acknowledged records is back."""
    settings = {"unclean.leader.election.enable": is_unclean, "min.insync.replicas": 1}
    cluster.create_topic(topic, settings=settings, assignment={0: [1, 2]})
    first, second = cluster.broker(1), cluster.broker(2)
    send(cluster.bootstrap, topic, [b"both"])
    second.kill()
    cluster.wait_for_isr(topic, 0, [1])
    send(cluster.bootstrap, topic, [b"first only"])
    first.kill()
    second.start()
    if is_unclean:
        cluster.wait_for_leader(topic, other_than=first)
        assert values_of(cluster.bootstrap, topic) == [b"both"]
        send(cluster.bootstrap, topic, [b"second"])
        expected = [b"both", b"second"]
    else:
        with pytest.raises(KafkaException):
            send(cluster.bootstrap, topic, [b"no leader"], 4.0)
        found = cluster.partition(topic)
        assert found is not None
        assert found.leader_id == -1
        expected = [b"both", b"first only"]
    first.start()
    cluster.wait_for_isr(topic, 0, [1, 2])
    assert values_of(cluster.bootstrap, topic) == expected
    folders = cluster.replica_folders(topic, 0)
    assert len(folders) == 2
    assert (
        len({b"".join(path.read_bytes() for path in sorted(folder.glob("*.log"))) for folder in folders.values()}) == 1
    )


def test_too_few_replicas_refuse_writes_and_serve_reads(cluster: Cluster, topic: str) -> None:
    cluster.create_topic(topic, settings={"min.insync.replicas": 2})
    send(cluster.bootstrap, topic, [b"all there"])
    leader = cluster.leader_of(topic)
    for broker in cluster.brokers:
        if broker is not leader:
            broker.kill()
    cluster.wait_for_isr(topic, 0, [leader.id])
    with pytest.raises(KafkaException) as refused:
        send(cluster.bootstrap, topic, [b"too few"], 3.0, retries=0)
    assert refused.value.args[0].code() in (KafkaError.NOT_ENOUGH_REPLICAS, KafkaError._MSG_TIMED_OUT)
    assert values_of(cluster.bootstrap, topic) == [b"all there"]
    send(cluster.bootstrap, topic, [b"acks 1"], acks=1)


def test_a_topic_is_there_as_soon_as_its_creation_was_answered(cluster: Cluster) -> None:
    """On every broker, also right after the controller has stopped."""
    names = [f"many-{uuid.uuid4().hex[:6]}" for _ in range(5)]
    for name in names:
        cluster.create_topic(name, 3)
        for answer in cluster.metadata(name).values():
            assert [len(found.partitions) for found in answer.topics if not found.error_code] == [3], answer
    controller = cluster.controller()
    last = cluster.create_topic(f"last-{uuid.uuid4().hex[:6]}", 2)
    controller.kill()
    cluster.controller(other_than=controller)
    for answer in cluster.metadata(last).values():
        assert [len(found.partitions) for found in answer.topics] == [2]


def test_a_group_continues_at_its_offsets_after_its_coordinator_died(cluster: Cluster, topic: str) -> None:
    cluster.create_topic(topic)
    send(cluster.bootstrap, topic, [b"%d" % number for number in range(5)])
    settings = {
        "bootstrap.servers": cluster.bootstrap,
        "group.id": topic,
        "auto.offset.reset": "earliest",
        **LIBRDKAFKA,
    }
    consumer = Consumer({**settings, "enable.auto.commit": False})
    consumer.commit(offsets=[TopicPartition(topic, 0, 3)], asynchronous=False)
    for victim in cluster.brokers:
        victim.kill()
        (place,) = consumer.committed([TopicPartition(topic, 0)], timeout=30)
        assert place.offset == 3, victim
        consumer.commit(offsets=[TopicPartition(topic, 0, 3)], asynchronous=False)
        victim.start()
        cluster.wait_until_whole()
    consumer.close()


def test_a_broker_is_added_and_gets_work(cluster_factory: Callable[..., Cluster]) -> None:
    cluster = cluster_factory(brokers=2)
    cluster.create_topic("before", 4)
    new = cluster.add_broker()
    cluster.wait_until_whole()
    cluster.create_topic("after", 6, replicas=3)
    found = cluster.metadata("after")[new.id].topics[0].partitions
    assert all(new.id in partition.replica_nodes for partition in found)
    send(cluster.bootstrap, "after", [b"value"])
    assert values_of(cluster.bootstrap, "after") == [b"value"]
