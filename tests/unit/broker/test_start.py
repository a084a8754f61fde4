"""How a start ends that does not succeed: what is told, and what is not."""

import asyncio
from pathlib import Path

import pytest

import virtual_time
from ottla.base.broker_settings import BrokerSettings
from ottla.broker.assembly import Assembly
from ottla.broker.main import Broker, StartError
from ottla.network.poller import Poller


class Stage(Broker):
    """A broker whose work a test describes: `begun` is after its start."""

    is_started = False
    work_seconds = 0.0
    problem: Exception | None = None

    async def _serve(self, assembly: Assembly, patience: asyncio.Timeout) -> None:
        if self.is_started:
            patience.reschedule(None)
        await asyncio.sleep(self.work_seconds)
        if self.problem is not None:
            raise self.problem


def run(folder: Path, **what: object) -> None:
    async def play() -> None:
        settings = {"log.dirs": str(folder), "listeners": "PLAINTEXT://127.0.0.1:0", "server.max.startup.time.ms": "50"}
        stage = Stage(BrokerSettings(settings), Poller())
        for name, value in what.items():
            setattr(stage, name, value)
        try:
            await stage.run()
        finally:
            for bound in stage._sockets:
                bound.close()

    virtual_time.run(play())


def test_a_start_that_takes_too_long_is_told_as_one(tmp_path: Path) -> None:
    with pytest.raises(StartError, match=r"server\.max\.startup\.time\.ms"):
        run(tmp_path, work_seconds=30.0)


@pytest.mark.parametrize("is_started", [False, True])
def test_whatever_else_times_out_is_not_told_as_a_slow_start(tmp_path: Path, is_started: bool) -> None:
    with pytest.raises(TimeoutError, match="the disk did not answer"):
        run(tmp_path, is_started=is_started, problem=TimeoutError("the disk did not answer"))


def test_a_broker_that_has_started_may_serve_for_longer_than_a_start_may_take(tmp_path: Path) -> None:
    run(tmp_path, is_started=True, work_seconds=0.1)
