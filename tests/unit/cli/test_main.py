"""`ottla` itself: help, version, and unknown words."""

from __future__ import annotations

import subprocess
import sys
from importlib import import_module

import pytest

from ottla import __version__
from ottla.cli.kafka_scripts import SCRIPTS
from ottla.cli.main import COMMANDS, main


@pytest.mark.parametrize("arguments", [[], ["--help"], ["-h"], ["help"]])
def test_help_lists_all_commands_and_examples(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(arguments) == 0
    text = capsys.readouterr().out
    assert all(f"\n  {name} " in text for name in COMMANDS)
    assert "examples:" in text


def test_the_version_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"ottla {__version__}\n"


@pytest.mark.parametrize(
    ("word", "words"),
    [
        ("topcis", "unknown command 'topcis'. Did you mean: ottla topics?"),
        ("--verbose", "unknown option '--verbose'."),
        ("\x1b[2J", "unknown command '\\x1b[2J'."),
    ],
)
def test_unknown_words_end_with_code_2_usage_and_a_suggestion(
    word: str, words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([word]) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.startswith("usage: ottla COMMAND")
    assert words in printed.err


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_a_help_with_examples(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(["help", name])
    assert caught.value.code == 0
    text = capsys.readouterr().out
    assert f"usage: ottla {name}" in text
    assert "examples:" in text


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_refuses_unknown_options_with_code_2(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    words = {"topics": ["list"], "produce": ["t"], "consume": ["t"]}.get(name, [])
    with pytest.raises(SystemExit) as caught:
        main([name, *words, "--bootstrap-serwer"])
    assert caught.value.code == 2
    assert "usage: ottla" in capsys.readouterr().err


@pytest.mark.parametrize("module", [*(command.module for command in COMMANDS.values()), *SCRIPTS.values()])
def test_every_table_entry_leads_to_a_tool(module: str) -> None:
    name, _, function = module.partition(":")
    assert callable(getattr(import_module(name), function or "run"))


def test_help_imports_nothing_heavy() -> None:
    program = "import sys; from ottla.cli.main import main; main(['--help']); print(*sys.modules, file=sys.stderr)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert not {"argparse", "asyncio", "confluent_kafka", "rich", "socket"} & set(done.stderr.split())
