"""The cost of one Produce and one Fetch request, with more and more partitions and idle connections."""

from bench.context import Context
from bench.loads import many, one_in_flight
from bench.procfs import wait_until_quiet
from bench.raw_client import new_topic_name

BUSY_PARTITIONS = 10
TOPIC_PARTITIONS = 10
TOPICS_AT_ONCE = 100
WARMUP_SECONDS = 1.0


def run(context: Context) -> None:
    with context.topic("busy", BUSY_PARTITIONS) as busy:
        for count in context.options.connection_counts:
            _cost_beside_connections(context, busy, count)
        existing = BUSY_PARTITIONS
        for count in context.options.partition_counts:
            add_partitions(context, count - existing)
            existing = count
            _cost(context, busy, count)


def _cost_beside_connections(context: Context, busy: str, count: int) -> None:
    context.progress.say(f"{count} connections")
    arguments = (busy, BUSY_PARTITIONS, count - 1, WARMUP_SECONDS, context.options.seconds)
    for kind, figures in context.apart(many.cost_beside_idle_connections, *arguments).items():
        context.keep(f"{kind}_connections_{count}", figures)


def add_partitions(context: Context, count: int) -> None:
    """By ten, with one record in each; `idle_topics` of the broker names them."""
    if count < TOPIC_PARTITIONS:
        return
    context.progress.say(f"creates {count} partitions")
    topics = {new_topic_name("idle"): TOPIC_PARTITIONS for _ in range(count // TOPIC_PARTITIONS)}
    context.apart(many.make_partitions, topics, TOPICS_AT_ONCE)
    context.broker.idle_topics |= topics
    wait_until_quiet(context.target.pid, context.options.quiet_s_max)


def _cost(context: Context, busy: str, count: int) -> None:
    arguments = (busy, BUSY_PARTITIONS)
    seconds = (WARMUP_SECONDS, context.options.seconds)
    context.measure(f"produce_partitions_{count}", one_in_flight.produce, *arguments, 100, *seconds)
    context.measure(f"fetch_partitions_{count}", one_in_flight.fetch, *arguments, *seconds)
