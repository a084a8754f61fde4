"""CREATE PIPELINE: writes the file for `ottla pipeline run` and starts a process that runs it."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import yaml

from ottla.cli.sql.problems import StatementError
from ottla.cli.terminal import EXIT_FAILED, EXIT_USAGE
from ottla.operations.pipeline_runs.statuses import read_status

START_SECONDS_MAX = 120.0
POLL_S = 0.2
HEADER = "# Written by `ottla sql`. Run it again: ottla pipeline run {file}\n"


def write_pipeline(document: dict[str, object], state: Path, or_replace: bool) -> Path:
    """Write the file. Raises StatementError."""
    name = str(document["name"])
    file = Path(f"{name}.yaml")
    run = read_status(state, name)
    if run is not None and run.is_live:
        raise StatementError(
            f"the pipeline {name} is already running (process {run.pid}): ottla pipeline stop {name}", code=EXIT_FAILED
        )
    if file.exists() and not or_replace:
        cure = f"write CREATE OR REPLACE PIPELINE, or run it with ottla pipeline run {file}"
        raise StatementError(f"{file} exists: {cure}")
    if isinstance(client := document.get("client"), Mapping):  # unchanged: passwords may look like variables
        document = {**document, "client": {key: str(value).replace("${", "$${") for key, value in client.items()}}
    text = HEADER.format(file=file) + yaml.safe_dump(document, sort_keys=False, allow_unicode=True, width=120)
    file.unlink(missing_ok=True)
    mode = 0o600 if document.get("client") else 0o644  # connection properties may contain a password
    with open(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "w", encoding="utf-8") as written:
        written.write(text)
    return file


def start_pipeline(file: Path, name: str, state: Path, roots: Sequence[str] = ()) -> str:
    """Run the statement; returns a sentence about the result. Raises StatementError."""
    state.mkdir(parents=True, exist_ok=True)
    log = state / f"{name}.log"
    allowed = [word for root in roots for word in ("--root", root)]
    with open(log, "wb") as said:
        process = subprocess.Popen(  # noqa: S603 (ottla itself, with the written file)
            [sys.executable, "-m", "ottla.cli.main", "pipeline", "run", str(file), "--state", str(state), *allowed],
            stdin=subprocess.DEVNULL,
            stdout=said,
            stderr=subprocess.STDOUT,
            start_new_session=True,  # Ctrl-C at the prompt must not reach it
            env=os.environ,
        )
    _wait_until_running(process, state, name, log)
    return f"{name} runs (process {process.pid}) from {file}: ottla pipeline status {name}, ottla pipeline stop {name}"


def _wait_until_running(process: subprocess.Popen[bytes], state: Path, name: str, log: Path) -> None:
    deadline = time.monotonic() + START_SECONDS_MAX
    while time.monotonic() < deadline:
        if process.poll() is not None:
            lines = log.read_text(errors="replace").strip().splitlines() or ["without a message"]
            code = EXIT_USAGE if process.returncode == EXIT_USAGE else EXIT_FAILED
            raise StatementError(f"the pipeline {name} ended immediately: {lines[-1]}", code=code)
        run = read_status(state, name)
        if run is not None and run.pid == process.pid and run.state == "running":
            return
        time.sleep(POLL_S)
    process.terminate()
    words = f"the pipeline {name} did not start within {START_SECONDS_MAX:.0f} s; its output is in {log}"
    raise StatementError(words, code=EXIT_FAILED)
