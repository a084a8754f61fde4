"""kill -9 with gigabytes of unsynced data: the time until all partitions serve, and the latency of one meanwhile.

The bytes are still in the page cache, as they are after the crash of a process: what is measured is the check itself.
"""

from bench.context import Context
from bench.loads import produce
from bench.raw_client import produce_one

PARTITIONS = 10
SHAPES = {"64k": (64 << 10, 1000, 1.0), "4k": (4 << 10, 1000, 0.2)}  # batch bytes, record bytes, share of the bytes
START_SECONDS_MAX = 300.0


def run(context: Context) -> None:
    for name, (batch_bytes, record_bytes, share) in SHAPES.items():
        with context.topic(f"recovery-{name}", PARTITIONS) as topic, context.topic("small", 1) as small:
            context.progress.say(f"writes for {name}")
            produce_one(context.target, small, b"first")
            partition_bytes = int(context.options.recovery_bytes * share) // PARTITIONS
            context.apart(produce.fill, topic, PARTITIONS, batch_bytes, record_bytes, partition_bytes)
            context.progress.say(f"recovers {name}")
            context.broker.end(START_SECONDS_MAX, by_force=True)
            figures = context.serve_again({topic: PARTITIONS}, small, START_SECONDS_MAX)
            figures["mb_per_s"] = partition_bytes * PARTITIONS / 1e6 / figures["all_served_s"]
            context.keep(name, figures)
