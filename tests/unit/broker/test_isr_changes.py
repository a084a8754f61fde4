"""Proposals on their way to the controller: one request at a time, again if nobody knows what became of it."""

import asyncio
from pathlib import Path
from types import SimpleNamespace

import pytest

import virtual_time
from ottla.base.errors import Error, KafkaError
from ottla.broker.cluster.control import IsrVerdict
from ottla.broker.replicas import isr_changes
from ottla.broker.replicas.isr_changes import IsrChanges
from ottla.replication.leading import REFUSED_MS
from unit.replication.stand import Stand


class Clock:
    """That of the stand, which stands still."""

    def now_ms(self):
        return 1_000

    def monotonic_ms(self):
        return 1_000


class Controller:
    """Answers as it was told to; by default it does what is proposed."""

    def __init__(self, stand):
        self.stand = stand
        self.asked = []
        self.answers = []
        self.is_held = asyncio.Event()
        self.is_held.set()

    async def alter(self, proposals):
        self.asked.append(proposals)
        await self.is_held.wait()
        answer = self.answers.pop(0) if self.answers else None
        if isinstance(answer, Exception):
            raise answer
        return [self.verdict(proposal, answer) for proposal in proposals]

    def verdict(self, proposal, error):
        if error is not None:
            return IsrVerdict(error)
        self.stand.partition_epoch += 1
        return IsrVerdict(Error.NONE, 1, proposal.leader_epoch, proposal.isr_ids, self.stand.partition_epoch)


@pytest.fixture
def play(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Run a scene with a leader whose second replica is about to join."""
    monkeypatch.setattr(isr_changes, "RETRY_SECONDS", 0.001)
    monkeypatch.setattr(isr_changes, "OVERTAKEN_SECONDS", 0.001)
    stand = Stand(tmp_path)

    def run(scene):
        async def main():
            stand.elect(1, isr=(1, 2))
            controller = Controller(stand)
            replicas = SimpleNamespace(partitions={0: stand.at[1]}, lag_ms_max=10_000, on_isr=None)
            changes = IsrChanges(replicas, Clock(), controller.alter, lambda: 101)
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
        await until(lambda: stand.at[1].in_sync == (1, 2, 3))
        (proposal,) = controller.asked[0]
        assert proposal.isr == ((1, 101), (2, -1), (3, 103))
        assert (changes.expands, changes.shrinks) == (1, 0)

    play(scene)


def test_what_comes_up_while_a_request_is_under_way_waits_for_its_answer(play):
    async def scene(stand, controller, changes):
        controller.is_held.clear()
        await until(lambda: controller.asked)
        changes.note(stand.at[1])
        await asyncio.sleep(0.01)
        assert len(controller.asked) == 1
        controller.is_held.set()
        await until(lambda: stand.at[1].in_sync == (1, 2, 3))
        await asyncio.sleep(0.01)
        assert len(controller.asked) == 1

    play(scene)


def test_the_same_proposal_goes_out_again_while_its_fate_is_unknown(play):
    async def scene(stand, controller, changes):
        controller.answers = [KafkaError(Error.NOT_CONTROLLER), KafkaError(Error.REQUEST_TIMED_OUT)]
        await until(lambda: stand.at[1].in_sync == (1, 2, 3))
        first, second, third = controller.asked
        assert first == second == third
        assert changes.failures == 2

    play(scene)


def test_a_proposal_that_was_overtaken_waits_for_the_new_role(play):
    async def scene(stand, controller, changes):
        controller.answers = [Error.INVALID_UPDATE_VERSION] * 3
        await until(lambda: len(controller.asked) == 2)
        assert stand.at[1].awaits(controller.asked[0][0])
        stand.change_isr(1, (1, 2))
        assert not stand.at[1].awaits(controller.asked[0][0])

    play(scene)


def test_a_refused_replica_is_proposed_again_after_a_rest(play):
    async def scene(stand, controller, changes):
        controller.answers = [Error.INELIGIBLE_REPLICA]
        await until(lambda: changes.failures)
        stand.catch_up(3, 1)
        await asyncio.sleep(0.01)
        assert len(controller.asked) == 1
        stand.now_ms += REFUSED_MS
        stand.catch_up(3, 1)
        await until(lambda: stand.at[1].in_sync == (1, 2, 3))

    play(scene)


def test_a_refused_replica_that_has_begun_a_new_life_is_proposed_at_once(play):
    async def scene(stand, controller, changes):
        controller.answers = [Error.INELIGIBLE_REPLICA]
        await until(lambda: changes.failures)
        stand.broker_epochs[3] += 100
        stand.catch_up(3, 1)
        await until(lambda: stand.at[1].in_sync == (1, 2, 3))

    play(scene)


def test_an_unexpected_error_does_not_end_the_changes(play, caplog):
    async def scene(stand, controller, changes):
        controller.answers = [ValueError("a bug")]
        await until(lambda: stand.at[1].in_sync == (1, 2, 3))
        first, second = controller.asked
        assert first == second

    play(scene)
    assert "asking for ISR changes failed" in caplog.text


def test_a_verdict_that_cannot_be_taken_does_not_end_the_changes(play, monkeypatch, caplog):
    async def scene(stand, controller, changes):
        taken = []

        def take(partition, proposal, verdict):
            taken.append(verdict)
            monkeypatch.undo()
            raise ValueError("a bug")

        monkeypatch.setattr(changes, "_take", take)
        await until(lambda: stand.at[1].in_sync == (1, 2, 3))
        assert len(taken) == 1

    play(scene)
    assert "t-0 cannot take IsrVerdict" in caplog.text
    assert "asking for ISR changes failed" not in caplog.text


@pytest.mark.parametrize("answer", [None, KafkaError(Error.REQUEST_TIMED_OUT), ValueError("a bug")], ids=str)
def test_what_is_to_be_asked_again_is_not_forgotten_while_another_request_is_under_way(play, answer):
    class Other:
        """A partition with a proposal of its own."""

        def __init__(self):
            self.looks = 0

        def awaits(self, proposal):
            self.looks += 1
            return self.looks == 1  # asked when it is noted; then again when it is to be sent

    async def scene(stand, controller, changes):
        other = Other()
        controller.answers = [answer]
        controller.is_held.clear()
        await until(lambda: controller.asked)
        changes._ask_again(other, "its proposal")
        controller.is_held.set()
        await until(lambda: stand.at[1].in_sync == (1, 2, 3) and other.looks == 2)

    play(scene)
