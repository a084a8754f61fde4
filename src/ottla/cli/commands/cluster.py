"""`ottla cluster`: shows brokers, APIs and the quorum; balances, adds and removes brokers; maintenance and restarts."""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from typing import Final

from ottla.base.text import format_count
from ottla.cli.arguments import CONNECTION, Argument, Command, Parser, duration, flag, not_negative, positive
from ottla.cli.client_settings import client_of
from ottla.cli.cluster import roll
from ottla.cli.cluster.replica_moves import MEASURE, MOVE_ARGUMENTS, balance_goals, run_moves
from ottla.cli.reports.broker_screen import duration_text as span
from ottla.cli.reports.quorum_report import COLUMNS, replication_rows
from ottla.cli.tables import print_table
from ottla.cli.terminal import EXIT_FAILED, ToolError, UsageError, print_line, warn
from ottla.client.admin import Admin, Topic
from ottla.client.client import Client
from ottla.client.cluster import api_versions, describe_cluster, describe_quorum, unregister_broker
from ottla.operations.doctor.findings import brokers_text
from ottla.operations.maintenance import (
    RemainingLeaders,
    begin_maintenance,
    elect_preferred_leaders,
    end_maintenance,
    maintenance_ends,
    remaining_leaders,
)
from ottla.operations.reassignment.cluster_model import ClusterModel
from ottla.operations.reassignment.cluster_plans import (
    DEFAULT_FACTOR,
    INTERNAL_FACTORS,
    MovePlan,
    plan_brokers_removal,
    plan_cluster_balance,
    plan_replication_factor,
)
from ottla.operations.reassignment.moves import check_brokers, replicas_of

EXAMPLES = """
ottla cluster info
ottla cluster apis
ottla cluster quorum
ottla cluster unregister 3
ottla cluster maintenance 2 --for 30m
ottla cluster roll --command 'systemctl restart ottla@{id}'
ottla cluster balance --dry-run         print the moves that would balance the load
ottla cluster balance
ottla cluster add 4                     move replicas to the new broker 4
ottla cluster remove 2                  move all replicas off broker 2
ottla cluster replication-factor 3 --internal
"""


def run(arguments: Sequence[str]) -> int:
    options = _parser().parse_args(arguments)
    with client_of(options) as client:
        return options.action(client, options) or 0


def _parser() -> Parser:
    return Parser(
        prog="ottla cluster",
        description="Show the cluster, move replicas, and manage brokers.",
        examples=EXAMPLES,
        shared=CONNECTION,
        commands=(
            Command("info", "the cluster's id and its brokers", _info),
            Command("apis", "which APIs each broker offers", _apis),
            Command("quorum", "the nodes that keep the metadata", _quorum),
            Command(
                "unregister",
                "remove the registration of a broker that will not come back",
                _unregister,
                Argument("id", type=not_negative, metavar="ID"),
            ),
            Command(
                "maintenance",
                "move leaders off a broker during work on it",
                _maintenance,
                Argument("id", type=not_negative, nargs="?", metavar="ID", help="the broker; without it: a list"),
                Argument("--for", type=duration, dest="for_ms", metavar="TIME", help="how long at most: 30m, 2h"),
                flag("--end", help="the work is done: the broker leads again"),
                examples=MAINTENANCE_EXAMPLES,
            ),
            roll.COMMAND,
            *_move_commands(),
        ),
    )


def _move_commands() -> list[Command]:
    brokers = Argument("brokers", nargs="+", type=not_negative, metavar="BROKER")
    return [
        Command(
            "balance",
            "even out replicas, leaders, bytes on disk, bytes in and out",
            _balance,
            Argument(
                "--tolerance",
                type=not_negative,
                metavar="PERCENT",
                default=TOLERANCE,
                help=f"move nothing while every broker is this close to the mean (default: {TOLERANCE})",
            ),
            MEASURE,
            *MOVE_ARGUMENTS,
        ),
        Command("add", "move replicas to new brokers", _add, brokers, MEASURE, *MOVE_ARGUMENTS),
        Command(
            "remove",
            "move everything off brokers that go",
            _remove,
            brokers,
            flag("--unregister", help="also remove their registration, if they are stopped"),
            *MOVE_ARGUMENTS,
        ),
        Command(
            "replication-factor",
            "more or fewer replicas of topics",
            _change_replication_factor,
            Argument("factor", type=positive, metavar="N"),
            Argument("topics", nargs="*", metavar="TOPIC", help="default: all topics except internal ones"),
            flag("--internal", help="also internal topics such as __consumer_offsets"),
            *MOVE_ARGUMENTS,
        ),
    ]


def _info(client: Client, _options: argparse.Namespace) -> None:
    found = describe_cluster(client, with_fenced=True)
    print_line(f"cluster {found.cluster_id}")
    rows = [
        (
            str(broker.broker_id),
            f"{broker.host}:{broker.port}",
            broker.rack or "",
            "fenced" if broker.is_fenced else "up",
            "controller" if broker.broker_id == found.controller_id else "",
        )
        for broker in sorted(found.brokers, key=lambda broker: broker.broker_id)
    ]
    print_table(("Broker", "Address", "Rack", "State", "Role"), rows, ("Broker",))


def _apis(client: Client, _options: argparse.Namespace) -> None:
    from ottla.cli.cluster.api_names import KNOWN_APIS  # noqa: PLC0415 (rarely needed)

    for broker in client.cluster().brokers:
        offered = api_versions(client, broker.node_id).api_keys
        rows = [
            (
                str(broker.node_id),
                str(item.api_key),
                KNOWN_APIS[item.api_key].name if item.api_key in KNOWN_APIS else "?",
                f"{item.min_version}-{item.max_version}",
            )
            for item in sorted(offered, key=lambda item: item.api_key)
        ]
        print_table(("Broker", "Key", "API", "Versions"), rows, ("Broker", "Key"))


def _quorum(client: Client, _options: argparse.Namespace) -> None:
    rows = replication_rows(describe_quorum(client), int(time.time() * 1000), True)
    print_table(COLUMNS, rows, ("NodeId", "LogEndOffset", "Lag"))


def _unregister(client: Client, options: argparse.Namespace) -> None:
    unregister_broker(client, options.id)
    print(f"Broker {options.id} is unregistered.")


# ---- balance, add, remove
TOLERANCE = 10


def _balance(client: Client, options: argparse.Namespace) -> int:
    goals = balance_goals(options)._replace(tolerance=options.tolerance / 100)
    return run_moves(client, options, "balance", lambda model: plan_cluster_balance(model, goals))


def _add(client: Client, options: argparse.Namespace) -> int:
    brokers = _brokers(options)
    if not (options.cancel or options.rollback):
        check_brokers(Admin(client), brokers)
    goals = balance_goals(options)
    return run_moves(
        client, options, _command("add", brokers), lambda model: plan_cluster_balance(model, goals, brokers)
    )


def _remove(client: Client, options: argparse.Namespace) -> int:
    brokers, goals = _brokers(options), balance_goals(options)
    code = run_moves(
        client, options, _command("remove", brokers), lambda model: plan_brokers_removal(model, brokers, goals)
    )
    if code or options.dry_run or options.cancel or options.rollback or not options.wait:
        return code
    return _print_removed(client, brokers, is_unregistered=options.unregister)


def _print_removed(client: Client, brokers: list[int], *, is_unregistered: bool) -> int:
    client.metadata = None
    held = {broker for row in replicas_of(Admin(client).topics()).values() for broker in row} & set(brokers)
    if held:
        holds = "holds" if len(held) == 1 else "hold"
        warn(f"{brokers_text(held)} still {holds} replicas: repeat the command to continue.")
        return EXIT_FAILED
    live = sorted(set(brokers) & set(Admin(client).live_brokers()))
    if live:
        holds, it = ("holds", "it") if len(live) == 1 else ("hold", "they")
        print_line(
            f"{brokers_text(live).capitalize()} {holds} no replicas now: {it} can be stopped. "
            f"Then: {', '.join(f'ottla cluster unregister {broker}' for broker in live)}"
        )
    for broker in sorted(set(brokers) - set(live)):
        if is_unregistered:
            unregister_broker(client, broker)
            print_line(f"Broker {broker} is unregistered.")
        else:
            print_line(f"Broker {broker} holds no replicas now.")
    return 0


def _brokers(options: argparse.Namespace) -> list[int]:
    brokers: list[int] = sorted(options.brokers)
    if len(set(brokers)) < len(brokers):
        raise UsageError("a broker is named twice")
    return brokers


def _command(verb: str, brokers: list[int]) -> str:
    return f"{verb} {' '.join(map(str, brokers))}"


# ---- replication-factor
def _change_replication_factor(client: Client, options: argparse.Namespace) -> int:
    names = sorted(set(options.topics))

    def make(model: ClusterModel) -> MovePlan:
        return plan_replication_factor(Admin(client), model, options.factor, names, with_internal=options.internal)

    words = ["replication-factor", str(options.factor), *names, *(["--internal"] if options.internal else [])]
    code = run_moves(client, options, " ".join(words), make)
    if not code and not (options.dry_run or options.cancel or options.rollback):
        keys = (DEFAULT_FACTOR, *(INTERNAL_FACTORS if options.internal else ()))
        print_line(f"New topics use the settings of the brokers: {', '.join(keys)}.")
    return code


# ---- maintenance: other brokers lead, and self-healing waits
FOR_MS_MAX: Final = 7 * 86_400_000  # for longer work, remove the broker from the cluster
LEADERSHIP_MOVE_SECONDS_MAX: Final = 30.0
POLL_SECONDS: Final = 0.2
MAINTENANCE_EXAMPLES: Final = """
ottla cluster maintenance                        list the brokers in maintenance
ottla cluster maintenance 2 --for 30m            move leaders off broker 2 and pause healing
ottla cluster maintenance 2 --end                move the leaders back
"""


def _maintenance(client: Client, options: argparse.Namespace) -> int:
    if options.id is None:
        if options.for_ms is not None or options.end:
            raise UsageError("name the broker: ottla cluster maintenance 2 --for 30m")
        return _list(client)
    if (options.for_ms is not None) == options.end:
        raise UsageError("give --for with a duration (30m, 2h), or --end")
    if options.for_ms is not None and options.for_ms > FOR_MS_MAX:
        raise UsageError("the maximum is 7d: move the replicas to other brokers instead (ottla reassign)")
    topics = Admin(client).topics(from_controller=True)
    known = known_brokers(client, topics)
    if options.id not in known:
        raise ToolError(f"the cluster has no broker {options.id}; brokers: {', '.join(map(str, sorted(known)))}")
    return _end(client, options.id, topics) if options.end else _begin(client, options.id, options.for_ms)


def known_brokers(client: Client, topics: list[Topic]) -> set[int]:
    """Online brokers and brokers that hold replicas, which may be offline."""
    held = {replica for topic in topics for partition in topic.partitions for replica in partition.replicas}
    return held | {broker.node_id for broker in client.cluster().brokers}


def _list(client: Client) -> int:
    now_ms = int(time.time() * 1000)
    ends = maintenance_ends(client, sorted(known_brokers(client, Admin(client).topics())))
    rows = [
        (str(broker), _time_text(end_ms), span((end_ms - now_ms) / 1000))
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
    left = _wait_for_leadership_moves(client, broker)
    print_line(f"Broker {broker} is in maintenance until {_time_text(until_ms)}.")
    for sentence in left.messages():
        warn(sentence)
    return 0


def _wait_for_leadership_moves(client: Client, broker: int) -> RemainingLeaders:
    """Wait until other brokers lead what they can; returns the partitions that the broker still leads."""
    deadline = time.monotonic() + LEADERSHIP_MOVE_SECONDS_MAX
    while True:
        topics = Admin(client).topics(from_controller=True)
        now_ms = int(time.time() * 1000)
        ends = maintenance_ends(client, sorted(known_brokers(client, topics)))
        left = remaining_leaders(broker, topics, {other for other, end_ms in ends.items() if end_ms > now_ms})
        if not left.movable or time.monotonic() > deadline:
            return left
        time.sleep(POLL_SECONDS)


def _end(client: Client, broker: int, topics: list[Topic]) -> int:
    if broker not in maintenance_ends(client, [broker]):  # an expired maintenance already moved the leaders back
        print_line(f"Broker {broker} is not in maintenance.")
        return 0
    end_maintenance(client, broker)
    count = elect_preferred_leaders(client, broker, topics)
    print_line(f"The maintenance of broker {broker} is over; it leads {format_count(count, 'partition')} again.")
    return 0


def _time_text(time_ms: int) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(time_ms / 1000))
