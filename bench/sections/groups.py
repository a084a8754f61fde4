"""Consumer groups and transactions: requests of members, a large group that forms, one transaction after the other."""

from bench.context import Context
from bench.loads import members, transactions

GROUPS, GROUP_SIZE = 100, 10
LARGE_GROUP_SIZE = 200


def run(context: Context) -> None:
    options = context.options
    seconds = (options.warmup_s, options.seconds)
    with context.topic("groups", 1) as topic:
        context.progress.say(f"{GROUPS * GROUP_SIZE} members")
        measured = context.apart(members.heartbeat_and_commit, topic, GROUPS, GROUP_SIZE, *seconds)
        for name, figures in measured.items():
            context.keep(name, figures)
        context.apart(members.join, 1, LARGE_GROUP_SIZE)
        context.measure("join_200", members.join, 1, LARGE_GROUP_SIZE)
        context.measure("transactions_raw", transactions.raw, topic, *seconds)
        context.measure("transactions_librdkafka", transactions.librdkafka, topic, *seconds)
