"""`ottla reassign`: plans, executes, monitors, throttles and cancels replica moves."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from random import SystemRandom
from typing import Literal

from ottla.base.errors import KafkaError
from ottla.base.names import TopicPartition
from ottla.base.text import format_count
from ottla.cli.arguments import CONNECTION, Argument, Command, OneOf, Parser, bootstrap_of, flag, positive
from ottla.cli.client_settings import client_of
from ottla.cli.reports.reassignment_progress import ProgressLine, bar
from ottla.cli.tables import print_table
from ottla.cli.terminal import EXIT_FAILED, ToolError, UsageError, is_terminal, print_line, warn
from ottla.client.admin import Admin
from ottla.client.client import Client
from ottla.client.cluster import describe_cluster
from ottla.client.errors import BrokerError
from ottla.client.reassignments import alter_reassignments, list_reassignments
from ottla.operations.reassignment.executor import MoveTask, Round, execute
from ottla.operations.reassignment.generated_plans import PlanGoal, generate_plan
from ottla.operations.reassignment.moves import (
    ReassignmentState,
    current_log_dirs,
    describe_progress,
    find_topics,
    move_log_dirs,
    prepare,
    progress,
    replicas_of,
    start_moves,
    with_target_replicas,
)
from ottla.operations.reassignment.plan import Plan, PlanError, parse_brokers, parse_plan, parse_topics, plan_text
from ottla.operations.reassignment.throttles import (
    clear_throttles,
    set_log_dir_throttle,
    set_throttles,
    throttle_settings,
)

EXAMPLES = """
ottla reassign generate --fill 4 --output plan.json       move replicas to the new broker 4
ottla reassign generate --drain 2 --output plan.json      move all replicas off broker 2
ottla reassign generate orders --brokers 1,2,3            spread a topic over these brokers
ottla reassign generate orders --replication-factor 3     more replicas, or fewer
ottla reassign generate orders --brokers 1,2,3 --replication-factor 2     both; no move if it already fits
ottla reassign execute plan.json --throttle 50000000 --wait
ottla reassign list
ottla reassign cancel plan.json
"""
KAFKAS_ACTIONS = frozenset({"--generate", "--execute", "--verify", "--cancel", "--list"})
FOLDER_TIMEOUT_MS = 10_000


def run(arguments: Sequence[str]) -> int:
    if KAFKAS_ACTIONS & set(arguments):
        return _run_as_kafka(arguments)
    options = _parser().parse_args(arguments)
    with client_of(options) as client:
        try:
            code: int = options.action(client, options)
        except KafkaError as refusal:
            raise ToolError(refusal.message or refusal.error.name) from None
        return code


def _run_as_kafka(arguments: Sequence[str]) -> int:
    """Run Kafka's tool for `ottla reassign --execute ...`; unlike there, --bootstrap-server is optional."""
    from ottla.cli.kafka.reassign_partitions import run as run_kafkas  # noqa: PLC0415

    given = any(word.startswith("--bootstrap-") for word in arguments)
    server = () if given else ("--bootstrap-server", bootstrap_of(argparse.Namespace()))
    return run_kafkas([*server, *arguments])


def _parser() -> Parser:
    preserve = flag("--preserve-throttles", help="keep the throttle")
    return Parser(
        prog="ottla reassign",
        description="Move replicas between brokers.",
        examples=EXAMPLES,
        shared=CONNECTION,
        commands=(
            Command("generate", "create a plan without moving anything", _generate, *GENERATE_ARGUMENTS),
            Command("execute", "carry out a plan", _execute, *EXECUTE_ARGUMENTS, PLAN_FILE),
            Command(
                "verify",
                "show the progress of a plan; remove the throttle when it is complete",
                _verify,
                preserve,
                PLAN_FILE,
            ),
            Command(
                "cancel",
                "cancel the moves of a plan, or all active moves",
                _cancel,
                preserve,
                Argument("plan", nargs="?", metavar="PLAN", help="file with the plan; - is stdin"),
            ),
            Command("list", "list active moves and their progress", _list),
            Command(
                "throttle",
                "change the speed of active moves",
                _throttle,
                Argument("rate", type=positive, nargs="?", metavar="BYTES", help="a second, for each broker"),
                flag("--off", help="do not limit the speed"),
            ),
        ),
    )


PLAN_FILE = Argument("plan", metavar="PLAN", help="file with the plan; - is stdin")
GENERATE_ARGUMENTS = (
    Argument("topics", nargs="*", metavar="TOPIC", help="default: all topics, except with --brokers"),
    Argument("--topics-to-move-json-file", metavar="FILE", help="the topics, in Kafka's form"),
    OneOf(
        Argument("--brokers", "--broker-list", metavar="1,2,3", help="spread the topics over these brokers"),
        Argument("--drain", metavar="N", help="only move all replicas off these brokers"),
        Argument("--fill", metavar="N", help="only move replicas to these new brokers"),
    ),
    Argument(
        "--replication-factor",
        type=positive,
        metavar="N",
        help="change the number of replicas. With --brokers: spread this many, unless it already fits",
    ),
    flag("--disable-rack-aware", help="ignore the racks of brokers"),
    Argument("--output", "-o", metavar="FILE", help="write the plan to a file"),
)
EXECUTE_ARGUMENTS = (
    Argument("--throttle", type=positive, metavar="BYTES", help="most bytes a second that a broker copies"),
    Argument("--replica-alter-log-dirs-throttle", type=positive, metavar="BYTES", help="the same between folders"),
    flag("--additional", help="allow it during other moves"),
    Argument("--rollback", metavar="FILE", help="write the current assignment to this file"),
    flag("--wait", help="wait until everything is moved, then remove the throttle"),
    Argument(
        "--at-once", type=positive, metavar="N", help="with --wait: at most this many copies per broker at a time"
    ),
    Argument("--timeout", type=positive, metavar="MS", default=FOLDER_TIMEOUT_MS, help="for folders"),
    flag("--disallow-replication-factor-change", help="reject plans that change the number of replicas"),
)


# ---- plans


def _generate(client: Client, options: argparse.Namespace) -> int:
    admin = Admin(client)
    names = list(options.topics)
    if options.topics_to_move_json_file is not None:
        names += parse_topics(_read(options.topics_to_move_json_file))
    if not names and options.brokers is not None:
        raise UsageError("name the topics to spread over these brokers")
    factor = options.replication_factor
    if all(choice is None for choice in (options.brokers, options.drain, options.fill, factor)):
        raise UsageError("one of the arguments --brokers/--broker-list --drain --fill --replication-factor is required")
    if factor is not None and (options.drain is not None or options.fill is not None):
        raise UsageError("--replication-factor is used alone or with --brokers")
    moves = list_reassignments(client)  # before the topics: a move that ends in between then appears in the topics
    topics = with_target_replicas(find_topics(admin, names) if names else admin.topics(), moves)
    rows = replicas_of(topics)
    under_way = len(moves.keys() & rows.keys())
    if under_way:
        warn(
            f"{format_count(under_way, 'move', 'is')} in progress (ottla reassign list): the plan starts "
            "from their targets."
        )
    cluster = describe_cluster(client)
    racks = {broker.broker_id: None if options.disable_rack_aware else broker.rack for broker in cluster.brokers}
    kind, text = _plan_kind(options)
    goal = PlanGoal(kind, parse_brokers(text) if text is not None else (), factor, keeps_balanced=factor is not None)
    holders = {broker for row in replicas_of(admin.topics()).values() for broker in row} if kind == "drain" else set()
    plan = generate_plan(goal, topics, racks, SystemRandom(), holders)
    if not plan:
        warn("No replica needs to move.")
    _show_plan(rows, plan, options.output)
    return 0


def _plan_kind(options: argparse.Namespace) -> tuple[Literal["spread", "drain", "fill", "factor"], str | None]:
    """What to plan, and the brokers for it."""
    if options.brokers is not None:
        return "spread", options.brokers
    if options.drain is not None:
        return "drain", options.drain
    return ("factor", None) if options.fill is None else ("fill", options.fill)


def _show_plan(
    rows: Mapping[TopicPartition, Sequence[int]], plan: Mapping[TopicPartition, Sequence[int]], output: str | None
) -> None:
    text = plan_text(plan, {})
    if output is not None:
        with open(output, "w", encoding="utf-8") as file:
            file.write(text + "\n")
    if output is None and not is_terminal(sys.stdout):
        print_line(text)
        return
    table = [(str(name), _ids(rows[name]), _ids(row)) for name, row in sorted(plan.items())]
    if table:
        print_table(("Partition", "Now", "Then"), table)
    if output is not None and plan:
        print_line(f"{format_count(len(plan), 'partition')}. Carry it out with: ottla reassign execute {output}")
    elif plan:
        print_line(text)


def _read_plan(path: str) -> Plan:
    return parse_plan(sys.stdin.read() if path == "-" else _read(path))


def _read(path: str) -> str:
    with open(path, encoding="utf-8") as file:
        return file.read()


# ---- moves


def _execute(client: Client, options: argparse.Namespace) -> int:
    if options.at_once is not None and not options.wait:
        raise UsageError("--at-once needs --wait: each part starts when the previous one is complete")
    plan = _read_plan(options.plan)
    start = prepare(client, plan, is_additional=options.additional)
    if options.rollback is not None:
        with open(options.rollback, "w", encoding="utf-8") as file:
            file.write(plan_text(start.now, current_log_dirs(client, start.now)) + "\n")
    if options.replica_alter_log_dirs_throttle is not None:
        brokers = {replica.broker for replica in plan.folders}
        set_log_dir_throttle(client, brokers, options.replica_alter_log_dirs_throttle)
    refused: dict[TopicPartition, BrokerError] = {}
    may_change_factor = not options.disallow_replication_factor_change
    if options.at_once is None:
        refused = start_moves(client, plan, start, options.throttle, may_change_factor=may_change_factor)
        _print_started(plan.replicas, refused)
        _move_folders(client, plan, options)
    if not options.wait:
        if options.throttle is not None:
            print("The throttle stays until you run: ottla reassign verify")
        return EXIT_FAILED if refused else 0
    line = ProgressLine(client)
    has_folders_left = options.at_once is not None

    def on_progress(done: Round) -> None:
        nonlocal has_folders_left
        if done.started:
            line.clear()
            _print_started(done.started, done.refused)
        if has_folders_left and not done.waiting:  # a broker knows a new replica only after its move has started
            _move_folders(client, plan, options)
            has_folders_left = False
        line.draw(done.under_way, len(plan.replicas) - done.waiting)

    try:
        if options.at_once is None:
            execute(client, MoveTask(plan.replicas), on_progress, requested=plan.replicas)
        else:
            task = MoveTask(plan.replicas, options.throttle, options.at_once, may_change_factor=may_change_factor)
            refused = execute(client, task, on_progress)
    finally:
        line.clear()
    return max(EXIT_FAILED if refused else 0, _verify_plan(client, plan, is_throttle_kept=False))


def _move_folders(client: Client, plan: Plan, options: argparse.Namespace) -> None:
    if plan.folders:
        move_log_dirs(
            client, plan.folders, options.timeout, lambda replica: print_line(f"{replica} changes its folder.")
        )


def _print_started(rows: Mapping[TopicPartition, Sequence[int]], refused: Mapping[TopicPartition, BrokerError]) -> None:
    for partition, problem in sorted(refused.items()):
        warn(f"{partition}: {problem}")
    print(f"Moving {format_count(len(rows) - len(refused), 'partition')}.")


def _verify(client: Client, options: argparse.Namespace) -> int:
    return _verify_plan(client, _read_plan(options.plan), is_throttle_kept=options.preserve_throttles)


def _verify_plan(client: Client, plan: Plan, *, is_throttle_kept: bool) -> int:
    """Print a row for each partition; returns 0 if the plan is complete."""
    under_way = list_reassignments(client)
    now = replicas_of(Admin(client).topics(plan.topics)) if plan.topics else {}
    states = progress(plan, under_way, now)
    rows = [
        (str(name), state.value, _ids(now.get(name, ())), _ids(plan.replicas[name])) for name, state in states.items()
    ]
    print_table(("Partition", "State", "Now", "Plan"), rows)
    if ReassignmentState.UNDER_WAY not in states.values() and not is_throttle_kept:
        clear_throttles(client, {name.topic for name in now})
    return 0 if set(states.values()) <= {ReassignmentState.DONE} else EXIT_FAILED


def _cancel(client: Client, options: argparse.Namespace) -> int:
    under_way = list_reassignments(client)
    if options.plan is not None:
        wanted = _read_plan(options.plan).replicas
        under_way = {name: move for name, move in under_way.items() if name in wanted}
    if not under_way:
        print("No moves of this plan are in progress.")
        return 0
    refused = alter_reassignments(client, dict.fromkeys(under_way))
    for partition, problem in sorted(refused.items()):
        warn(f"{partition}: {problem}")
    print(f"Cancelled {format_count(len(under_way) - len(refused), 'move')}.")
    if not options.preserve_throttles:
        clear_throttles(client, {name.topic for name in under_way})
    return EXIT_FAILED if refused else 0


def _list(client: Client, _options: argparse.Namespace) -> int:
    moves = list_reassignments(client)
    if not moves:
        if is_terminal(sys.stdout):
            print("No moves are in progress.")
        return 0
    found = describe_progress(client, moves)
    rows = [
        (
            str(name),
            _ids(move.target),
            _ids(sorted(move.adding)),
            _ids(sorted(move.removing)),
            bar(found[name].share) if is_terminal(sys.stdout) else f"{found[name].share * 100:.0f}",
        )
        for name, move in sorted(moves.items())
    ]
    print_table(("Partition", "Target", "Adding", "Removing", "Copied"), rows)
    return 0


def _throttle(client: Client, options: argparse.Namespace) -> int:
    if (options.rate is None) != options.off:
        raise UsageError("give either a number of bytes per second, or --off")
    moves = list_reassignments(client)
    if options.off:
        clear_throttles(client, {name.topic for name in moves})
        print("The throttle is removed.")
        return 0
    if not moves:
        raise PlanError("no moves are in progress")
    set_throttles(client, throttle_settings(moves, {}, {}), options.rate)
    print(f"Moves are slowed down to {options.rate} bytes a second on each broker.")
    return 0


def _ids(brokers: Sequence[int]) -> str:
    return ",".join(map(str, brokers))
