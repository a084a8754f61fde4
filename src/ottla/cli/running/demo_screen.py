"""What `ottla demo` shows: a picture of who does what and what was found; lines where there is no terminal."""

from __future__ import annotations

import json
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Protocol, Self

from ottla.cli.pipelines.screen import Trend, query_table
from ottla.cli.terminal import escape, is_terminal
from ottla.cli.top.screen import duration
from ottla.operations.pipeline_runs.snapshots import Snapshot, StepCount, read_snapshot
from ottla.pipelines.demo.findings import Findings, Panel, read_findings

if TYPE_CHECKING:
    from rich.console import RenderableType

LINE_SECONDS = 5.0
FINDINGS_SECONDS = 1.0
CLEANING = "clean"  # a stream of the demo's pipeline


@dataclass
class Scene:
    """All that is to be seen."""

    pipeline: Path
    tables: Path
    address: str = ""
    doing: str = "starting the broker"
    generator: str = ""
    snapshots: dict[str, Snapshot] = field(default_factory=dict)
    trends: dict[str, Trend] = field(default_factory=dict)
    findings: Findings = field(default_factory=Findings)
    is_over: bool = False  # the pipeline has ended, the broker has not
    started_s: float = field(default_factory=time.monotonic)
    looked_s: float = 0.0

    @property
    def seconds(self) -> float:
        return time.monotonic() - self.started_s

    def pipeline_said(self, line: str) -> None:
        """A line of `ottla pipeline run --json`; anything else is its last word."""
        try:
            told = json.loads(line)
            event = told["event"]
        except (ValueError, KeyError, TypeError):
            self.doing = line.strip() or self.doing
            return
        if event == "batch":
            now = read_snapshot(told)
            self.snapshots[now.query] = now
            self.trends.setdefault(now.query, Trend()).add(now)
            self.doing = "running"
        elif "text" in told:
            self.doing = str(told["text"])

    def look(self) -> None:
        """What the pipeline has written so far."""
        if self.snapshots and time.monotonic() - self.looked_s >= FINDINGS_SECONDS:
            self.looked_s = time.monotonic()
            self.findings = read_findings(self.tables)

    def account(self) -> str:
        """What became of the records, told by the query that does no more than clean them."""
        cleaning = self.snapshots.get(CLEANING)
        return account_line(cleaning.steps if cleaning else ())


class Screen(Protocol):
    def __enter__(self) -> Self: ...
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...

    def say(self, line: str) -> None: ...
    def draw(self, scene: Scene) -> None: ...
    def end(self, scene: Scene) -> None: ...


class LineScreen:
    """For pipes and log files."""

    def __init__(self) -> None:
        self.last_s = time.monotonic()
        self.last_line = ""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        return None

    def say(self, line: str) -> None:
        print(line, flush=True)

    def draw(self, scene: Scene) -> None:
        if scene.is_over or time.monotonic() - self.last_s < LINE_SECONDS:
            return
        self.last_s = time.monotonic()
        scene.look()
        line = text_line(scene)
        if line != self.last_line:
            self.last_line = line
            self.say(line)

    def end(self, scene: Scene) -> None:
        if scene.snapshots:
            scene.look()
            self.say(text_line(scene))


class LiveScreen(LineScreen):
    """A picture at the bottom of the terminal; what is said passes above it. No thread of its own draws it."""

    def __init__(self) -> None:
        from rich.live import Live  # noqa: PLC0415 (50 ms, and only for a terminal)

        super().__init__()
        self._live = Live(auto_refresh=False, transient=True, redirect_stdout=False, redirect_stderr=False)

    def __enter__(self) -> Self:
        self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._live.stop()

    def say(self, line: str) -> None:
        self._live.console.print(escape(line), markup=False, highlight=False)

    def draw(self, scene: Scene) -> None:
        scene.look()
        self._live.update(picture(scene) if not scene.is_over else "", refresh=True)

    def end(self, scene: Scene) -> None:
        if scene.snapshots:
            scene.look()
            self._live.console.print(picture(scene))


def make_screen() -> Screen:
    if is_terminal(sys.stdout):
        try:
            return LiveScreen()
        except ImportError:  # without rich: pip install 'ottla[cli]'
            return LineScreen()
    return LineScreen()


def account_line(steps: tuple[StepCount, ...]) -> str:
    """came = kept + filtered + late + dead, over the steps that all streams share."""
    if not steps:
        return ""
    filtered, late, dead = (sum(getattr(step, name) for step in steps) for name in ("filtered", "late", "dead"))
    gone = f"{filtered:,} duplicates + {late:,} late + {dead:,} dead"
    return f"{steps[0].came:,} records = {steps[-1].kept:,} kept + {gone}"


def text_line(scene: Scene) -> str:
    if not scene.snapshots:
        return f"{scene.doing} ({scene.seconds:.0f} s)"
    found = [
        f"{panel.title}: {', '.join(' '.join(row) for row in panel.rows[:3])}"
        for panel in scene.findings.panels
        if panel.rows
    ]
    return "; ".join([scene.account() or scene.doing, *found])


def picture(scene: Scene) -> RenderableType:
    from rich.columns import Columns  # noqa: PLC0415 (50 ms, and only for a terminal)
    from rich.console import Group  # noqa: PLC0415
    from rich.text import Text  # noqa: PLC0415

    head = f"site activity at {scene.address}, {duration(scene.seconds)}: {scene.doing}"
    parts: list[RenderableType] = [Text(""), Text(escape(head), "bold")]
    if scene.generator:
        parts.append(Text(f"visitors   {scene.generator}"))
    if scene.snapshots:
        parts += [
            Text(f"account    {scene.account()}"),
            Text(""),
            query_table(list(scene.snapshots.values()), scene.trends),
        ]
        parts += [Text(""), Columns([_panel(panel) for panel in scene.findings.panels], padding=(0, 3)), Text("")]
        parts.append(Text(f"pipeline   {scene.pipeline}", "dim"))
        parts.append(Text(f"tables     sqlite3 {scene.tables}", "dim"))
    parts.append(Text("Ctrl-C stops everything", "dim"))
    return Group(*parts)


def _panel(panel: Panel) -> RenderableType:
    from rich.table import Table  # noqa: PLC0415
    from rich.text import Text  # noqa: PLC0415

    table = Table(
        title=panel.title, title_justify="left", title_style="bold cyan", box=None, pad_edge=False, show_header=False
    )
    for place in range(panel.columns):
        table.add_column(justify="right" if place in panel.numbers else "left", no_wrap=True)
    for row in panel.rows:
        table.add_row(*(Text(escape(cell)) for cell in row))
    if not panel.rows:
        table.add_row(Text("nothing yet", "dim"), *[""] * (panel.columns - 1))
    return table
