"""Brokers that died and came back: whether their logs are still what the ISRs take them for."""

from uuid import UUID

from ottla.controller import tree
from ottla.controller.decisions.broker_epochs import after_election, known_broker_epochs, returned
from ottla.controller.image import BrokerImage, MetadataImage, PartitionImage, TopicImage
from ottla.controller.stores.store import Node


def broker(id_: int, epoch: int, previous_epoch: int = -1) -> BrokerImage:
    return BrokerImage(id_, {}, None, epoch, previous_epoch=previous_epoch)


def image(**epochs: int) -> MetadataImage:
    return MetadataImage(brokers={int(name[1:]): broker(int(name[1:]), epoch) for name, epoch in epochs.items()})


def test_a_broker_with_the_same_epoch_has_not_been_away() -> None:
    assert returned(image(b1=10), {1: broker(1, 10)}, {}) == (frozenset(), frozenset())


def test_a_new_epoch_is_a_new_life_whose_records_may_be_lost() -> None:
    assert returned(image(b1=10), {1: broker(1, 20)}, {}) == (frozenset({1}), frozenset({1}))


def test_who_goes_on_with_the_life_that_is_known_has_lost_nothing() -> None:
    assert returned(image(b1=10), {1: broker(1, 20, 10)}, {}) == (frozenset({1}), frozenset())


def test_who_goes_on_with_a_life_that_nobody_has_seen_may_have_lost_something_before() -> None:
    assert returned(image(b1=10), {1: broker(1, 30, 20)}, {}).lost == {1}


def test_a_broker_that_was_seen_dead_and_is_back_is_remembered() -> None:
    known = after_election({1: broker(1, 10)}, {})
    assert returned(image(), {1: broker(1, 20)}, known).lost == {1}
    assert returned(image(), {1: broker(1, 20, 10)}, known) == (frozenset({1}), frozenset())
    assert returned(image(), {1: broker(1, 20)}, after_election({1: broker(1, 20)}, known)).restarted == frozenset()


def test_a_broker_that_nobody_knows_has_nothing_to_lose() -> None:
    assert returned(image(), {1: broker(1, 20)}, {}) == (frozenset(), frozenset())


def test_a_new_controller_finds_out_who_registered_after_an_isr_was_written() -> None:
    partition = PartitionImage(1, 5, (1, 2), (1, 2, 3), 7, eligible=(3,))
    topics = {"t": TopicImage("t", UUID(int=1), (partition,))}
    brokers = {1: broker(1, 10), 2: broker(2, 60), 3: broker(3, 70, 12)}
    loaded = MetadataImage(brokers=brokers, topics=topics)
    path = tree.partition_state_path("t", 0)
    foreign = tree.encode_partition_state(tree.PartitionState(1, 5, (1, 2), 3, eligible=(3,)))
    known = known_broker_epochs({path: Node(foreign, 7, 5, 50)}, loaded)
    assert known == {1: 50, 2: 50, 3: 50}
    assert returned(loaded, brokers, known) == (frozenset({2, 3}), frozenset({2}))


def test_a_registration_that_the_writer_of_an_isr_had_not_noticed_is_a_new_life() -> None:
    topics = {"t": TopicImage("t", UUID(int=1), (PartitionImage(1, 5, (1, 2), (1, 2), 7),))}
    brokers = {1: broker(1, 10), 2: broker(2, 40)}
    loaded = MetadataImage(brokers=brokers, topics=topics)
    path = tree.partition_state_path("t", 0)
    state = tree.encode_partition_state(tree.PartitionState(1, 5, (1, 2), 3, known_life=12))
    known = known_broker_epochs({path: Node(state, 7, 5, 50)}, loaded)
    assert returned(loaded, brokers, known).lost == {2}, "it came before the write, and yet the writer meant another"


def test_a_store_that_does_not_say_when_it_was_written_accuses_nobody() -> None:
    topics = {"t": TopicImage("t", UUID(int=1), (PartitionImage(1, 0, (1,), (1,)),))}
    assert known_broker_epochs({tree.partition_state_path("t", 0): Node(b"", 0, 5)}, MetadataImage(topics=topics)) == {}
