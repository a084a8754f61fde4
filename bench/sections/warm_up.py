"""A new broker of either system handles its first requests slowly, Apache Kafka for seconds; that is not measured."""

from bench.context import Context
from bench.loads import one_in_flight
from bench.procfs import wait_until_quiet

PARTITIONS = 10
RECORD_BYTES = 100


def run(context: Context) -> None:
    """Small requests on every new broker; sections with other loads warm up with those themselves."""
    context.progress.say("warms up")
    warmup_s = context.options.warmup_s
    with context.topic("warm", PARTITIONS) as topic:
        context.apart(one_in_flight.produce, topic, PARTITIONS, RECORD_BYTES, 0, warmup_s)
        context.apart(one_in_flight.fetch, topic, PARTITIONS, 0, warmup_s)
    wait_until_quiet(context.target.pid, context.options.quiet_s_max)
