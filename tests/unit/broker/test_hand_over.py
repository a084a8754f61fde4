"""Controlled shutdown: a stopping broker asks as often, and waits as long, as the settings say."""

from types import SimpleNamespace
from typing import cast

import pytest

import virtual_time
from ottla.base.errors import Error, KafkaError
from ottla.broker.cluster.clustering import Clustering
from ottla.controller.image import BrokerImage, MetadataImage
from unit.broker.nodes import node

RETRIES = "controlled.shutdown.max.retries"
BACKOFF = "controlled.shutdown.retry.backoff.ms"


class Stage:
    """A broker among others, and a controller that answers as the test says."""

    def __init__(self, settings: dict[str, str], *answers: object, others: int = 2, is_in_touch: bool = True) -> None:
        self.answers = list(answers)
        self.asked = 0
        self.slept: list[float] = []
        self.stepped_down = 0
        self.membership = SimpleNamespace(is_in_touch=lambda: is_in_touch, step_down=self._step_down, controller_id=2)
        self.control = SimpleNamespace(controlled_shutdown=self._controlled_shutdown)
        brokers = {id_: BrokerImage(id_, {}, None, 0) for id_ in range(1, 2 + others)}
        self._node = node(settings, image=MetadataImage(brokers=brokers))

    async def _ask_to_stop(self) -> object:
        return await Clustering._ask_to_stop(cast("Clustering", self))

    async def _step_down(self) -> None:
        self.stepped_down += 1

    async def _controlled_shutdown(self, _timeout_ms: int) -> object:
        self.asked += 1
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    def hand_over(self, monkeypatch: pytest.MonkeyPatch) -> "Stage":
        async def is_left_alone(_node: object, seconds: float) -> bool:
            self.slept.append(seconds)
            return False

        with monkeypatch.context() as patch:
            patch.setattr("ottla.broker.cluster.clustering.is_left_alone", is_left_alone)
            virtual_time.run(Clustering.hand_over(cast("Clustering", self)))
        return self


def test_once_is_enough_when_all_leaders_have_moved(monkeypatch: pytest.MonkeyPatch) -> None:
    stage = Stage({}, []).hand_over(monkeypatch)
    assert (stage.stepped_down, stage.asked, stage.slept) == (1, 1, [])


def test_it_is_tried_as_often_as_allowed_with_a_pause_between(monkeypatch: pytest.MonkeyPatch) -> None:
    refusal = KafkaError(Error.NOT_CONTROLLER)
    stage = Stage({RETRIES: "4", BACKOFF: "250"}, refusal, [("t", 0)], refusal, [("t", 0)]).hand_over(monkeypatch)
    assert (stage.asked, stage.slept) == (4, [0.25, 0.25, 0.25])


@pytest.mark.parametrize(
    ("settings", "others", "is_in_touch"),
    [
        ({"controlled.shutdown.enable": "false"}, 2, True),
        ({}, 0, True),  # nobody is left to lead
        ({}, 2, False),  # nobody could be elected
    ],
)
def test_who_cannot_or_may_not_hand_over_stops_at_once(
    monkeypatch: pytest.MonkeyPatch, settings: dict[str, str], others: int, is_in_touch: bool
) -> None:
    stage = Stage(settings, others=others, is_in_touch=is_in_touch).hand_over(monkeypatch)
    assert stage.asked == 0
    assert stage.stepped_down == is_in_touch, "nobody would reach a controller whose port is closed"
    assert is_in_touch or not stage.membership.is_standing
