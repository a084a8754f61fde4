"""Whether a reader of old data, which must come from the disk, slows a writer.

The goal is held at a paced reader (100 MB/s): on few cores a reader as fast as it can takes processor time from the
writer however warm its data are. That one is measured too, and the paced reader with warm data for comparison.
"""

from bench.context import Context
from bench.figures import Figures
from bench.loads import cold, produce
from bench.page_cache import evict
from bench.worker import Worker

BATCH_BYTES = 64 << 10
RECORD_BYTES = 1000
PACED_MB_PER_S = 100.0
UNPACED_MB_PER_S = 1e9
READY_SECONDS_MAX = 60.0
READER_LEAD_SECONDS = 2.0  # the reader runs a little longer than the writer, whose process must start first


def run(context: Context) -> None:
    options = context.options
    _warm_up(context)
    with context.topic("old", 1, fill_cache=True) as old:
        batch_bytes = context.apart(produce.fill, old, 1, BATCH_BYTES, RECORD_BYTES, options.cold_bytes)
        evict(context.broker.data_folder.rglob(f"{old}-0/*.log"))  # written back now, not beside the writer
        alone = _write_alone(context)
        for name, is_cold, rate in (
            ("cold_reader", True, PACED_MB_PER_S),
            ("warm_reader", False, PACED_MB_PER_S),
            ("cold_reader_unpaced", True, UNPACED_MB_PER_S),
        ):
            _write_beside_reader(
                context, name, alone, (old, batch_bytes, str(context.broker.data_folder), is_cold, rate)
            )


def _warm_up(context: Context) -> None:
    options = context.options
    with context.topic("warm", 1, fill_cache=True) as topic:
        context.progress.say("warms up")
        amount = (options.warmup_s, options.write_bytes_max)
        context.apart(produce.produce, topic, 1, BATCH_BYTES, RECORD_BYTES, *amount)


def _write_alone(context: Context) -> Figures:
    with context.topic("new", 1, fill_cache=True) as topic:
        return context.keep("writer_alone", _write(context, topic))


def _write_beside_reader(
    context: Context, name: str, alone: Figures, arguments: tuple[str, int, str, bool, float]
) -> None:
    context.progress.say(name)
    seconds = context.options.seconds + READER_LEAD_SECONDS
    with (
        context.topic("new", 1, fill_cache=True) as topic,
        Worker(cold.read, context.target, *arguments, seconds, tells_ready=True) as reader,
    ):
        reader.wait_ready(READY_SECONDS_MAX)
        written = _write(context, topic)
        read = reader.result(context.options.timeout_s)
    beside = {"reader_mb_per_s": read["mb_per_s"], "reader_disk_mb_per_s": read["disk_mb_per_s"]}
    context.keep(name, written | beside | {"of_alone": written["mb_per_s"] / alone["mb_per_s"]})


def _write(context: Context, topic: str) -> Figures:
    options = context.options
    amount = (options.seconds, options.write_bytes_max)
    return context.apart(produce.produce, topic, 1, BATCH_BYTES, RECORD_BYTES, *amount)
