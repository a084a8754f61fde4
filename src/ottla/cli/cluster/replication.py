"""`ottla cluster replication-factor`: more or fewer replicas of topics, and of those that brokers keep themselves."""

from __future__ import annotations

import argparse
from typing import Any

from ottla.base.names import INTERNAL_TOPICS
from ottla.base.placement.broker_loads import racks_of
from ottla.base.placement.moves import plan_factor
from ottla.cli.arguments import add_connection, positive
from ottla.cli.cluster.moving import Wish, add_moving, run_moves
from ottla.cli.terminal import say
from ottla.client.admin import Admin, Topic
from ottla.client.client import Client
from ottla.operations.reassignment.facts import ClusterFacts, check_whole
from ottla.operations.reassignment.plan import PlanError
from ottla.operations.reassignment.steps import find_topics, replicas_of
from ottla.operations.topic_replicas import min_isr

FUTURE = {
    "__consumer_offsets": "offsets.topic.replication.factor",
    "__transaction_state": "transaction.state.log.replication.factor",
}


def add_replication_factor(commands: Any) -> None:
    parser = commands.add_parser("replication-factor", help="more or fewer replicas of topics")
    parser.add_argument("factor", type=positive, metavar="N")
    parser.add_argument("topics", nargs="*", metavar="TOPIC", help="default: all but internal ones")
    parser.add_argument("--internal", action="store_true", help="internal topics, too: __consumer_offsets and so on")
    parser.set_defaults(action=_run)
    add_moving(parser, is_measured=False)
    add_connection(parser)


def _run(client: Client, options: argparse.Namespace) -> int:
    names = sorted(set(options.topics))

    def make(facts: ClusterFacts, options: argparse.Namespace) -> Wish:
        check_whole(facts)
        topics = _topics(client, facts, names, with_internal=options.internal)
        _check_min_isr(client, topics, options.factor)
        return Wish(plan_factor(replicas_of(topics), options.factor, list(facts.brokers), racks_of(facts.brokers)))

    words = ["replication-factor", str(options.factor), *names, *(["--internal"] if options.internal else [])]
    code = run_moves(client, options, " ".join(words), make)
    if not code and not (options.dry_run or options.cancel or options.rollback):
        keys = "default.replication.factor" + (f", {', '.join(FUTURE.values())}" if options.internal else "")
        say(f"Topics that are yet to come follow the brokers' settings: {keys}.")
    return code


def _topics(client: Client, facts: ClusterFacts, names: list[str], *, with_internal: bool) -> list[Topic]:
    internal = [topic for topic in facts.topics if topic.is_internal or topic.name in INTERNAL_TOPICS]
    users = [topic for topic in facts.topics if topic not in internal]
    chosen = find_topics(Admin(client), names) if names else users
    return chosen + [topic for topic in internal if with_internal and topic not in chosen]


def _check_min_isr(client: Client, topics: list[Topic], factor: int) -> None:
    """With fewer replicas than min.insync.replicas asks for, nobody could write with acks=all any more."""
    shrinking = [topic.name for topic in topics if any(len(row.replicas) > factor for row in topic.partitions)]
    for name, settings in Admin(client).topic_configs(shrinking).items():
        least = min_isr(settings)
        if least > factor:
            raise PlanError(
                f"{name} has min.insync.replicas={least}: with {factor} nobody could write with acks=all. Lower it "
                f"first: ottla configs set topic {name} min.insync.replicas={factor}"
            )
