"""The image: immutable, and cheap to derive."""

from uuid import UUID

import pytest

from ottla.base.security import Operation, Permission, ResourceType
from ottla.controller.image import BrokerImage, MetadataImage, PartitionImage, TopicImage
from ottla.security.acls import AccessControlEntry, ResourcePattern

KINDS = ("topic", "acl", "user", "quota")

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


def everything(**changed: str) -> MetadataImage:
    """One of each kind, made anew each time; `changed` says whose value is another, empty for none at all."""

    def of(name: str, value: str) -> dict[str, str]:
        return {name: changed.get(name, value)} if changed.get(name, value) else {}

    image = MetadataImage(cluster_id="c").with_topics([topic("a"), topic("b", 2)], configs={"a": of("topic", "1")})
    image = image.with_user_configs({"alice": {"x": "1"}, **({"bob": made} if (made := of("user", "1")) else {})})
    image = image.with_quota_configs({"clients/a": {"x": "1"}, **({"clients/b": q} if (q := of("quota", "1")) else {})})
    entries = frozenset(
        {AccessControlEntry(who, "*", Operation.READ, Permission.ALLOW) for who in of("acl", "u").values()}
    )
    always = frozenset({AccessControlEntry("v", "*", Operation.READ, Permission.ALLOW)})
    rules = {ResourcePattern(ResourceType.TOPIC, "a"): always, ResourcePattern(ResourceType.TOPIC, "b"): entries}
    return image.with_acls({pattern: each for pattern, each in rules.items() if each})


def differences(new: MetadataImage, old: MetadataImage) -> list[set[str]]:
    rules = {pattern.name for pattern in new.changed_acls_since(old)}
    return [
        set(new.changed_topics_since(old)),
        rules,
        set(new.changed_users_since(old)),
        set(new.changed_quotas_since(old)),
    ]


@pytest.mark.parametrize("value", ["", "2"])
def test_successor_has_the_differences_and_shares_equal_parts(value: str) -> None:
    old = everything()
    same = everything().as_successor_of(old)
    assert differences(same, old) == [set(), set(), set(), set()]
    assert (same.acls, same.user_configs, same.quota_configs) == (old.acls, old.user_configs, old.quota_configs)
    assert same.acls is old.acls
    assert same.user_configs is old.user_configs
    assert same.quota_configs is old.quota_configs
    for kind, expected in (("topic", "a"), ("acl", "b"), ("user", "bob"), ("quota", "clients/b")):
        wanted = everything(**{kind: value})
        new = wanted.as_successor_of(old)
        found = differences(new, old)
        assert found == [{expected} if each is found[KINDS.index(kind)] else set() for each in found], kind
        assert (new.acls, new.user_configs) == (wanted.acls, wanted.user_configs)
        assert (new.quota_configs, new.topic_configs) == (wanted.quota_configs, wanted.topic_configs)
        back = everything().as_successor_of(new)
        assert differences(back, new) == found, "the other way, too"
