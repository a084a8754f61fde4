"""What all commands do alike that move replicas of a whole cluster: show the plan, keep a journal, carry it out, go on
after a crash, cancel, roll back.
"""

from __future__ import annotations

import argparse
import fcntl
import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from ottla.base.counting import counted
from ottla.base.errors import KafkaError
from ottla.base.names import TopicPartition
from ottla.base.placement.broker_loads import Aims
from ottla.cli.arguments import positive
from ottla.cli.cluster.outlook import ids, show, tell_unknown
from ottla.cli.reassignment.progress import draw
from ottla.cli.terminal import EXIT_FAILED, ToolError, UsageError, is_terminal, say, warn
from ottla.client.admin import Admin
from ottla.client.client import Client
from ottla.client.cluster import describe_cluster
from ottla.client.errors import ClientError
from ottla.operations.reassignment.carrying import Outcome, Sight, Stuck, cancel, carry_out
from ottla.operations.reassignment.facts import MEASURE_SECONDS, ClusterFacts, check_led, foreign_moves, gather
from ottla.operations.reassignment.journal import (
    Journal,
    JournalError,
    journal_path,
    read_journal,
    write_journal,
)
from ottla.operations.reassignment.plan import PlanError, plan_text
from ottla.operations.reassignment.steps import replicas_of

THROTTLE = 10_000_000  # bytes a second for each broker: producers do not notice it
AT_ONCE = 5  # copies that a broker makes or serves at a time
UNBOUNDED = 10**9


class Wish(NamedTuple):
    """What a command wants of the cluster as it is: rows that change, in which order, what could not be an aim."""

    rows: dict[TopicPartition, list[int]]
    first: frozenset[TopicPartition] = frozenset()
    pinned: int = 0
    unknown: frozenset[int] = frozenset()


Make = Callable[[ClusterFacts, argparse.Namespace], Wish]


def add_moving(parser: argparse.ArgumentParser, *, is_measured: bool) -> None:
    """The options of all these commands."""
    parser.add_argument("--dry-run", action="store_true", help="show the plan, and move nothing")
    parser.add_argument("--output", "-o", metavar="FILE", help="with --dry-run: write the plan in Kafka's form")
    speed = parser.add_mutually_exclusive_group()
    speed.add_argument(
        "--throttle",
        type=positive,
        metavar="BYTES",
        default=THROTTLE,
        help=f"most bytes a second that a broker copies (default: {THROTTLE})",
    )
    speed.add_argument("--no-throttle", action="store_true", help="as fast as it goes")
    parser.add_argument(
        "--at-once", type=positive, metavar="N", default=AT_ONCE, help=f"copies a broker at a time (default: {AT_ONCE})"
    )
    parser.add_argument(
        "--wait",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="until everything is moved (default); without, call the command again to have the throttle taken away",
    )
    parser.add_argument(
        "--disk-mark", type=positive, metavar="PERCENT", default=85, help="how full a disk may become (default: 85)"
    )
    if is_measured:
        parser.add_argument(
            "--measure",
            type=float,
            metavar="SECONDS",
            default=MEASURE_SECONDS,
            help=f"how long traffic is measured; 0: it does not count (default: {MEASURE_SECONDS:.0f})",
        )
    ending = parser.add_mutually_exclusive_group()
    ending.add_argument("--cancel", action="store_true", help="end what this command has begun")
    ending.add_argument("--rollback", action="store_true", help="move everything back to where it was before")
    parser.add_argument("--state", metavar="DIR", help="folder of journals (default: ~/.local/state/ottla/moves)")


def aims_of(options: argparse.Namespace) -> Aims:
    if options.disk_mark > 100:
        raise UsageError(f"--disk-mark {options.disk_mark} is more than a whole disk")
    return Aims(disk_mark=options.disk_mark / 100)


def run_moves(client: Client, options: argparse.Namespace, command: str, make: Make) -> int:
    """One command from its options to its exit code."""
    measured = getattr(options, "measure", 0.0)
    if not 0 <= measured <= 3600:
        raise UsageError("--measure is a number of seconds up to an hour")
    if options.output is not None and not options.dry_run:
        raise UsageError("--output goes with --dry-run")
    aims_of(options)
    path = journal_path(state_folder(options), describe_cluster(client).cluster_id)
    with locked(path), told_how_to_go_on(path):
        journal = read_journal(path)
        if options.cancel:
            return _cancel(client, command, journal, path)
        if options.rollback:
            return _roll_back(client, options, command, journal, path)
        if journal is not None and not journal.is_ended:
            return _go_on(client, options, command, journal, path)
        _check_nothing_moves(client)
        return _begin(client, options, command, make, path)


def _check_nothing_moves(client: Client) -> None:
    moves = foreign_moves(client, ())
    if moves:
        raise PlanError(
            f"{counted(len(moves), 'move', 'is')} under way that this command has not begun (ottla reassign list): "
            "wait for the end, or cancel (ottla reassign cancel)"
        )


def _begin(client: Client, options: argparse.Namespace, command: str, make: Make, path: Path) -> int:
    facts = gather(client, getattr(options, "measure", 0.0))
    try:
        wish = make(facts, options)
    except KafkaError as refusal:
        raise ToolError(refusal.message or refusal.error.name) from None
    check_led(facts, wish.rows)
    throttle = None if options.no_throttle else options.throttle
    show(facts, wish.rows, throttle)
    tell_unknown(facts, wish.pinned, wish.unknown)
    if options.output is not None:
        Path(options.output).write_text(plan_text(wish.rows, {}) + "\n", encoding="utf-8")
    if not wish.rows:
        say("Nothing has to be moved.")
        return 0
    if options.dry_run:
        return 0
    _check_nothing_moves(client)  # again: somebody on another machine may have been as quick while we measured
    now = facts.rows
    journal = Journal(
        command,
        facts.cluster_id,
        int(time.time() * 1000),
        {name: now[name] for name in wish.rows},
        wish.rows,
        throttle,
        options.at_once if options.wait else UNBOUNDED,
        tuple(sorted(wish.first)),
    )
    write_journal(path, journal)
    say(f"What was before stands in {path}.")
    return _carry(client, journal, path, is_waiting=options.wait)


def _go_on(client: Client, options: argparse.Namespace, command: str, journal: Journal, path: Path) -> int:
    if journal.command != command or journal.is_rollback:
        raise JournalError(
            f"`{journal.words}` is not finished: call it again to go on with it, or end it: "
            f"ottla cluster {journal.command} --cancel"
        )
    now = replicas_of(Admin(client).topics(journal.topics))
    done = sum(now.get(name) == row for name, row in journal.after.items())
    say(f"Going on with what was begun: {done} of {_in_place(len(journal.after))}.")
    if options.dry_run:
        return 0
    throttle = None if options.no_throttle else options.throttle
    again = journal._replace(throttle=throttle, at_once=options.at_once if options.wait else UNBOUNDED)
    return _carry(client, again, path, is_waiting=options.wait)


def _cancel(client: Client, command: str, journal: Journal | None, path: Path) -> int:
    if journal is None or journal.is_ended:
        say("Nothing of it is under way.")
        return 0
    _check_command(command, journal)
    ended, refused = cancel(client, journal, lambda new: write_journal(path, new))
    for name, problem in sorted(refused.items()):
        warn(f"{name}: {problem}")
    say(f"Cancelled {counted(ended, 'move')}. What was moved before stays: --rollback moves it back.")
    return EXIT_FAILED if refused else 0


def _roll_back(client: Client, options: argparse.Namespace, command: str, journal: Journal | None, path: Path) -> int:
    if journal is None:
        raise JournalError(f"nothing is known of what was before: there is no {path}")
    _check_command(command, journal)
    throttle = None if options.no_throttle else options.throttle
    if not journal.is_rollback:
        now = replicas_of(Admin(client).topics(journal.topics))
        journal = journal.turned_back(now, int(time.time() * 1000))
    elif journal.is_ended:
        say("It is rolled back already.")
        return 0
    if options.dry_run:
        say(f"{counted(len(journal.after), 'partition')} would be moved back.")
        return 0
    journal = journal._replace(throttle=throttle, at_once=options.at_once if options.wait else UNBOUNDED)
    write_journal(path, journal)
    return _carry(client, journal, path, is_waiting=options.wait)


def _check_command(command: str, journal: Journal) -> None:
    if journal.command != command:
        raise JournalError(f"the last command was `ottla cluster {journal.command}`, not `ottla cluster {command}`")


# ---- carrying out


class _NoMoreWaitingError(Exception):
    """Everything is begun, and nobody wants to wait for the end."""


def _carry(client: Client, journal: Journal, path: Path, *, is_waiting: bool) -> int:
    try:
        outcome = carry_out(client, journal, lambda new: write_journal(path, new), _Watch(client, journal, is_waiting))
    except _NoMoreWaitingError:
        say(_hint(journal))
        return 0
    _clear_line()
    return _tell(journal, outcome)


@contextmanager
def told_how_to_go_on(path: Path) -> Iterator[None]:
    """Whoever is interrupted, by a person or because nobody answers, says what becomes of what was begun."""
    try:
        yield
    except (KeyboardInterrupt, ClientError):
        journal = read_journal(path)
        if journal is not None and not journal.is_ended:
            _clear_line()
            warn(_hint(journal))
        raise


def _hint(journal: Journal) -> str:
    return (
        "What is under way goes on (ottla reassign list). The same command again goes on with the rest and takes the "
        f"throttle away: {journal.words}. To end it: ottla cluster {journal.command} --cancel"
    )


class _Watch:
    """Draws a line on a terminal while moves are under way."""

    def __init__(self, client: Client, journal: Journal, is_waiting: bool) -> None:
        self.client = client
        self.journal = journal
        self.is_waiting = is_waiting
        self.is_shown = is_terminal(sys.stderr)
        self.most_bytes = 0
        self.looks = 0
        self.stuck = Stuck()
        self.started = time.monotonic()

    def __call__(self, sight: Sight) -> None:
        self.looks += 1
        if not self.is_waiting and self.looks > 1 and not sight.waiting and sight.under_way:
            raise _NoMoreWaitingError
        for name in self.stuck.look(sight.unled, self.client.clock.monotonic_ms()):
            _clear_line()
            warn(
                f"{name} has no leader, and nothing is copied until the brokers that hold it are back. To end what is "
                f"under way: ottla cluster {self.journal.command} --cancel"
            )
        if self.is_shown and sight.under_way:
            total = len(self.journal.after) - sight.waiting
            self.most_bytes = draw(self.client, sight.under_way, total, self.most_bytes, self.started)


def _clear_line() -> None:
    if is_terminal(sys.stderr):
        print("\r\x1b[K", end="", file=sys.stderr, flush=True)


def _tell(journal: Journal, outcome: Outcome) -> int:
    for name, problem in sorted(outcome.refused.items()):
        warn(f"{name}: {problem}")
    if outcome.left:
        names = ", ".join(map(str, outcome.left[:5]))
        warn(f"{_in_place(len(outcome.left), is_there=False)}, somebody has ended that: {names}")
    if outcome.still_throttled:
        warn(
            f"broker {ids(outcome.still_throttled)} was away when the throttle was taken from all: "
            "ottla reassign throttle --off, when it is back"
        )
    elected = f", {counted(outcome.elected, 'leader')} changed" if outcome.elected else ""
    say(f"{outcome.moved} of {_in_place(len(journal.after))}{elected}.")
    return EXIT_FAILED if outcome.refused or outcome.left else 0


def _in_place(number: int, *, is_there: bool = True) -> str:
    return (
        f"{counted(number, 'partition', 'is')}{'' if is_there else ' not'} where {'it' if number == 1 else 'they'} "
        "should be"
    )


# ---- where journals lie


def state_folder(options: argparse.Namespace) -> Path:
    if options.state:
        return Path(options.state)
    base = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    return Path(base) / "ottla" / "moves"


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """One such command at a time for a cluster, as far as this machine knows."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path.with_suffix(".lock"), "w", encoding="utf-8") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise ToolError(
                "another command moves replicas of this cluster right now: wait for it, or stop it"
            ) from None
        yield
