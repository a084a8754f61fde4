"""Tens of thousands of access rules, given, shown and taken: nobody waits for them."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any, cast

import pytest

from ottla.base import tasks
from ottla.base.security import ANONYMOUS, Operation, PatternType, Permission, ResourceType
from ottla.broker.authorizing import follow_acls
from ottla.broker.cluster.poll_loop import PollLoop
from ottla.broker.handlers.create_acls import RULES_AT_ONCE
from ottla.broker.handlers.table import APIS
from ottla.controller.cluster.deltas import snapshot
from ottla.controller.cluster.encoded_deltas import encode_answer
from ottla.controller.cluster.feed import Feed
from ottla.controller.holder import ImageHolder
from ottla.controller.image import MetadataImage
from ottla.protocol.codec import decode_whole
from ottla.protocol.messages.acls import (
    AclCreation,
    CreateAclsRequest,
    DeleteAclsFilter,
    DeleteAclsRequest,
    DescribeAclsRequest,
)
from ottla.protocol.messages.cluster_poll import ClusterPollResponse
from ottla.security.acls import AccessControlEntry, ResourcePattern
from ottla.security.authorizer import Authorizer
from unit.broker.test_poll_loop import FakeMembership, settle
from unit.broker.whole_broker import Steps, WholeBroker, count_steps, run_counting, with_whole_broker

MANY = 8_000
ROUND_STEPS_MAX = 40_000  # ten milliseconds
DESCRIBE, CREATE, DELETE = 29, 30, 31


def creation(number: int) -> AclCreation:
    return AclCreation(
        resource_type=ResourceType.TOPIC,
        resource_name=f"topic-{number}",
        resource_pattern_type=(PatternType.LITERAL, PatternType.PREFIXED)[number % 2],
        principal=f"User:u{number % 100}",
        host="*",
        operation=Operation.READ,
        permission_type=Permission.ALLOW,
    )


def test_nobody_waits_for_many_rules(tmp_path: Path) -> None:
    every = {"resource_type_filter": ResourceType.ANY, "pattern_type_filter": PatternType.ANY}
    every |= {"operation": Operation.ANY, "permission_type": Permission.ANY}

    async def play(broker: WholeBroker) -> None:
        authorizer = broker.parts.authorizer = Authorizer({}, [ANONYMOUS])
        follow_acls(broker.parts.node.images, authorizer)
        changes: list[int] = []  # of one image to the next: every broker of a cluster has to take them in
        broker.parts.node.images.on_image(lambda old, new: changes.append(len(new.changed_acls_since(old))))
        client = broker.connect()

        async def steps_of(request: object, key: int) -> Steps:
            client.write(request, key, 3)
            return await count_steps(client.answer())

        def may(number: int) -> bool:
            who = f"User:u{number % 100}"
            return authorizer.is_granted(who, "10.0.0.1", Operation.READ, ResourceType.TOPIC, f"topic-{number}")

        found = {
            "create": await steps_of(CreateAclsRequest(creations=[creation(number) for number in range(MANY)]), CREATE)
        }
        assert len(broker.parts.image.acls) == MANY
        assert may(MANY - 1), "it counts as soon as it is answered"
        found["describe"] = await steps_of(DescribeAclsRequest(**every), DESCRIBE)
        found["delete"] = await steps_of(DeleteAclsRequest(filters=[DeleteAclsFilter(**every)]), DELETE)
        assert not broker.parts.image.acls
        assert not may(MANY - 2)
        assert (sum(changes), max(changes)) == (2 * MANY, RULES_AT_ONCE)
        longest = {name: steps.longest_round for name, steps in found.items()}
        assert max(longest.values()) <= ROUND_STEPS_MAX, f"{longest} steps at a time"

    with_whole_broker(tmp_path, APIS, play)


# ---- in a cluster


def many_rules(**changed: Operation) -> MetadataImage:
    """As a controller has them; `changed` names resources with another rule than the others."""
    everybody = frozenset({AccessControlEntry("User:u", "*", Operation.READ, Permission.ALLOW)})
    rules = {ResourcePattern(ResourceType.TOPIC, f"t{number}"): everybody for number in range(MANY)}
    for name, operation in changed.items():
        entry = AccessControlEntry("User:u", "*", operation, Permission.ALLOW)
        rules[ResourcePattern(ResourceType.TOPIC, name)] = frozenset({entry})
    image = MetadataImage(cluster_id="c", controller_id=1, controller_epoch=5).with_acls(rules)
    return image.with_quota_configs({f"clients/c{number}": {"producer_byte_rate": "9"} for number in range(MANY)})


def test_a_controller_tells_everything_and_goes_on() -> None:
    async def scene() -> None:
        feed, image = Feed(), many_rules()
        feed.begin(image, 5)
        polls = [tasks.ask(feed.poll(number, 4, 17, 0), "a poll") for number in range(3)]
        steps = await count_steps(asyncio.wait(polls))
        told = [delta for poll in polls for delta in poll.result()]
        assert [(each.is_snapshot, each.sequence) for each in told] == [(True, 0)] * 3
        assert all(each is told[0] for each in told), "it is made once for all of them"
        answer = encode_answer(ClusterPollResponse(controller_epoch=5), [told[0].body], 1)
        (delta,) = decode_whole(ClusterPollResponse, 1, memoryview(answer.body)).deltas
        assert len(delta.acls) == MANY
        assert steps.longest_round <= ROUND_STEPS_MAX, f"{steps.longest_round} steps at a time"

    run_counting(scene())


@pytest.mark.parametrize("is_first", [True, False])
def test_a_broker_that_is_told_everything_goes_on(is_first: bool) -> None:
    """At its start, and again when there is another controller: then most is as it was, and costs nothing."""

    async def scene() -> None:
        images = ImageHolder()
        before = many_rules(t7=Operation.WRITE)
        if not is_first:
            images.publish(before)
        authorizer = Authorizer(before.acls if not is_first else {})
        follow_acls(images, authorizer)
        membership = cast("Any", FakeMembership(images))
        polls = PollLoop(membership, images, cast("Any", None), settle)
        answer = ClusterPollResponse(controller_epoch=6, deltas=[snapshot(many_rules(t8=Operation.DELETE), 3)])
        steps = await count_steps(polls._take(answer))
        assert len(images.image.acls) == MANY
        for name, operation in (("t7", Operation.READ), ("t8", Operation.DELETE), ("t9", Operation.READ)):
            assert authorizer.is_granted("User:u", "h", operation, ResourceType.TOPIC, name)
        assert not authorizer.is_granted("User:u", "h", Operation.WRITE, ResourceType.TOPIC, "t7")
        assert steps.longest_round <= ROUND_STEPS_MAX, f"{steps.longest_round} steps at a time"
        if not is_first:
            same = ResourcePattern(ResourceType.TOPIC, "t9")
            assert images.image.acls[same] is before.acls[same]
            changed = {pattern.name for pattern in images.image.changed_acls_since(before)}
            assert (changed, authorizer.is_settled) == ({"t7", "t8"}, True)
            assert images.image.quota_configs is before.quota_configs
            assert not images.image.changed_quotas_since(before)

    run_counting(scene())


def test_what_came_while_everything_was_read_is_not_undone() -> None:
    """The broker has become the controller meanwhile, for instance."""

    async def scene() -> None:
        images = ImageHolder()
        polls = PollLoop(cast("Any", FakeMembership(images)), images, cast("Any", None), settle)
        answer = ClusterPollResponse(controller_epoch=6, deltas=[snapshot(many_rules(), 3)])
        taking = tasks.ask(polls._take(answer), "an answer")
        await asyncio.sleep(0)
        newer = MetadataImage(cluster_id="c", controller_id=2, controller_epoch=7)
        images.publish(newer)
        assert await taking
        assert images.image is newer
        assert polls._sequence == -1, "it asks again"

    run_counting(scene())
