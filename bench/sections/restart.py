"""10,000 partitions: Metadata of all of them, a start after a clean stop, a start after kill -9."""

from bench.context import Context
from bench.loads import many, serving
from bench.procfs import memory
from bench.raw_client import new_topic_name
from bench.sections.partitions import add_partitions

START_SECONDS_MAX = 300.0
METADATA_VERSIONS = {"old": 4, "new": 12}
METADATA_TIMES = 21


def run(context: Context) -> None:
    small = new_topic_name("small")
    context.apart(many.make_partitions, {small: 1}, 1)
    topics = context.broker.idle_topics  # nearly all, where `partitions` came before
    add_partitions(context, context.options.restart_partitions - sum(topics.values()))
    for name, version in METADATA_VERSIONS.items():
        context.measure(f"metadata_{name}", serving.ask_metadata, version, METADATA_TIMES)
    for name, by_force in (("clean", False), ("killed", True)):
        context.progress.say(f"starts again, {name}")
        stop_s = context.broker.end(START_SECONDS_MAX, by_force=by_force)
        figures = context.serve_again(topics, small, START_SECONDS_MAX)
        context.keep(name, figures | {"stop_s": stop_s, "rss_mb": memory(context.target.pid).rss_mb})
