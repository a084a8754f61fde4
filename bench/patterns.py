"""`python -m bench.patterns`: the effect of hostile regular expressions on other clients. ottla alone; a minute.

Hundreds of heartbeats of new members, each with another expression that is small and means a large program, beside a
producer of single records; then members with an expression each that join one group.

The longest callback and the memory are the broker's own figures. `most_running_ms` is processor time: on a shared
machine a callback also takes as long as others have the core.
"""

import argparse
import json
import sys
from collections.abc import Mapping

from bench.figures import Figures
from bench.loads import one_in_flight, patterns
from bench.ottla_process import OttlaProcess
from bench.paths import cache_folder
from bench.procfs import cpu_seconds, memory
from bench.raw_client import Target, create_topic, create_topics
from bench.worker import Worker, run_apart

TIMEOUT_S = 600.0
TOPICS_AT_ONCE = 200
GOALS = {"longest_callback_ms": 10.0, "p99_ms": 5.0, "memory_mb": 64.0, "seconds": 0.5}


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.patterns", description="Hostile regular expressions.")
    parser.add_argument("--topics", type=int, default=2_000)
    parser.add_argument("--per-second", type=int, default=100, help="hostile expressions")
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--members", type=int, default=1_200)
    options = parser.parse_args()
    cache_folder().mkdir(parents=True, exist_ok=True)
    settings = {"group.initial.rebalance.delay.ms": "0", "offsets.topic.num.partitions": "4"}
    with OttlaProcess(cache_folder() / "patterns-broker.log", settings=settings) as broker:
        make_topics(broker.target, options.topics)
        topic = create_topic(broker.target, "beside", 1)
        patterns.prepare_groups(broker.target, ["warm-up"])
        alone = produce(broker.target, topic, 5.0)
        before, cpu = memory(broker.target.pid), cpu_seconds(broker.target.pid)
        quiet = broker.loop_figures() or {}
        with Worker(patterns.hostile, broker.target, options.per_second, options.seconds) as attack:
            beside = produce(broker.target, topic, options.seconds)
            attacked = attack.result(TIMEOUT_S)
        figures = {
            "producer alone": alone,
            "producer beside": beside,
            "loop before": quiet,
            "loop after": broker.loop_figures() or {},
            "attack": attacked,
            "memory": {"before_mb": before.rss_mb, "after_mb": memory(broker.target.pid).rss_mb},
            "cpu": {"seconds": cpu_seconds(broker.target.pid) - cpu},
        }
        cpu = cpu_seconds(broker.target.pid)
        joined = run_apart(TIMEOUT_S, patterns.members, broker.target, options.members)
        figures["members"] = (
            joined
            | {"broker_cpu_s": cpu_seconds(broker.target.pid) - cpu}
            | {f"loop_{name}": value for name, value in (broker.loop_figures() or {}).items()}
        )
    missed = missed_goals(figures)
    print(json.dumps(figures | {"missed": missed}, indent=2))
    return 1 if missed else 0


def missed_goals(figures: Mapping[str, Figures]) -> list[str]:
    memory_mb = figures["memory"]
    found = {
        "longest_callback_ms": figures["loop after"].get("most_running_ms"),
        "p99_ms": figures["producer beside"].get("p99_ms"),
        "memory_mb": memory_mb["after_mb"] - memory_mb["before_mb"],
        "seconds": figures["members"]["seconds"],
    }
    return [f"{name}: {found[name]} (goal: {goal})" for name, goal in GOALS.items() if not (found[name] or 0) <= goal]


def make_topics(target: Target, count: int) -> None:
    names = [f"topic-{number:05}-orders-eu" for number in range(count)]
    for start in range(0, count, TOPICS_AT_ONCE):
        create_topics(target, dict.fromkeys(names[start : start + TOPICS_AT_ONCE], 1))


def produce(target: Target, topic: str, seconds: float) -> Figures:
    return dict(run_apart(TIMEOUT_S, one_in_flight.produce, target, topic, 1, 1_000, 1.0, seconds))


if __name__ == "__main__":
    sys.exit(main())
