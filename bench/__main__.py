"""Entry point of `python -m bench`."""

import shutil
import signal
import sys
from types import FrameType

from bench.broker_process import runs_folder
from bench.errors import BenchError
from bench.options import Options, read_options
from bench.paths import DOCS
from bench.report import terminal_table, write_report
from bench.results import Results
from bench.run import Run, results_path
from ottla.broker.startup import raise_file_limit


def main() -> int:
    try:
        options = read_options()
        if options.source:
            _report(Results.load(options.source), options)
            return 0
        return _measure(options)
    except BenchError as error:
        print(f"bench: {error}", file=sys.stderr)
        return 1


def _measure(options: Options) -> int:
    for number in (signal.SIGINT, signal.SIGTERM):  # SIGINT too: a shell may have started us with it ignored
        signal.signal(number, _interrupt)
    raise_file_limit()  # inherited: for the brokers, and for a thousand connections of our own
    run = Run(options)
    print(f"results go to {options.output}", flush=True)
    try:
        run.run()
    except KeyboardInterrupt:
        run.progress.finish()
        print("interrupted: this is what there is so far")
    finally:
        shutil.rmtree(runs_folder(), ignore_errors=True)
    if run.results.rounds:
        _report(run.results, options)
    return 0 if run.results.data["is_complete"] and not run.results.failures else 1


def _report(results: Results, options: Options) -> None:
    """The page is always written to the output folder, and after a complete run also to docs/."""
    print()
    print(terminal_table(results))
    print()
    pages = [(options.output / "performance.md", options.output / "images")]
    if results.is_publishable:
        pages.append((DOCS / "performance.md", DOCS / "images"))
    for page, images in pages:
        write_report(results, page, images)
        print(f"wrote {page}")
    if not options.source:
        print(f"raw figures: {results_path(options.output)}")


def _interrupt(_number: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt


if __name__ == "__main__":
    sys.exit(main())
