"""2,000 partitions until each has taken a write, and 1,000 connections.

The partitions come first: memory that connections leave behind would hide what partitions take.
"""

from bench.context import Context
from bench.loads import many
from bench.procfs import wait_until_quiet
from bench.raw_client import new_topic_name

CONNECTIONS = 1000


def run(context: Context) -> None:
    topics = {new_topic_name("large"): 1000} | {new_topic_name("small"): 10 for _ in range(100)}
    context.measure("partitions_2000", many.create_partitions, topics)
    wait_until_quiet(context.target.pid, context.options.quiet_s_max)
    context.measure("connections_1000", many.connect, CONNECTIONS)
