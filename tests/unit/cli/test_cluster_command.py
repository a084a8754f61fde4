"""`ottla cluster`: concurrent balance commands, rejected options of maintenance and roll, progress of a roll."""

from __future__ import annotations

import io
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from ottla.base.errors import Error, KafkaError
from ottla.base.names import TopicPartition
from ottla.base.placement.broker_loads import BrokerCapacity, PartitionLoad
from ottla.broker.configs.config_admin import RequestedResource, check_resource
from ottla.cli.cluster.replica_moves import run_moves
from ottla.cli.cluster.roll import Progress
from ottla.cli.main import main
from ottla.controller.decisions.config_changes import ConfigResourceType, OperationType
from ottla.controller.decisions.demoted_brokers import MAINTENANCE_UNTIL_KEY
from ottla.operations.reassignment import move_command
from ottla.operations.reassignment.cluster_model import ClusterModel
from ottla.operations.reassignment.cluster_plans import MovePlan
from ottla.operations.reassignment.plan import PlanError
from ottla.operations.rolling.roll import Action, Step

NAME = TopicPartition("orders", 0)


def test_moves_started_during_the_measurement_win(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    brokers = {number: BrokerCapacity() for number in (1, 2)}
    facts = ClusterModel("id", [], [PartitionLoad(NAME, (1,), 5)], brokers, {}, [], [])
    seen: list[dict[TopicPartition, Any]] = [{}, {TopicPartition("theirs", 3): None}]
    monkeypatch.setattr(move_command, "describe_cluster", lambda _: SimpleNamespace(cluster_id="id"))
    monkeypatch.setattr(move_command, "load_cluster_model", lambda *_: facts)
    monkeypatch.setattr(move_command, "list_reassignments", lambda *_: seen.pop(0))
    monkeypatch.setattr(move_command, "execute", lambda *_: pytest.fail("nothing may be begun"))
    options: Any = SimpleNamespace(
        measure=3.0, output=None, dry_run=False, disk_mark=85, cancel=False, rollback=False, state=str(tmp_path)
    )
    vars(options).update(no_throttle=False, throttle=1, at_once=5, wait=True)
    client: Any = None
    with pytest.raises(PlanError, match="1 move is in progress that another command started"):
        run_moves(client, options, "balance", lambda *_: MovePlan({NAME: [2]}))
    assert not list(tmp_path.rglob("*.json")), "nothing is left that a later call would go on with"


UNREACHABLE = ["--bootstrap-server", "127.0.0.1:1"]


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["roll"], "name the command that restarts a broker"),
        (["roll", "--continue", "--anew"], "--continue and --anew exclude each other"),
        (["roll", "--command", "x {id}", "--brokers", "1;2"], "not a list of brokers"),
        (["roll", "--command", "x {id}", "--brokers", "2,2"], "a broker is named twice"),
        (["roll", "--command", "x {id}", "--wait", "10"], "write 90s, 30m, 2h or 1d"),
        (["roll", "--command", "x {id}", "--timeout", "0s"], "write 90s, 30m, 2h or 1d"),
        (["maintenance", "--for", "30m"], "name the broker"),
        (["maintenance", "2"], "give --for"),
        (["maintenance", "2", "--for", "30m", "--end"], "give --for"),
        (["maintenance", "2", "--for", "8d"], "the maximum is 7d"),
        (["maintenance", "two", "--end"], "not a whole number"),
    ],
)
def test_invalid_options_are_rejected_before_any_request(
    words: list[str], sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    try:
        code = main(["cluster", *words, *UNREACHABLE])
    except SystemExit as ended:
        code = int(str(ended.code))
    assert code == 2
    assert sentence in capsys.readouterr().err


STEPS = (
    Step(Action.WAIT, 2, "not in sync: orders-0"),
    Step(Action.WAIT, 2, "not in sync: orders-0"),
    Step(Action.MAINTAIN, 2),
    Step(Action.NEXT, 2),
    Step(Action.FINISH),
)


def shown(monkeypatch: pytest.MonkeyPatch, *, is_terminal: bool) -> str:
    output = io.StringIO()
    monkeypatch.setattr(output, "isatty", lambda: is_terminal)
    monkeypatch.setattr(sys, "stdout", output)
    monkeypatch.setattr("ottla.cli.cluster.roll.time.strftime", lambda _: "12:00:00")
    progress = Progress(3)
    for step in STEPS:
        progress.show_step(step)
    return output.getvalue()


def test_a_pipe_receives_a_line_per_event(monkeypatch: pytest.MonkeyPatch) -> None:
    assert shown(monkeypatch, is_terminal=False).splitlines() == [
        "12:00:00 broker 2: waiting: not in sync: orders-0",
        "12:00:00 broker 2: leaders leave",
        "12:00:00 broker 2: done (1 of 3)",
    ]


def test_a_terminal_has_one_line_for_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    text = shown(monkeypatch, is_terminal=True)
    assert text.count("\n") == 2
    assert text.startswith("\r\x1b[Kbroker 2: waiting: not in sync: orders-0\r\x1b[K")


# ---- the broker's side: any broker accepts the maintenance setting of another


def alteration(*names: str, replaces_all: bool = False) -> RequestedResource:
    rows = [(OperationType.SET, name, "1") for name in names]
    return RequestedResource(ConfigResourceType.BROKER, "2", rows, replaces_all=replaces_all)


def test_any_broker_accepts_only_the_maintenance_setting_of_another() -> None:
    check_resource(alteration(MAINTENANCE_UNTIL_KEY), 1)
    for wrong in (
        alteration("log.retention.ms"),
        alteration(MAINTENANCE_UNTIL_KEY, "log.retention.ms"),
        alteration(MAINTENANCE_UNTIL_KEY, replaces_all=True),
    ):
        with pytest.raises(KafkaError) as refusal:
            check_resource(wrong, 1)
        assert refusal.value.error is Error.INVALID_REQUEST
