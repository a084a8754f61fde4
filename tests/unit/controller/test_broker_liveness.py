"""Whom a controller counts on: those that are registered and poll; and when it is itself the one that is cut off."""

from __future__ import annotations

from ottla.controller.cluster.broker_liveness import BrokerLiveness
from ottla.controller.image import BrokerImage
from unit.controller.stand import broker

SESSION_MS = 9000
STEP_MS = 250


class Scene:
    """A controller, broker 1, in a cluster of some."""

    def __init__(self, brokers: int) -> None:
        self.now_ms = 50_000
        self.broker_liveness = BrokerLiveness()
        self.broker_liveness.begin(1, SESSION_MS, self.now_ms)
        self.registered: dict[int, BrokerImage] = {
            number: broker(number)._replace(epoch=number) for number in range(1, brokers + 1)
        }
        self.looks = 0
        assert self.counted() == list(self.registered)
        for number in self.registered:
            self.broker_liveness.hear(number, number, self.now_ms)

    def counted(self) -> list[int]:
        return sorted(self.broker_liveness.count_on(self.registered, self.now_ms))

    def pass_time(self, ms: int, heard: tuple[int, ...] = ()) -> int:
        """How often something new was to be seen."""
        news = 0
        for _ in range(ms // STEP_MS):
            self.now_ms += STEP_MS
            for number in heard:
                self.broker_liveness.hear(number, number, self.now_ms)
            news += self.broker_liveness.look(self.now_ms)
        return news


def test_whoever_polls_is_counted_on() -> None:
    scene = Scene(3)
    assert scene.pass_time(60_000, heard=(2, 3)) == 0
    assert scene.counted() == [1, 2, 3]


def test_whoever_has_not_polled_for_a_session_is_not_counted_on_until_it_does() -> None:
    scene = Scene(3)
    assert scene.pass_time(SESSION_MS - STEP_MS, heard=(2,)) == 0
    assert scene.counted() == [1, 2, 3]
    assert scene.pass_time(30_000, heard=(2,)) == 1, "told once"
    assert scene.counted() == [1, 2]
    assert not scene.broker_liveness.is_cut_off
    assert not scene.broker_liveness.hear(3, 2, scene.now_ms), "another life"
    assert scene.broker_liveness.hear(3, 3, scene.now_ms)
    assert not scene.broker_liveness.hear(3, 3, scene.now_ms), "told once"
    assert scene.counted() == [1, 2, 3]


def test_a_controller_that_hears_no_half_of_the_cluster_judges_nobody() -> None:
    for brokers, heard, is_cut_off in ((2, (), True), (3, (), True), (3, (2,), False), (5, (2,), True)):
        scene = Scene(brokers)
        scene.pass_time(SESSION_MS, heard=heard)
        assert scene.broker_liveness.is_cut_off is is_cut_off, (brokers, heard)
        if is_cut_off:
            assert scene.counted() == list(scene.registered)


def test_a_controller_that_is_alone_is_not_cut_off() -> None:
    scene = Scene(1)
    assert scene.pass_time(60_000) == 0
    assert not scene.broker_liveness.is_cut_off


def test_nobody_is_judged_by_a_controller_that_may_have_lost_the_others_at_the_same_time() -> None:
    """A cut, between polls: one was heard just before it, the other one would have polled just after."""
    scene = Scene(3)
    scene.pass_time(3_000)
    scene.broker_liveness.hear(3, 3, scene.now_ms)
    assert scene.pass_time(SESSION_MS - 250) == 0 or scene.broker_liveness.is_cut_off
    scene.pass_time(3_000)
    assert scene.broker_liveness.is_cut_off
    assert scene.counted() == [1, 2, 3]


def test_a_first_poll_is_not_waited_for_as_long() -> None:
    scene = Scene(3)
    scene.broker_liveness.begin(1, SESSION_MS, scene.now_ms)
    scene.counted()
    assert scene.pass_time(2_750, heard=(2,)) == 0
    assert scene.pass_time(250, heard=(2,)) == 1
    assert scene.counted() == [1, 2]


def test_whoever_should_have_polled_by_now_is_looked_after() -> None:
    scene = Scene(3)
    scene.pass_time(3_250)
    assert scene.broker_liveness.overdue(scene.now_ms) == []
    scene.pass_time(250, heard=(2,))
    assert scene.broker_liveness.overdue(scene.now_ms) == [3]
    scene.broker_liveness.begin(1, SESSION_MS, scene.now_ms)
    scene.counted()
    scene.pass_time(500, heard=(2,))
    assert scene.broker_liveness.overdue(scene.now_ms) == [3], "nobody takes so long to its first poll"


def test_a_new_life_is_counted_on() -> None:
    scene = Scene(3)
    scene.pass_time(SESSION_MS, heard=(2,))
    assert scene.counted() == [1, 2]
    scene.registered[3] = scene.registered[3]._replace(epoch=77)
    assert scene.counted() == [1, 2, 3]
    scene.pass_time(SESSION_MS, heard=(2,))
    assert scene.counted() == [1, 2]


def test_whoever_is_gone_from_the_store_does_not_count_for_a_half() -> None:
    scene = Scene(3)
    scene.pass_time(SESSION_MS - STEP_MS)
    del scene.registered[2], scene.registered[3]
    assert scene.counted() == [1]
    assert scene.pass_time(60_000) == 0
    assert not scene.broker_liveness.is_cut_off


def test_after_a_stop_of_its_own_the_controller_gives_everybody_time() -> None:
    scene = Scene(3)
    scene.pass_time(SESSION_MS - STEP_MS)
    scene.now_ms += 20_000
    assert not scene.broker_liveness.look(scene.now_ms)
    assert scene.pass_time(SESSION_MS - STEP_MS) == 0
    assert scene.pass_time(STEP_MS) == 1


def test_whoever_is_not_counted_on_is_missed_until_it_polls_also_by_a_controller_that_stood_still() -> None:
    scene = Scene(3)
    scene.pass_time(SESSION_MS, heard=(2,))
    assert scene.counted() == [1, 2]
    scene.now_ms += 20_000
    scene.pass_time(SESSION_MS, heard=(2,))
    assert scene.counted() == [1, 2]
    assert scene.broker_liveness.hear(3, 3, scene.now_ms), "else nobody would look again"
    assert scene.counted() == [1, 2, 3]


def test_a_new_election_begins_anew() -> None:
    scene = Scene(3)
    scene.pass_time(SESSION_MS, heard=(2,))
    scene.broker_liveness.begin(1, SESSION_MS, scene.now_ms)
    assert scene.counted() == [1, 2, 3]


def test_sessions_shorter_than_the_time_between_polls_are_no_measure() -> None:
    scene = Scene(3)
    scene.broker_liveness.begin(1, 1000, scene.now_ms)
    scene.counted()
    assert scene.pass_time(5000) == 0
