"""ISR proposals to the controller: one request at a time, repeated while the result is unknown."""

import asyncio
from pathlib import Path
from types import SimpleNamespace

import pytest
from tests import virtual_time
from tests.unit.replication.stand import Stand

from ottla.base.errors import Error, KafkaError
from ottla.broker.cluster.controller_requests import AlterPartitionResult
from ottla.broker.replica_manager import alter_partition_manager
from ottla.broker.replica_manager.alter_partition_manager import AlterPartitionManager
from ottla.replication.leader_state import REJECTED_PAUSE_MS


class Clock:
    """The clock of the stand, which stands still."""

    def now_ms(self):
        return 1_000

    def monotonic_ms(self):
        return 1_000


class Controller:
    """Returns the configured results; by default it applies the proposals."""

    def __init__(self, stand):
        self.stand = stand
        self.asked = []
        self.answers = []
        self.is_throttled = asyncio.Event()
        self.is_throttled.set()

    async def alter(self, proposals):
        self.asked.append(proposals)
        await self.is_throttled.wait()
        answer = self.answers.pop(0) if self.answers else None
        if isinstance(answer, Exception):
            raise answer
        return [self.verdict(proposal, answer) for proposal in proposals]

    def verdict(self, proposal, error):
        if error is not None:
            return AlterPartitionResult(error)
        self.stand.partition_epoch += 1
        return AlterPartitionResult(Error.NONE, 1, proposal.leader_epoch, proposal.isr_ids, self.stand.partition_epoch)


@pytest.fixture
def play(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Run a scenario with a leader whose second replica is about to join the ISR."""
    monkeypatch.setattr(alter_partition_manager, "RETRY_SECONDS", 0.001)
    monkeypatch.setattr(alter_partition_manager, "STALE_STATE_RETRY_SECONDS", 0.001)
    stand = Stand(tmp_path)

    def run(scene):
        async def main():
            stand.elect(1, isr=(1, 2))
            controller = Controller(stand)
            replicas = SimpleNamespace(partitions={0: stand.at[1]}, lag_ms_max=10_000, on_isr=None)
            changes = AlterPartitionManager(replicas, Clock(), controller.alter, lambda: 101)
            changes.start()
            await asyncio.sleep(0.01)
            assert controller.asked == []
            stand.catch_up(3, 1)
            try:
                await scene(stand, controller, changes)
            finally:
                changes.stop()

        virtual_time.run(main())

    yield run
    stand.close()


async def until(condition):
    async with asyncio.timeout(5):
        while not condition():
            await asyncio.sleep(0.001)


def test_a_replica_that_has_caught_up_is_proposed_at_once(play):
    async def scene(stand, controller, changes):
        await until(lambda: stand.at[1].isr == (1, 2, 3))
        (proposal,) = controller.asked[0]
        assert proposal.isr == ((1, 101), (2, -1), (3, 103))
        assert (changes.expands, changes.shrinks) == (1, 0)

    play(scene)


def test_proposals_during_a_request_wait_for_its_response(play):
    async def scene(stand, controller, changes):
        controller.is_throttled.clear()
        await until(lambda: controller.asked)
        changes.submit(stand.at[1])
        await asyncio.sleep(0.01)
        assert len(controller.asked) == 1
        controller.is_throttled.set()
        await until(lambda: stand.at[1].isr == (1, 2, 3))
        await asyncio.sleep(0.01)
        assert len(controller.asked) == 1

    play(scene)


def test_a_proposal_with_an_unknown_result_is_sent_again(play):
    async def scene(stand, controller, changes):
        controller.answers = [KafkaError(Error.NOT_CONTROLLER), KafkaError(Error.REQUEST_TIMED_OUT)]
        await until(lambda: stand.at[1].isr == (1, 2, 3))
        first, second, third = controller.asked
        assert first == second == third
        assert changes.failures == 2

    play(scene)


def test_a_proposal_that_failed_for_an_unknown_reason_is_sent_again(play):
    async def scene(stand, controller, changes):
        controller.answers = [Error.UNKNOWN_SERVER_ERROR]
        await until(lambda: stand.at[1].isr == (1, 2, 3))
        assert changes.failures == 2  # the result, and that it is not known yet

    play(scene)


def test_a_lagging_replica_is_found_within_half_of_the_allowed_lag(play, monkeypatch):
    async def scene(stand, controller, changes):
        await until(lambda: stand.at[1].isr == (1, 2, 3))
        stand.append(1, b"a")
        stand.fetch(2, 1)
        stand.fetch(2, 1)
        monkeypatch.setattr(Clock, "monotonic_ms", lambda _: 1_000 + 10_001)
        await asyncio.sleep(5.1)
        assert stand.at[1].isr == (1, 2)
        assert changes.shrinks == 1

    play(scene)


def test_a_proposal_with_a_stale_state_waits_for_the_new_role(play):
    async def scene(stand, controller, changes):
        controller.answers = [Error.INVALID_UPDATE_VERSION] * 3
        await until(lambda: len(controller.asked) == 2)
        assert stand.at[1].is_pending_proposal(controller.asked[0][0])
        stand.change_isr(1, (1, 2))
        assert not stand.at[1].is_pending_proposal(controller.asked[0][0])

    play(scene)


def test_a_refused_replica_is_proposed_again_after_a_pause(play):
    async def scene(stand, controller, changes):
        controller.answers = [Error.INELIGIBLE_REPLICA]
        await until(lambda: changes.failures)
        stand.catch_up(3, 1)
        await asyncio.sleep(0.01)
        assert len(controller.asked) == 1
        stand.now_ms += REJECTED_PAUSE_MS
        stand.catch_up(3, 1)
        await until(lambda: stand.at[1].isr == (1, 2, 3))

    play(scene)


def test_a_refused_replica_of_a_restarted_broker_is_proposed_at_once(play):
    async def scene(stand, controller, changes):
        controller.answers = [Error.INELIGIBLE_REPLICA]
        await until(lambda: changes.failures)
        stand.broker_epochs[3] += 100
        stand.catch_up(3, 1)
        await until(lambda: stand.at[1].isr == (1, 2, 3))

    play(scene)


def test_an_unexpected_error_does_not_stop_the_proposals(play, caplog):
    async def scene(stand, controller, changes):
        controller.answers = [ValueError("a bug")]
        await until(lambda: stand.at[1].isr == (1, 2, 3))
        first, second = controller.asked
        assert first == second

    play(scene)
    assert "proposing ISR changes failed" in caplog.text


def test_a_result_that_cannot_be_applied_does_not_stop_the_proposals(play, monkeypatch, caplog):
    async def scene(stand, controller, changes):
        taken = []

        def take(partition, proposal, verdict):
            taken.append(verdict)
            monkeypatch.undo()
            raise ValueError("a bug")

        monkeypatch.setattr(changes, "_apply", take)
        await until(lambda: stand.at[1].isr == (1, 2, 3))
        assert len(taken) == 1

    play(scene)
    assert "t-0 cannot apply AlterPartitionResult" in caplog.text
    assert "proposing ISR changes failed" not in caplog.text


@pytest.mark.parametrize("answer", [None, KafkaError(Error.REQUEST_TIMED_OUT), ValueError("a bug")], ids=str)
def test_a_proposal_to_retry_survives_another_request(play, answer):
    class Other:
        """A partition with its own proposal."""

        def __init__(self):
            self.looks = 0

        def is_pending_proposal(self, proposal):
            self.looks += 1
            return self.looks == 1  # checked once when it is submitted; then again when it is sent

    async def scene(stand, controller, changes):
        other = Other()
        controller.answers = [answer]
        controller.is_throttled.clear()
        await until(lambda: controller.asked)
        changes._retry(other, "its proposal")
        controller.is_throttled.set()
        await until(lambda: stand.at[1].isr == (1, 2, 3) and other.looks == 2)

    play(scene)
