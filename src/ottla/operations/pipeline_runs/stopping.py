"""Ending a run of a pipeline from outside: it is asked to stop after its batch, or ended by force."""

from __future__ import annotations

import os
import signal
from pathlib import Path

from ottla.operations.errors import OperationError
from ottla.operations.pipeline_runs import requests
from ottla.operations.pipeline_runs.statuses import Status, run_folder


def ask_to_stop(run: Status, state_folder: Path) -> None:
    """It ends some time later, when its batch is done; its status tells. Raises OperationError."""
    if not run.is_here:
        raise OperationError(f"{run.name} runs on {run.host}: stop it there")
    if run.is_shared:  # a signal would end the others, too
        requests.ask(run_folder(state_folder, run.name), "stop")
    else:
        _signal(run, signal.SIGTERM)


def kill(run: Status) -> None:
    """At once; the next run goes on after its last whole batch. Raises OperationError."""
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
