"""Very many committed offsets: memory of 10,000 groups, and a start with a million offsets in the log."""

from functools import partial

from bench.context import Context
from bench.loads import offsets

MANY_GROUPS, FEW_PARTITIONS, MANY_PARTITIONS = 10_000, 10, 100
START_SECONDS_MAX = 120.0


def run(context: Context) -> None:
    groups = context.options.offset_groups
    with context.topic("offsets", MANY_PARTITIONS) as topic:
        context.measure("memory", offsets.commit_many, topic, "few", MANY_GROUPS, FEW_PARTITIONS)
        context.progress.say(f"commits {groups * MANY_PARTITIONS} offsets")
        context.apart(offsets.commit_many, topic, "many", groups, MANY_PARTITIONS)
        for name, by_force in (("clean", False), ("killed", True)):
            context.progress.say(f"starts again, {name}")
            context.broker.end(START_SECONDS_MAX, by_force=by_force)
            started = context.broker.launch()
            check = partial(context.broker.check_alive, started, START_SECONDS_MAX)
            context.keep(name, offsets.wait_until_loaded(context.target, "many", groups, started, check))
