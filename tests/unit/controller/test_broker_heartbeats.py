"""Fencing of brokers that do not poll, and detection of an isolated controller."""

from __future__ import annotations

from tests.unit.controller.controller_harness import broker

from ottla.controller.cluster.broker_heartbeats import BrokerHeartbeatManager
from ottla.controller.image import BrokerImage

SESSION_MS = 9000
STEP_MS = 250


class Scene:
    """The controller, broker 1, in a cluster."""

    def __init__(self, brokers: int) -> None:
        self.now_ms = 50_000
        self.broker_liveness = BrokerHeartbeatManager()
        self.broker_liveness.reset(1, SESSION_MS, self.now_ms)
        self.registered: dict[int, BrokerImage] = {
            number: broker(number)._replace(epoch=number) for number in range(1, brokers + 1)
        }
        self.looks = 0
        assert self.counted() == list(self.registered)
        for number in self.registered:
            self.broker_liveness.touch(number, number, self.now_ms)

    def counted(self) -> list[int]:
        return sorted(self.broker_liveness.unfenced(self.registered, self.now_ms))

    def pass_time(self, ms: int, heard: tuple[int, ...] = ()) -> int:
        """The number of checks with changes."""
        news = 0
        for _ in range(ms // STEP_MS):
            self.now_ms += STEP_MS
            for number in heard:
                self.broker_liveness.touch(number, number, self.now_ms)
            news += self.broker_liveness.check(self.now_ms)
        return news


def test_polling_broker_is_not_fenced() -> None:
    scene = Scene(3)
    assert scene.pass_time(60_000, heard=(2, 3)) == 0
    assert scene.counted() == [1, 2, 3]


def test_broker_without_poll_for_a_session_is_fenced_until_it_polls() -> None:
    scene = Scene(3)
    assert scene.pass_time(SESSION_MS - STEP_MS, heard=(2,)) == 0
    assert scene.counted() == [1, 2, 3]
    assert scene.pass_time(30_000, heard=(2,)) == 1, "told once"
    assert scene.counted() == [1, 2]
    assert not scene.broker_liveness.is_isolated
    assert not scene.broker_liveness.touch(3, 2, scene.now_ms), "another life"
    assert scene.broker_liveness.touch(3, 3, scene.now_ms)
    assert not scene.broker_liveness.touch(3, 3, scene.now_ms), "told once"
    assert scene.counted() == [1, 2, 3]


def test_controller_without_majority_fences_no_broker() -> None:
    for brokers, heard, is_cut_off in ((2, (), True), (3, (), True), (3, (2,), False), (5, (2,), True)):
        scene = Scene(brokers)
        scene.pass_time(SESSION_MS, heard=heard)
        assert scene.broker_liveness.is_isolated is is_cut_off, (brokers, heard)
        if is_cut_off:
            assert scene.counted() == list(scene.registered)


def test_a_controller_that_is_alone_is_not_cut_off() -> None:
    scene = Scene(1)
    assert scene.pass_time(60_000) == 0
    assert not scene.broker_liveness.is_isolated


def test_no_broker_is_fenced_if_the_others_may_have_been_lost_at_the_same_time() -> None:
    """A network failure between polls: one broker polled just before it, another one would have polled just after."""
    scene = Scene(3)
    scene.pass_time(3_000)
    scene.broker_liveness.touch(3, 3, scene.now_ms)
    assert scene.pass_time(SESSION_MS - 250) == 0 or scene.broker_liveness.is_isolated
    scene.pass_time(3_000)
    assert scene.broker_liveness.is_isolated
    assert scene.counted() == [1, 2, 3]


def test_a_first_poll_is_not_waited_for_as_long() -> None:
    scene = Scene(3)
    scene.broker_liveness.reset(1, SESSION_MS, scene.now_ms)
    scene.counted()
    assert scene.pass_time(2_750, heard=(2,)) == 0
    assert scene.pass_time(250, heard=(2,)) == 1
    assert scene.counted() == [1, 2]


def test_broker_with_overdue_poll_is_probed() -> None:
    scene = Scene(3)
    scene.pass_time(3_250)
    assert scene.broker_liveness.overdue(scene.now_ms) == []
    scene.pass_time(250, heard=(2,))
    assert scene.broker_liveness.overdue(scene.now_ms) == [3]
    scene.broker_liveness.reset(1, SESSION_MS, scene.now_ms)
    scene.counted()
    scene.pass_time(500, heard=(2,))
    assert scene.broker_liveness.overdue(scene.now_ms) == [3], "its first poll is overdue"


def test_restarted_broker_is_not_fenced() -> None:
    scene = Scene(3)
    scene.pass_time(SESSION_MS, heard=(2,))
    assert scene.counted() == [1, 2]
    scene.registered[3] = scene.registered[3]._replace(epoch=77)
    assert scene.counted() == [1, 2, 3]
    scene.pass_time(SESSION_MS, heard=(2,))
    assert scene.counted() == [1, 2]


def test_unregistered_broker_does_not_count_for_the_majority() -> None:
    scene = Scene(3)
    scene.pass_time(SESSION_MS - STEP_MS)
    del scene.registered[2], scene.registered[3]
    assert scene.counted() == [1]
    assert scene.pass_time(60_000) == 0
    assert not scene.broker_liveness.is_isolated


def test_stalled_controller_restarts_all_timeouts() -> None:
    scene = Scene(3)
    scene.pass_time(SESSION_MS - STEP_MS)
    scene.now_ms += 20_000
    assert not scene.broker_liveness.check(scene.now_ms)
    assert scene.pass_time(SESSION_MS - STEP_MS) == 0
    assert scene.pass_time(STEP_MS) == 1


def test_fenced_broker_stays_fenced_until_it_polls_also_after_a_stall() -> None:
    scene = Scene(3)
    scene.pass_time(SESSION_MS, heard=(2,))
    assert scene.counted() == [1, 2]
    scene.now_ms += 20_000
    scene.pass_time(SESSION_MS, heard=(2,))
    assert scene.counted() == [1, 2]
    assert scene.broker_liveness.touch(3, 3, scene.now_ms), "the change must be reported"
    assert scene.counted() == [1, 2, 3]


def test_new_election_resets_the_state() -> None:
    scene = Scene(3)
    scene.pass_time(SESSION_MS, heard=(2,))
    scene.broker_liveness.reset(1, SESSION_MS, scene.now_ms)
    assert scene.counted() == [1, 2, 3]


def test_sessions_shorter_than_the_time_between_polls_are_no_measure() -> None:
    scene = Scene(3)
    scene.broker_liveness.reset(1, 1000, scene.now_ms)
    scene.counted()
    assert scene.pass_time(5000) == 0
