"""The course of a pipeline's run: numbers of its batches for plots, and the picture that `ottla pipeline report` draws.

Rules:
1. Files that many look at are read once for each change of them.
2. Drawing needs matplotlib, which takes more memory than the whole console: a process of its own draws, one at a time.
"""

from __future__ import annotations

import asyncio
import os
import sys
import tempfile
from pathlib import Path

import msgspec
from starlette.responses import Response

from ottla.console.api.call import Call
from ottla.console.api.errors import ApiError, bad_request
from ottla.console.api.pipelines import status_of
from ottla.operations.pipeline_runs.snapshots import thinned
from ottla.operations.pipeline_runs.statuses import read_points, run_folder

POINTS_MAX = 500  # of a query: a plot has not many more columns
QUERIES_MAX = 50
KEPT_MAX = 20  # courses
REPORT_SECONDS_MAX = 60
REPORTS = {"png": "image/png", "svg": "image/svg+xml", "html": "text/html; charset=utf-8"}
DRAWING = "ottla.operations.pipeline_runs.report"

Stamp = tuple[tuple[int, int], ...]


class Point(msgspec.Struct, frozen=True):
    """One batch of a query; None is what nobody knows."""

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
    """`batches`: of all that are known; long runs are thinned."""

    queries: list[QueryCourse]
    batches: int


class Courses:
    """What was read last, by folder."""

    def __init__(self) -> None:
        self.kept: dict[Path, tuple[Stamp, Course]] = {}
        self.drawing = asyncio.Lock()

    def __repr__(self) -> str:
        return f"<Courses {len(self.kept)}>"

    def of(self, state_folder: Path, name: str) -> Course:
        folder = run_folder(state_folder, name)
        stamp = tuple(_stamp(folder / file) for file in ("progress.1.jsonl", "progress.jsonl"))
        kept = self.kept.get(folder)
        if kept is not None and kept[0] == stamp:
            return kept[1]
        course = read_course(state_folder, name)
        self.kept.pop(folder, None)
        while len(self.kept) >= KEPT_MAX:
            self.kept.pop(next(iter(self.kept)), None)
        self.kept[folder] = stamp, course
        return course


def show_course(call: Call) -> Course:
    return call.console.courses.of(call.console.pipelines, status_of(call).name)


def read_course(state_folder: Path, name: str) -> Course:
    """What is damaged in the files is left out."""
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
    """As a file: a page of ours may not have pictures and styles inside, which the HTML report has."""
    name, form = (await asyncio.to_thread(status_of, call)).name, call.query("format", "png")
    if form not in REPORTS:
        raise bad_request(f"format is one of {', '.join(REPORTS)}")
    if call.console.courses.drawing.locked():
        raise ApiError(429, "TOO_MANY", "a report is being drawn: try again in a moment", {"Retry-After": "2"})
    async with call.console.courses.drawing:
        data = await _drawn(call.console.pipelines, name, form)
    headers = {"Content-Disposition": f'attachment; filename="{name}.{form}"'}  # names of pipelines need no quoting
    return Response(data, media_type=REPORTS[form], headers=headers)


async def _drawn(state_folder: Path, name: str, form: str) -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        output = Path(folder) / f"report.{form}"
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            DRAWING,
            str(state_folder),
            name,
            str(output),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.PIPE,
        )
        try:
            _, said = await asyncio.wait_for(process.communicate(), REPORT_SECONDS_MAX)
        except TimeoutError:
            raise ApiError(504, "TOO_SLOW", f"the report was not drawn within {REPORT_SECONDS_MAX} s") from None
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
        if process.returncode:
            raise ApiError(409, "NOT_POSSIBLE", _why(said.decode(errors="replace")))
        return await asyncio.to_thread(output.read_bytes)


def _why(said: str) -> str:
    if "matplotlib" in said:
        return "a report needs matplotlib: pip install 'ottla[pipelines]'"
    lines = said.strip().splitlines()
    return lines[-1] if lines else "the report could not be drawn"


def _columns(query: str, points: list[Point]) -> QueryCourse:
    kept = thinned(points, POINTS_MAX)
    columns = {name: [getattr(point, name) for point in kept] for name in Point.__struct_fields__ if name != "query"}
    return QueryCourse(query, **columns)


def _stamp(path: Path) -> tuple[int, int]:
    try:
        found = os.stat(path)
    except OSError:
        return 0, 0
    return found.st_mtime_ns, found.st_size
