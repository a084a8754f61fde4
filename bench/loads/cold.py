"""A reader of old data outside of the page cache, beside which a writer is measured."""

import time
from collections.abc import Callable
from pathlib import Path

from bench.figures import Figures
from bench.loads.fetch import Reader
from bench.page_cache import evict, load
from bench.procfs import disk_read_bytes
from bench.raw_client import Target

FETCH_BYTES = 1 << 20


def read(
    say_ready: Callable[[], None],
    target: Target,
    topic: str,
    batch_bytes: int,
    folder: str,
    is_cold: bool,
    mb_per_s_max: float,
    seconds: float,
) -> Figures:
    """Read partition 0 in a loop at a rate of at most `mb_per_s_max`; evicted from the cache before each pass."""
    files = sorted(Path(folder).rglob(f"{topic}-0/*.log"))
    reader = Reader(target, topic, 0, FETCH_BYTES, batch_bytes)
    if is_cold:
        evict(files)
        reader.on_wrap = lambda: evict(files)
    else:
        load(files)
    disk_before = disk_read_bytes(target.pid)
    say_ready()
    start = time.perf_counter()
    total = 0
    while (elapsed := time.perf_counter() - start) < seconds:
        if total > elapsed * mb_per_s_max * 1e6:
            time.sleep(0.002)
            continue
        total += reader.fetch_next()
    disk = disk_read_bytes(target.pid) - disk_before
    return {"mb_per_s": total / 1e6 / seconds, "disk_mb_per_s": disk / 1e6 / seconds}
