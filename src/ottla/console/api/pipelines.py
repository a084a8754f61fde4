"""Pipelines, from the state folder in which their runs leave word: how they do, row by row; and how to stop them.

Rules:
1. The folder is one of the console's machine and is told to the console at its start, like the cluster beside it: its
   pipelines are shown with that cluster only. Who may see or stop one is asked by its name, as for topics.
2. Nothing here knows Spark. Files that are damaged, or of another version, are shown as unreadable.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import TypeVar

import msgspec

from ottla.console.api.call import Call
from ottla.console.api.errors import ApiError, not_found
from ottla.operations.pipeline_runs.snapshots import Snapshot, total_of, total_rows
from ottla.operations.pipeline_runs.statuses import Status, list_runs, read_status
from ottla.operations.pipeline_runs.stopping import ask_to_stop

PIPELINES_MAX = 500
UNREADABLE = "unreadable"
Number = TypeVar("Number", int, float)


class StepRow(msgspec.Struct, frozen=True):
    """Rows of one step: came = kept + filtered + late + dead; `astray` is by how much it is not."""

    stream: str
    number: int
    step: str
    came: int
    kept: int
    filtered: int
    late: int
    dead: int
    made: int
    astray: int = 0


class QueryRow(msgspec.Struct, frozen=True):
    """A query after its last batch; None is what nobody knows."""

    query: str
    at_ms: int
    batch: int
    batches: int
    rows: int
    batch_rows: int
    rows_in_per_s: float | None
    rows_done_per_s: float | None
    batch_ms: int | None
    lag: int | None
    watermark_ms: int | None
    watermark_age_ms: int | None
    state_rows: int
    state_bytes: int
    late: int
    steps: list[StepRow]
    is_active: bool
    error: str | None
    unsent: int
    doing: str
    records: dict[str, int]


class PipelineRow(msgspec.Struct, frozen=True):
    """The last run of a pipeline; rates are None when it does not run, or has had nothing to do for a while."""

    name: str
    state: str
    reason: str = ""
    host: str = ""
    file: str = ""
    started_ms: int = 0
    updated_ms: int = 0
    restarts: int = 0
    last_failure: str = ""
    is_live: bool = False
    queries: int = 0
    rows: int = 0
    rows_in_per_s: float | None = None
    rows_done_per_s: float | None = None
    lag: int | None = None
    batch_ms: int | None = None
    watermark_ms: int | None = None
    state_rows: int = 0
    state_bytes: int = 0
    late: int = 0
    dead: int = 0


class PipelineList(msgspec.Struct, frozen=True):
    """`is_here` False: the folder belongs to another cluster of this console."""

    pipelines: list[PipelineRow]
    is_here: bool


class NamedPlace(msgspec.Struct, frozen=True):
    """A topic or group by what it is for: reads, writes, dead letters, late rows, group; `is_here`: in this cluster."""

    use: str
    name: str
    is_here: bool


class PlacesRow(msgspec.Struct, frozen=True):
    """What a pipeline reads and writes; `elsewhere` are topics of other clusters."""

    bootstrap: str
    named: list[NamedPlace]
    patterns: list[str]
    elsewhere: list[str]


class PipelineAnswer(msgspec.Struct, frozen=True):
    """`places` is None where the run was one of an older version, which did not tell."""

    pipeline: PipelineRow
    queries: list[QueryRow]
    at_ms: int
    places: PlacesRow | None = None


def list_pipelines(call: Call) -> PipelineList:
    if not _is_here(call):
        return PipelineList([], is_here=False)
    seen = [status for status in list_runs(call.console.pipelines) if call.sees(status.name)][:PIPELINES_MAX]
    return PipelineList([_answer(call, status).pipeline for status in seen], is_here=True)


def show_pipeline(call: Call) -> PipelineAnswer:
    status = status_of(call)
    return msgspec.structs.replace(_answer(call, status), places=_places(call, status))


async def stop_pipeline(call: Call) -> None:
    """It ends when its batch is done; its state tells."""
    status = await asyncio.to_thread(status_of, call)
    call.note(f"pipeline {status.name}", before={"state": status.state, "host": status.host, "process": status.pid})
    if not status.is_live:
        raise ApiError(409, "NOT_RUNNING", f"{status.name} does not run: it is {status.state}")
    await asyncio.to_thread(ask_to_stop, status, call.console.pipelines)


def _is_here(call: Call) -> bool:
    return call.parameters["cluster"] == call.console.pipelines_cluster


def status_of(call: Call) -> Status:
    """The last run of the pipeline in the path."""
    name = call.parameters["pipeline"]
    found = read_status(call.console.pipelines, name) if _is_here(call) else None
    if found is None:
        raise not_found(f"no run of a pipeline {name} is known")
    return found


def _answer(call: Call, status: Status) -> PipelineAnswer:
    now_ms = call.console.clock.now_ms()
    try:
        status = status._replace(queries=tuple(_without_old_rates(status, query, now_ms) for query in status.queries))
        queries = msgspec.convert([query.as_json() for query in status.queries], list[QueryRow])
        return PipelineAnswer(pipeline_row(status), [_reckoned(query) for query in queries], now_ms)
    except (msgspec.ValidationError, TypeError):
        return PipelineAnswer(PipelineRow(str(status.name), UNREADABLE), [], now_ms)


def _reckoned(query: QueryRow) -> QueryRow:
    """With what does not add up told as such."""
    steps = [
        msgspec.structs.replace(step, astray=step.came - step.kept - step.filtered - step.late - step.dead)
        for step in query.steps
    ]
    return msgspec.structs.replace(query, steps=steps)


def _places(call: Call, status: Status) -> PlacesRow | None:
    places = status.places
    if places is None:
        return None
    topics = [("reads", name) for name in places.reads] + [("writes", name) for name in places.writes]
    topics += [("dead letters", places.dead_letters), ("late rows", places.late_rows)]
    named = [NamedPlace(use, name, name in call.snapshot.topics and call.sees(name)) for use, name in topics if name]
    named += [NamedPlace("group", name, name in call.snapshot.groups and call.sees(name)) for name in places.groups]
    return PlacesRow(places.bootstrap, named, list(places.patterns), list(places.elsewhere))


def _without_old_rates(status: Status, query: Snapshot, now_ms: int) -> Snapshot:
    if status.is_live and not query.is_idle(now_ms):
        return query
    return query._replace(rows_in_per_s=None, rows_done_per_s=None)


def pipeline_row(status: Status) -> PipelineRow:
    queries = status.queries
    steps = [step for query in queries for step in query.steps]
    row = PipelineRow(
        name=status.name,
        state=status.state,
        reason=status.reason,
        host=status.host,
        file=status.file,
        started_ms=status.started_ms,
        updated_ms=status.updated_ms,
        restarts=status.restarts,
        last_failure=status.last_failure,
        is_live=status.is_live,
        queries=len(queries),
        rows=total_rows(queries),
        rows_in_per_s=_sum(query.rows_in_per_s for query in queries),
        rows_done_per_s=_sum(query.rows_done_per_s for query in queries),
        lag=_sum(query.lag for query in queries),
        batch_ms=max((query.batch_ms for query in queries if query.batch_ms is not None), default=None),
        watermark_ms=min((query.watermark_ms for query in queries if query.watermark_ms is not None), default=None),
        state_rows=sum(query.state_rows for query in queries),
        state_bytes=sum(query.state_bytes for query in queries),
        late=total_of(steps, "late"),
        dead=total_of(steps, "dead"),
    )
    return msgspec.convert(msgspec.to_builtins(row), PipelineRow)  # what a damaged file says is of the right types


def _sum(values: Iterable[Number | None]) -> Number | None:
    known = [value for value in values if value is not None]
    return sum(known[1:], known[0]) if known else None
