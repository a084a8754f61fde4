"""Pipelines, from the state folder of their runs: list, one pipeline, plots, report, stop.

Rules:
1. The folder is on the console's machine and is set at the start, together with the cluster of the command line. Its
   pipelines are shown with that cluster only; pipelines of other clusters are hidden. Rights are checked by the name of
   the pipeline, as for topics.
2. This module does not depend on Spark. Damaged files and files of other versions are shown as unreadable.
3. Files that many callers read are parsed once for each version. A separate process draws reports, one at a time,
   because matplotlib needs more memory than the console.
"""

from __future__ import annotations

import asyncio
import os
import re
import sys
import tempfile
from collections.abc import Iterable
from functools import lru_cache
from pathlib import Path
from time import monotonic
from typing import TypeVar

import msgspec
from starlette.responses import Response

from ottla.client.addresses import Address, parse_bootstrap
from ottla.client.errors import ClientError
from ottla.console.api.call import Call
from ottla.console.api.errors import ApiError, bad_request, not_found
from ottla.console.clusters.cluster import Cluster
from ottla.operations.pipeline_runs.requests import request_stop
from ottla.operations.pipeline_runs.snapshots import Snapshot, downsample, total_of, total_rows
from ottla.operations.pipeline_runs.statuses import (
    PipelineTopics,
    Status,
    list_runs,
    read_points,
    read_status,
    run_folder,
)
from ottla.operations.public_addresses import literal_address, look_up

PIPELINES_MAX = 500
UNREADABLE = "unreadable"
Number = TypeVar("Number", int, float)


class StepRow(msgspec.Struct, frozen=True):
    """Rows of one step: came = kept + filtered + late + dead; `astray` is the difference."""

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
    """A query after its last batch; None: unknown."""

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
    """The last run of a pipeline; rates are None if it does not run, or has been idle for a while."""

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
    """`is_here` False: the folder belongs to another cluster of this console; `elsewhere`: the number of its pipelines
    that use other clusters.
    """

    pipelines: list[PipelineRow]
    is_here: bool
    elsewhere: int = 0


class NamedPlace(msgspec.Struct, frozen=True):
    """A topic or group and its use: reads, writes, dead letters, late rows, group; `is_here`: in this cluster."""

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
    """`places` is None if the run used an older version that does not report them."""

    pipeline: PipelineRow
    queries: list[QueryRow]
    at_ms: int
    places: PlacesRow | None = None


def list_pipelines(call: Call) -> PipelineList:
    if not _is_pipelines_cluster(call):
        return PipelineList([], is_here=False)
    seen = [status for status in list_runs(call.console.pipelines_folder) if call.sees(status.name)][:PIPELINES_MAX]
    here = [status for status in seen if belongs_to_cluster(status.places, call.cluster)]
    return PipelineList([_pipeline_answer(call, status).pipeline for status in here], True, len(seen) - len(here))


def show_pipeline(call: Call) -> PipelineAnswer:
    status = find_status(call)
    return msgspec.structs.replace(_pipeline_answer(call, status), places=_places_row(call, status))


async def stop_pipeline(call: Call) -> None:
    """Request a stop after the current batch; the state shows when it is done."""
    status = await asyncio.to_thread(find_status, call)
    call.audit(f"pipeline {status.name}", before={"state": status.state, "host": status.host, "process": status.pid})
    if not status.is_live:
        raise ApiError(409, "NOT_RUNNING", f"{status.name} is not running: its state is {status.state}")
    await asyncio.to_thread(request_stop, status, call.console.pipelines_folder)


def _is_pipelines_cluster(call: Call) -> bool:
    return call.parameters["cluster"] == call.console.pipelines_cluster


def find_status(call: Call) -> Status:
    """The last run of the pipeline in the path."""
    name = call.parameters["pipeline"]
    found = read_status(call.console.pipelines_folder, name) if _is_pipelines_cluster(call) else None
    if found is None or not belongs_to_cluster(found.places, call.cluster):
        raise not_found(f"there is no run of a pipeline {name}")
    return found


def _pipeline_answer(call: Call, status: Status) -> PipelineAnswer:
    now_ms = call.console.clock.now_ms()
    try:
        status = status._replace(queries=tuple(_without_old_rates(status, query, now_ms) for query in status.queries))
        queries = msgspec.convert([query.as_json() for query in status.queries], list[QueryRow])
        return PipelineAnswer(pipeline_row(status), [_with_imbalance(query) for query in queries], now_ms)
    except (msgspec.ValidationError, TypeError):
        return PipelineAnswer(PipelineRow(str(status.name), UNREADABLE), [], now_ms)


def _with_imbalance(query: QueryRow) -> QueryRow:
    """Compute `astray` of each step."""
    steps = [
        msgspec.structs.replace(step, astray=step.came - step.kept - step.filtered - step.late - step.dead)
        for step in query.steps
    ]
    return msgspec.structs.replace(query, steps=steps)


def _places_row(call: Call, status: Status) -> PlacesRow | None:
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
    return msgspec.convert(msgspec.to_builtins(row), PipelineRow)  # validates types that a damaged file may have


def _sum(values: Iterable[Number | None]) -> Number | None:
    known = [value for value in values if value is not None]
    return sum(known[1:], known[0]) if known else None


RESOLVE_CACHE_SECONDS = 60
_OTHER_CLUSTER = re.compile(r".* \((.*)\)", re.DOTALL)


def belongs_to_cluster(places: PipelineTopics | None, cluster: Cluster) -> bool:
    """Whether a pipeline belongs to a cluster, by the addresses of its run; blocking.

    A state folder has the runs of all pipelines of a machine, for any cluster. One broker may have several names
    (localhost, 127.0.0.1, its full name), so names with the same port are resolved. A run without addresses (of an
    older version, or without topics) may belong to any cluster.
    """
    addresses = _pipeline_addresses(places) if places is not None else []
    brokers = cluster.snapshot.brokers.values()
    known = {_normalized(each) for each in _parse_or_none(cluster.address.bootstrap)}
    known |= {_normalized(Address(each.host, each.port)) for each in brokers}
    if not addresses or known & {_normalized(each) for each in addresses}:
        return True
    return any(_is_same_host(each, other) for each in addresses for other in known if each.port == other.port)


def _pipeline_addresses(places: PipelineTopics) -> list[Address]:
    """The addresses of its cluster, and of other clusters that it reads or writes."""
    found = _parse_or_none(places.bootstrap)
    for text in places.elsewhere:
        servers = _OTHER_CLUSTER.fullmatch(text)
        found += _parse_or_none(servers[1]) if servers is not None else []
    return found


def _parse_or_none(bootstrap: str) -> list[Address]:
    try:
        return parse_bootstrap(bootstrap)
    except ClientError:
        return []


def _normalized(address: Address) -> Address:
    written = literal_address(address.host)
    host = address.host.lower() if written is None else "127.0.0.1" if written.is_loopback else str(written)
    return Address(host, address.port)


def _is_same_host(one: Address, other: Address) -> bool:
    minute = int(monotonic() // RESOLVE_CACHE_SECONDS)
    return not _resolve_cached(one.host, minute).isdisjoint(_resolve_cached(other.host, minute))


@lru_cache(maxsize=1_000)
def _resolve_cached(host: str, _minute: int) -> frozenset[str]:
    try:
        return frozenset(look_up(host, None))
    except (OSError, UnicodeError):
        return frozenset()


POINTS_MAX = 500  # per query: about the width of a plot
QUERIES_MAX = 50
CACHED_COURSES_MAX = 20  # courses
REPORT_SECONDS_MAX = 60
REPORTS = {"png": "image/png", "svg": "image/svg+xml", "html": "text/html; charset=utf-8"}
REPORT_MODULE = "ottla.operations.pipeline_runs.run_report"

Stamp = tuple[tuple[int, int], ...]


class Point(msgspec.Struct, frozen=True):
    """One batch of a query; None: unknown."""

    query: str
    at_ms: int
    batch_rows: int = 0
    rows_in_per_s: float | None = None
    rows_done_per_s: float | None = None
    batch_ms: int | None = None
    lag: int | None = None
    watermark_age_ms: int | None = None
    state_rows: int = 0
    state_bytes: int = 0


class QueryCourse(msgspec.Struct, frozen=True):
    """Columns of equal length, oldest batch first."""

    query: str
    at_ms: list[int]
    batch_rows: list[int]
    rows_in_per_s: list[float | None]
    rows_done_per_s: list[float | None]
    batch_ms: list[int | None]
    lag: list[int | None]
    watermark_age_ms: list[int | None]
    state_rows: list[int]
    state_bytes: list[int]


class Course(msgspec.Struct, frozen=True):
    """`batches`: the number of known batches; long runs are downsampled."""

    queries: list[QueryCourse]
    batches: int


class CourseCache:
    """A cache of courses by run folder, and the lock for drawing reports."""

    def __init__(self) -> None:
        self.cached: dict[Path, tuple[Stamp, Course]] = {}
        self.draw_lock = asyncio.Lock()

    def __repr__(self) -> str:
        return f"<CourseCache {len(self.cached)}>"

    def get(self, state_folder: Path, name: str) -> Course:
        folder = run_folder(state_folder, name)
        stamp = tuple(_file_stamp(folder / file) for file in ("progress.1.jsonl", "progress.jsonl"))
        kept = self.cached.get(folder)
        if kept is not None and kept[0] == stamp:
            return kept[1]
        course = read_course(state_folder, name)
        self.cached.pop(folder, None)
        while len(self.cached) >= CACHED_COURSES_MAX:
            self.cached.pop(next(iter(self.cached)), None)
        self.cached[folder] = stamp, course
        return course


def show_course(call: Call) -> Course:
    return call.console.course_cache.get(call.console.pipelines_folder, find_status(call).name)


def read_course(state_folder: Path, name: str) -> Course:
    """Damaged lines are skipped."""
    found: dict[str, list[Point]] = {}
    batches = 0
    for given in read_points(state_folder, name):
        try:
            point = msgspec.convert(given, Point)
        except msgspec.ValidationError:
            continue
        if point.query in found or len(found) < QUERIES_MAX:
            found.setdefault(point.query, []).append(point)
            batches += 1
    return Course([_columns(query, points) for query, points in found.items()], batches)


async def make_report(call: Call) -> Response:
    """A download: the content security policy forbids the inline images and styles of the HTML report."""
    name, form = (await asyncio.to_thread(find_status, call)).name, call.query("format", "png")
    if form not in REPORTS:
        raise bad_request(f"format must be one of {', '.join(REPORTS)}")
    if call.console.course_cache.draw_lock.locked():
        raise ApiError(429, "TOO_MANY", "another report is being created: try again in a moment", {"Retry-After": "2"})
    async with call.console.course_cache.draw_lock:
        data = await _draw_report(call.console.pipelines_folder, name, form)
    headers = {"Content-Disposition": f'attachment; filename="{name}.{form}"'}  # pipeline names need no quoting
    return Response(data, media_type=REPORTS[form], headers=headers)


async def _draw_report(state_folder: Path, name: str, form: str) -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        output = Path(folder) / f"report.{form}"
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            REPORT_MODULE,
            str(state_folder),
            name,
            str(output),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.PIPE,
        )
        try:
            _, stderr = await asyncio.wait_for(process.communicate(), REPORT_SECONDS_MAX)
        except TimeoutError:
            raise ApiError(504, "TOO_SLOW", f"the report was not ready within {REPORT_SECONDS_MAX} s") from None
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
        if process.returncode:
            raise ApiError(409, "NOT_POSSIBLE", _draw_problem(stderr.decode(errors="replace")))
        return await asyncio.to_thread(output.read_bytes)


def _draw_problem(stderr: str) -> str:
    if "matplotlib" in stderr:
        return "reports need matplotlib: pip install 'ottla[pipelines]'"
    lines = stderr.strip().splitlines()
    return lines[-1] if lines else "the report could not be created"


def _columns(query: str, points: list[Point]) -> QueryCourse:
    kept = downsample(points, POINTS_MAX)
    columns = {name: [getattr(point, name) for point in kept] for name in Point.__struct_fields__ if name != "query"}
    return QueryCourse(query, **columns)


def _file_stamp(path: Path) -> tuple[int, int]:
    try:
        found = os.stat(path)
    except OSError:
        return 0, 0
    return found.st_mtime_ns, found.st_size
