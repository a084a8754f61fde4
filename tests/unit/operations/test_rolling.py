"""A rolling restart, decision by decision: waits, actions, and every doubt that stops it."""

from __future__ import annotations

from pathlib import Path
from uuid import UUID

import pytest

from ottla.base.names import TopicPartition
from ottla.client.admin import Partition, Topic
from ottla.operations.errors import WrongInputError
from ottla.operations.rolling.driver import RunningCommand, command_for, depends_on_broker
from ottla.operations.rolling.roll import (
    Action,
    ClusterState,
    CommandState,
    Leftovers,
    Limits,
    Phase,
    RegisteredBroker,
    RollingRestart,
    RollState,
    Step,
    find_interruption,
    restart_obstacle,
    restart_order,
    unwritable_without,
)
from ottla.operations.rolling.state_file import SavedRoll, StateFile, StateFileError, default_path

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
) -> ClusterState:
    """Three brokers with epochs 10, 20 and 30, a topic with three partitions on all of them."""
    epochs = {1: 10, 2: 20, 3: 30} if alive is None else alive
    partitions = [
        Partition(number, leader, replicas, replicas if isr is None else isr)
        for number, (leader, replicas) in enumerate(zip(leaders, REPLICAS, strict=True))
    ]
    brokers = {id_: RegisteredBroker(id_, f"host-{id_}", 9092, "r", epoch) for id_, epoch in epochs.items()}
    topics = [Topic("orders", UUID(int=1), False, partitions)]
    return ClusterState(controller, brokers, topics, moving, {"orders": minimum}, maintained)


def rolled(*brokers: int, **details: bool) -> RollingRestart:
    return RollingRestart(RollState(list(brokers or (1, 2, 3))), LIMITS, **details)


def acts(
    roll: RollingRestart, *views: ClusterState | None, command: CommandState | None = None, now_ms: int = 0
) -> list[Action]:
    return [roll.decide(view, now_ms, command).action for view in views]


DONE = CommandState(0)
RUNNING = CommandState()


def to_command(roll: RollingRestart, broker: int = 2) -> None:
    """Advance to the command for the first broker."""
    without = tuple(1 if leader == broker else leader for leader in (1, 2, 3))
    assert acts(roll, look(), look(leaders=without)) == [Action.MAINTAIN, Action.RUN]
    assert roll.state.current == broker


# ---- the phases of one broker


def test_one_broker_from_the_first_look_to_the_last() -> None:
    roll = rolled(2)
    back = {1: 10, 2: 77, 3: 30}
    story: list[tuple[ClusterState, CommandState | None, Action]] = [
        (look(), None, Action.MAINTAIN),
        (look(), None, Action.WAIT),  # it still leads partition 1
        (look(leaders=(1, 3, 3)), None, Action.RUN),
        (look(leaders=(1, 3, 3)), RUNNING, Action.WAIT),
        (look(leaders=(1, 3, 3), alive={1: 10, 3: 30}, isr=[1, 3]), RUNNING, Action.WAIT),  # it is down
        (look(leaders=(1, 3, 3), alive={1: 10, 3: 30}, isr=[1, 3]), DONE, Action.WAIT),
        (look(leaders=(1, 3, 3), alive=back, isr=[1, 3]), DONE, Action.WAIT),  # back, and not in sync
        (look(leaders=(1, 3, 3), alive=back), DONE, Action.RELEASE),
        (look(leaders=(1, 3, 3), alive=back), None, Action.WAIT),
        (look(alive=back), None, Action.NEXT),
        (look(alive=back), None, Action.FINISH),
    ]
    for number, (view, command, act) in enumerate(story):
        assert roll.decide(view, number, command).action is act, number
    assert roll.state.done == [2]


def test_the_controller_comes_last_also_when_it_changes() -> None:
    assert restart_order([1, 2, 3], 1) == [2, 3, 1]
    assert restart_order([1, 2, 3], 9) == [1, 2, 3]
    roll = rolled()
    roll.state.done.append(2)
    assert roll.decide(look(controller=3), 0).broker == 1


def test_maintenance_lasts_as_long_as_the_waits_may() -> None:
    step = rolled(2).decide(look(), 0, wall_ms=1_000_000)
    assert step == Step(Action.MAINTAIN, 2, until_ms=1_000_000 + 3 * 10_000 + 5_000 + 60_000)


def test_without_maintenance_the_command_runs_at_once() -> None:
    roll = rolled(2, has_maintenance=False)
    assert acts(roll, look()) == [Action.RUN]


def test_leaders_that_do_not_come_back_are_elected_again() -> None:
    roll = rolled(2)
    to_command(roll)
    strayed = look(leaders=(1, 1, 3), alive={1: 10, 2: 77, 3: 30})
    assert acts(roll, strayed, command=DONE) == [Action.RELEASE]
    assert acts(roll, strayed, now_ms=4_999) == [Action.WAIT]
    assert acts(roll, strayed, now_ms=5_000) == [Action.RELEASE]
    step = roll.decide(strayed, 9_999)
    assert (step.action, step.reason) == (Action.WAIT, "broker 2 does not lead orders-1 again")
    assert roll.decide(strayed, 10_000).action is Action.RELEASE
    assert roll.decide(strayed, 10_001).action is Action.STOP


# ---- obstacles


@pytest.mark.parametrize(
    ("view", "reason"),
    [
        (look(alive={1: 10, 2: 20}), "broker 3 is down"),
        (look(leaders=(1, -1, 3)), "orders-1: no leader"),
        (look(moving=frozenset({TopicPartition("orders", 0)})), "replicas are being moved: orders-0"),
        (look(isr=[1, 2]), "not in sync: orders-0, orders-1, orders-2"),
        (look(maintained=frozenset({3})), "broker 3 is in maintenance"),
        (look(controller=-1), "the cluster has no controller"),
    ],
)
def test_what_is_waited_for_and_then_stops_a_roll(view: ClusterState, reason: str) -> None:
    roll = rolled(2)
    waiting = roll.decide(view, 0)
    assert (waiting.action, waiting.reason) == (Action.WAIT, reason)
    assert roll.decide(view, 9_999).action is Action.WAIT
    stopped = roll.decide(view, 10_000)
    assert (stopped.action, stopped.reason) == (Action.STOP, f"{reason}, and that has not changed for 10 s")
    assert roll.state.phase is Phase.CLEAR


def test_a_broker_that_holds_nothing_and_is_gone_is_missed_too() -> None:
    assert rolled(4).decide(look(), 0).reason == "broker 4 is down"


def test_what_passes_is_waited_for() -> None:
    roll = rolled(2)
    assert acts(roll, None, look(isr=[1, 2]), look(maintained=frozenset({2}))) == [
        Action.WAIT,
        Action.WAIT,
        Action.MAINTAIN,
    ]


def test_too_few_replicas_stop_it_at_once_unless_that_is_allowed() -> None:
    found = restart_obstacle(look(minimum=3), 2)
    assert found is not None
    assert not found.is_temporary
    assert "--allow-interruption" in found.reason
    assert acts(rolled(2), look(minimum=3)) == [Action.STOP]
    assert acts(rolled(2, may_interrupt=True), look(minimum=3)) == [Action.MAINTAIN]


def test_a_broker_that_is_needed_is_found_among_all_before_the_first_is_begun() -> None:
    view = look(isr=[1, 2])  # temporary
    assert find_interruption(view, [1, 2, 3]) is None
    alone = Topic("alone", UUID(int=2), False, [Partition(0, 3, [3], [3]), Partition(1, 1, [1, 3], [1, 3])])
    view = view._replace(topics=[*view.topics, alone], min_isr_by_topic={"orders": 2, "alone": 1})
    assert unwritable_without(view, 3) == [TopicPartition("alone", 0)]
    found = find_interruption(view, [1, 2, 3])
    assert found is not None
    assert found.reason.startswith("without broker 3 alone-0 could not be written (min.insync.replicas")
    assert find_interruption(view, [1, 2]) is None
    found = find_interruption(view._replace(min_isr_by_topic={"orders": 2, "alone": 2}), [2, 1, 3])
    assert found is not None
    assert found.reason.startswith("without broker 1 alone-1 could not be written ")


def test_a_cluster_that_changes_while_leaders_leave_is_waited_for() -> None:
    roll = rolled(2)
    assert acts(roll, look()) == [Action.MAINTAIN]
    step = roll.decide(look(leaders=(1, 3, 3), isr=[1, 2]), 1)
    assert (step.action, roll.state.phase) == (Action.WAIT, Phase.LEAVING)


# ---- doubts


def test_a_command_that_fails() -> None:
    roll = rolled(2)
    to_command(roll)
    step = roll.decide(look(), 1, CommandState(7, "no such unit"))
    assert (step.action, step.reason) == (Action.STOP, "the command for broker 2 ended with exit code 7: no such unit")


def test_a_command_that_fails_while_the_cluster_does_not_answer() -> None:
    roll = rolled(2)
    to_command(roll)
    assert roll.decide(None, 1, CommandState(1)).action is Action.STOP


def test_a_command_that_hangs() -> None:
    roll = rolled(2)
    to_command(roll)
    assert roll.decide(look(leaders=(1, 3, 3)), 4_999, RUNNING).action is Action.WAIT
    step = roll.decide(look(leaders=(1, 3, 3)), 5_000, RUNNING)
    assert (step.action, step.reason) == (Action.STOP, "the command for broker 2 still runs after 5 s, and is ended")


@pytest.mark.parametrize(
    ("alive", "reason"),
    [
        ({1: 10, 2: 20, 3: 99}, "broker 3 was restarted, where broker 2 alone should be"),
        ({1: 10, 2: 77, 3: 99}, "broker 3 was restarted, where broker 2 alone should be"),
        ({1: 10, 2: 20}, "broker 3 is down while broker 2 should be restarted"),
        ({1: 10}, "broker 3 is down while broker 2 should be restarted"),
    ],
)
def test_a_command_that_restarts_another_broker(alive: dict[int, int], reason: str) -> None:
    roll = rolled(2)
    to_command(roll)
    step = roll.decide(look(leaders=(1, 3, 3), alive=alive), 1, DONE)
    assert step.action is Action.STOP
    assert step.reason.startswith(reason)


def test_a_command_that_stops_another_broker_is_let_start_it_again() -> None:
    roll = rolled(2)
    to_command(roll)
    gone, back = look(leaders=(1, 1, 1), alive={1: 10, 2: 20}), look(leaders=(1, 1, 1), alive={1: 10, 2: 20, 3: 99})
    step = roll.decide(gone, 1, RUNNING)
    reason = "broker 3 is down while broker 2 should be restarted"
    assert (step.action, step.reason) == (Action.WAIT, f"{reason}; the command still runs")
    assert acts(roll, None, gone, command=RUNNING, now_ms=4_999) == [Action.WAIT, Action.WAIT]
    step = roll.decide(back, 4_999, DONE)
    assert step.action is Action.STOP
    assert step.reason.startswith("broker 3 was restarted, where broker 2 alone should be")


def test_a_doubt_is_reported_also_without_responses_and_if_the_command_hangs_or_fails() -> None:
    reason = "broker 3 is down while broker 2 should be restarted"
    for view, now_ms, command, end in (
        (None, 2, DONE, ""),
        (look(), 2, DONE, ""),
        (None, 5_000, RUNNING, "; the command for broker 2 still runs after 5 s, and is ended"),
        (look(), 2, CommandState(7), "; the command for broker 2 ended with exit code 7"),
    ):
        roll = rolled(2)
        to_command(roll)
        assert acts(roll, look(alive={1: 10, 2: 20}), command=RUNNING) == [Action.WAIT]
        step = roll.decide(view, now_ms, command)
        assert (step.action, step.reason) == (Action.STOP, reason + end)


def test_a_cluster_that_does_not_answer_ends_no_command() -> None:
    roll = RollingRestart(RollState([2]), Limits(wait_ms=1_000, command_ms=5_000))
    to_command(roll)
    assert acts(roll, None, command=RUNNING, now_ms=4_999) == [Action.WAIT]
    assert acts(roll, None, command=DONE, now_ms=4_999) == [Action.WAIT]
    assert acts(roll, None, command=DONE, now_ms=5_999) == [Action.STOP]


def test_a_command_that_ends_well_and_does_nothing() -> None:
    roll = rolled(2)
    to_command(roll)
    same = look(leaders=(1, 3, 3))
    assert roll.decide(same, 1, DONE).action is Action.WAIT
    step = roll.decide(same, 10_001, DONE)
    assert step.action is Action.STOP
    assert step.reason.startswith("the command ended well, but broker 2 has not been restarted")


def test_brokers_without_epochs_must_be_seen_to_be_down() -> None:
    untold = {1: -1, 2: -1, 3: -1}
    roll = rolled(2, has_maintenance=False)
    assert acts(roll, look(alive=untold)) == [Action.RUN]
    assert acts(roll, look(alive=untold), command=DONE) == [Action.WAIT]
    assert acts(roll, look(alive={1: -1, 3: -1}, isr=[1, 3]), command=DONE) == [Action.WAIT]
    assert acts(roll, look(alive=untold), command=DONE) == [Action.RELEASE]


# ---- leftovers


def test_the_broker_that_a_roll_is_at_is_in_maintenance_from_its_begin_to_its_release() -> None:
    roll = rolled(2)
    assert not roll.is_maintained([2])  # no current broker
    assert acts(roll, look(isr=[1, 2])) == [Action.WAIT]
    assert [roll.is_maintained([]), roll.is_maintained([2])] == [False, True]  # from an earlier roll that stopped
    assert acts(roll, look()) == [Action.MAINTAIN]
    assert roll.is_maintained([])  # the state is older than the maintenance
    assert acts(roll, look(leaders=(1, 1, 3))) == [Action.RUN]
    assert [roll.is_maintained([]), roll.is_maintained([2])] == [False, True]  # ended by another client
    back = {1: 10, 2: 77, 3: 30}
    assert acts(roll, look(alive=back, isr=[1, 3]), command=DONE) == [Action.WAIT]
    assert roll.is_maintained([2])
    assert acts(roll, look(alive=back), command=DONE) == [Action.RELEASE]
    assert not roll.is_maintained([2])
    roll = rolled(2, has_maintenance=False)
    assert acts(roll, look()) == [Action.RUN]
    assert not roll.is_maintained([])


def test_leftovers_of_the_current_broker() -> None:
    assert Leftovers(2).messages() == []
    assert Leftovers(2, is_maintained=True, was_killed=True).messages() == [
        "The command for broker 2 was ended halfway: see whether the broker runs.",
        "Broker 2 stays in maintenance for a while; to end that: ottla cluster maintenance 2 --end",
    ]


@pytest.mark.parametrize(("line", "ran"), [("exec sleep 60", True), ("read gone", False)])
def test_a_command_reports_whether_it_was_killed(line: str, ran: bool) -> None:
    command = RunningCommand(line)
    while not ran and command.poll().code is None:
        pass
    assert command.kill() is ran


# ---- resuming


def resumed(phase: Phase, at: int | None = 2) -> RollingRestart:
    return RollingRestart(RollState([2, 3, 1], [], at, phase, {1: 10, 2: 20, 3: 30}), LIMITS)


@pytest.mark.parametrize(
    ("phase", "view", "act"),
    [
        (Phase.CLEAR, look(), Action.MAINTAIN),
        (Phase.LEAVING, look(maintained=frozenset({2})), Action.MAINTAIN),
        (Phase.COMMAND, look(), Action.MAINTAIN),  # it was not restarted: try again
        (Phase.COMMAND, look(alive={1: 10, 2: 77, 3: 30}), Action.RELEASE),  # it was
        (Phase.BACK, look(alive={1: 10, 2: 77, 3: 99}), Action.RELEASE),  # and another broker was restarted since
        (Phase.BACK, look(alive={1: 10, 3: 30}, isr=[1, 3]), Action.WAIT),  # it is still down
        (Phase.SYNC, look(alive={1: 10, 2: 77, 3: 30}), Action.RELEASE),
        (Phase.LEADERS, look(), Action.NEXT),
    ],
)
def test_where_a_roll_goes_on(phase: Phase, view: ClusterState, act: Action) -> None:
    assert resumed(phase).decide(view, 0).action is act


def test_a_broker_that_comes_back_after_the_roll_went_on_is_not_restarted_again() -> None:
    roll = resumed(Phase.BACK)
    assert acts(roll, look(alive={1: 10, 3: 30}, isr=[1, 3])) == [Action.WAIT]
    assert acts(roll, look(alive={1: 10, 2: 77, 3: 30})) == [Action.RELEASE]


def test_the_state_outlives_the_tool(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "roll.json"
    saved = SavedRoll("restart {id}", (2, 3), 5, RollState([2, 3], [2], 3, Phase.BACK, {1: 10, 3: 30}))
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
    broker = RegisteredBroker(2, "host-2", 9092, "rack a")
    assert command_for("ssh {host} restart {id}:{port} {rack}", broker) == "ssh host-2 restart 2:9092 'rack a'"
    assert command_for("kubectl -o 'jsonpath={{.items}}' {id}", broker) == "kubectl -o 'jsonpath={.items}' 2"
    assert command_for("x {host}", broker._replace(host="$(reboot)")) == "x '$(reboot)'"
    with pytest.raises(WrongInputError, match=r"\{broker\} is none of \{id\}"):
        command_for("restart {broker}", broker)


@pytest.mark.parametrize(("template", "is_so"), [("a {id}", True), ("{host}", True), ("a", False), ("{{id}}", False)])
def test_whether_a_command_names_a_broker(template: str, is_so: bool) -> None:
    assert depends_on_broker(template) is is_so
