"""The latency of a message from one process to another at 1,000 messages per second."""

from bench.context import Context
from bench.loads import end_to_end
from bench.raw_client import produce_one
from bench.worker import Worker

RATE = 1000
READY_SECONDS_MAX = 30.0


def run(context: Context) -> None:
    options = context.options
    context.progress.say(f"{RATE} messages a second")
    with context.topic("latency", 1) as topic:
        produce_one(context.target, topic, end_to_end.MARK)
        arguments = (context.target, topic, RATE, options.warmup_s, options.end_to_end_s)
        with Worker(end_to_end.consume, *arguments, tells_ready=True) as consumer:
            consumer.wait_ready(READY_SECONDS_MAX)
            with Worker(end_to_end.produce, *arguments) as producer:
                cost = producer.result(options.timeout_s)
            latency = consumer.result(options.timeout_s)
    context.keep("rate_1000", cost | latency)
