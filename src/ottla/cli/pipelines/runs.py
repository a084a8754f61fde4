"""`ottla pipeline list`, `status`, `stop`, `report`: runs of pipelines, from another terminal or afterwards."""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from pathlib import Path

from ottla.cli.pipelines.files import known_run, state_of
from ottla.cli.reports.broker_screen import duration_text
from ottla.cli.tables import print_table
from ottla.cli.terminal import ToolError, UsageError, print_line
from ottla.operations.pipeline_runs.progress_text import (
    batch_line,
    cost_line,
    count,
    end_line,
    growth_line,
    step_table,
    waiting_text,
)
from ottla.operations.pipeline_runs.requests import kill_run, request_stop
from ottla.operations.pipeline_runs.snapshots import total_rows
from ottla.operations.pipeline_runs.statuses import Status, list_runs, now_ms, read_points

COLUMNS = ("PIPELINE", "STATE", "PID", "SINCE", "ROWS", "LAG", "REASON")
NUMBERS = ("PID", "ROWS", "LAG")
WAIT_SECONDS = 0.1
PICTURES = (".png", ".svg", ".html")


def run_list(options: argparse.Namespace) -> int:
    runs = list_runs(state_of(options))
    if options.json:
        print(json.dumps([run.as_json() for run in runs]))
    elif runs:
        print_table(COLUMNS, [_row(run) for run in runs], NUMBERS)
    return 0


def run_status(options: argparse.Namespace) -> int:
    """Exit code 1 for a pipeline that failed or was killed."""
    run = known_run(options)
    if options.json:
        print(json.dumps(run.as_json()))
    else:
        for line in status_lines(run):
            print_line(line)
    return 1 if run.state in ("failed", "killed") else 0


def run_stop(options: argparse.Namespace) -> int:
    run = known_run(options)
    if not run.is_live:
        print_line(f"{run.name} does not run: {run.state}, {run.reason}")
        return 0
    request_stop(run, state_of(options))
    if wait_for(lambda: not known_run(options).is_live, options.timeout):
        ended = known_run(options)
        print_line(f"{run.name} is {ended.state}: {end_line(ended.queries)}")
        return 0
    if not options.kill:
        raise ToolError(f"{run.name} is still running after {options.timeout} s: wait, or kill it with --kill")
    kill_run(run)
    if not wait_for(lambda: not known_run(options).is_live, options.timeout):
        raise ToolError(f"process {run.pid} does not end")
    print_line(f"{run.name} was killed; the next run resumes after its last whole batch")
    return 0


def run_report(options: argparse.Namespace) -> int:
    run = known_run(options)
    output = Path(options.output or f"{run.name}.png")
    if output.suffix not in PICTURES:
        raise UsageError(f"{output}: the name must end in one of {', '.join(PICTURES)}")
    points = read_points(state_of(options), run.name)
    if not points:
        raise ToolError(f"{run.name} has completed no batch: there is nothing to draw")
    try:
        from ottla.operations.pipeline_runs.run_report import write_report  # noqa: PLC0415 (half a second)
    except ModuleNotFoundError:
        raise ToolError("a report needs matplotlib: pip install 'ottla[pipelines]'") from None
    write_report(run, points, output)
    print_line(f"{output}: {len(points)} batches of {run.name}")
    return 0


def status_lines(run: Status) -> list[str]:
    """The state of a run, each query's last batch, and the table of its steps."""
    lines = [f"{run.name}: {run.state} for {_since(run)}{', ' if run.reason else ''}{run.reason}"]
    lines += [f"  {'process':9}{run.pid} on {run.host}, master {run.master}", f"  {'file':9}{run.file}"]
    if run.metrics_port and run.is_live:
        lines.append(f"  {'metrics':9}http://127.0.0.1:{run.metrics_port}/metrics")
    if run.restarts:
        lines.append(f"  {'restarts':9}{run.restarts}, the last because of: {run.last_failure}")
    if run.cost is not None:
        lines.append(f"  {'cost':9}{cost_line(run.cost)}{', shared with others' if run.is_shared else ''}")
    for query in run.queries:
        lines.append(f"  {batch_line(query)}" if query.batches else f"  {query.query}: no batch yet")
        lines += [f"  {query.query}: {query.error}"] if query.error else []
        grown = growth_line(query)
        lines += [f"  {query.query}: {grown}"] if grown else []
        waits = waiting_text(query)
        lines += [f"  {query.query}: {waits}"] if waits and run.is_live else []
    return [*lines, "", *(f"  {line}" for line in step_table(run.queries))] if step_table(run.queries) else lines


def _row(run: Status) -> tuple[str, ...]:
    rows = total_rows(run.queries)
    lags = [query.lag for query in run.queries if query.lag is not None]
    pid = str(run.pid) if run.is_live else ""
    return (run.name, run.state, pid, _since(run), f"{rows}", count(sum(lags)) if lags else "", run.reason)


def _since(run: Status) -> str:
    """The duration of a run, until now or until its end."""
    return duration_text((now_ms() - (run.started_ms if run.is_live else run.updated_ms)) / 1000)


def wait_for(is_done: Callable[[], bool], seconds: int) -> bool:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if is_done():
            return True
        time.sleep(WAIT_SECONDS)
    return is_done()
