"""10,000 partitions: Metadata of all of them, a start after a clean stop, a start after kill -9."""

from bench.context import Context
from bench.loads import many, serving
from bench.procfs import memory, wait_until_quiet
from bench.raw_client import new_topic_name

TOPICS_AT_ONCE = 100
TOPIC_PARTITIONS = 10
START_SECONDS_MAX = 300.0
METADATA_VERSIONS = {"old": 4, "new": 12}
METADATA_TIMES = 21


def run(context: Context) -> None:
    topics = {new_topic_name("many"): TOPIC_PARTITIONS for _ in range(context.options.restart_topics)}
    small = new_topic_name("small")
    context.progress.say(f"creates {len(topics) * TOPIC_PARTITIONS} partitions")
    context.apart(many.make_partitions, topics | {small: 1}, TOPICS_AT_ONCE)
    wait_until_quiet(context.target.pid, context.options.quiet_s_max)
    for name, version in METADATA_VERSIONS.items():
        context.measure(f"metadata_{name}", serving.ask_metadata, version, METADATA_TIMES)
    for name, by_force in (("clean", False), ("killed", True)):
        context.progress.say(f"starts again, {name}")
        stop_s = context.broker.end(START_SECONDS_MAX, by_force=by_force)
        figures = context.serve_again(topics, small, START_SECONDS_MAX)
        context.keep(name, figures | {"stop_s": stop_s, "rss_mb": memory(context.target.pid).rss_mb})
