"""A roll, decision by decision: what is waited for, what is done, and every doubt that stops it."""

from __future__ import annotations

from pathlib import Path
from uuid import UUID

import pytest

from ottla.base.names import TopicPartition
from ottla.client.admin import Partition, Topic
from ottla.operations.errors import WrongInputError
from ottla.operations.rolling.command import RunningCommand, command_for, names_a_broker
from ottla.operations.rolling.facts import BrokerSeen, Look, interruption, obstacle, order, unwritable_without
from ottla.operations.rolling.roll import Act, Command, Left, Limits, Phase, Roll, RollState, Step
from ottla.operations.rolling.state_file import Saved, StateFile, StateFileError, default_path

LIMITS = Limits(wait_ms=10_000, command_ms=5_000)
REPLICAS = ([1, 2, 3], [2, 3, 1], [3, 1, 2])


def look(
    *,
    alive: dict[int, int] | None = None,
    leaders: tuple[int, ...] = (1, 2, 3),
    isr: list[int] | None = None,
    moving: frozenset[TopicPartition] = frozenset(),
    minimum: int = 2,
    maintained: frozenset[int] = frozenset(),
    controller: int = 1,
) -> Look:
    """Three brokers with epochs 10, 20 and 30, a topic with three partitions on all of them."""
    epochs = {1: 10, 2: 20, 3: 30} if alive is None else alive
    partitions = [
        Partition(number, leader, replicas, replicas if isr is None else isr)
        for number, (leader, replicas) in enumerate(zip(leaders, REPLICAS, strict=True))
    ]
    brokers = {id_: BrokerSeen(id_, f"host-{id_}", 9092, "r", epoch) for id_, epoch in epochs.items()}
    topics = [Topic("orders", UUID(int=1), False, partitions)]
    return Look(controller, brokers, topics, moving, {"orders": minimum}, maintained)


def rolled(*brokers: int, **details: bool) -> Roll:
    return Roll(RollState(list(brokers or (1, 2, 3))), LIMITS, **details)


def acts(roll: Roll, *views: Look | None, command: Command | None = None, now_ms: int = 0) -> list[Act]:
    return [roll.decide(view, now_ms, command).act for view in views]


DONE = Command(0)
RUNNING = Command()


def to_command(roll: Roll, broker: int = 2) -> None:
    """As far as the command for the first broker."""
    without = tuple(1 if leader == broker else leader for leader in (1, 2, 3))
    assert acts(roll, look(), look(leaders=without)) == [Act.MAINTAIN, Act.RUN]
    assert roll.state.at == broker


# ---- the way of one broker


def test_one_broker_from_the_first_look_to_the_last() -> None:
    roll = rolled(2)
    back = {1: 10, 2: 77, 3: 30}
    story: list[tuple[Look, Command | None, Act]] = [
        (look(), None, Act.MAINTAIN),
        (look(), None, Act.WAIT),  # it still leads partition 1
        (look(leaders=(1, 3, 3)), None, Act.RUN),
        (look(leaders=(1, 3, 3)), RUNNING, Act.WAIT),
        (look(leaders=(1, 3, 3), alive={1: 10, 3: 30}, isr=[1, 3]), RUNNING, Act.WAIT),  # it is away
        (look(leaders=(1, 3, 3), alive={1: 10, 3: 30}, isr=[1, 3]), DONE, Act.WAIT),
        (look(leaders=(1, 3, 3), alive=back, isr=[1, 3]), DONE, Act.WAIT),  # back, and not in sync
        (look(leaders=(1, 3, 3), alive=back), DONE, Act.RELEASE),
        (look(leaders=(1, 3, 3), alive=back), None, Act.WAIT),
        (look(alive=back), None, Act.NEXT),
        (look(alive=back), None, Act.FINISH),
    ]
    for number, (view, command, act) in enumerate(story):
        assert roll.decide(view, number, command).act is act, number
    assert roll.state.done == [2]


def test_the_controller_comes_last_also_when_it_changes() -> None:
    assert order([1, 2, 3], 1) == [2, 3, 1]
    assert order([1, 2, 3], 9) == [1, 2, 3]
    roll = rolled()
    roll.state.done.append(2)
    assert roll.decide(look(controller=3), 0).broker == 1


def test_maintenance_lasts_as_long_as_the_waits_may() -> None:
    step = rolled(2).decide(look(), 0, wall_ms=1_000_000)
    assert step == Step(Act.MAINTAIN, 2, until_ms=1_000_000 + 3 * 10_000 + 5_000 + 60_000)


def test_without_maintenance_the_command_runs_at_once() -> None:
    roll = rolled(2, has_maintenance=False)
    assert acts(roll, look()) == [Act.RUN]


def test_leaders_that_do_not_come_back_are_elected_again() -> None:
    roll = rolled(2)
    to_command(roll)
    strayed = look(leaders=(1, 1, 3), alive={1: 10, 2: 77, 3: 30})
    assert acts(roll, strayed, command=DONE) == [Act.RELEASE]
    assert acts(roll, strayed, now_ms=4_999) == [Act.WAIT]
    assert acts(roll, strayed, now_ms=5_000) == [Act.RELEASE]
    step = roll.decide(strayed, 9_999)
    assert (step.act, step.why) == (Act.WAIT, "broker 2 does not lead orders-1 again")
    assert roll.decide(strayed, 10_000).act is Act.RELEASE
    assert roll.decide(strayed, 10_001).act is Act.STOP


# ---- what speaks against it


@pytest.mark.parametrize(
    ("view", "reason"),
    [
        (look(alive={1: 10, 2: 20}), "broker 3 is away"),
        (look(leaders=(1, -1, 3)), "orders-1: no leader"),
        (look(moving=frozenset({TopicPartition("orders", 0)})), "replicas are being moved: orders-0"),
        (look(isr=[1, 2]), "not in sync: orders-0, orders-1, orders-2"),
        (look(maintained=frozenset({3})), "broker 3 is in maintenance"),
        (look(controller=-1), "the cluster has no controller"),
    ],
)
def test_what_is_waited_for_and_then_stops_a_roll(view: Look, reason: str) -> None:
    roll = rolled(2)
    waiting = roll.decide(view, 0)
    assert (waiting.act, waiting.why) == (Act.WAIT, reason)
    assert roll.decide(view, 9_999).act is Act.WAIT
    stopped = roll.decide(view, 10_000)
    assert (stopped.act, stopped.why) == (Act.STOP, f"{reason}, and that has not changed for 10 s")
    assert roll.state.phase is Phase.CLEAR


def test_a_broker_that_holds_nothing_and_is_gone_is_missed_too() -> None:
    assert rolled(4).decide(look(), 0).why == "broker 4 is away"


def test_what_passes_is_waited_for() -> None:
    roll = rolled(2)
    assert acts(roll, None, look(isr=[1, 2]), look(maintained=frozenset({2}))) == [Act.WAIT, Act.WAIT, Act.MAINTAIN]


def test_too_few_replicas_stop_it_at_once_unless_that_is_allowed() -> None:
    found = obstacle(look(minimum=3), 2)
    assert found is not None
    assert not found.may_pass
    assert "--allow-interruption" in found.reason
    assert acts(rolled(2), look(minimum=3)) == [Act.STOP]
    assert acts(rolled(2, may_interrupt=True), look(minimum=3)) == [Act.MAINTAIN]


def test_a_broker_that_is_needed_is_found_among_all_before_the_first_is_begun() -> None:
    view = look(isr=[1, 2])  # which passes, and says nothing about tomorrow
    assert interruption(view, [1, 2, 3]) is None
    alone = Topic("alone", UUID(int=2), False, [Partition(0, 3, [3], [3]), Partition(1, 1, [1, 3], [1, 3])])
    view = view._replace(topics=[*view.topics, alone], minimums={"orders": 2, "alone": 1})
    assert unwritable_without(view, 3) == [TopicPartition("alone", 0)]
    found = interruption(view, [1, 2, 3])
    assert found is not None
    assert found.reason.startswith("without broker 3 nobody could write to alone-0 (min.insync.replicas")
    assert interruption(view, [1, 2]) is None
    found = interruption(view._replace(minimums={"orders": 2, "alone": 2}), [2, 1, 3])
    assert found is not None
    assert found.reason.startswith("without broker 1 nobody could write to alone-1 ")


def test_a_cluster_that_changes_while_leaders_leave_is_waited_for() -> None:
    roll = rolled(2)
    assert acts(roll, look()) == [Act.MAINTAIN]
    step = roll.decide(look(leaders=(1, 3, 3), isr=[1, 2]), 1)
    assert (step.act, roll.state.phase) == (Act.WAIT, Phase.LEAVING)


# ---- doubts


def test_a_command_that_fails() -> None:
    roll = rolled(2)
    to_command(roll)
    step = roll.decide(look(), 1, Command(7, "no such unit"))
    assert (step.act, step.why) == (Act.STOP, "the command for broker 2 ended with exit code 7: no such unit")


def test_a_command_that_fails_while_the_cluster_does_not_answer() -> None:
    roll = rolled(2)
    to_command(roll)
    assert roll.decide(None, 1, Command(1)).act is Act.STOP


def test_a_command_that_hangs() -> None:
    roll = rolled(2)
    to_command(roll)
    assert roll.decide(look(leaders=(1, 3, 3)), 4_999, RUNNING).act is Act.WAIT
    step = roll.decide(look(leaders=(1, 3, 3)), 5_000, RUNNING)
    assert (step.act, step.why) == (Act.STOP, "the command for broker 2 still runs after 5 s, and is ended")


@pytest.mark.parametrize(
    ("alive", "reason"),
    [
        ({1: 10, 2: 20, 3: 99}, "broker 3 was restarted, where broker 2 alone should be"),
        ({1: 10, 2: 77, 3: 99}, "broker 3 was restarted, where broker 2 alone should be"),
        ({1: 10, 2: 20}, "broker 3 is away while broker 2 should be restarted"),
        ({1: 10}, "broker 3 is away while broker 2 should be restarted"),
    ],
)
def test_a_command_that_restarts_another_broker(alive: dict[int, int], reason: str) -> None:
    roll = rolled(2)
    to_command(roll)
    step = roll.decide(look(leaders=(1, 3, 3), alive=alive), 1, DONE)
    assert step.act is Act.STOP
    assert step.why.startswith(reason)


def test_a_command_that_stops_another_broker_is_let_start_it_again() -> None:
    roll = rolled(2)
    to_command(roll)
    gone, back = look(leaders=(1, 1, 1), alive={1: 10, 2: 20}), look(leaders=(1, 1, 1), alive={1: 10, 2: 20, 3: 99})
    step = roll.decide(gone, 1, RUNNING)
    reason = "broker 3 is away while broker 2 should be restarted"
    assert (step.act, step.why) == (Act.WAIT, f"{reason}; the command still runs")
    assert acts(roll, None, gone, command=RUNNING, now_ms=4_999) == [Act.WAIT, Act.WAIT]
    step = roll.decide(back, 4_999, DONE)
    assert step.act is Act.STOP
    assert step.why.startswith("broker 3 was restarted, where broker 2 alone should be")


def test_a_doubt_is_told_also_when_nobody_answers_or_the_command_hangs_or_fails() -> None:
    reason = "broker 3 is away while broker 2 should be restarted"
    for view, now_ms, command, end in (
        (None, 2, DONE, ""),
        (look(), 2, DONE, ""),
        (None, 5_000, RUNNING, "; the command for broker 2 still runs after 5 s, and is ended"),
        (look(), 2, Command(7), "; the command for broker 2 ended with exit code 7"),
    ):
        roll = rolled(2)
        to_command(roll)
        assert acts(roll, look(alive={1: 10, 2: 20}), command=RUNNING) == [Act.WAIT]
        step = roll.decide(view, now_ms, command)
        assert (step.act, step.why) == (Act.STOP, reason + end)


def test_a_cluster_that_does_not_answer_ends_no_command() -> None:
    roll = Roll(RollState([2]), Limits(wait_ms=1_000, command_ms=5_000))
    to_command(roll)
    assert acts(roll, None, command=RUNNING, now_ms=4_999) == [Act.WAIT]
    assert acts(roll, None, command=DONE, now_ms=4_999) == [Act.WAIT]
    assert acts(roll, None, command=DONE, now_ms=5_999) == [Act.STOP]


def test_a_command_that_ends_well_and_does_nothing() -> None:
    roll = rolled(2)
    to_command(roll)
    same = look(leaders=(1, 3, 3))
    assert roll.decide(same, 1, DONE).act is Act.WAIT
    step = roll.decide(same, 10_001, DONE)
    assert step.act is Act.STOP
    assert step.why.startswith("the command ended well, but broker 2 has not been restarted")


def test_brokers_that_do_not_tell_their_epoch_must_be_seen_to_be_away() -> None:
    untold = {1: -1, 2: -1, 3: -1}
    roll = rolled(2, has_maintenance=False)
    assert acts(roll, look(alive=untold)) == [Act.RUN]
    assert acts(roll, look(alive=untold), command=DONE) == [Act.WAIT]
    assert acts(roll, look(alive={1: -1, 3: -1}, isr=[1, 3]), command=DONE) == [Act.WAIT]
    assert acts(roll, look(alive=untold), command=DONE) == [Act.RELEASE]


# ---- what is left behind


def test_the_broker_that_a_roll_is_at_is_in_maintenance_from_its_begin_to_its_release() -> None:
    roll = rolled(2)
    assert not roll.is_maintained([2])  # it is at nobody
    assert acts(roll, look(isr=[1, 2])) == [Act.WAIT]
    assert [roll.is_maintained([]), roll.is_maintained([2])] == [False, True]  # of a roll before, which stopped
    assert acts(roll, look()) == [Act.MAINTAIN]
    assert roll.is_maintained([])  # the look is older than the maintenance
    assert acts(roll, look(leaders=(1, 1, 3))) == [Act.RUN]
    assert [roll.is_maintained([]), roll.is_maintained([2])] == [False, True]  # somebody has ended it
    back = {1: 10, 2: 77, 3: 30}
    assert acts(roll, look(alive=back, isr=[1, 3]), command=DONE) == [Act.WAIT]
    assert roll.is_maintained([2])
    assert acts(roll, look(alive=back), command=DONE) == [Act.RELEASE]
    assert not roll.is_maintained([2])
    roll = rolled(2, has_maintenance=False)
    assert acts(roll, look()) == [Act.RUN]
    assert not roll.is_maintained([])


def test_what_is_told_of_the_broker_that_a_roll_was_at() -> None:
    assert Left(2).sentences() == []
    assert Left(2, is_maintained=True, is_cut=True).sentences() == [
        "The command for broker 2 was ended halfway: see whether the broker runs.",
        "Broker 2 stays in maintenance for a while; to end that: ottla cluster maintenance 2 --end",
    ]


@pytest.mark.parametrize(("line", "ran"), [("exec sleep 60", True), ("read gone", False)])
def test_a_command_tells_whether_it_was_ended(line: str, ran: bool) -> None:
    command = RunningCommand(line)
    while not ran and command.look().code is None:
        pass
    assert command.end() is ran


# ---- going on


def resumed(phase: Phase, at: int | None = 2) -> Roll:
    return Roll(RollState([2, 3, 1], [], at, phase, {1: 10, 2: 20, 3: 30}), LIMITS)


@pytest.mark.parametrize(
    ("phase", "view", "act"),
    [
        (Phase.CLEAR, look(), Act.MAINTAIN),
        (Phase.LEAVING, look(maintained=frozenset({2})), Act.MAINTAIN),
        (Phase.COMMAND, look(), Act.MAINTAIN),  # it was not restarted: once more
        (Phase.COMMAND, look(alive={1: 10, 2: 77, 3: 30}), Act.RELEASE),  # it was
        (Phase.BACK, look(alive={1: 10, 2: 77, 3: 99}), Act.RELEASE),  # and somebody has restarted another one since
        (Phase.BACK, look(alive={1: 10, 3: 30}, isr=[1, 3]), Act.WAIT),  # it is still away
        (Phase.SYNC, look(alive={1: 10, 2: 77, 3: 30}), Act.RELEASE),
        (Phase.LEADERS, look(), Act.NEXT),
    ],
)
def test_where_a_roll_goes_on(phase: Phase, view: Look, act: Act) -> None:
    assert resumed(phase).decide(view, 0).act is act


def test_a_broker_that_comes_back_after_the_roll_went_on_is_not_restarted_again() -> None:
    roll = resumed(Phase.BACK)
    assert acts(roll, look(alive={1: 10, 3: 30}, isr=[1, 3])) == [Act.WAIT]
    assert acts(roll, look(alive={1: 10, 2: 77, 3: 30})) == [Act.RELEASE]


def test_the_state_outlives_the_tool(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "roll.json"
    saved = Saved("restart {id}", (2, 3), 5, RollState([2, 3], [2], 3, Phase.BACK, {1: 10, 3: 30}))
    with StateFile(path) as file:
        assert file.load() is None
        file.save(saved)
        assert file.load() == saved
        assert path.stat().st_mode & 0o077 == 0
        with pytest.raises(StateFileError, match="another roll"):
            StateFile(path).__enter__()
        file.remove()
        assert file.load() is None
    with StateFile(path):
        pass


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"version": 2}', '{"version": 1, "brokers": "x"}', "null"])
def test_a_file_that_is_no_state_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "roll.json"
    path.write_text(text)
    with StateFile(path) as file, pytest.raises(StateFileError, match="remove it"):
        file.load()


def test_a_cluster_s_file_lies_where_state_belongs(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    assert default_path("a/../b") == tmp_path / "ottla" / "roll-a____b.json"


# ---- the command


def test_the_command_of_a_broker() -> None:
    broker = BrokerSeen(2, "host-2", 9092, "rack a")
    assert command_for("ssh {host} restart {id}:{port} {rack}", broker) == "ssh host-2 restart 2:9092 'rack a'"
    assert command_for("kubectl -o 'jsonpath={{.items}}' {id}", broker) == "kubectl -o 'jsonpath={.items}' 2"
    assert command_for("x {host}", broker._replace(host="$(reboot)")) == "x '$(reboot)'"
    with pytest.raises(WrongInputError, match=r"\{broker\} is none of \{id\}"):
        command_for("restart {broker}", broker)


@pytest.mark.parametrize(("template", "is_so"), [("a {id}", True), ("{host}", True), ("a", False), ("{{id}}", False)])
def test_whether_a_command_names_a_broker(template: str, is_so: bool) -> None:
    assert names_a_broker(template) is is_so
