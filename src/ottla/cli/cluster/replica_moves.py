"""The commands that move replicas of a whole cluster: their options, the plan as a table, progress and outcome."""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from ottla.base.errors import KafkaError
from ottla.base.names import TopicPartition
from ottla.base.placement.broker_loads import DISK, IN, OUT, BalanceGoals, BrokerFigures, figures_of, skew
from ottla.base.text import format_count
from ottla.cli.arguments import Argument, OneOf, flag, positive
from ottla.cli.reports.reassignment_progress import ProgressLine
from ottla.cli.tables import print_table
from ottla.cli.terminal import EXIT_FAILED, ToolError, UsageError, print_line, warn
from ottla.client.admin import Admin
from ottla.client.client import Client
from ottla.client.errors import ClientError
from ottla.operations.reassignment.cluster_model import (
    MEASURE_SECONDS,
    ClusterModel,
    largest_replicas,
)
from ottla.operations.reassignment.executor import COPIES_AT_ONCE, Round, StuckMoves, seconds_to_copy
from ottla.operations.reassignment.journal import Journal
from ottla.operations.reassignment.move_command import THROTTLE, MoveCommand, Outcome, Pace, PlanMaker
from ottla.operations.reassignment.moves import bytes_to_copy, replicas_of
from ottla.operations.reassignment.plan import plan_text
from ottla.operations.sizes import size_text

UNBOUNDED = 10**9


# The options that all these commands share.
MOVE_ARGUMENTS: Final = (
    flag("--dry-run", help="show the plan, and move nothing"),
    Argument("--output", "-o", metavar="FILE", help="with --dry-run: write the plan in Kafka's form"),
    OneOf(
        Argument(
            "--throttle",
            type=positive,
            metavar="BYTES",
            default=THROTTLE,
            help=f"most bytes a second that a broker copies (default: {THROTTLE})",
        ),
        flag("--no-throttle", help="do not limit the speed"),
    ),
    Argument(
        "--at-once",
        type=positive,
        metavar="N",
        default=COPIES_AT_ONCE,
        help=f"copies a broker at a time (default: {COPIES_AT_ONCE})",
    ),
    Argument(
        "--wait",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="wait until everything is moved (default); otherwise repeat the command to remove the throttle",
    ),
    Argument(
        "--disk-mark", type=positive, metavar="PERCENT", default=85, help="how full a disk may become (default: 85)"
    ),
    OneOf(
        flag("--cancel", help="cancel the moves that this command started"),
        flag("--rollback", help="move everything back to where it was before"),
    ),
    Argument("--state", metavar="DIR", help="folder of journals (default: ~/.local/state/ottla/moves)"),
)
MEASURE: Final = Argument(
    "--measure",
    type=float,
    metavar="SECONDS",
    default=MEASURE_SECONDS,
    help=f"how long traffic is measured; 0: it does not count (default: {MEASURE_SECONDS:.0f})",
)


def balance_goals(options: argparse.Namespace) -> BalanceGoals:
    if options.disk_mark > 100:
        raise UsageError(f"--disk-mark {options.disk_mark} is more than a whole disk")
    return BalanceGoals(disk_mark=options.disk_mark / 100)


def run_moves(client: Client, options: argparse.Namespace, command: str, make_plan: PlanMaker) -> int:
    """Run one command; returns the exit code."""
    if not 0 <= getattr(options, "measure", 0.0) <= 3600:
        raise UsageError("--measure is a number of seconds up to an hour")
    if options.output is not None and not options.dry_run:
        raise UsageError("--output requires --dry-run")
    balance_goals(options)
    pace = Pace(None if options.no_throttle else options.throttle, options.at_once if options.wait else UNBOUNDED)
    with MoveCommand(client, command, state_folder(options), pace) as moves, resume_hint(moves):
        if options.cancel:
            return _cancel(moves)
        if options.rollback:
            journal = _rollback(moves, options)
        elif moves.unfinished is not None:
            journal = _resume(client, moves, moves.unfinished, options)
        else:
            journal = _start(moves, options, make_plan)
        return 0 if journal is None else _execute(client, moves, journal, options)


def _start(moves: MoveCommand, options: argparse.Namespace, make_plan: PlanMaker) -> Journal | None:
    """Make and print the plan; None if nothing is to be moved."""
    try:
        facts, move_plan = moves.plan(make_plan, getattr(options, "measure", 0.0))
    except KafkaError as refusal:
        raise ToolError(refusal.message or refusal.error.name) from None
    print_outlook(facts, move_plan.rows, None if options.no_throttle else options.throttle)
    warn_unknown_loads(facts, move_plan.pinned, move_plan.unknown)
    if options.output is not None:
        Path(options.output).write_text(plan_text(move_plan.rows, {}) + "\n", encoding="utf-8")
    if not move_plan.rows:
        print_line("No replica needs to move.")
        return None
    if options.dry_run:
        return None
    journal = moves.start(facts, move_plan, int(time.time() * 1000))
    print_line(f"The previous assignment is stored in {moves.path}.")
    return journal


def _resume(client: Client, moves: MoveCommand, journal: Journal, options: argparse.Namespace) -> Journal | None:
    journal = moves.resume(journal)
    now = replicas_of(Admin(client).topics(journal.topics))
    done = sum(now.get(name) == row for name, row in journal.after.items())
    print_line(f"Resuming: {done} of {_in_place_text(len(journal.after))}.")
    return None if options.dry_run else journal


def _cancel(moves: MoveCommand) -> int:
    journal = moves.unfinished
    if journal is None:
        print_line("No moves of this command are in progress.")
        return 0
    ended, refused = moves.cancel(journal)
    for name, problem in sorted(refused.items()):
        warn(f"{name}: {problem}")
    print_line(f"Cancelled {format_count(ended, 'move')}. Finished moves stay: --rollback reverts them.")
    return EXIT_FAILED if refused else 0


def _rollback(moves: MoveCommand, options: argparse.Namespace) -> Journal | None:
    journal = moves.rollback(int(time.time() * 1000))
    if journal.is_ended:
        print_line("Already rolled back.")
        return None
    if options.dry_run:
        print_line(f"{format_count(len(journal.after), 'partition')} would be moved back.")
        return None
    return journal


# ---- execution


class _DetachedError(Exception):
    """All moves are started and --no-wait was given."""


def _execute(client: Client, moves: MoveCommand, journal: Journal, options: argparse.Namespace) -> int:
    watcher = _ProgressWatcher(client, journal, is_waiting=options.wait)
    try:
        outcome = moves.execute(journal, watcher)
    except _DetachedError:
        print_line(_hint(journal))
        return 0
    finally:
        watcher.line.clear()
    return _print_outcome(journal, outcome)


@contextmanager
def resume_hint(moves: MoveCommand) -> Iterator[None]:
    """After an interruption, print how to resume or cancel the moves in progress."""
    try:
        yield
    except (KeyboardInterrupt, ClientError):
        if moves.unfinished is not None:
            warn(_hint(moves.unfinished))
        raise


def _hint(journal: Journal) -> str:
    return (
        "Moves in progress continue (ottla reassign list). Repeat the command to execute the rest and remove the "
        f"throttle: {journal.command_text}. To cancel: ottla cluster {journal.command} --cancel"
    )


class _ProgressWatcher:
    """Draws a progress line on a terminal while moves are in progress."""

    def __init__(self, client: Client, journal: Journal, *, is_waiting: bool) -> None:
        self.client = client
        self.journal = journal
        self.is_waiting = is_waiting
        self.line = ProgressLine(client)
        self.rounds = 0
        self.stuck = StuckMoves()

    def __call__(self, now: Round) -> None:
        self.rounds += 1
        if not self.is_waiting and self.rounds > 1 and not now.waiting and now.under_way:
            raise _DetachedError
        for name in self.stuck.update(now.without_leader, self.client.clock.monotonic_ms()):
            self.line.clear()
            warn(
                f"{name} has no leader, so nothing is copied until a broker that holds it is back. To cancel moves in "
                f"progress: ottla cluster {self.journal.command} --cancel"
            )
        self.line.draw(now.under_way, len(self.journal.after) - now.waiting)


def _print_outcome(journal: Journal, outcome: Outcome) -> int:
    for name, problem in sorted(outcome.refused.items()):
        warn(f"{name}: {problem}")
    if outcome.cancelled:
        names = ", ".join(map(str, outcome.cancelled[:5]))
        warn(
            f"{_in_place_text(len(outcome.cancelled), is_there=False)}, because another client cancelled "
            f"the moves: {names}"
        )
    if outcome.still_throttled:
        warn(
            f"broker {broker_ids_text(outcome.still_throttled)} was offline when the throttle was removed: "
            "run ottla reassign throttle --off when it is back"
        )
    elected = f", {format_count(outcome.elected, 'leader')} changed" if outcome.elected else ""
    print_line(f"{outcome.moved} of {_in_place_text(len(journal.after))}{elected}.")
    return EXIT_FAILED if outcome.refused or outcome.cancelled else 0


def _in_place_text(number: int, *, is_there: bool = True) -> str:
    return (
        f"{format_count(number, 'partition', 'is')}{'' if is_there else ' not'} where "
        f"{'it' if number == 1 else 'they'} "
        "should be"
    )


# ---- location of journals


def state_folder(options: argparse.Namespace) -> Path:
    if options.state:
        return Path(options.state)
    base = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    return Path(base) / "ottla" / "moves"


# ---- the plan as a table
COLUMNS = ("Broker", "Replicas", "Leaders", "On disk", "In/s", "Out/s")
NOUNS = {DISK: "bytes on disk", IN: "bytes in", OUT: "bytes out"}
MINUTE, HOUR = 60, 3600


def print_outlook(
    facts: ClusterModel,
    rows: Mapping[TopicPartition, Sequence[int]],
    throttle: int | None,
    brokers: Sequence[int] | None = None,
) -> None:
    """Print a table of all brokers with the skew, the bytes to copy and the expected duration."""
    shown = sorted({*facts.brokers, *facts.dead_brokers}) if brokers is None else sorted(brokers)
    before = figures_of(facts.loads, {}, shown)
    after = figures_of(facts.loads, rows, shown)
    table = [_broker_row(one, other) for one, other in zip(before, after, strict=True)]
    print_table(COLUMNS, [*table, _skew_row(before, after)], COLUMNS)
    if not rows:
        return
    now = facts.rows
    copies = bytes_to_copy(rows, now, facts.sizes)
    unknown = sum(size is None for size in copies.values())
    size = sum(size for size in copies.values() if size)
    copying = sum(bool(set(row) - set(now[name])) for name, row in rows.items())
    words = [f"{format_count(copying, 'partition')} to copy, {size_text(size)}"]
    if unknown:
        words.append(f"{format_count(unknown, 'partition')} of unknown size")
    if len(rows) > copying:
        words.append(
            f"{format_count(len(rows) - copying, 'partition')} to change only the leader or to remove a replica"
        )
    seconds = seconds_to_copy(rows, now, largest_replicas(now, facts.sizes), throttle)
    if seconds is not None and throttle is not None and size:
        words.append(f"about {time_text(seconds)} at {size_text(throttle)}/s a broker")
    print_line("; ".join(words) + ".")


def warn_unknown_loads(facts: ClusterModel, pinned: int = 0, unknown: frozenset[int] = frozenset()) -> None:
    """Warn about loads that could not be measured and are missing from the plan."""
    if facts.without_sizes:
        warn(f"broker {broker_ids_text(facts.without_sizes)} does not report its replicas.")
    if pinned:
        warn(f"{format_count(pinned, 'partition', 'stays')} in place: the size is unknown.")
    if unknown:
        nouns = " and ".join(NOUNS[resource] for resource in sorted(unknown))
        reason = (
            f": the metrics of broker {broker_ids_text(facts.without_traffic)} are not in reach"
            if facts.without_traffic
            else ""
        )
        warn(f"{nouns} are not known for all brokers and are ignored by this plan{reason}.")


def broker_ids_text(brokers: Sequence[int]) -> str:
    return ", ".join(map(str, brokers))


def time_text(seconds: float) -> str:
    """A duration, rounded to a readable precision."""
    if seconds < MINUTE:
        return f"{max(1, round(seconds))} s"
    if seconds < HOUR:
        return f"{round(seconds / MINUTE)} min"
    return f"{int(seconds // HOUR)} h {round(seconds % HOUR / MINUTE)} min"


def _broker_row(before: BrokerFigures, after: BrokerFigures) -> tuple[str, ...]:
    def change(one: str, other: str) -> str:
        return one if one == other else f"{one} → {other}"

    return (
        str(before.broker),
        change(str(before.replicas), str(after.replicas)),
        change(str(before.leaders), str(after.leaders)),
        *(
            change(_size(one), _size(other))
            for one, other in (
                (before.disk_bytes, after.disk_bytes),
                (before.bytes_in, after.bytes_in),
                (before.bytes_out, after.bytes_out),
            )
        ),
    )


def _size(value: float | None) -> str:
    return "?" if value is None else size_text(int(value))


def _skew_row(before: Sequence[BrokerFigures], after: Sequence[BrokerFigures]) -> tuple[str, ...]:
    """The difference between the largest and the smallest value, in percent of the mean."""

    def percent(values: Sequence[float | None]) -> str:
        found = skew(values)
        return "?" if found is None else f"{found:.0%}"

    cells = []
    for index in range(1, len(BrokerFigures._fields)):
        one, other = (percent([figure[index] for figure in figures]) for figures in (before, after))
        cells.append(one if one == other else f"{one} → {other}")
    return ("skew", *cells)
