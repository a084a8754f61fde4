"""`ottla demo`: runs a broker, generated web traffic and a pipeline that analyses it, in one terminal.

Rules:
1. The broker starts first and keeps running: without Spark, without a network to install it, and when the pipeline
   fails.
2. All data is in the data folder: the broker's in `broker`, as with `ottla up`; the pipeline, its checkpoints and its
   tables in `demo`. A second start resumes the first; `--fresh` restarts the analysis.
3. Ctrl-C stops the generator and the pipeline, then the broker.
"""

from __future__ import annotations

import argparse
import json
import shutil
import signal
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from importlib.metadata import requires
from importlib.resources import files
from importlib.util import find_spec
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Protocol, Self

from ottla.base.text import escape, escape_cell
from ottla.cli.arguments import Argument, Parser, flag, positive
from ottla.cli.commands.up import (
    DATA,
    PORT,
    READY,
    REGISTRY_ARGUMENTS,
    banner,
    broker_settings,
    check_port,
    metrics_address,
    metrics_settings,
    port_number,
    prepare_folder,
    start_sidecars,
)
from ottla.cli.pipelines.screen import Trend, query_table
from ottla.cli.processes.sidecars import CONSOLE_NAME as CONSOLE
from ottla.cli.processes.sidecars import REGISTRY_NAME as REGISTRY
from ottla.cli.processes.sidecars import make_console_sidecar, make_registry_sidecar
from ottla.cli.processes.supervisor import Child, Supervisor
from ottla.cli.processes.up_cluster import broker_command, secure_folder
from ottla.cli.reports.broker_screen import duration_text
from ottla.cli.terminal import EXIT_USAGE, ToolError, is_terminal
from ottla.operations.pipeline_runs.snapshots import Snapshot, StepCount, read_snapshot
from ottla.pipelines.demo.findings import Findings, Panel, read_findings

if TYPE_CHECKING:
    from rich.console import RenderableType

FOLDER = "demo"
PIPELINE = "site-activity.yaml"
TABLES = "site-activity.db"
STATE = "state"
RATE = 100
RESTARTS_MAX = 3
EXTRA = "pipelines"
NO_SPARK = f"No pipeline: Spark is not installed (pip install 'ottla[{EXTRA}]', or ottla demo --install)."
EXAMPLES = """
ottla demo
ottla demo --rate 500 --data /tmp/playground
ottla demo --fresh
"""


def run(arguments: Sequence[str]) -> int:
    options = _parser().parse_args(arguments)
    settings = metrics_settings() | broker_settings(options)
    prepare_folder(Path(options.data))
    secure_folder(Path(options.data), is_enabled=False)
    check_port(options.port)
    demo_folder = DemoFolder(Path(options.data) / FOLDER)
    demo_folder.prepare(is_fresh=options.fresh)
    with make_screen() as screen:
        return Demo(options, demo_folder, screen, settings).run()


def _parser() -> Parser:
    parser = Parser(
        prog="ottla demo",
        description="Run a broker, generated web traffic and a pipeline that analyses it. Ctrl-C stops everything.",
        examples=EXAMPLES,
        arguments=(
            Argument("--data", default=DATA, metavar="DIR", help=f"folder for all data (default: ./{DATA})"),
            Argument("--port", type=port_number, default=PORT, metavar="N", help=f"default: {PORT}; 0: any free one"),
            Argument("--rate", type=positive, default=RATE, metavar="N", help=f"events a second ({RATE})"),
            flag("--fresh", help="discard the results of the pipeline and start again"),
            flag("--install", help="install Spark from PyPI if it is missing (about 450 MB)"),
            flag("--no-console", help="without the web console"),
            Argument(
                "--console-port",
                type=port_number,
                metavar="N",
                help="of the web console (default: 8080, or a free one)",
            ),
            *REGISTRY_ARGUMENTS,
        ),
    )
    parser.set_defaults(no_auto_create=False, override=[])
    return parser


class DemoFolder:
    """The folder of the pipeline."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.pipeline = folder / PIPELINE
        self.tables = folder / TABLES
        self.state = folder / STATE
        self.note = ""  # a message for the user

    def __repr__(self) -> str:
        return f"<DemoFolder {self.folder}>"

    def prepare(self, is_fresh: bool) -> None:
        """Create the folder. An edited pipeline file is kept, because users are meant to experiment with it."""
        if is_fresh and self.folder.exists():
            shutil.rmtree(self.folder)
        self.folder.mkdir(exist_ok=True)
        original = files("ottla.pipelines.demo").joinpath(PIPELINE).read_bytes()
        if not self.pipeline.exists():
            self.pipeline.write_bytes(original)
        elif self.pipeline.read_bytes() != original:
            self.note = f"{self.pipeline} differs from the original: ottla demo --fresh replaces it"
        if self.state.exists():
            self.note = self.note or "resuming the last run (ottla demo --fresh starts again)"


class Demo:
    """Starts the parts of the demo in order and reports their state."""

    def __init__(
        self, options: argparse.Namespace, place: DemoFolder, screen: Screen, settings: dict[str, str]
    ) -> None:
        self.options = options
        self.place = place
        self.screen = screen
        self.scene = DemoState(place.pipeline, place.tables)
        broker = Child("broker", broker_command(settings))
        self.supervisor = Supervisor([broker], self.on_line, screen.say, on_tick=self.on_tick)
        self.metrics = metrics_address(settings)
        data, is_wanted = Path(options.data), not options.no_console
        port = options.console_port
        self.console = make_console_sidecar(data, port, screen.say, is_enabled=is_wanted, needs_sign_in=False)
        self.registry = make_registry_sidecar(options.registry_port, screen.say, is_enabled=not options.no_registry)
        self.generator: Child | None = None
        self.has_pipeline = False
        self.restarts = 0

    def __repr__(self) -> str:
        return f"<Demo {self.scene.address} has_pipeline={self.has_pipeline}>"

    def run(self) -> int:
        return self.supervisor.run()

    def on_line(self, child: Child, line: str) -> bool:
        if child.name == "broker":
            return self._read_broker_line(line)
        if child.name in (CONSOLE, REGISTRY):
            self.screen.say(line)
            return True
        if child.name == "generator":
            self.scene.generator = line
            if not self.has_pipeline:  # the generator has created its topic
                self._start_pipeline()
        elif child.name == "pipeline":
            self.scene.read_pipeline_line(line)
        else:
            self.scene.status = f"getting Spark, once: {line.strip()}"
        return True

    def on_tick(self) -> None:
        self.screen.draw(self.scene)

    def _read_broker_line(self, line: str) -> bool:
        ready = READY.fullmatch(line.strip())
        if ready is None:
            self.screen.say(line)
        elif not self.scene.address:
            self.scene.address = ready.group(2)
            self.screen.say(line.strip())
            console = self.console.link if self.console is not None else None
            registry = self.registry.address if self.registry is not None else None
            data = Path(self.options.data)
            text = banner(self.scene.address, data, self.metrics, console=console, registry=registry, is_coloured=False)
            self.screen.say(text)
            start_sidecars(self.supervisor, self.scene.address, self.console, self.registry)
            self._on_broker_ready()
        return ready is not None

    def _on_broker_ready(self) -> None:
        if is_spark_installed():
            self._start_generator()
        elif self.options.install:
            self.scene.status = "getting Spark, once (about 450 MB)"
            self.screen.say(self.scene.status)
            self.supervisor.start(Child("installation", install_command(), self._installed))
        else:
            self._abandon_pipeline(NO_SPARK)

    def _installed(self, code: int) -> None:
        if code == 0:
            self._start_generator()
        else:
            self._abandon_pipeline(f"No pipeline: Spark could not be installed. {self.scene.status}")

    def _start_generator(self) -> None:
        if self.place.note:
            self.screen.say(self.place.note)
        words = [sys.executable, "-m", "ottla.pipelines.demo.site", "--rate", str(self.options.rate)]
        self.scene.status = "starting the visitors"
        words += ["--bootstrap-server", self.scene.address]
        self.generator = Child("generator", words, self._generator_ended)
        self.supervisor.start(self.generator)

    def _start_pipeline(self) -> None:
        self.has_pipeline = True
        self.scene.snapshots.clear()
        self.scene.trends.clear()
        words = [sys.executable, "-m", "ottla.cli.main", "pipeline", "run", str(self.place.pipeline), "--json"]
        words += ["--bootstrap-server", self.scene.address, "--state", str(self.place.state)]
        if not any(self.place.state.glob("*/*/query-*")):  # topics may contain results of an earlier pipeline
            words.append("--fresh")
        self.scene.status = "starting Spark"
        self.supervisor.start(Child("pipeline", words, self._pipeline_ended))

    def _generator_ended(self, code: int) -> None:
        if code:
            self.screen.say(f"The visitors have left: {self.scene.generator}")

    def _pipeline_ended(self, code: int) -> None:
        """Restart a failed pipeline, which may succeed on a less busy machine; an invalid file never does."""
        if not code or self.supervisor.stop_signals:
            self.screen.end(self.scene)
        elif code == EXIT_USAGE or self.restarts == RESTARTS_MAX:
            self._abandon_pipeline(f"The pipeline ended: {self.scene.status} (ottla demo --fresh starts again)")
        else:
            self.restarts += 1
            self.screen.say(f"The pipeline ended: {self.scene.status}. Restarting it from its last state.")
            self._start_pipeline()

    def _abandon_pipeline(self, why: str) -> None:
        """Keep the broker running and stop the generator, whose data is no longer read."""
        self.scene.has_pipeline_ended = True
        self.scene.status = why
        self.screen.say(why)
        self.screen.say(f"The broker continues at {self.scene.address}. Ctrl-C stops it.")
        if self.generator is not None:
            self.generator.send(signal.SIGTERM)


def is_spark_installed() -> bool:
    return all(find_spec(name) is not None for name in ("pyspark", "yaml", "pyarrow"))


def install_command() -> list[str]:
    """The pip command that installs the requirements of the extra without changing ottla itself."""
    if find_spec("pip") is None:
        raise ToolError(f"this Python has no pip to install Spark: install 'ottla[{EXTRA}]' by other means")
    options = ["--disable-pip-version-check", "--progress-bar", "off"]
    return [sys.executable, "-m", "pip", "install", *options, *extra_requirements()]


def extra_requirements() -> list[str]:
    """The requirements of the pipelines extra in ottla's metadata."""
    found = []
    for line in requires("ottla") or ():
        requirement, _, marker = line.partition(";")
        if f'extra == "{EXTRA}"' in marker.replace("'", '"') and not requirement.startswith("ottla["):
            found.append(requirement.strip())
    return found


# ---- the screen
LINE_SECONDS = 5.0
FINDINGS_SECONDS = 1.0
CLEAN_STREAM = "clean"  # a stream of the demo's pipeline


@dataclass
class DemoState:
    """The state that is displayed."""

    pipeline: Path
    tables: Path
    address: str = ""
    status: str = "starting the broker"
    generator: str = ""
    snapshots: dict[str, Snapshot] = field(default_factory=dict)
    trends: dict[str, Trend] = field(default_factory=dict)
    findings: Findings = field(default_factory=Findings)
    has_pipeline_ended: bool = False  # the pipeline has ended; the broker still runs
    started_s: float = field(default_factory=time.monotonic)
    findings_read_s: float = 0.0

    @property
    def seconds(self) -> float:
        return time.monotonic() - self.started_s

    def read_pipeline_line(self, line: str) -> None:
        """Read a line of `ottla pipeline run --json`; any other line is an error message."""
        try:
            message = json.loads(line)
            event = message["event"]
        except (ValueError, KeyError, TypeError):
            self.status = line.strip() or self.status
            return
        if event == "batch":
            now = read_snapshot(message)
            self.snapshots[now.query] = now
            self.trends.setdefault(now.query, Trend()).add(now)
            self.status = "running"
        elif "text" in message:
            self.status = str(message["text"])

    def refresh_findings(self) -> None:
        """Read the pipeline's results."""
        if self.snapshots and time.monotonic() - self.findings_read_s >= FINDINGS_SECONDS:
            self.findings_read_s = time.monotonic()
            self.findings = read_findings(self.tables)

    def account_text(self) -> str:
        """The record counts of the query that only cleans records."""
        cleaning = self.snapshots.get(CLEAN_STREAM)
        return account_line(cleaning.steps if cleaning else ())


class Screen(Protocol):
    def __enter__(self) -> Self: ...
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...

    def say(self, line: str) -> None: ...
    def draw(self, scene: DemoState) -> None: ...
    def end(self, scene: DemoState) -> None: ...


class LineScreen:
    """Prints lines, for pipes and log files."""

    def __init__(self) -> None:
        self.last_s = time.monotonic()
        self.last_line = ""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        return None

    def say(self, line: str) -> None:
        print(line, flush=True)

    def draw(self, scene: DemoState) -> None:
        if scene.has_pipeline_ended or time.monotonic() - self.last_s < LINE_SECONDS:
            return
        self.last_s = time.monotonic()
        scene.refresh_findings()
        line = text_line(scene)
        if line != self.last_line:
            self.last_line = line
            self.say(line)

    def end(self, scene: DemoState) -> None:
        if scene.snapshots:
            scene.refresh_findings()
            self.say(text_line(scene))


class LiveScreen(LineScreen):
    """Draws a picture at the bottom of the terminal, without a thread; lines scroll above it."""

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

    def draw(self, scene: DemoState) -> None:
        scene.refresh_findings()
        self._live.update(render_screen(scene) if not scene.has_pipeline_ended else "", refresh=True)

    def end(self, scene: DemoState) -> None:
        if scene.snapshots:
            scene.refresh_findings()
            self._live.console.print(render_screen(scene))


def make_screen() -> Screen:
    if is_terminal(sys.stdout):
        try:
            return LiveScreen()
        except ImportError:  # without rich: pip install 'ottla[cli]'
            return LineScreen()
    return LineScreen()


def account_line(steps: tuple[StepCount, ...]) -> str:
    """Format came = kept + filtered + late + dead, over the steps that all streams share."""
    if not steps:
        return ""
    filtered, late, dead = (sum(getattr(step, name) for step in steps) for name in ("filtered", "late", "dead"))
    dropped = f"{filtered:,} duplicates + {late:,} late + {dead:,} dead"
    return f"{steps[0].came:,} records = {steps[-1].kept:,} kept + {dropped}"


def text_line(scene: DemoState) -> str:
    if not scene.snapshots:
        return f"{scene.status} ({scene.seconds:.0f} s)"
    found = [
        f"{panel.title}: {', '.join(' '.join(row) for row in panel.rows[:3])}"
        for panel in scene.findings.panels
        if panel.rows
    ]
    return "; ".join([scene.account_text() or scene.status, *found])


def render_screen(scene: DemoState) -> RenderableType:
    from rich.columns import Columns  # noqa: PLC0415 (50 ms, and only for a terminal)
    from rich.console import Group  # noqa: PLC0415
    from rich.text import Text  # noqa: PLC0415

    head = f"site activity at {scene.address}, {duration_text(scene.seconds)}: {scene.status}"
    parts: list[RenderableType] = [Text(""), Text(escape(head), "bold")]
    if scene.generator:
        parts.append(Text(f"visitors   {scene.generator}"))
    if scene.snapshots:
        parts += [
            Text(f"account    {scene.account_text()}"),
            Text(""),
            query_table(list(scene.snapshots.values()), scene.trends),
        ]
        parts += [
            Text(""),
            Columns([_findings_table(panel) for panel in scene.findings.panels], padding=(0, 3)),
            Text(""),
        ]
        parts.append(Text(f"pipeline   {scene.pipeline}", "dim"))
        parts.append(Text(f"tables     sqlite3 {scene.tables}", "dim"))
    parts.append(Text("Ctrl-C stops everything", "dim"))
    return Group(*parts)


def _findings_table(panel: Panel) -> RenderableType:
    from rich.table import Table  # noqa: PLC0415
    from rich.text import Text  # noqa: PLC0415

    table = Table(
        title=panel.title, title_justify="left", title_style="bold cyan", box=None, pad_edge=False, show_header=False
    )
    for index in range(panel.columns):
        table.add_column(justify="right" if index in panel.numbers else "left", no_wrap=True)
    for row in panel.rows:
        table.add_row(*(Text(escape_cell(cell)) for cell in row))
    if not panel.rows:
        table.add_row(Text("nothing yet", "dim"), *[""] * (panel.columns - 1))
    return table
