"""Requests to a running pipeline from another process: take a savepoint, or stop. Also stops and kills its process.

    <run folder>/request.json   the request; the run removes it when it starts to execute it
    <run folder>/answer.json    the result, with the number of the request

One request at a time: a later one replaces an earlier one that was not taken yet, which then gets no answer.
"""

from __future__ import annotations

import json
import os
import signal
import uuid
from contextlib import suppress
from pathlib import Path
from typing import Literal, NamedTuple

from ottla.operations.errors import OperationError
from ottla.operations.pipeline_runs.statuses import Status, run_folder

REQUEST = "request.json"
ANSWER = "answer.json"


class Request(NamedTuple):
    """`to` is the folder of a savepoint."""

    what: Literal["savepoint", "stop"]
    to: str = ""
    number: str = ""


class Answer(NamedTuple):
    """`problem`: why the request failed."""

    number: str
    text: str = ""
    problem: str = ""


def write_request(folder: Path, what: Literal["savepoint", "stop"], to: str = "") -> str:
    """Write a request; returns its number."""
    number = uuid.uuid4().hex
    _write(folder / REQUEST, json.dumps(Request(what, to, number)._asdict()))
    return number


def take_request(folder: Path) -> Request | None:
    """Remove and return the request, if there is one. A damaged request is discarded."""
    with suppress(FileNotFoundError):
        text = (folder / REQUEST).read_text(encoding="utf-8", errors="replace")
        (folder / REQUEST).unlink()
        with suppress(ValueError, TypeError):
            return Request(**json.loads(text))
    return None


def write_answer(folder: Path, answer: Answer) -> None:
    _write(folder / ANSWER, json.dumps(answer._asdict()))


def read_answer(folder: Path, number: str) -> Answer | None:
    """The answer to a request; None until there is one."""
    with suppress(OSError, ValueError, TypeError):
        found = Answer(**json.loads((folder / ANSWER).read_text(encoding="utf-8")))
        return found if found.number == number else None
    return None


def clear_requests(folder: Path) -> None:
    """Remove requests and answers of an earlier run."""
    for name in (REQUEST, ANSWER):
        (folder / name).unlink(missing_ok=True)


def _write(path: Path, text: str) -> None:
    unfinished = path.with_name(f"{path.name}.{uuid.uuid4().hex[:8]}")
    unfinished.write_text(text, encoding="utf-8")
    unfinished.replace(path)


def request_stop(run: Status, state_folder: Path) -> None:
    """Request a stop after the current batch; the status shows when the run has ended. Raises OperationError."""
    if not run.is_here:
        raise OperationError(f"{run.name} runs on {run.host}: stop it there")
    if run.is_shared:  # a signal would stop the other pipelines, too
        write_request(run_folder(state_folder, run.name), "stop")
    else:
        _signal(run, signal.SIGTERM)


def kill_run(run: Status) -> None:
    """End the process at once; the next run continues after its last complete batch. Raises OperationError."""
    if run.is_shared:
        raise OperationError(f"process {run.pid} runs other pipelines, too: --kill would end them (kill -9 {run.pid})")
    _signal(run, signal.SIGKILL)


def _signal(run: Status, number: int) -> None:
    try:
        os.kill(run.pid, number)
    except ProcessLookupError:
        return
    except PermissionError:
        raise OperationError(f"{run.name} is run by another user (process {run.pid})") from None
