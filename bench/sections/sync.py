"""One Produce request at a time: raw frames, and through librdkafka."""

from bench.context import Context
from bench.loads import librdkafka, one_in_flight

RECORD_BYTES = 100


def run(context: Context) -> None:
    warmup_s, seconds = context.options.warmup_s, context.options.seconds
    with context.topic("sync", 1) as topic:
        context.measure("raw", one_in_flight.produce, topic, 1, RECORD_BYTES, warmup_s, seconds)
        context.measure("librdkafka", librdkafka.produce_one_in_flight, topic, RECORD_BYTES, warmup_s, seconds)
