"""Deltas: applied to any old image they give the controller's image."""

from typing import Any
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.base.security import Operation, PatternType, Permission, ResourceType
from ottla.controller.cluster.deltas import DeltaMismatchError, apply_delta, difference, snapshot
from ottla.controller.image import BrokerImage, Endpoint, MetadataImage, PartitionImage, TopicImage
from ottla.protocol.codec import decode, encode
from ottla.protocol.messages.inter_broker import (
    ClusterPollResponse,
    DeltaAclEntry,
    DeltaAcls,
    DeltaConfigs,
    DeltaSetting,
    MetadataDelta,
)
from ottla.security.acls import AccessControlEntry, ResourcePattern
from ottla.security.delegation_tokens import DelegationToken

ids = st.integers(0, 5)
brokers_of_a_partition = st.lists(ids, unique=True, max_size=4).map(tuple)
texts = st.text("ab._-", min_size=1, max_size=3)
some_settings = st.fixed_dictionaries({"x": texts})
several_settings = st.dictionaries(st.sampled_from(["retention.ms", "x", "y"]), texts, max_size=2)

partitions = st.builds(
    PartitionImage,
    st.integers(-1, 5),
    st.integers(-1, 9),
    brokers_of_a_partition,
    brokers_of_a_partition,
    st.integers(-1, 9),
    brokers_of_a_partition,
    brokers_of_a_partition,
    st.integers(0, 1),
    brokers_of_a_partition,
    brokers_of_a_partition,
)


patterns = st.builds(
    ResourcePattern,
    st.sampled_from([ResourceType.TOPIC, ResourceType.GROUP]),
    texts,
    st.sampled_from([PatternType.LITERAL, PatternType.PREFIXED]),
)
entries = st.builds(
    AccessControlEntry,
    st.sampled_from(["User:a", "User:*"]),
    st.just("*"),
    st.sampled_from([Operation.READ, Operation.ALL]),
    st.sampled_from([Permission.DENY, Permission.ALLOW]),
)

tokens = st.builds(DelegationToken, texts, texts, texts, st.lists(texts).map(tuple), ids, ids, ids)


@st.composite
def images(draw: Any) -> MetadataImage:
    names = draw(st.lists(st.sampled_from(["a", "a.b", "a_b", "c"]), unique=True, max_size=3))
    topics = {}
    for number, name in enumerate(names):
        topic_id = UUID(int=1 + number + 10 * draw(st.integers(0, 1)))
        topics[name] = TopicImage(name, topic_id, tuple(draw(st.lists(partitions, min_size=1, max_size=3))))
    brokers = {
        number: BrokerImage(number, {"P": Endpoint("h", draw(ids))}, draw(st.none() | texts), draw(ids), draw(ids))
        for number in sorted(draw(st.sets(ids, max_size=4)))
    }
    return MetadataImage(
        cluster_id=draw(texts),
        controller_id=draw(ids),
        controller_epoch=draw(ids),
        brokers=brokers,
        topics=topics,
        topic_configs={name: draw(several_settings) for name in names},
        broker_configs=draw(st.dictionaries(st.sampled_from(["", "1", "2"]), several_settings, max_size=2)),
        group_configs=draw(st.dictionaries(texts, some_settings, max_size=2)),
        client_metrics_configs=draw(st.dictionaries(texts, some_settings, max_size=2)),
        acls=draw(st.dictionaries(patterns, st.frozensets(entries, min_size=1, max_size=2), max_size=3)),
        user_configs=draw(st.dictionaries(texts, several_settings, max_size=2)),
        quota_configs=draw(st.dictionaries(texts, several_settings, max_size=2)),
        delegation_tokens={token.token_id: token for token in draw(st.lists(tokens, max_size=3))},
        features=draw(st.dictionaries(texts, ids, max_size=2)),
        features_epoch=draw(ids),
    )


def facts(image: MetadataImage) -> dict[str, Any]:
    left_out = {"lineage", "generation", "recent_topics", "changed_acls", "names_by_collision_key"}
    left_out |= {"changed_users", "changed_quotas"}
    left_out |= {"broker_configs", "user_configs", "quota_configs"}  # those without a setting are as good as none
    found = {slot: getattr(image, slot) for slot in MetadataImage.__slots__ if slot not in left_out}
    found["broker_configs"] = {name: config for name, config in image.broker_configs.items() if config}
    found["user_configs"] = {name: config for name, config in image.user_configs.items() if config}
    found["quota_configs"] = {name: config for name, config in image.quota_configs.items() if config}
    found["collisions"] = {key: sorted(names) for key, names in image.names_by_collision_key.items()}
    return found


def over_the_wire(delta: MetadataDelta) -> MetadataDelta:
    response = ClusterPollResponse(controller_epoch=1, deltas=[delta])
    decoded, _ = decode(ClusterPollResponse, 0, memoryview(bytes(encode(response, 0))))
    return decoded.deltas[0]


@settings(max_examples=60)
@given(images(), images())
def test_a_difference_makes_the_old_image_the_new_one(old: MetadataImage, new: MetadataImage) -> None:
    made = apply_delta(old, over_the_wire(difference(old, new, 7)))
    assert facts(made) == facts(new)
    assert made.changed_topics_since(old) == new.changed_topics_since(old)


@settings(max_examples=60)
@given(images(), images())
def test_snapshot_replaces_the_old_image(old: MetadataImage, new: MetadataImage) -> None:
    delta = over_the_wire(snapshot(new, 3))
    assert delta.is_snapshot
    assert delta.sequence == 3
    assert facts(apply_delta(old, delta)) == facts(new)


@settings(max_examples=30)
@given(images())
def test_no_difference_is_next_to_nothing(image: MetadataImage) -> None:
    delta = difference(image, image)
    assert [delta.brokers, delta.removed_brokers, delta.topics, delta.removed_topics, delta.configs] == [[]] * 5
    assert (delta.features, delta.acls) == (None, [])
    assert apply_delta(image, delta) is image


def topic(*leaders: int) -> TopicImage:
    return TopicImage("t", UUID(int=1), tuple(PartitionImage(leader, 0, (1,), (1, 2)) for leader in leaders))


def test_delta_has_only_changed_partitions() -> None:
    old = MetadataImage().with_topics([topic(*[1] * 100)])
    new = old.with_topics([topic(*[1] * 99, 2)])
    (told,) = difference(old, new).topics
    assert [each.partition_index for each in told.partitions] == [99]


def test_a_topic_that_was_made_again_under_its_name_is_another_topic() -> None:
    old = MetadataImage().with_topics([topic(1, 1)], configs={"t": {"x": "1"}})
    again = TopicImage("t", UUID(int=2), (PartitionImage(1, 0, (1,), (1,)),))
    new = old.with_topics(removed=["t"]).with_topics([again], configs={"t": {}})
    delta = difference(old, new)
    assert delta.removed_topics == [UUID(int=1)]
    assert facts(apply_delta(old, delta)) == facts(new)


def test_types_of_newer_brokers_are_skipped() -> None:
    known, strange = AccessControlEntry("User:a", "*", Operation.READ, Permission.ALLOW), 99
    patterns_known = ResourcePattern(ResourceType.TOPIC, "t", PatternType.LITERAL)
    image = MetadataImage(features={"strange.version": 7}).with_acls({patterns_known: frozenset({known})})
    delta = snapshot(image)
    row = delta.acls[0]
    row.entries.append(DeltaAclEntry(principal="User:b", host="*", operation=strange, permission=2))
    row.entries.append(DeltaAclEntry(principal="User:b", host="*", operation=3, permission=strange))
    delta.acls.append(DeltaAcls(resource_type=strange, name="n", pattern_type=3, entries=list(row.entries)))
    delta.acls.append(DeltaAcls(resource_type=2, name="n", pattern_type=strange, entries=list(row.entries)))
    setting = [DeltaSetting(name="strange.ms", value="1")]
    delta.configs.append(DeltaConfigs(resource_type=strange, resource_name="n", settings=setting))
    after = apply_delta(MetadataImage(), delta)
    assert after.acls == image.acls
    assert after.features == {"strange.version": 7}


@pytest.mark.parametrize("change", ["removed", "other id", "gap"])
def test_a_delta_that_does_not_fit_is_refused(change: str) -> None:
    new = MetadataImage().with_topics([topic(1, 1)])
    delta = difference(MetadataImage(), new)
    image = MetadataImage()
    if change == "removed":
        delta.removed_topics = [UUID(int=9)]
    elif change == "other id":
        image = image.with_topics([TopicImage("t", UUID(int=8), ())])
    else:
        del delta.topics[0].partitions[0]
    with pytest.raises(DeltaMismatchError):
        apply_delta(image, delta)
