"""`ottla pipeline savepoint` and `savepoints`: saves the state of a pipeline, and lists savepoints.

For a stopped pipeline this process makes the copy while it holds the pipeline's lock. A running one is asked to make it
between two batches, and continues.
"""

from __future__ import annotations

import argparse
import json
import time
from datetime import UTC, datetime
from pathlib import Path

from ottla.cli.pipelines.files import file_of, known_run, load, state_of, tell
from ottla.cli.pipelines.runs import run_stop, wait_for
from ottla.cli.tables import print_table
from ottla.cli.terminal import ToolError, print_line
from ottla.operations.pipeline_runs import requests
from ottla.operations.pipeline_runs.progress_text import size
from ottla.operations.pipeline_runs.statuses import Status, list_runs, read_status, run_folder
from ottla.pipelines.model.problems import PipelineError
from ottla.pipelines.running.loading import Loaded
from ottla.pipelines.running.savepoint import Savepoint, default_target, list_savepoints, take_savepoint
from ottla.pipelines.running.status import AlreadyRunningError, RunFolder, new_status
from ottla.pipelines.sinks.batch import SinkError
from ottla.pipelines.source.data_loss import SourceError

COLUMNS = ("PIPELINE", "MADE", "SIZE", "AFTER BATCH", "SAVEPOINT")
NUMBERS = ("SIZE",)


def run_savepoint(options: argparse.Namespace) -> int:
    loaded: Loaded | None = None
    try:
        options.file = file_of(options)
        loaded = load(options)
        options.name = loaded.pipeline.name
        run = read_status(state_of(options), options.name)
        if run is not None and run.is_live and options.stop:
            run_stop(argparse.Namespace(**{**vars(options), "kill": False}))
            run = read_status(state_of(options), options.name)
        place = _target(options, loaded)
        text = _asked(options, run, place) if run is not None and run.is_live else _taken(options, loaded, place)
    except PipelineError as wrong:
        return tell(loaded.placed(wrong) if loaded else wrong)
    except (AlreadyRunningError, SinkError, SourceError) as problem:
        raise ToolError(str(problem)) from None
    print_line(text)
    return 0


def run_savepoints(options: argparse.Namespace) -> int:
    names = [options.name] if options.name else [run.name for run in list_runs(state_of(options))]
    found = [each for name in names for each in list_savepoints(_checkpoints(options), name)]
    if options.json:
        print(json.dumps([_as_json(each) for each in found]))
    elif found:
        print_table(COLUMNS, [_row(each) for each in found], NUMBERS)
    return 0


def _taken(options: argparse.Namespace, loaded: Loaded, place: Path) -> str:
    """Make the savepoint in this process, with the lock of the pipeline."""
    lock = RunFolder(state_of(options), new_status(loaded.pipeline.name, options.file, ""), options.checkpoint)
    lock.lock()
    try:
        made = take_savepoint(_checkpoints(options), loaded.pipeline, place)
    finally:
        lock.close()
    return f"{made.folder}: {len(made.files)} files, {size(made.size_bytes)}, {_standing(made)}"


def _asked(options: argparse.Namespace, run: Status, place: Path) -> str:
    """Request the savepoint from the running process."""
    if not run.is_here:
        raise ToolError(f"{run.name} runs on {run.host}: make the savepoint there")
    folder = run_folder(state_of(options), run.name)
    number = requests.write_request(folder, "savepoint", str(place))
    if not wait_for(
        lambda: requests.read_answer(folder, number) is not None or not known_run(options).is_live, options.timeout
    ):
        raise ToolError(f"{run.name} made no savepoint within {options.timeout} s: its batch takes longer (--timeout)")
    answer = requests.read_answer(folder, number)
    if answer is None or answer.problem:
        raise ToolError(
            answer.problem if answer else f"{run.name} has ended: {known_run(options).reason}; repeat the command"
        )
    return f"{answer.text}: made between two batches; {run.name} continues"


def _target(options: argparse.Namespace, loaded: Loaded) -> Path:
    if options.to:
        return Path(options.to).resolve()
    return default_target(_checkpoints(options), loaded.pipeline.name)


def _checkpoints(options: argparse.Namespace) -> str:
    return options.checkpoint or str(state_of(options).resolve())


def _standing(made: Savepoint) -> str:
    return ", ".join(f"{name} after batch {each.standing.committed}" for name, each in made.streams.items())


def _row(made: Savepoint) -> tuple[str, ...]:
    moment = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(made.made_ms / 1000))
    batches = ", ".join(f"{name} {each.standing.committed}" for name, each in made.streams.items())
    return made.pipeline, moment, size(made.size_bytes), batches, str(made.folder)


def _as_json(made: Savepoint) -> dict[str, object]:
    return {
        "folder": str(made.folder),
        "pipeline": made.pipeline,
        "made": datetime.fromtimestamp(made.made_ms / 1000, UTC).isoformat(timespec="milliseconds"),
        "size_bytes": made.size_bytes,
        "spark": made.spark,
        "streams": {
            name: {"committed": each.standing.committed, "sinks": [sink._asdict() for sink in each.sinks]}
            for name, each in made.streams.items()
        },
    }
