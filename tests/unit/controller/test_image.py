"""The image: never changed, cheaply derived."""

from uuid import UUID

from ottla.controller.image import BrokerImage, MetadataImage, PartitionImage, TopicImage

PARTITION = PartitionImage(1, 0, (1,), (1,))


def topic(name: str, number: int = 1, partitions: int = 1) -> TopicImage:
    return TopicImage(name, UUID(int=number), (PARTITION,) * partitions)


def test_topics_are_found_by_name_and_id() -> None:
    image = MetadataImage().with_topics([topic("a", 1, 2), topic("b", 2)])
    assert image.topics["a"] is image.topics_by_id[UUID(int=1)]
    assert image.partition("a", 1) is PARTITION
    assert image.partition("a", 2) is image.partition("a", -1) is image.partition("c", 0) is None
    assert (image.partition_leader("a", 0), image.partition_leader("c", 0)) == (1, -1)
    assert image.count_partitions(["a", "b", "c", None]) == 3


def test_a_derived_image_leaves_the_old_one_alone() -> None:
    old = MetadataImage().with_topics([topic("a")], configs={"a": {"x": "1"}})
    new = old.with_topics([topic("b", 2)], removed=["a"])
    assert set(old.topics) == {"a"}
    assert old.topic_configs == {"a": {"x": "1"}}
    assert (set(new.topics), set(new.topics_by_id), new.topic_configs) == ({"b"}, {UUID(int=2)}, {})
    assert new.generation == old.generation + 1


def test_changed_topics_are_known_from_one_image_to_the_next() -> None:
    first = MetadataImage().with_topics([topic("a"), topic("b", 2)])
    second = first.with_topics([topic("a", 1, 2)], configs={"b": {"x": "1"}})
    assert second.changed_topics_since(first) == {"a", "b"}
    assert second.with_brokers({}).changed_topics_since(second) == set()


def test_changed_topics_are_found_by_comparing_distant_images() -> None:
    first = MetadataImage().with_topics([topic("a"), topic("b", 2), topic("c", 3), topic("d", 4)])
    last = first.with_topics([topic("a", 1, 2)]).with_topics([topic("e", 5)], removed=["b"])
    last = last.with_topics(configs={"c": {"x": "1"}})
    assert last.changed_topics_since(first) == first.changed_topics_since(last) == {"a", "b", "c", "e"}


def test_images_that_do_not_derive_from_one_another_are_compared() -> None:
    one = MetadataImage().with_topics([topic("a")])
    other = MetadataImage().with_brokers({}).with_topics([topic("b", 2)])
    assert other.generation == one.generation + 1
    assert other.changed_topics_since(one) == {"a", "b"}


def test_names_that_would_collide_are_remembered() -> None:
    image = MetadataImage(topics={"a.b": topic("a.b"), "x": topic("x", 2)}).with_topics([topic("a_b", 3)])
    assert image.names_by_collision_key == {"a_b": ("a.b", "a_b")}
    image = image.with_topics(removed=["a.b"])
    assert image.names_by_collision_key == {"a_b": ("a_b",)}
    assert image.with_topics(removed=["a_b"]).names_by_collision_key == {}


def test_the_other_parts_are_replaced_one_by_one() -> None:
    image = MetadataImage().with_broker_config("1", {"x": "1"}).with_controller(1, 7).with_cluster_id("c")
    image = image.with_brokers({1: BrokerImage(1, {}, None, 5)})
    assert (image.broker_configs, image.controller_id, image.controller_epoch) == ({"1": {"x": "1"}}, 1, 7)
    assert (image.cluster_id, image.brokers[1].epoch) == ("c", 5)
    assert repr(image) == "<MetadataImage generation=4 brokers=1 topics=0 controller=1>"


def test_internal_topics_know_it() -> None:
    assert topic("__consumer_offsets").is_internal
    assert not topic("a").is_internal
