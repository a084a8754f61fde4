"""Tens of thousands of access rules, given, shown and taken: nobody waits for them."""

from __future__ import annotations

from pathlib import Path

from ottla.base.security import ANONYMOUS, Operation, PatternType, Permission, ResourceType
from ottla.broker.authorizing import follow_acls
from ottla.broker.handlers.table import APIS
from ottla.protocol.messages.acls import (
    AclCreation,
    CreateAclsRequest,
    DeleteAclsFilter,
    DeleteAclsRequest,
    DescribeAclsRequest,
)
from ottla.security.authorizer import Authorizer
from unit.broker.whole_broker import Steps, WholeBroker, count_steps, with_whole_broker

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
        longest = {name: steps.longest_round for name, steps in found.items()}
        assert max(longest.values()) <= ROUND_STEPS_MAX, f"{longest} steps at a time"

    with_whole_broker(tmp_path, APIS, play)
