"""Watches are set again before their owner is called; late responses are ignored."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple

from kazoo.exceptions import ConnectionLoss, NoNodeError
from kazoo.protocol.states import EventType, KeeperState, WatchedEvent
from tests import virtual_time

from ottla.controller.stores.store import WatchEvent, WatchKind
from ottla.controller.stores.zookeeper.client import LoopResult
from ottla.controller.stores.zookeeper.watches import Watches


class Stat(NamedTuple):
    czxid: int


class Arming(NamedTuple):
    path: str
    is_of_children: bool
    fire: Callable[[Any], None]
    result: LoopResult


class Stage:
    """Simulates ZooKeeper: records the set watches, and responds when the test requests it."""

    def __init__(self) -> None:
        self.armings: list[Arming] = []
        self.told: list[WatchEvent] = []
        self.watches = Watches(asyncio.get_running_loop(), self._arm)

    def _arm(self, path: str, is_of_children: bool, fire: Callable[[Any], None]) -> LoopResult:
        result = LoopResult(asyncio.get_running_loop())
        self.armings.append(Arming(path, is_of_children, fire, result))
        return result

    async def answer(self, value: object) -> None:
        result = self.armings[-1].result
        if isinstance(value, Exception):
            result.set_exception(value)
        else:
            result.set(value)
        await settle()

    async def fire(self, kind: str = EventType.CHANGED, arming: int = -1) -> None:
        self.armings[arming].fire(WatchedEvent(kind, KeeperState.CONNECTED, "/a"))
        await settle()


async def settle() -> None:
    for _ in range(4):
        await asyncio.sleep(0)


def play(check: Callable[[Stage], Awaitable[None]]) -> None:
    async def body() -> None:
        await check(Stage())

    virtual_time.run(body())


def test_the_owner_is_called_when_the_watch_is_armed_again() -> None:
    async def check(stage: Stage) -> None:
        stage.watches.add("/a", False, stage.told.append, is_connected=True)
        await stage.answer(None)
        assert stage.told == []
        await stage.fire(EventType.CREATED)
        assert len(stage.armings) == 2
        assert stage.told == [], "a change now would fire the old watch no more and the new one not yet"
        await stage.answer(Stat(5))
        assert stage.told == [WatchEvent(WatchKind.CREATED, "/a")]

    play(check)


def test_recreated_node_is_a_new_node() -> None:
    async def check(stage: Stage) -> None:
        stage.watches.add("/a", False, stage.told.append, is_connected=True)
        await stage.answer(Stat(5))
        for stat in (Stat(5), Stat(9), None):
            await stage.fire()
            await stage.answer(stat)
        assert [event.kind for event in stage.told] == [WatchKind.CHANGED, WatchKind.CREATED, WatchKind.DELETED]

    play(check)


def test_lost_connection_fires_no_watch_and_a_new_one_calls_every_owner_once() -> None:
    async def check(stage: Stage) -> None:
        stage.watches.add("/a", False, stage.told.append, is_connected=True)
        await stage.answer(Stat(5))
        await stage.fire(EventType.NONE)
        assert len(stage.armings) == 1
        stage.watches.arm_all()
        assert len(stage.armings) == 2
        await stage.answer(Stat(5))
        assert stage.told == [WatchEvent(WatchKind.CHANGED, "/a")]
        await stage.fire(arming=0)
        assert len(stage.armings) == 2, "the old watch is gone, whatever it says"

    play(check)


def test_an_arming_that_fails_with_the_connection_is_made_up_for() -> None:
    async def check(stage: Stage) -> None:
        stage.watches.add("/a", False, stage.told.append, is_connected=True)
        await stage.answer(ConnectionLoss())
        assert len(stage.armings) == 1
        stage.watches.arm_all()
        await stage.answer(Stat(5))
        assert len(stage.told) == 1

    play(check)


def test_children_of_a_node_that_is_not_there_yet() -> None:
    async def check(stage: Stage) -> None:
        stage.watches.add("/a", True, stage.told.append, is_connected=True)
        assert stage.armings[-1].is_of_children
        await stage.answer(NoNodeError())
        assert not stage.armings[-1].is_of_children
        await stage.answer(None)
        await stage.fire(EventType.CREATED)
        assert stage.armings[-1].is_of_children
        await stage.answer(["child"])
        assert stage.told == [WatchEvent(WatchKind.CHANGED, "/a")]

    play(check)


def test_a_node_that_appears_between_two_looks_is_watched_too() -> None:
    async def check(stage: Stage) -> None:
        stage.watches.add("/a", True, stage.told.append, is_connected=True)
        await stage.answer(NoNodeError())
        await stage.answer(Stat(5))
        assert stage.armings[-1].is_of_children
        await stage.answer([])
        assert len(stage.told) == 1

    play(check)


def test_without_a_connection_a_watch_waits_for_one() -> None:
    async def check(stage: Stage) -> None:
        stage.watches.add("/a", False, stage.told.append, is_connected=False)
        assert stage.armings == []
        stage.watches.arm_all()
        await stage.answer(None)
        assert len(stage.told) == 1

    play(check)


def test_an_ended_watch_says_nothing_more_and_may_be_ended_twice() -> None:
    async def check(stage: Stage) -> None:
        end_watch = stage.watches.add("/a", False, stage.told.append, is_connected=True)
        await stage.answer(None)
        await stage.fire()
        end_watch()
        end_watch()
        await stage.answer(Stat(5))
        stage.watches.arm_all()
        assert (stage.told, len(stage.armings), len(stage.watches)) == ([], 2, 0)

    play(check)


def test_failing_owner_does_not_affect_other_watches() -> None:
    def fail(_event: WatchEvent) -> None:
        raise ValueError("owner")

    async def check(stage: Stage) -> None:
        stage.watches.add("/a", False, fail, is_connected=True)
        await stage.answer(Stat(5))
        await stage.fire()
        await stage.answer(Stat(5))
        await stage.fire()
        assert len(stage.armings) == 3

    play(check)
