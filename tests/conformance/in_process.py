"""A tool without a process of its own: for the many cases in which it only reads words or files and prints text."""

import io
from contextlib import redirect_stderr, redirect_stdout

from tests.conformance.test_tools import Result

from ottla.cli.kafka_scripts import run_script
from ottla.cli.main import main


def run_here(name: str, *arguments: str) -> Result:
    out, err = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(err):
        try:
            code = main(arguments) if name == "ottla" else run_script(name, arguments)
        except SystemExit as end:
            code = int(end.code or 0)
    return Result(code, out.getvalue().encode("utf-8", "replace"), err.getvalue().encode("utf-8", "replace"))
