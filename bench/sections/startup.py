"""From process start to the first Metadata answer, and the cost of an idle broker."""

import time

from bench.context import Context
from bench.procfs import cpu_seconds, memory


def run(context: Context) -> None:
    pid, idle_s = context.target.pid, context.options.idle_s
    context.progress.say("idle")
    time.sleep(idle_s)
    before, start = cpu_seconds(pid), time.perf_counter()
    time.sleep(idle_s)
    cpu_percent = (cpu_seconds(pid) - before) / (time.perf_counter() - start) * 100
    used = memory(pid)
    context.keep(
        "start",
        {
            "startup_s": context.broker.startup_s,
            "rss_mb": used.rss_mb,
            "idle_cpu_percent": cpu_percent,
            "files": used.files,
            "threads": used.threads,
        },
    )
