"""Restarted brokers, and those that may have lost records."""

from uuid import UUID

from ottla.controller import tree
from ottla.controller.decisions.broker_epochs import broker_epoch_bounds, find_restarted, updated_epoch_bounds
from ottla.controller.image import BrokerImage, MetadataImage, PartitionImage, TopicImage
from ottla.controller.stores.store import Node


def broker(id_: int, epoch: int, previous_epoch: int = -1) -> BrokerImage:
    return BrokerImage(id_, {}, None, epoch, previous_epoch=previous_epoch)


def image(**epochs: int) -> MetadataImage:
    return MetadataImage(brokers={int(name[1:]): broker(int(name[1:]), epoch) for name, epoch in epochs.items()})


def test_a_broker_with_the_same_epoch_has_not_been_away() -> None:
    assert find_restarted(image(b1=10), {1: broker(1, 10)}, {}) == (frozenset(), frozenset())


def test_new_epoch_may_have_lost_records() -> None:
    assert find_restarted(image(b1=10), {1: broker(1, 20)}, {}) == (frozenset({1}), frozenset({1}))


def test_known_previous_epoch_means_no_lost_records() -> None:
    assert find_restarted(image(b1=10), {1: broker(1, 20, 10)}, {}) == (frozenset({1}), frozenset())


def test_unknown_previous_epoch_may_have_lost_records_before() -> None:
    assert find_restarted(image(b1=10), {1: broker(1, 30, 20)}, {}).unclean == {1}


def test_a_broker_that_was_seen_dead_and_is_back_is_remembered() -> None:
    known = updated_epoch_bounds({1: broker(1, 10)}, {})
    assert find_restarted(image(), {1: broker(1, 20)}, known).unclean == {1}
    assert find_restarted(image(), {1: broker(1, 20, 10)}, known) == (frozenset({1}), frozenset())
    assert (
        find_restarted(image(), {1: broker(1, 20)}, updated_epoch_bounds({1: broker(1, 20)}, known)).restarted
        == frozenset()
    )


def test_unknown_broker_has_no_records_to_lose() -> None:
    assert find_restarted(image(), {1: broker(1, 20)}, {}) == (frozenset(), frozenset())


def test_new_controller_finds_registrations_newer_than_an_isr() -> None:
    partition = PartitionImage(1, 5, (1, 2), (1, 2, 3), 7, elr=(3,))
    topics = {"t": TopicImage("t", UUID(int=1), (partition,))}
    brokers = {1: broker(1, 10), 2: broker(2, 60), 3: broker(3, 70, 12)}
    loaded = MetadataImage(brokers=brokers, topics=topics)
    path = tree.partition_state_path("t", 0)
    foreign = tree.encode_partition_state(tree.PartitionState(1, 5, (1, 2), 3, eligible=(3,)))
    known = broker_epoch_bounds({path: Node(foreign, 7, 5, 50)}, loaded)
    assert known == {1: 50, 2: 50, 3: 50}
    assert find_restarted(loaded, brokers, known) == (frozenset({2, 3}), frozenset({2}))


def test_registration_unknown_to_the_writer_of_an_isr_is_a_restart() -> None:
    topics = {"t": TopicImage("t", UUID(int=1), (PartitionImage(1, 5, (1, 2), (1, 2), 7),))}
    brokers = {1: broker(1, 10), 2: broker(2, 40)}
    loaded = MetadataImage(brokers=brokers, topics=topics)
    path = tree.partition_state_path("t", 0)
    state = tree.encode_partition_state(tree.PartitionState(1, 5, (1, 2), 3, known_life=12))
    known = broker_epoch_bounds({path: Node(state, 7, 5, 50)}, loaded)
    assert find_restarted(loaded, brokers, known).unclean == {2}, (
        "it came before the write, and yet the writer meant another"
    )


def test_store_without_write_ids_reports_no_restarts() -> None:
    topics = {"t": TopicImage("t", UUID(int=1), (PartitionImage(1, 0, (1,), (1,)),))}
    assert broker_epoch_bounds({tree.partition_state_path("t", 0): Node(b"", 0, 5)}, MetadataImage(topics=topics)) == {}
