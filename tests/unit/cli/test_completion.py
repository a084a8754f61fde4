"""Completion of command lines from the argparse definitions of the commands."""

from __future__ import annotations

import pytest

from ottla.cli.commands import completion
from ottla.cli.commands.completion import candidates, parser_of, split_line
from ottla.cli.main import COMMANDS


@pytest.fixture(autouse=True)
def topics(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(completion, "topic_names", lambda _words: ["orders", "audit"])


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("topi", ["topics"]),
        ("topics ", ["alter", "create", "delete", "describe", "list"]),
        ("topics describe o", ["orders"]),
        ("topics describe orders a", ["audit"]),
        ("topics --bootstrap-server a:1 describe o", ["orders"]),
        ("configs describe topic ", ["audit", "orders"]),
        ("configs describe broker ", []),
        ("metadata ls --data ", ["<files>"]),
        ("topics create --if", ["--if-not-exists"]),
        ("nonsense ", []),
        ("topics nonsense ", []),
        ("storage random-uuid ", []),
    ],
)
def test_words_are_completed(line: str, words: list[str]) -> None:
    assert candidates(split_line("ottla " + line)) == words


def test_a_line_is_split_as_a_shell_does() -> None:
    assert split_line("ottla topics list 'a b' ") == ["topics", "list", "a b", ""]
    assert split_line("ottla topics list 'open") == ["topics", "list", "'open"]


@pytest.mark.parametrize("name", [name for name in COMMANDS if name != "completion"])
def test_every_command_can_be_completed(name: str) -> None:
    parser = parser_of(name)
    assert parser is not None
    assert "--help" in candidates([name, "--h"])
