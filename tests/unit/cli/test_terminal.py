"""Exit codes of tools, and escaping for terminals."""

from __future__ import annotations

from collections.abc import Callable
from typing import NoReturn

import pytest

from ottla.base.text import escape
from ottla.cli.terminal import ToolError, drift_code, escape_bytes, run_tool
from ottla.client.errors import ClientError


def raising(problem: BaseException) -> Callable[[], NoReturn]:
    def body() -> NoReturn:
        raise problem

    return body


@pytest.mark.parametrize(
    ("problem", "code", "line"),
    [
        (ToolError("wrong"), 1, "tool: wrong\n"),
        (ToolError("bad usage", 2), 2, "tool: bad usage\n"),
        (ClientError("cannot reach it"), 1, "tool: cannot reach it\n"),
        (OSError(28, "No space left on device"), 1, "tool: No space left on device\n"),
        (FileNotFoundError(2, "No such file or directory", "x.txt"), 1, "tool: x.txt: No such file or directory\n"),
        (MemoryError(), 1, "tool: out of memory\n"),
        (KeyboardInterrupt(), 130, ""),
    ],
)
def test_every_end_has_a_code_and_at_most_one_line(
    problem: BaseException, code: int, line: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_tool("tool", raising(problem)) == code
    assert capsys.readouterr().err == line


def test_a_good_end_keeps_its_code() -> None:
    assert run_tool("tool", lambda: 0) == 0
    assert run_tool("tool", lambda: 7) == 7


def test_control_characters_are_written_out() -> None:
    assert escape("a\x1b[31mb\x07\x9b\u202e") == "a\\x1b[31mb\\x07\\x9b\\u202e"
    assert escape("tab\tand\nnewline ü €") == "tab\tand\nnewline ü €"


def test_bytes_become_valid_text() -> None:
    assert escape_bytes(b"\xff\x00ok") == b"\\xff\\x00ok"


@pytest.mark.parametrize(
    ("differs", "is_impossible", "code"), [(False, False, 0), (True, False, 3), (True, True, 1), (False, True, 1)]
)
def test_impossible_changes_outweigh_differences(differs: bool, is_impossible: bool, code: int) -> None:
    assert drift_code(differs=differs, is_impossible=is_impossible) == code
