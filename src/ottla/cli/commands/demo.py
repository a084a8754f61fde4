"""`ottla demo`: a broker, made-up visitors of a web site and a pipeline that watches them, in one terminal.

Rules:
1. The broker comes first and stays: without Spark, without a network to get it, and when the pipeline fails.
2. Everything lies in the data folder: the broker's data in `broker`, as with `ottla up`; the pipeline, its checkpoints
   and its tables in `demo`. A second start goes on where the first ended; `--fresh` begins the analysis anew.
3. Ctrl-C stops the generator and the pipeline, then the broker.
"""

from __future__ import annotations

import argparse
import shutil
import signal
import sys
from collections.abc import Sequence
from importlib.metadata import requires
from importlib.resources import files
from importlib.util import find_spec
from pathlib import Path

from ottla.cli.arguments import Parser, positive
from ottla.cli.commands.up import (
    DATA,
    PORT,
    READY,
    add_registry,
    banner,
    begin_guests,
    broker_settings,
    check_port,
    metrics_address,
    metrics_settings,
    port_number,
    prepare_folder,
)
from ottla.cli.running.console_beside import NAME as CONSOLE
from ottla.cli.running.console_beside import console_beside
from ottla.cli.running.demo_screen import Scene, Screen, make_screen
from ottla.cli.running.registry_beside import NAME as REGISTRY
from ottla.cli.running.registry_beside import registry_beside
from ottla.cli.running.secure_up import secure_folder
from ottla.cli.running.supervisor import Child, Supervisor
from ottla.cli.running.up_cluster import broker_command
from ottla.cli.terminal import EXIT_USAGE, ToolError

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
    secure_folder(Path(options.data), is_wanted=False)
    check_port(options.port)
    place = Place(Path(options.data) / FOLDER)
    place.prepare(is_fresh=options.fresh)
    with make_screen() as screen:
        return Demo(options, place, screen, settings).run()


def _parser() -> Parser:
    parser = Parser(
        prog="ottla demo",
        description="Run a broker, visitors of a web site and a pipeline that watches them. Ctrl-C stops it all.",
        examples=EXAMPLES,
    )
    parser.add_argument("--data", default=DATA, metavar="DIR", help=f"folder for all data (default: ./{DATA})")
    parser.add_argument("--port", type=port_number, default=PORT, metavar="N", help=f"default: {PORT}; 0: any free one")
    parser.add_argument("--rate", type=positive, default=RATE, metavar="N", help=f"events a second ({RATE})")
    parser.add_argument("--fresh", action="store_true", help="begin anew: forget what the pipeline has found")
    parser.add_argument("--install", action="store_true", help="get Spark from PyPI if it is missing (about 450 MB)")
    parser.add_argument("--no-console", action="store_true", help="without the web console")
    parser.add_argument(
        "--console-port", type=port_number, metavar="N", help="of the web console (default: 8080, or a free one)"
    )
    add_registry(parser)
    parser.set_defaults(no_auto_create=False, override=[])
    return parser


class Place:
    """The folder of the pipeline."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.pipeline = folder / PIPELINE
        self.tables = folder / TABLES
        self.state = folder / STATE
        self.note = ""  # what a person should know about it

    def __repr__(self) -> str:
        return f"<Place {self.folder}>"

    def prepare(self, is_fresh: bool) -> None:
        """The pipeline's file is there to be played with: a changed one is used."""
        if is_fresh and self.folder.exists():
            shutil.rmtree(self.folder)
        self.folder.mkdir(exist_ok=True)
        original = files("ottla.pipelines.demo").joinpath(PIPELINE).read_bytes()
        if not self.pipeline.exists():
            self.pipeline.write_bytes(original)
        elif self.pipeline.read_bytes() != original:
            self.note = f"{self.pipeline} is not the one that came with ottla: ottla demo --fresh replaces it"
        if self.state.exists():
            self.note = self.note or "going on where the last run ended (ottla demo --fresh begins anew)"


class Demo:
    """Who is started when, and what is told about it."""

    def __init__(self, options: argparse.Namespace, place: Place, screen: Screen, settings: dict[str, str]) -> None:
        self.options = options
        self.place = place
        self.screen = screen
        self.scene = Scene(place.pipeline, place.tables)
        broker = Child("broker", broker_command(settings))
        self.supervisor = Supervisor([broker], self.on_line, screen.say, on_tick=self.on_tick)
        self.metrics = metrics_address(settings)
        data, is_wanted = Path(options.data), not options.no_console
        self.console = console_beside(data, options.console_port, screen.say, is_wanted=is_wanted)
        self.registry = registry_beside(options.registry_port, screen.say, is_wanted=not options.no_registry)
        self.generator: Child | None = None
        self.has_pipeline = False
        self.restarts = 0

    def __repr__(self) -> str:
        return f"<Demo {self.scene.address} has_pipeline={self.has_pipeline}>"

    def run(self) -> int:
        return self.supervisor.run()

    def on_line(self, child: Child, line: str) -> bool:
        if child.name == "broker":
            return self._broker_said(line)
        if child.name in (CONSOLE, REGISTRY):
            self.screen.say(line)
            return True
        if child.name == "generator":
            self.scene.generator = line
            if not self.has_pipeline:  # its topic is there now
                self._start_pipeline()
        elif child.name == "pipeline":
            self.scene.pipeline_said(line)
        else:
            self.scene.doing = f"getting Spark, once: {line.strip()}"
        return True

    def on_tick(self) -> None:
        self.screen.draw(self.scene)

    def _broker_said(self, line: str) -> bool:
        ready = READY.fullmatch(line.strip())
        if ready is None:
            self.screen.say(line)
        elif not self.scene.address:
            self.scene.address = ready.group(2)
            self.screen.say(line.strip())
            console = self.console.address if self.console is not None else None
            registry = self.registry.address if self.registry is not None else None
            data = Path(self.options.data)
            text = banner(self.scene.address, data, self.metrics, console=console, registry=registry, is_coloured=False)
            self.screen.say(text)
            begin_guests(self.supervisor, self.scene.address, self.console, self.registry)
            self._broker_is_up()
        return ready is not None

    def _broker_is_up(self) -> None:
        if is_spark_there():
            self._start_generator()
        elif self.options.install:
            self.scene.doing = "getting Spark, once (about 450 MB)"
            self.screen.say(self.scene.doing)
            self.supervisor.start(Child("installation", install_command(), self._installed))
        else:
            self._without_pipeline(NO_SPARK)

    def _installed(self, code: int) -> None:
        if code == 0:
            self._start_generator()
        else:
            self._without_pipeline(f"No pipeline: Spark could not be installed. {self.scene.doing}")

    def _start_generator(self) -> None:
        if self.place.note:
            self.screen.say(self.place.note)
        words = [sys.executable, "-m", "ottla.pipelines.demo.site", "--rate", str(self.options.rate)]
        self.scene.doing = "starting the visitors"
        words += ["--bootstrap-server", self.scene.address]
        self.generator = Child("generator", words, self._generator_ended)
        self.supervisor.start(self.generator)

    def _start_pipeline(self) -> None:
        self.has_pipeline = True
        self.scene.snapshots.clear()
        self.scene.trends.clear()
        words = [sys.executable, "-m", "ottla.cli.main", "pipeline", "run", str(self.place.pipeline), "--json"]
        words += ["--bootstrap-server", self.scene.address, "--state", str(self.place.state)]
        if not any(self.place.state.glob("*/*/query-*")):  # topics may hold what an earlier one has found
            words.append("--fresh")
        self.scene.doing = "starting Spark"
        self.supervisor.start(Child("pipeline", words, self._pipeline_ended))

    def _generator_ended(self, code: int) -> None:
        if code:
            self.screen.say(f"The visitors have left: {self.scene.generator}")

    def _pipeline_ended(self, code: int) -> None:
        """What failed may go well the next time, on a busy machine above all; a wrong file stays wrong."""
        if not code or self.supervisor.stops:
            self.screen.end(self.scene)
        elif code == EXIT_USAGE or self.restarts == RESTARTS_MAX:
            self._without_pipeline(f"The pipeline ended: {self.scene.doing} (ottla demo --fresh begins anew)")
        else:
            self.restarts += 1
            self.screen.say(f"The pipeline ended: {self.scene.doing}. Starting it again: it goes on where it was.")
            self._start_pipeline()

    def _without_pipeline(self, why: str) -> None:
        """The broker goes on; nobody would read what the visitors do."""
        self.scene.is_over = True
        self.scene.doing = why
        self.screen.say(why)
        self.screen.say(f"The broker goes on at {self.scene.address}. Ctrl-C stops it.")
        if self.generator is not None:
            self.generator.send(signal.SIGTERM)


def is_spark_there() -> bool:
    return all(find_spec(name) is not None for name in ("pyspark", "yaml", "pyarrow"))


def install_command() -> list[str]:
    """pip, with what the extra asks for: ottla itself stays as it is."""
    if find_spec("pip") is None:
        raise ToolError(f"this Python has no pip to get Spark with: install 'ottla[{EXTRA}]' your own way")
    options = ["--disable-pip-version-check", "--progress-bar", "off"]
    return [sys.executable, "-m", "pip", "install", *options, *extra_requirements()]


def extra_requirements() -> list[str]:
    """What ottla's own metadata lists for pipelines."""
    found = []
    for line in requires("ottla") or ():
        requirement, _, marker = line.partition(";")
        if f'extra == "{EXTRA}"' in marker.replace("'", '"') and not requirement.startswith("ottla["):
            found.append(requirement.strip())
    return found
