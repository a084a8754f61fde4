"""`ottla cluster maintenance` and `roll`: what is refused before anybody is asked, and how progress is shown."""

from __future__ import annotations

import io
import sys

import pytest

from ottla.base.errors import Error, KafkaError
from ottla.broker.configs.alterations import Asked, check_resource
from ottla.cli.cluster.roll import Progress
from ottla.cli.main import main
from ottla.controller.decisions.config_changes import ConfigResourceType, OperationType
from ottla.controller.decisions.maintenance import UNTIL
from ottla.operations.rolling.roll import Act, Step

NOBODY = ["--bootstrap-server", "127.0.0.1:1"]


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["roll"], "say how a broker is restarted"),
        (["roll", "--continue", "--anew"], "give one of --continue and --anew"),
        (["roll", "--command", "x {id}", "--brokers", "1;2"], "no list of brokers"),
        (["roll", "--command", "x {id}", "--brokers", "2,2"], "a broker is named twice"),
        (["roll", "--command", "x {id}", "--wait", "10"], "write 90s, 30m, 2h or 1d"),
        (["roll", "--command", "x {id}", "--timeout", "0s"], "write 90s, 30m, 2h or 1d"),
        (["maintenance", "--for", "30m"], "name the broker"),
        (["maintenance", "2"], "give --for"),
        (["maintenance", "2", "--for", "30m", "--end"], "give --for"),
        (["maintenance", "2", "--for", "8d"], "no maintenance is longer than 7d"),
        (["maintenance", "two", "--end"], "not a whole number"),
    ],
)
def test_wrong_words_are_refused_before_anybody_is_asked(
    words: list[str], sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    try:
        code = main(["cluster", *words, *NOBODY])
    except SystemExit as ended:
        code = int(str(ended.code))
    assert code == 2
    assert sentence in capsys.readouterr().err


STEPS = (
    Step(Act.WAIT, 2, "not in sync: orders-0"),
    Step(Act.WAIT, 2, "not in sync: orders-0"),
    Step(Act.MAINTAIN, 2),
    Step(Act.NEXT, 2),
    Step(Act.FINISH),
)


def shown(monkeypatch: pytest.MonkeyPatch, *, is_terminal: bool) -> str:
    output = io.StringIO()
    monkeypatch.setattr(output, "isatty", lambda: is_terminal)
    monkeypatch.setattr(sys, "stdout", output)
    monkeypatch.setattr("ottla.cli.cluster.roll.time.strftime", lambda _: "12:00:00")
    progress = Progress(3)
    for step in STEPS:
        progress.tell(step)
    return output.getvalue()


def test_a_pipe_gets_a_line_for_what_is_new(monkeypatch: pytest.MonkeyPatch) -> None:
    assert shown(monkeypatch, is_terminal=False).splitlines() == [
        "12:00:00 broker 2: waiting: not in sync: orders-0",
        "12:00:00 broker 2: leaders leave",
        "12:00:00 broker 2: done (1 of 3)",
    ]


def test_a_terminal_has_one_line_for_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    text = shown(monkeypatch, is_terminal=True)
    assert text.count("\n") == 2
    assert text.startswith("\r\x1b[Kbroker 2: waiting: not in sync: orders-0\r\x1b[K")


# ---- the broker's side: maintenance alone may be asked of any broker


def asked(*names: str, replaces_all: bool = False) -> Asked:
    rows = [(OperationType.SET, name, "1") for name in names]
    return Asked(ConfigResourceType.BROKER, "2", rows, replaces_all=replaces_all)


def test_any_broker_takes_the_maintenance_of_another_and_nothing_else() -> None:
    check_resource(asked(UNTIL), 1)
    for wrong in (asked("log.retention.ms"), asked(UNTIL, "log.retention.ms"), asked(UNTIL, replaces_all=True)):
        with pytest.raises(KafkaError) as refusal:
            check_resource(wrong, 1)
        assert refusal.value.error is Error.INVALID_REQUEST
