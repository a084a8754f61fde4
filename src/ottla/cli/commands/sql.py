"""`ottla sql`: SQL over topics, at a prompt, from the command line, or from a file."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

from ottla.cli.arguments import Parser, add_connection
from ottla.cli.terminal import ToolError, UsageError

INSTALL = "SQL needs Spark: pip install 'ottla[pipelines]'"
NEEDS = ("pyspark", "yaml")
EXAMPLES = """
ottla sql                                                   a prompt
ottla sql -e 'SELECT count(*) FROM orders'                  one query over all that the topic holds
ottla sql -e 'SELECT * FROM orders EMIT CHANGES LIMIT 5'    the next five
ottla sql -f report.sql --json                              statements of a file, a JSON object a row
"""
SCRIPT_BYTES_MAX = 1 << 20


def run(arguments: Sequence[str]) -> int:
    options = _parser().parse_args(arguments)
    if any(find_spec(name) is None for name in NEEDS):
        raise ToolError(INSTALL)
    script = _script(options)
    from ottla.cli.pipelines.early import early_java, sql_session  # noqa: PLC0415

    with early_java(sql_session(options.master, None if script is None else script[0])):
        from ottla.cli.sql.running import run_script, run_shell  # noqa: PLC0415 (imports pyspark)

        return run_shell(options) if script is None else run_script(options, *script)


def _script(options: argparse.Namespace) -> tuple[str, str] | None:
    """The statements and the name of their source; None for an interactive session."""
    if options.execute is not None and options.file is not None:
        raise UsageError("-e and -f exclude each other")
    if options.execute is not None:
        return ";\n".join(options.execute), ""
    if options.file is not None:
        data = _read(options.file)
        name = options.file
    elif sys.stdin is not None and sys.stdin.isatty():
        return None
    else:
        data = sys.stdin.buffer.read(SCRIPT_BYTES_MAX + 1) if sys.stdin is not None else b""
        name = ""
    if len(data) > SCRIPT_BYTES_MAX:
        raise UsageError(f"{name or 'standard input'} is larger than {SCRIPT_BYTES_MAX >> 20} MiB: is it SQL?")
    try:
        return data.decode("utf-8-sig"), name
    except UnicodeError:
        raise UsageError(f"{name or 'standard input'} is not valid UTF-8") from None


def _read(path: str) -> bytes:
    try:
        with Path(path).open("rb") as file:
            return file.read(SCRIPT_BYTES_MAX + 1)
    except OSError as problem:
        raise UsageError(f"cannot read {path}: {(problem.strerror or str(problem)).lower()}") from None


def _parser() -> Parser:
    parser = Parser(prog="ottla sql", description="SQL over topics, on Spark.", examples=EXAMPLES)
    parser.add_argument(
        "-e", "--execute", action="append", metavar="SQL", help="run this statement and exit; may be repeated"
    )
    parser.add_argument(
        "-f", "--file", metavar="FILE", help="run the statements in FILE and exit (default: standard input)"
    )
    parser.add_argument("--json", action="store_true", help="one JSON object a row")
    parser.add_argument(
        "--from", dest="starting", metavar="WHERE", help="where EMIT CHANGES begins: latest (default), earliest, a time"
    )
    parser.add_argument("--master", metavar="M", help="local[*] (default), spark://…, k8s://…, yarn")
    parser.add_argument("--state", metavar="DIR", help="folder of pipelines' runs (~/.local/state/ottla/pipelines)")
    parser.add_argument(
        "--root", action="append", default=[], metavar="DIR", help="also allow reading and writing files below DIR"
    )
    add_connection(parser)
    return parser
