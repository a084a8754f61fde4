"""A broker that dies by its own hand at the write a test names (see dying_broker/), and is started again."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

WRAPPER = Path(__file__).parent / "dying_broker"
FEW_INTERNAL_PARTITIONS = {
    "offsets_topic_num_partitions": 3,
    "transaction_state_log_num_partitions": 3,
    "group_initial_rebalance_delay_ms": 0,
}


class MortalBroker:
    """A broker, and the order when to die."""

    def __init__(self, broker: Any, order: Path) -> None:
        self.broker = broker
        self.bootstrap: str = broker.bootstrap
        self.deaths = 0
        self._order = order

    def arm(self, step: str, number: int = 1, when: str = "after") -> None:
        unfinished = self._order.with_suffix(".tmp")
        unfinished.write_text(f"{step} {number} {when}\n")
        unfinished.rename(self._order)

    @property
    def is_armed(self) -> bool:
        return self._order.exists()

    def disarm(self) -> None:
        self._order.unlink(missing_ok=True)

    def start_again_after_death(self, seconds_max: float = 20.0) -> None:
        self.broker.wait(seconds_max)
        assert not self.is_armed, f"died of something else:\n{self.broker.log_text[-3000:]}"
        self.deaths += 1
        self.broker.start()


def mortal_broker(
    broker_factory: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, directory: Path, **settings: object
) -> MortalBroker:
    order = directory / "death"
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(WRAPPER), *filter(None, [os.environ.get("PYTHONPATH")])]))
    monkeypatch.setenv("OTTLA_TEST_DEATH", str(order))
    return MortalBroker(broker_factory(**FEW_INTERNAL_PARTITIONS, **settings), order)
