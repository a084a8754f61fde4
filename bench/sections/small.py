"""50 connections with one-record requests, one and ten of them in flight on each."""

from bench.context import Context
from bench.loads import small_requests

CONNECTIONS = 50
RECORD_BYTES = 100


def run(context: Context) -> None:
    options = context.options
    with context.topic("small", CONNECTIONS) as topic:
        context.apart(small_requests.produce, topic, CONNECTIONS, 1, RECORD_BYTES, options.warmup_s)
        for depth in (1, 10):
            load = small_requests.produce
            context.measure(f"depth_{depth}", load, topic, CONNECTIONS, depth, RECORD_BYTES, options.seconds)
