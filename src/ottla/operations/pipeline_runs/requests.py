"""What is asked of a pipeline that runs, by another process: a savepoint, or (where several share a process) to stop.

    <run folder>/request.json   what is asked; the run takes it away when it begins to do it
    <run folder>/answer.json    what came of it, with the number of the request

One request at a time: a later one replaces an earlier one that was not taken yet, whose owner waits in vain.
"""

from __future__ import annotations

import json
import uuid
from contextlib import suppress
from pathlib import Path
from typing import Literal, NamedTuple

REQUEST = "request.json"
ANSWER = "answer.json"


class Request(NamedTuple):
    """`to` is the folder of a savepoint."""

    what: Literal["savepoint", "stop"]
    to: str = ""
    number: str = ""


class Answer(NamedTuple):
    """`problem`: why it was not done."""

    number: str
    text: str = ""
    problem: str = ""


def ask(folder: Path, what: Literal["savepoint", "stop"], to: str = "") -> str:
    """The number of the request."""
    number = uuid.uuid4().hex
    _write(folder / REQUEST, json.dumps(Request(what, to, number)._asdict()))
    return number


def take(folder: Path) -> Request | None:
    """What is asked, if anything is; damaged ones are thrown away."""
    with suppress(FileNotFoundError):
        text = (folder / REQUEST).read_text(encoding="utf-8", errors="replace")
        (folder / REQUEST).unlink()
        with suppress(ValueError, TypeError):
            return Request(**json.loads(text))
    return None


def give(folder: Path, answer: Answer) -> None:
    _write(folder / ANSWER, json.dumps(answer._asdict()))


def answer_to(folder: Path, number: str) -> Answer | None:
    """None as long as there is none."""
    with suppress(OSError, ValueError, TypeError):
        found = Answer(**json.loads((folder / ANSWER).read_text(encoding="utf-8")))
        return found if found.number == number else None
    return None


def forget(folder: Path) -> None:
    """Nobody waits for what was asked of an earlier run."""
    for name in (REQUEST, ANSWER):
        (folder / name).unlink(missing_ok=True)


def _write(path: Path, text: str) -> None:
    unfinished = path.with_name(f"{path.name}.{uuid.uuid4().hex[:8]}")
    unfinished.write_text(text, encoding="utf-8")
    unfinished.replace(path)
