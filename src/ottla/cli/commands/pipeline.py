"""`ottla pipeline`: checks, tests, runs and stops data pipelines on Spark.

Spark is required only by sub-commands that use it.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from importlib import import_module
from importlib.util import find_spec

from ottla.cli.arguments import Parser, add_connection, positive
from ottla.cli.terminal import ToolError

INSTALL = "pipelines need Spark: pip install 'ottla[pipelines]'"
NEEDS = ("pyspark", "yaml")
EXAMPLES = """
ottla pipeline init views.yaml              write an example
ottla pipeline check views.yaml             check it without running it
ottla pipeline test views.yaml              run the cases of views.test.yaml, without a broker
ottla pipeline run views.yaml               run it, and watch
ottla pipeline run views.yaml --once        process the existing records, then end
ottla pipeline list                         list running pipelines and last runs
ottla pipeline report page-views -o run.png a chart of the last run
ottla pipeline savepoint page-views         save its state, to resume from it
ottla pipeline reset page-views --sinks     delete its state and its output
ottla pipeline steps                        list steps, sources and sinks
"""
MODULES = {
    "run": "ottla.cli.pipelines.run",
    "check": "ottla.cli.pipelines.check",
    "test": "ottla.cli.pipelines.trials",
    "graph": "ottla.cli.pipelines.graph",
    "infer": "ottla.cli.pipelines.infer",
    "preview": "ottla.cli.pipelines.preview",
    "list": "ottla.cli.pipelines.runs",
    "status": "ottla.cli.pipelines.runs",
    "stop": "ottla.cli.pipelines.runs",
    "report": "ottla.cli.pipelines.runs",
    "reset": "ottla.cli.pipelines.reset",
    "savepoint": "ottla.cli.pipelines.savepoints",
    "savepoints": "ottla.cli.pipelines.savepoints",
    "steps": "ottla.cli.pipelines.help",
    "init": "ottla.cli.pipelines.help",
}
EARLY = ("run", "preview", "test")  # they start Spark for every valid file
WITHOUT_SPARK = ("list", "status", "stop", "report", "init")


def run(arguments: Sequence[str]) -> int:
    options = parser().parse_args(arguments)
    if options.command not in WITHOUT_SPARK and any(find_spec(name) is None for name in NEEDS):
        raise ToolError(INSTALL)
    with _early_java(options) if options.command in EARLY else nullcontext():
        module = import_module(MODULES[options.command])
        code: int = getattr(module, f"run_{options.command}")(options)
    return code


def _early_java(options: argparse.Namespace) -> AbstractContextManager[None]:
    from ottla.cli.pipelines.early import early_java, likely_session  # noqa: PLC0415 (only for commands that start Spark)

    return early_java(likely_session(options))


def parser() -> Parser:
    parser = Parser(
        prog="ottla pipeline", description="From a topic through steps to a topic, a table or files.", examples=EXAMPLES
    )
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND", parser_class=Parser)
    _add_run(commands.add_parser("run", help="run a pipeline and show how it does"))
    _add_check(commands.add_parser("check", help="check a pipeline without running it"))
    _add_test(commands.add_parser("test", help="test a pipeline with given records; no broker is needed"))
    _add_infer(commands.add_parser("infer", help="a parse step from samples of a topic"))
    _add_preview(commands.add_parser("preview", help="the first rows after each step; nothing is written"))
    graph = commands.add_parser("graph", help="topics, steps and sinks as a picture")
    _add_source(graph)
    graph.add_argument("-o", "--output", metavar="FILE", help="SVG, DOT or Mermaid file: .svg, .dot, .mmd (Mermaid)")
    _add_runs(commands)
    _add_reset(commands.add_parser("reset", help="delete the state of earlier runs, so that the next one starts again"))
    _add_savepoints(commands)
    steps = commands.add_parser("steps", help="list steps, sources and sinks with their fields")
    steps.add_argument("name", nargs="?", metavar="STEP", help="show this one with all its fields")
    init = commands.add_parser("init", help="write a commented example")
    init.add_argument("file", nargs="?", default="pipeline.yaml", metavar="FILE", help="YAML or .py (pipeline.yaml)")
    init.add_argument("--force", action="store_true", help="replace a file that exists")
    return parser


def _add_source(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", metavar="FILE", help="the pipeline: YAML, or Python (.py)")
    _add_fields(parser)


def _add_fields(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--set", action="append", default=[], metavar="KEY=VALUE", help="change a field: every='5 seconds', spark.…=…"
    )
    parser.add_argument("--env", metavar="NAME", help="with the changes that FILE has for this environment")
    parser.add_argument(
        "--root", action="append", default=[], metavar="DIR", help="also allow reading and writing files below DIR"
    )
    parser.set_defaults(bootstrap_server=None)


def _add_changes(parser: argparse.ArgumentParser) -> None:
    _add_fields(parser)
    parser.add_argument("--bootstrap-server", metavar="HOST:PORT", help="brokers, overriding FILE")


def _add_file(parser: argparse.ArgumentParser, *, several: bool = False) -> None:
    if several:
        words = "the pipeline: YAML, or Python (.py); several share one Spark session"
        parser.add_argument("files", nargs="+", metavar="FILE", help=words)
    else:
        parser.add_argument("file", metavar="FILE", help="the pipeline: YAML, or Python (.py)")
    _add_changes(parser)
    parser.add_argument("--connector", choices=("ottla", "jvm"), help="how topics are read, overriding FILE")
    parser.add_argument("--master", metavar="M", help="local[*] (default), spark://…, sc://…, k8s://…, yarn")


def _add_run(parser: argparse.ArgumentParser) -> None:
    _add_file(parser, several=True)
    parser.add_argument(
        "--from",
        dest="starting",
        metavar="WHERE",
        help="beginning, latest or a time; with --once as a single batch",
    )
    parser.add_argument("--once", action="store_true", help="end after all existing records are processed")
    _add_checkpoint(parser)
    parser.add_argument("--fresh", action="store_true", help="move the checkpoints away and start again")
    parser.add_argument("--from-savepoint", metavar="DIR", help="resume from this savepoint")
    parser.add_argument(
        "--truncate-sinks", action="store_true", help="remove rows that folders received since the savepoint"
    )
    parser.add_argument("--repeat", action="store_true", help="at least once: rows since the savepoint may repeat")
    parser.add_argument(
        "--restart",
        choices=("never", "on-failure", "always"),
        help="restart after a failure, with exponential backoff, overriding FILE (never)",
    )
    parser.add_argument("--json", action="store_true", help="one JSON object a line")
    parser.add_argument("--metrics-port", type=positive, metavar="N", help="metrics for Prometheus on 127.0.0.1:N")
    _add_state(parser)


def _add_check(parser: argparse.ArgumentParser) -> None:
    _add_file(parser)
    parser.add_argument("--offline", action="store_true", help="do not ask brokers whether the topics exist")
    parser.add_argument("--spark", action="store_true", help="also plan it with Spark: all columns and conditions")
    parser.add_argument("--no-spark", action="store_true", help=argparse.SUPPRESS)  # the default


def _add_test(parser: argparse.ArgumentParser) -> None:
    _add_source(parser)
    parser.add_argument(
        "cases", nargs="*", metavar="CASE", help="names of cases, or other files with cases (all of FILE's *.test.yaml)"
    )
    parser.add_argument("--json", action="store_true", help="one JSON object a line: a case, at last the sum")


def _add_infer(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("topic", metavar="TOPIC")
    add_connection(parser)
    parser.add_argument("--samples", type=positive, default=1000, metavar="N", help="number of sample records (1000)")
    parser.add_argument("--format", choices=("json", "csv", "text"), help="record format (detected)")
    parser.add_argument("--json", action="store_true", help="as JSON")


def _add_preview(parser: argparse.ArgumentParser) -> None:
    _add_file(parser)
    parser.add_argument("--rows", type=positive, default=5, metavar="N", help="rows to show after each step (5)")
    parser.add_argument("--records", type=positive, default=1000, metavar="N", help="records to read at most (1000)")
    parser.add_argument("--from", dest="starting", metavar="WHERE", help="beginning, latest or a time")
    parser.add_argument("--json", action="store_true", help="one JSON object a step")


def _add_runs(commands: argparse._SubParsersAction[Parser]) -> None:
    listing = commands.add_parser("list", help="the pipelines of this machine and their last run")
    status = commands.add_parser("status", help="the state of a pipeline, or the end of its last run")
    stop = commands.add_parser("stop", help="stop after the current batch")
    report = commands.add_parser("report", help="a picture of the last run")
    for parser in (status, stop, report):
        parser.add_argument("name", metavar="PIPELINE")
    for parser in (listing, status, stop, report):
        _add_state(parser)
    for parser in (listing, status):
        parser.add_argument("--json", action="store_true", help="as JSON")
    stop.add_argument("--timeout", type=positive, default=60, metavar="S", help="seconds to wait for the end (60)")
    stop.add_argument("--kill", action="store_true", help="kill it after the timeout; nothing is lost")
    report.add_argument("-o", "--output", metavar="FILE", help="PNG, SVG or HTML file (PIPELINE.png)")


def _add_reset(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", metavar="PIPELINE", help="its name, or its file")
    parser.add_argument("--sinks", action="store_true", help="also delete its output and the state of sinks")
    parser.add_argument("--dry-run", action="store_true", help="print the actions without executing them")
    parser.add_argument("--yes", "-y", action="store_true", help="skip the confirmation")
    _add_changes(parser)
    _add_checkpoint(parser)
    _add_state(parser)


def _add_savepoints(commands: argparse._SubParsersAction[Parser]) -> None:
    take = commands.add_parser("savepoint", help="save the state of a pipeline, to resume from it")
    take.add_argument("name", metavar="PIPELINE", help="its name, or its file")
    take.add_argument("--to", metavar="DIR", help="folder to create (one below the state folder)")
    take.add_argument("--stop", action="store_true", help="stop the pipeline first")
    take.add_argument("--timeout", type=positive, default=120, metavar="S", help="seconds to wait for its batch (120)")
    _add_changes(take)
    listing = commands.add_parser("savepoints", help="list savepoints")
    listing.add_argument("name", nargs="?", metavar="PIPELINE", help="only of this one")
    listing.add_argument("--json", action="store_true", help="as JSON")
    for parser in (take, listing):
        _add_checkpoint(parser)
        _add_state(parser)


def _add_checkpoint(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--checkpoint", metavar="PLACE", help="folder or address for checkpoints (the state folder)")


def _add_state(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--state", metavar="DIR", help="folder of runs (~/.local/state/ottla/pipelines)")
