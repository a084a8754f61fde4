"""G1, G2, G4: groups whose members come and go, and whose coordinator is killed while it writes.

An acknowledged place never goes back, no record below it is unseen, and no partition has two owners.
"""

import random
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaError, Producer
from tests.conformance.peer import Peer
from tests.faults.broker_deaths import FEW_INTERNAL_PARTITIONS, mortal_broker
from tests.faults.group_members import CLASSIC, CONSUMER, TOPIC, GroupHistory, Member, wait_until
from tests.faults.loads import LIBRDKAFKA

SETTINGS = {
    "group_min_session_timeout_ms": 500,
    "group_consumer_min_session_timeout_ms": 1000,
    "group_consumer_session_timeout_ms": 3000,
    "group_consumer_min_heartbeat_interval_ms": 100,
    "group_consumer_heartbeat_interval_ms": 300,
}
SESSION_SECONDS = 3.0
STATIC_SESSION_MS = 30_000  # no test waits for its end: a start of the broker must not take longer
BrokerFactory = Callable[..., Any]


class Feed(threading.Thread):
    """A few records a second for each partition, so that members always have something to commit."""

    def __init__(self, bootstrap: str, partitions: int) -> None:
        super().__init__(daemon=True)
        self._partitions = partitions
        self._stopping = threading.Event()
        self._producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True, **LIBRDKAFKA})

    def run(self) -> None:
        while not self._stopping.wait(0.02):
            for partition in range(self._partitions):
                self._producer.produce(TOPIC, b"x", partition=partition)
            self._producer.poll(0)

    def stop(self) -> None:
        self._stopping.set()
        self.join(10)
        assert self._producer.flush(30) == 0


def begin(broker: Any, partitions: int, protocol: str) -> tuple[GroupHistory, Feed]:
    with Peer(broker.bootstrap) as peer:
        peer.create_topic(TOPIC, partitions)
    feed = Feed(broker.bootstrap, partitions)
    feed.start()
    return GroupHistory(broker.bootstrap, partitions, protocol), feed


def finish(history: GroupHistory, members: list[Member], feed: Feed, broker: Any) -> None:
    feed.stop()
    for member in members:
        member.stop()
    history.check_places()
    print(
        f"{history.protocol}: {history.rebalances} assignments, {history.acknowledged} places acknowledged, "
        f"{len(history.seen)} records seen, problems {history.problems}"
    )
    assert not history.problems, history.problems
    broker.assert_no_traceback()


# ---- G1


def storm(broker: Any, protocol: str, size: int, seconds: float) -> None:
    """A member comes or goes every half a second."""
    chance = random.Random(size)
    history, feed = begin(broker, 6, protocol)
    members = [Member(history, f"member-{number}") for number in range(2)]
    for member in members:
        member.start()
    deadline = time.monotonic() + seconds
    number = len(members)
    while time.monotonic() < deadline:
        if len(members) < 2 or (len(members) < size and chance.random() < 0.5):
            members.append(Member(history, f"member-{number}"))
            members[-1].start()
            number += 1
        else:
            members.pop(chance.randrange(len(members))).stop()
        time.sleep(0.5)
    wait_until(history.is_shared_out, 2 * SESSION_SECONDS, history)
    finish(history, members, feed, broker)


@pytest.mark.parametrize("protocol", [CLASSIC, pytest.param(CONSUMER, marks=pytest.mark.faults)])
def test_members_come_and_go_and_nothing_is_skipped(broker_factory: BrokerFactory, protocol: str) -> None:
    storm(broker_factory(**FEW_INTERNAL_PARTITIONS, **SETTINGS), protocol, 5, 3.0)


@pytest.mark.faults
@pytest.mark.parametrize("protocol", [CLASSIC, CONSUMER])
def test_a_storm_of_members_skips_nothing(broker_factory: BrokerFactory, protocol: str) -> None:
    storm(broker_factory(**FEW_INTERNAL_PARTITIONS, **SETTINGS), protocol, 20, 60.0)


# ---- G2

DEATHS = [
    ("COMMIT", 3, "after"),
    ("GROUP", 1, "after"),
    ("COMMIT", 5, "half"),
    ("GROUP", 1, "half"),
    ("COMMIT", 1, "before"),
    ("GROUP", 1, "before"),
]


def kill_coordinator(
    broker_factory: BrokerFactory, monkeypatch: pytest.MonkeyPatch, folder: Path, protocol: str, rounds: int
) -> None:
    """Every round a member leaves and another joins, so that there is always something about the group to write."""
    mortal = mortal_broker(broker_factory, monkeypatch, folder, **SETTINGS)
    history, feed = begin(mortal.broker, 4, protocol)
    members = [Member(history, f"member-{number}") for number in range(3)]
    for member in members:
        member.start()
    wait_until(lambda: history.acknowledged > 0, 20, history)
    for number in range(rounds):
        mortal.arm(*DEATHS[number % len(DEATHS)])
        leaver = threading.Thread(target=members.pop(0).stop)
        leaver.start()
        members.append(Member(history, f"member-{number + 3}"))
        members[-1].start()
        mortal.start_again_after_death()
        leaver.join(60)
        history.check_places()
        acknowledged = history.acknowledged
        wait_until(lambda: history.acknowledged > acknowledged, 30, history)  # noqa: B023
    wait_until(history.is_shared_out, 30, history)
    finish(history, members, feed, mortal.broker)


@pytest.mark.parametrize("protocol", [CLASSIC, CONSUMER])
def test_a_killed_coordinator_loses_no_committed_offset(
    broker_factory: BrokerFactory, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, protocol: str
) -> None:
    kill_coordinator(broker_factory, monkeypatch, tmp_path, protocol, 1)


@pytest.mark.faults
@pytest.mark.parametrize("protocol", [CLASSIC, CONSUMER])
def test_a_coordinator_killed_fifty_times_loses_no_committed_offset(
    broker_factory: BrokerFactory, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, protocol: str
) -> None:
    kill_coordinator(broker_factory, monkeypatch, tmp_path, protocol, 50)


# ---- G4


def restart_static_members(broker: Any, protocol: str, rounds: int) -> None:
    """A member with an instance id is back in time: no other member is affected, and it keeps its partitions."""
    history, feed = begin(broker, 4, protocol)
    history.session_ms = STATIC_SESSION_MS
    members = {name: Member(history, name, **{"group.instance.id": name}) for name in ("first", "second")}
    for member in members.values():
        member.start()
    wait_until(lambda: history.is_shared_out() and all(each.assigned for each in members.values()), 30, history)
    time.sleep(0.5)
    had, noticed = sorted(members["first"].assigned), members["second"].assignments
    for number in range(rounds):
        members["first"].stop()
        if number % 2:
            broker.kill9()
            broker.start()
        members["first"] = Member(history, "first", **{"group.instance.id": "first"})
        members["first"].start()
        wait_until(history.is_shared_out, 30, history)
        assert sorted(members["first"].assigned) == had, number
        assert members["second"].assignments == noticed, f"round {number}: the group was shared out again"
    twin = Member(history, "twin", **{"group.instance.id": "first"})
    if protocol == CLASSIC:
        twin.start()
        wait_until(lambda: members["first"].fatal is not None, 20, history)
        fatal = members["first"].fatal
        assert fatal is not None
        assert fatal.code() in (KafkaError.FENCED_INSTANCE_ID, KafkaError._FATAL), fatal
        history.problems = [each for each in history.problems if "given to twin" not in each]
        finish(history, [twin, members["second"]], feed, broker)
    else:
        finish(history, list(members.values()), feed, broker)


@pytest.mark.parametrize("protocol", [CLASSIC, pytest.param(CONSUMER, marks=pytest.mark.faults)])
def test_a_static_member_comes_back_without_a_rebalance(broker_factory: BrokerFactory, protocol: str) -> None:
    restart_static_members(broker_factory(**FEW_INTERNAL_PARTITIONS, **SETTINGS), protocol, 2)


@pytest.mark.faults
@pytest.mark.parametrize("protocol", [CLASSIC, CONSUMER])
def test_a_static_member_comes_back_twenty_times(broker_factory: BrokerFactory, protocol: str) -> None:
    restart_static_members(broker_factory(**FEW_INTERNAL_PARTITIONS, **SETTINGS), protocol, 20)
