"""Greedy clients of a whole broker, in virtual time, under rules that come, change and go. A seed chooses everything.

What must hold:
1. The clients of one rule use at most 1.1 times its rate in any ten windows, plus one request.
2. No client is throttled for ever: each request is answered, however many clients share its rule.
3. When all rules are gone every request is answered at once.
"""

from __future__ import annotations

import asyncio
import tempfile
from collections import defaultdict, deque
from pathlib import Path
from random import Random
from typing import Final

from tests.unit.broker.quota_stand import Asker, set_quotas
from tests.unit.broker.whole_broker import WholeBroker, with_whole_broker

from ottla.broker.handlers.table import APIS
from ottla.quotas.entities import Entity
from ottla.quotas.rules import levels

BYTES: Final = "producer_byte_rate"
RATES: Final = (2_000.0, 10_000.0, 30_000.0)
SIZES: Final = (1_000, 5_000, 30_000)
USERS: Final = ("alice", "bob")
CLIENT_IDS: Final = ("app", "job")
SPAN_SECONDS: Final = 10.0
WAIT_SECONDS_MAX: Final = 200.0  # ten times all windows, for a request that is larger than they are, and then some
DRAIN_SECONDS_MAX: Final = 1.0

Used = deque[tuple[float, int]]


class Greedy(Asker):
    """Sends as fast as it is let."""

    def __init__(self, broker: WholeBroker, random: Random) -> None:
        super().__init__(broker, random.choice(CLIENT_IDS), random.choice(USERS))
        self.user = self.connection.client.principal.partition(":")[2]
        self.size = random.choice(SIZES)
        self.answered_at = asyncio.get_running_loop().time()
        self.answers = 0


class World:
    """One broker, its clients and its rules."""

    def __init__(self, broker: WholeBroker, random: Random) -> None:
        self._broker = broker
        self._random = random
        self._loop = asyncio.get_running_loop()
        self._clients = [Greedy(broker, random) for _ in range(random.randrange(2, 7))]
        self._rules: set[Entity] = set()
        self._used: dict[tuple[str, str], Used] = defaultdict(deque)  # since the rules are what they are
        self._is_over = False
        broker.parts.quotas.connections = [client.connection for client in self._clients]

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            for client in self._clients:
                group.create_task(self._send(client))
            await self._rule()

    async def _rule(self) -> None:
        for _ in range(self._random.randrange(2, 5)):
            await self._change_rules()
            await asyncio.sleep(self._random.uniform(5, 40))
            self._check_waiting()
        for entity in list(self._rules):
            await self._set(entity, None)
        before = [client.answers for client in self._clients]
        await asyncio.sleep(DRAIN_SECONDS_MAX)
        idle = [client for client, answers in zip(self._clients, before, strict=True) if client.answers == answers]
        assert not idle, f"{len(idle)} of {len(self._clients)} are still held up without any rule"
        self._is_over = True

    async def _send(self, client: Greedy) -> None:
        while not self._is_over:
            answer = await client.produce(client.size)
            assert answer.responses[0].partition_responses[0].error_code == 0
            client.answers += 1
            client.answered_at = self._loop.time()
            is_limited = self._note(client)
            await asyncio.sleep(0.01 if is_limited else 0.25)  # a client without a rule would never end

    def _note(self, client: Greedy) -> bool:
        """Whether some rule is about this client, which must have kept to it."""
        rule = self._broker.parts.quotas.rules.of_client(client.user, client.client_id).get(BYTES)
        if rule is None:
            return False
        now = self._loop.time()
        used = self._used[rule.user, rule.client_id]
        used.append((now, client.size))
        while used[0][0] <= now - SPAN_SECONDS:
            used.popleft()
        total = sum(size for _, size in used)
        most = 1.1 * SPAN_SECONDS * rule.bound + max(size for _, size in used) + 1_000
        assert total <= most, f"{total} bytes in {SPAN_SECONDS} s under {rule}"
        return True

    def _check_waiting(self) -> None:
        now = self._loop.time()
        for client in self._clients:
            waited = now - client.answered_at
            assert waited < WAIT_SECONDS_MAX, f"{client.client_id} of {client.user} waits since {waited:.0f} s"

    async def _change_rules(self) -> None:
        if self._rules and self._random.random() < 0.4:
            entity = self._random.choice(sorted(self._rules, key=str))
            await self._set(entity, self._random.choice((None, *RATES)))
        else:
            entity = self._random.choice(levels(self._random.choice(USERS), self._random.choice(CLIENT_IDS)))
            await self._set(entity, self._random.choice(RATES))

    async def _set(self, entity: Entity, bound: float | None) -> None:
        await set_quotas(self._broker, *entity.parts, **{BYTES: bound})
        self._used.clear()
        if bound is None:
            self._rules.discard(entity)
        else:
            self._rules.add(entity)


def play(seed: int) -> None:
    """Raises ExceptionGroup of AssertionErrors for a promise that was broken."""

    async def whole(broker: WholeBroker) -> None:
        await broker.create_topics({"t": 1})
        await World(broker, Random(seed)).run()

    with tempfile.TemporaryDirectory() as folder:
        with_whole_broker(Path(folder), APIS, whole)
