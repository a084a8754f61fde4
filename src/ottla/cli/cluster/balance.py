"""`ottla cluster balance`, `add`, `remove`: all bear their share, a new broker gets one, one that goes has none."""

from __future__ import annotations

import argparse
from typing import Any

from ottla.base.placement.balance import plan_balance
from ottla.base.placement.removal import plan_removal
from ottla.cli.arguments import add_connection, not_negative
from ottla.cli.cluster.moving import Wish, add_moving, aims_of, run_moves
from ottla.cli.terminal import EXIT_FAILED, UsageError, say, warn
from ottla.client.admin import Admin
from ottla.client.client import Client
from ottla.client.cluster import unregister_broker
from ottla.operations.doctor.findings import brokers_text
from ottla.operations.reassignment.facts import ClusterFacts, check_whole
from ottla.operations.reassignment.steps import check_brokers, check_holders, replicas_of

TOLERANCE = 10


def add_balance(commands: Any) -> None:
    balance = commands.add_parser("balance", help="even out replicas, leaders, bytes on disk, bytes in and out")
    balance.add_argument(
        "--tolerance",
        type=not_negative,
        metavar="PERCENT",
        default=TOLERANCE,
        help=f"nothing moves while everybody is that near to the mean (default: {TOLERANCE})",
    )
    balance.set_defaults(action=_balance)
    add = commands.add_parser("add", help="give new brokers their share")
    add.set_defaults(action=_add)
    remove = commands.add_parser("remove", help="move everything off brokers that go")
    remove.add_argument("--unregister", action="store_true", help="have the cluster forget them, if they are stopped")
    remove.set_defaults(action=_remove)
    for command in (add, remove):
        command.add_argument("brokers", nargs="+", type=not_negative, metavar="BROKER")
    for command in (balance, add, remove):
        add_moving(command, is_measured=command is not remove)
        add_connection(command)


def _balance(client: Client, options: argparse.Namespace) -> int:
    def make(facts: ClusterFacts, options: argparse.Namespace) -> Wish:
        check_whole(facts)
        aims = aims_of(options)._replace(tolerance=options.tolerance / 100)
        plan = plan_balance(facts.loads, facts.brokers, aims)
        return Wish(plan.rows, plan.urgent, plan.pinned, plan.unknown)

    return run_moves(client, options, "balance", make)


def _add(client: Client, options: argparse.Namespace) -> int:
    brokers = _brokers(options)
    if not (options.cancel or options.rollback):
        check_brokers(Admin(client), brokers)

    def make(facts: ClusterFacts, options: argparse.Namespace) -> Wish:
        check_whole(facts)
        plan = plan_balance(facts.loads, facts.brokers, aims_of(options), brokers)
        return Wish(plan.rows, plan.urgent, plan.pinned, plan.unknown)

    return run_moves(client, options, _command("add", brokers), make)


def _remove(client: Client, options: argparse.Namespace) -> int:
    brokers = _brokers(options)

    def make(facts: ClusterFacts, options: argparse.Namespace) -> Wish:
        check_holders(Admin(client), brokers)
        check_whole(facts, brokers)
        staying = {broker: room for broker, room in facts.brokers.items() if broker not in brokers}
        return Wish(plan_removal(facts.loads, staying, brokers, aims_of(options)))

    code = run_moves(client, options, _command("remove", brokers), make)
    if code or options.dry_run or options.cancel or options.rollback or not options.wait:
        return code
    return _tell_removed(client, brokers, is_unregistered=options.unregister)


def _tell_removed(client: Client, brokers: list[int], *, is_unregistered: bool) -> int:
    client.metadata = None
    held = {broker for row in replicas_of(Admin(client).topics()).values() for broker in row} & set(brokers)
    if held:
        holds = "holds" if len(held) == 1 else "hold"
        warn(f"{brokers_text(held)} still {holds} replicas: the same command again goes on.")
        return EXIT_FAILED
    living = sorted(set(brokers) & set(Admin(client).live_brokers()))
    if living:
        holds, it = ("holds", "it") if len(living) == 1 else ("hold", "they")
        say(
            f"{brokers_text(living).capitalize()} {holds} nothing any more: {it} can be stopped. "
            f"Then: {', '.join(f'ottla cluster unregister {broker}' for broker in living)}"
        )
    for broker in sorted(set(brokers) - set(living)):
        if is_unregistered:
            unregister_broker(client, broker)
            say(f"Broker {broker} is forgotten.")
        else:
            say(f"Broker {broker} holds nothing any more.")
    return 0


def _brokers(options: argparse.Namespace) -> list[int]:
    brokers: list[int] = sorted(options.brokers)
    if len(set(brokers)) < len(brokers):
        raise UsageError("a broker is named twice")
    return brokers


def _command(verb: str, brokers: list[int]) -> str:
    return f"{verb} {' '.join(map(str, brokers))}"
