"""Spark reads a topic of 100 B records: our data source beside the official connector (needs ottla[pipelines])."""

from bench.context import Context
from bench.loads import librdkafka, spark

RECORD_BYTES = 100
PARTITIONS = 4
FILL_SECONDS_MAX = 120.0


def run(context: Context) -> None:
    options = context.options
    wanted = 1_000_000 if options.is_non_blocking else 2_000_000
    with context.topic("spark", PARTITIONS, fill_cache=True) as topic:
        context.progress.say("writes what Spark will read")
        amount = ("none", FILL_SECONDS_MAX, wanted * RECORD_BYTES)
        written = context.apart(librdkafka.produce, topic, RECORD_BYTES, *amount)
        records = round(written["records_per_s"] * written["seconds"])
        context.progress.say("starts Spark and reads")
        rounds = 1 if options.is_non_blocking else 2
        for name, figures in context.apart(spark.read, topic, RECORD_BYTES, records, rounds).items():
            context.keep(name, figures)
