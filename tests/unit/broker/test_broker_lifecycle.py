"""The lifecycle of a broker in a cluster: failed log directories and controlled shutdown."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast
from uuid import UUID

import pytest
from tests import virtual_time
from tests.unit.broker.nodes import node

from ottla.base.errors import Error, KafkaError
from ottla.base.names import TopicPartition
from ottla.broker import main
from ottla.broker.cluster.broker_lifecycle import BrokerLifecycle
from ottla.controller.image import BrokerImage, MetadataImage, PartitionImage, TopicImage
from ottla.metrics.counters import BrokerCounters
from ottla.protocol.messages.inter_broker import OfflineReplicas


def test_a_controller_reports_its_failed_directories_to_itself_until_it_takes_effect() -> None:
    told: list[object] = []

    async def take_offline(_broker: int, replicas: object) -> None:
        told.append(replicas)
        if len(told) < 3:
            raise KafkaError(Error.NOT_CONTROLLER)  # ZooKeeper is unreachable for a moment, too short for an election

    async def play() -> None:
        begun: list[asyncio.Task[None]] = []
        stage: Any = SimpleNamespace(
            controller=SimpleNamespace(set_offline_replicas=take_offline, was_activated=True),
            membership=SimpleNamespace(
                is_controller=True, start_task=lambda work: begun.append(asyncio.ensure_future(work))
            ),
            _poller=None,
        )
        stage._report_to_itself = lambda: BrokerLifecycle._report_to_itself(stage)
        stage._offline_replicas = lambda: BrokerLifecycle._offline_replicas(stage)
        stage._replicas = SimpleNamespace(
            offline_partitions={("t", 0)}, damaged_partitions=set(), disk_full_partitions=set()
        )
        image = SimpleNamespace(topics={"t": SimpleNamespace(topic_id=UUID(int=1))})
        stage._node = SimpleNamespace(id=1, image=image)
        BrokerLifecycle.report_offline_replicas(cast("BrokerLifecycle", stage))
        async with asyncio.timeout(10):
            await asyncio.gather(*begun)

    virtual_time.run(play())
    assert told == [frozenset({(UUID(int=1), 0)})] * 3


class Owner:
    """Broker 1 with a failed log directory, and the replicas that it copies again."""

    def __init__(
        self, state: PartitionImage, told: list[OfflineReplicas], brokers: tuple[int, ...] = (1, 2, 3)
    ) -> None:
        topic = TopicImage("t", UUID(int=1), (state,))
        image = MetadataImage().with_topics([topic])
        self.made: list[tuple[TopicPartition, str]] = []
        chosen: dict[TopicPartition, str] = {}
        stage: Any = SimpleNamespace(
            _node=SimpleNamespace(
                id=1, image=SimpleNamespace(topics=image.topics, partition=image.partition, brokers=brokers)
            ),
            _replicas=SimpleNamespace(
                offline_partitions={T_0},
                log_dirs=SimpleNamespace(maybe_update_preferred_log_dir=chosen.__setitem__),
            ),
            _publisher=SimpleNamespace(schedule_open=lambda name: self.made.append((name, chosen[name]))),
            _poller=SimpleNamespace(reported=told),
            membership=SimpleNamespace(is_controller=False),
            report_offline_replicas=lambda: None,
        )
        stage._is_known_as_offline = lambda name: BrokerLifecycle._is_known_as_offline(stage, name)
        self.answer = BrokerLifecycle.restore_replica(cast("BrokerLifecycle", stage), T_0, "/b")
        self.offline = stage._replicas.offline_partitions


T_0 = TopicPartition("t", 0)
TOLD = [OfflineReplicas(topic_id=UUID(int=1), partitions=[0])]
FOLLOWER = PartitionImage(2, 0, (2, 3), (1, 2, 3))


def test_a_replica_in_a_failed_directory_is_copied_into_another_one() -> None:
    owner = Owner(FOLLOWER, TOLD)
    assert (owner.answer, owner.made, owner.offline) == (True, [(T_0, "/b")], set())


@pytest.mark.parametrize(
    ("state", "told", "brokers"),
    [
        (FOLLOWER._replace(isr=(2, 1)), TOLD, (1, 2, 3)),
        (FOLLOWER._replace(isr=(2,), elr=(1,)), TOLD, (1, 2, 3)),
        (FOLLOWER._replace(leader=1, isr=(1,)), TOLD, (1, 2, 3)),
        (FOLLOWER._replace(replicas=(2, 3)), TOLD, (1, 2, 3)),
        (FOLLOWER, TOLD, (1, 3)),  # it has no leader
        (FOLLOWER, [], (1, 2, 3)),  # the image may be older than the failure: the ISR is unknown
    ],
)
def test_a_replica_that_may_count_as_in_sync_is_not_copied_again(
    state: PartitionImage, told: list[OfflineReplicas], brokers: tuple[int, ...]
) -> None:
    owner = Owner(state, told, brokers)
    assert (owner.answer, owner.made, owner.offline) == (False, [], {T_0})


# ---- a stopping broker answers as long as requests come, within a limit


@pytest.mark.parametrize(("requests", "looks"), [(0, 1), (1, 2), (3, 4), (99, 5)])
def test_it_serves_until_no_request_comes(requests: int, looks: int, monkeypatch: pytest.MonkeyPatch) -> None:
    counters = BrokerCounters()
    meter = counters.meter(0, "Produce", 13)
    slept = []

    async def sleep(seconds: float) -> None:
        slept.append(seconds)
        if len(slept) <= requests:
            meter.count_request(9)

    monkeypatch.setattr(main.asyncio, "sleep", sleep)
    virtual_time.run(main.drain_before_stop(counters))
    assert slept == [main.DRAIN_CHECK_SECONDS] * looks


# ---- controlled shutdown: retries and pauses follow the settings

RETRIES = "controlled.shutdown.max.retries"
BACKOFF = "controlled.shutdown.retry.backoff.ms"


class Stage:
    """A broker of a cluster, and a controller with configured responses."""

    def __init__(self, settings: dict[str, str], *answers: object, others: int = 2, is_in_touch: bool = True) -> None:
        self.answers = list(answers)
        self.asked = 0
        self.slept: list[float] = []
        self.stepped_down = 0
        self.membership = SimpleNamespace(
            has_session=lambda: is_in_touch, resign_before_shutdown=self._step_down, controller_id=2
        )
        self.controller_requests = SimpleNamespace(controlled_shutdown=self._controlled_shutdown)
        brokers = {id_: BrokerImage(id_, {}, None, 0) for id_ in range(1, 2 + others)}
        self._node = node(settings, image=MetadataImage(brokers=brokers))

    async def _request_controlled_shutdown(self) -> object:
        return await BrokerLifecycle._request_controlled_shutdown(cast("BrokerLifecycle", self))

    async def _step_down(self) -> None:
        self.stepped_down += 1

    async def _controlled_shutdown(self, _timeout_ms: int) -> object:
        self.asked += 1
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    def hand_over(self, monkeypatch: pytest.MonkeyPatch) -> Stage:
        async def is_left_alone(_node: object, seconds: float) -> bool:
            self.slept.append(seconds)
            return False

        with monkeypatch.context() as patch:
            patch.setattr("ottla.broker.cluster.broker_lifecycle.wait_until_last_broker", is_left_alone)
            virtual_time.run(BrokerLifecycle.run_controlled_shutdown(cast("BrokerLifecycle", self)))
        return self


def test_one_request_suffices_when_all_leaders_have_moved(monkeypatch: pytest.MonkeyPatch) -> None:
    stage = Stage({}, []).hand_over(monkeypatch)
    assert (stage.stepped_down, stage.asked, stage.slept) == (1, 1, [])


def test_requests_are_retried_as_configured_with_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    refusal = KafkaError(Error.NOT_CONTROLLER)
    stage = Stage({RETRIES: "4", BACKOFF: "250"}, refusal, [("t", 0)], refusal, [("t", 0)]).hand_over(monkeypatch)
    assert (stage.asked, stage.slept) == (4, [0.25, 0.25, 0.25])


@pytest.mark.parametrize(
    ("settings", "others", "is_in_touch"),
    [
        ({"controlled.shutdown.enable": "false"}, 2, True),
        ({}, 0, True),  # no other broker is left
        ({}, 2, False),  # no leader can be elected
    ],
)
def test_without_successors_or_permission_the_broker_stops_at_once(
    monkeypatch: pytest.MonkeyPatch, settings: dict[str, str], others: int, is_in_touch: bool
) -> None:
    stage = Stage(settings, others=others, is_in_touch=is_in_touch).hand_over(monkeypatch)
    assert stage.asked == 0
    assert stage.stepped_down == is_in_touch, "clients cannot reach a controller with a closed port"
    assert is_in_touch or not stage.membership.is_candidate
