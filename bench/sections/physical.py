"""The limits of the machine, taken in every round while no broker runs."""

import shutil

from bench.broker_process import runs_folder
from bench.figures import Figures
from bench.loads import physical
from bench.options import Options
from bench.page_cache import PageCache
from bench.progress import Progress
from bench.worker import run_apart

FILE_BYTES = 512 << 20


def run(options: Options, page_cache: PageCache, progress: Progress) -> dict[str, Figures]:
    folder = runs_folder() / "physical"
    folder.mkdir(parents=True, exist_ok=True)
    path, copy = str(folder / "file"), str(folder / "copy")
    figures: dict[str, Figures] = {}

    def keep(name: str, measured: Figures) -> None:
        figures[name] = measured
        progress.tell(name, measured)

    try:
        page_cache.fill()
        keep("socket_to_file", run_apart(60, physical.socket_to_file, copy, options.seconds, options.write_bytes_max))
        run_apart(60, physical.write_file, path, FILE_BYTES)
        for streams in (1, 4):
            keep(f"sendfile_{streams}", run_apart(60, physical.sendfile, path, streams, None, options.seconds))
        for name, size in (("1m", 1 << 20), ("50m", 50 << 20)):
            keep(f"sendfile_answers_{name}", run_apart(60, physical.sendfile, path, 1, size, options.seconds))
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return figures
