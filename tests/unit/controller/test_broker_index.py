"""The broker index: after every change it equals the result of a full scan."""

from __future__ import annotations

from random import Random
from uuid import UUID

from tests.unit.controller.controller_harness import broker

from ottla.controller.decisions.broker_index import BrokerIndex
from ottla.controller.decisions.leader_election import decide_broker_changes, decide_controlled_shutdown
from ottla.controller.decisions.leader_eligibility import BrokerAvailability, ElectionRules
from ottla.controller.image import MetadataImage, PartitionImage, TopicImage

BROKERS = range(1, 9)
RULES = ElectionRules(min_insync_replicas=2)


def random_partition(chance: Random) -> PartitionImage:
    replicas = tuple(chance.sample(BROKERS, chance.randint(1, 4)))
    isr = replicas[: chance.randint(1, len(replicas))]
    adding = replicas[-1:] if chance.random() < 0.1 else ()
    return PartitionImage(isr[0], 3, isr, replicas, chance.choice((0, 4, -2)), adding, elr=replicas[len(isr) :][:1])


def random_topic(chance: Random, number: int) -> TopicImage:
    partitions = tuple(random_partition(chance) for _ in range(chance.randint(1, 5)))
    return TopicImage(f"t{number}", UUID(int=number + 1), partitions)


def same(one: BrokerIndex, other: BrokerIndex) -> bool:
    slots = ("_topics", "_moving", "_replicas", "_shared_replicas", "_out_of_sync")
    return all(getattr(one, slot) == getattr(other, slot) for slot in slots)


def test_updated_index_equals_a_new_one() -> None:
    chance = Random(3)
    image = MetadataImage()
    index = BrokerIndex(image)
    for _ in range(400):
        number = chance.randrange(30)
        if f"t{number}" in image.topics and chance.random() < 0.3:
            image = image.with_topics(removed=[f"t{number}"])
        else:
            image = image.with_topics([random_topic(chance, number)])
        if chance.random() < 0.5:
            continue  # the next one is followed together with this one
        index.update(image)
        assert same(index, BrokerIndex(image))
    assert image.partition_count == sum(len(topic.partitions) for topic in image.topics.values())


def test_election_of_affected_topics_equals_that_of_all_topics() -> None:
    for seed in range(15):
        chance = Random(seed)
        image = MetadataImage(brokers={id_: broker(id_) for id_ in BROKERS})
        image = image.with_topics([random_topic(chance, number) for number in range(25)])
        liveness = BrokerAvailability()
        image = decide_broker_changes(image, image.brokers, liveness, RULES).image  # all are in line
        index = BrokerIndex(image)
        for step in range(12):
            there = {id_: broker(id_)._replace(epoch=chance.choice((0, 0, 0, step))) for id_ in BROKERS}
            for gone in chance.sample(BROKERS, chance.randint(0, 3)):
                del there[gone]
            all_of_it = decide_broker_changes(image, there, liveness, RULES)
            some = decide_broker_changes(image, there, liveness, RULES, index.topics_of)
            assert dict(all_of_it.image.topics) == dict(some.image.topics)
            assert sorted(all_of_it.operations) == sorted(some.operations)
            leaving = chance.choice(BROKERS)
            full = decide_controlled_shutdown(some.image, leaving, liveness, RULES)
            index.update(some.image)
            part = decide_controlled_shutdown(some.image, leaving, liveness, RULES, index.topics_of([leaving]))
            assert dict(full.image.topics) == dict(part.image.topics)
            assert sorted(full.reply) == sorted(part.reply)
            image = some.image
