"""`ottla cluster maintenance`: say that somebody works at a broker, so that others lead and nobody heals."""

from __future__ import annotations

import argparse
import time
from typing import Any, Final

from ottla.cli.arguments import add_connection, duration, not_negative
from ottla.cli.tables import print_table
from ottla.cli.terminal import ToolError, UsageError, say, warn
from ottla.cli.top.screen import duration as span
from ottla.client.admin import Admin, Topic
from ottla.client.client import Client
from ottla.operations.maintenance import (
    StillLed,
    begin_maintenance,
    end_maintenance,
    give_leaders_back,
    maintenance_ends,
    still_led,
)

FOR_MS_MAX: Final = 7 * 86_400_000  # who works longer at a broker takes it out of the cluster
LEAVE_SECONDS_MAX: Final = 30.0
LOOK_SECONDS: Final = 0.2
EXAMPLES: Final = """
ottla cluster maintenance                        who is in maintenance, and for how long
ottla cluster maintenance 2 --for 30m            broker 2 leads nothing more, and healing waits
ottla cluster maintenance 2 --end                it leads again what it should
"""


def add_parser(commands: Any) -> None:
    parser = commands.add_parser("maintenance", help="have others lead while you work at a broker", examples=EXAMPLES)
    parser.add_argument("id", type=not_negative, nargs="?", metavar="ID", help="the broker; without it: a list")
    parser.add_argument("--for", type=duration, dest="for_ms", metavar="TIME", help="how long at most: 30m, 2h")
    parser.add_argument("--end", action="store_true", help="the work is done: the broker leads again")
    parser.set_defaults(action=run)
    add_connection(parser)


def run(client: Client, options: argparse.Namespace) -> int:
    if options.id is None:
        if options.for_ms is not None or options.end:
            raise UsageError("name the broker: ottla cluster maintenance 2 --for 30m")
        return _list(client)
    if (options.for_ms is not None) == options.end:
        raise UsageError("give --for and how long (30m, 2h), or --end")
    if options.for_ms is not None and options.for_ms > FOR_MS_MAX:
        raise UsageError(
            "no maintenance is longer than 7d: move the replicas to other brokers instead (ottla reassign)"
        )
    topics = Admin(client).topics(is_decisive=True)
    known = known_brokers(client, topics)
    if options.id not in known:
        raise ToolError(f"the cluster has no broker {options.id}: there are {', '.join(map(str, sorted(known)))}")
    return _end(client, options.id, topics) if options.end else _begin(client, options.id, options.for_ms)


def known_brokers(client: Client, topics: list[Topic]) -> set[int]:
    """Those that are there and those that hold replicas: who is switched off is one of them."""
    held = {replica for topic in topics for partition in topic.partitions for replica in partition.replicas}
    return held | {broker.node_id for broker in client.cluster().brokers}


def _list(client: Client) -> int:
    now_ms = int(time.time() * 1000)
    ends = maintenance_ends(client, sorted(known_brokers(client, Admin(client).topics())))
    rows = [
        (str(broker), _moment(end_ms), span((end_ms - now_ms) / 1000))
        for broker, end_ms in sorted(ends.items())
        if end_ms > now_ms
    ]
    if rows:
        print_table(("Broker", "Until", "Left"), rows, ("Broker",))
    else:
        warn("No broker is in maintenance.")
    return 0


def _begin(client: Client, broker: int, for_ms: int) -> int:
    until_ms = int(time.time() * 1000) + for_ms
    begin_maintenance(client, broker, until_ms)
    left = _wait_until_left(client, broker)
    say(f"Broker {broker} is in maintenance until {_moment(until_ms)}.")
    for sentence in left.sentences():
        warn(sentence)
    return 0


def _wait_until_left(client: Client, broker: int) -> StillLed:
    """What a broker still leads, when all that others could lead have other leaders."""
    deadline = time.monotonic() + LEAVE_SECONDS_MAX
    while True:
        topics = Admin(client).topics(is_decisive=True)
        now_ms = int(time.time() * 1000)
        ends = maintenance_ends(client, sorted(known_brokers(client, topics)))
        left = still_led(broker, topics, {other for other, end_ms in ends.items() if end_ms > now_ms})
        if not left.movable or time.monotonic() > deadline:
            return left
        time.sleep(LOOK_SECONDS)


def _end(client: Client, broker: int, topics: list[Topic]) -> int:
    if broker not in maintenance_ends(client, [broker]):  # one that is over by itself has its leaders given back
        say(f"Broker {broker} is not in maintenance.")
        return 0
    end_maintenance(client, broker)
    count = give_leaders_back(client, broker, topics)
    say(f"The maintenance of broker {broker} is over; it leads {_count(count)} again.")
    return 0


def _count(partitions: int) -> str:
    return f"{partitions} partition{'' if partitions == 1 else 's'}"


def _moment(time_ms: int) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(time_ms / 1000))
