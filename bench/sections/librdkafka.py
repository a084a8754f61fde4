"""confluent-kafka as applications use it: produce for a while, then consume the same messages; plain and with lz4."""

from bench.context import Context
from bench.loads import librdkafka

SIZES = (100, 1000)
CODECS = ("none", "lz4")


def run(context: Context) -> None:
    options = context.options
    with context.topic("warm", 1, fill_cache=True) as topic:
        context.progress.say("warms up")
        warm = context.apart(librdkafka.produce, topic, 1000, "none", options.warmup_s, options.write_bytes_max)
        context.apart(librdkafka.consume, topic, 1000, _messages(warm), options.warmup_s)
    for size in SIZES:
        for codec in CODECS:
            _measure(context, size, codec)


def _measure(context: Context, size: int, codec: str) -> None:
    options = context.options
    with context.topic("rdkafka", 1, fill_cache=True) as topic:
        amount = (options.seconds, options.write_bytes_max)
        written = context.measure(f"produce_{size}_{codec}", librdkafka.produce, topic, size, codec, *amount)
        context.measure(f"consume_{size}_{codec}", librdkafka.consume, topic, size, _messages(written), options.seconds)


def _messages(written: dict[str, float]) -> int:
    return round(written["records_per_s"] * written["seconds"])
