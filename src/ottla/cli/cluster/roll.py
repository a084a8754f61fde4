"""`ottla cluster roll`: restart the brokers one at a time and stop at the first problem."""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path
from typing import Final

from ottla.cli.arguments import Argument, Command, duration, flag
from ottla.cli.reports.broker_screen import duration_text as span
from ottla.cli.tables import print_table
from ottla.cli.terminal import (
    EXIT_FAILED,
    ToolError,
    UsageError,
    exit_on_sigterm,
    is_terminal,
    print_line,
    printable,
    warn,
)
from ottla.client.client import Client
from ottla.client.cluster import describe_cluster
from ottla.client.errors import ClientError
from ottla.operations.doctor.findings import shorten_list
from ottla.operations.rolling.driver import ClusterReader, Driver, command_for, depends_on_broker
from ottla.operations.rolling.roll import (
    Action,
    ClusterState,
    Leftovers,
    Limits,
    RollingRestart,
    RollState,
    Step,
    find_interruption,
    restart_order,
    unwritable_without,
)
from ottla.operations.rolling.state_file import SavedRoll, StateFile, default_path

CALL_MS_MAX: Final = 5_000  # a restarting broker must not delay the checks of the others
RESUME_MS_MAX: Final = 24 * 3_600_000  # an older stopped roll is resumed only with --continue
EXAMPLES: Final = """
ottla cluster roll --command 'systemctl restart ottla@{id}'             brokers that are units of this machine
ottla cluster roll --command 'ssh {host} sudo systemctl restart ottla'
ottla cluster roll --command 'docker compose restart broker-{id}'
ottla cluster roll --command 'kubectl delete pod ottla-{id} --wait'
ottla cluster roll --command ... --dry-run                              print the order and possible obstacles
ottla cluster roll --continue                                           resume a stopped roll
"""


def run(client: Client, options: argparse.Namespace) -> int:
    if options.is_continued and options.anew:
        raise UsageError("--continue and --anew exclude each other")
    if options.command is None and not options.is_continued:
        raise UsageError("name the command that restarts a broker: --command 'systemctl restart ottla@{id}'")
    client.timeout_ms = min(client.timeout_ms, CALL_MS_MAX)
    look = ClusterReader(client).read()
    path = options.state or default_path(describe_cluster(client).cluster_id)
    if options.dry_run:
        return _print_dry_run(look, options)
    with StateFile(path) as file:
        saved = _load_or_create(file, look, options)
        return _roll(client, options, file, saved)


def _ids(text: str) -> tuple[int, ...]:
    words = text.split(",")
    if not all(word.strip().isdecimal() for word in words):
        raise argparse.ArgumentTypeError(f"{text!r} is not a list of brokers: write 1,2")
    ids = tuple(int(word) for word in words)
    if len(set(ids)) < len(ids):
        raise argparse.ArgumentTypeError("a broker is named twice")
    return ids


COMMAND: Final = Command(
    "roll",
    "restart the brokers one at a time",
    run,
    Argument("--command", metavar="COMMAND", help="restarts one broker; {id}, {host}, {port} and {rack} are filled in"),
    Argument("--brokers", type=_ids, default=(), metavar="1,2", help="restart only these brokers"),
    flag("--dry-run", help="print the order, the commands and possible obstacles"),
    flag("--continue", dest="is_continued", help="resume the roll that stopped"),
    flag("--anew", help="discard a stopped roll and start with all brokers"),
    Argument("--wait", type=duration, default=600_000, metavar="TIME", help="limit of a wait (default: 10m)"),
    Argument("--timeout", type=duration, default=300_000, metavar="TIME", help="limit of the command (default: 5m)"),
    flag("--allow-interruption", help="also restart brokers without which some partitions cannot be written"),
    Argument("--state", type=Path, metavar="FILE", help="file that stores the progress of the roll"),
    examples=EXAMPLES,
)


def _brokers_to_restart(look: ClusterState, ids: tuple[int, ...]) -> list[int]:
    unknown = [broker for broker in ids if broker not in look.brokers]
    if unknown:
        existing = ", ".join(map(str, sorted(look.brokers)))
        raise UsageError(f"--brokers: {', '.join(map(str, unknown))} does not exist; brokers: {existing}")
    return restart_order(ids or look.brokers, look.controller_id)


def _check_command(command: str, look: ClusterState, wanted: list[int]) -> None:
    """Reject an invalid command before any broker is restarted."""
    for broker in wanted:
        if broker in look.brokers:
            command_for(command, look.brokers[broker])
    if len(wanted) > 1 and not depends_on_broker(command):
        raise UsageError("--command names no broker, and would do the same for each: use {id}, {host} or {port}")


def _print_dry_run(look: ClusterState, options: argparse.Namespace) -> int:
    wanted = _brokers_to_restart(look, options.brokers)
    command = options.command or ""
    _check_command(command, look, wanted)
    listed = shorten_list if is_terminal(sys.stdout) else ", ".join  # a pipe receives the complete list
    rows = [
        (
            str(broker),
            f"{look.brokers[broker].host}:{look.brokers[broker].port}",
            "controller" if broker == look.controller_id else "",
            command_for(command, look.brokers[broker]),
            listed(map(str, unwritable_without(look, broker))),
        )
        for broker in wanted
    ]
    print_table(("Broker", "Address", "Role", "Command", "Not writable"), rows, ("Broker",))
    _check_interruption(look, wanted, options)
    return 0


def _check_interruption(look: ClusterState, wanted: list[int], options: argparse.Namespace) -> None:
    """Reject a roll that would stop halfway."""
    found = None if options.allow_interruption else find_interruption(look, wanted)
    if found is not None:
        raise ToolError(found.reason)


def _load_or_create(file: StateFile, look: ClusterState, options: argparse.Namespace) -> SavedRoll:
    """The stopped roll if this one resumes it, else a new one."""
    saved = None if options.anew else file.load()
    if saved is None:
        if options.is_continued:
            raise UsageError(f"no roll of this cluster has stopped: {file.path} is not there")
        wanted = _brokers_to_restart(look, options.brokers)
        _check_command(options.command, look, wanted)
        _check_interruption(look, wanted, options)
        return SavedRoll(options.command, options.brokers, _now_ms(), RollState(wanted))
    ago = span((_now_ms() - saved.saved_ms) / 1000)
    is_same = (options.command, options.brokers) == (saved.command, saved.wanted)
    is_old = _now_ms() - saved.saved_ms > RESUME_MS_MAX
    if not options.is_continued and (is_old or not is_same):
        what = "a roll" if is_same else "a roll with another command or other brokers"
        raise UsageError(
            f"{what} stopped {ago} ago ({file.path}): --continue resumes it, --anew starts with all brokers"
        )
    if options.command not in (None, saved.command):
        raise UsageError(f"the stopped roll has another command: {saved.command}")
    if options.brokers not in ((), saved.wanted):
        raise UsageError("the stopped roll has other brokers: omit --brokers, or use --anew")
    _check_command(saved.command, look, saved.state.brokers)
    begun = {*saved.state.done, saved.state.current}  # the roll itself tracks the current broker
    _check_interruption(look, [broker for broker in saved.state.brokers if broker not in begun], options)
    print_line(f"Resuming the roll that stopped {ago} ago. Done: {_listed(saved.state.done)}.")
    return saved


def _roll(client: Client, options: argparse.Namespace, file: StateFile, saved: SavedRoll) -> int:
    limits = Limits(options.wait, options.timeout)
    roll = RollingRestart(saved.state, limits, may_interrupt=options.allow_interruption)
    progress = Progress(len(saved.state.brokers), len(saved.state.done))
    last: list[object] = []

    def save(state: RollState) -> None:
        now = (list(state.done), state.current, state.phase)
        if last != [now]:
            last[:] = [now]
            file.save(saved._replace(saved_ms=_now_ms(), state=state))

    driver = Driver(client, roll, saved.command, save=save, tell=progress.show_step, note=progress.print_line)
    exit_on_sigterm()
    try:
        step = driver.run()
    except (KeyboardInterrupt, SystemExit, ClientError):
        progress.clear()
        at = f" at broker {saved.state.current}" if saved.state.current is not None else ""
        warn(f"ottla: the roll was interrupted{at}. Done: {_listed(saved.state.done)}.")
        if file.path.exists():  # no file: no broker was restarted
            _print_left_behind(driver.leftovers(), options)
        raise
    progress.clear()
    if step.action is Action.FINISH:
        file.remove()
        print_line(f"Restarted: broker {', '.join(map(str, saved.state.done))}.")
        return 0
    warn(f"ottla: the roll stopped at broker {step.broker}: {step.reason}.")
    _print_left_behind(driver.leftovers(), options)
    return EXIT_FAILED


def _print_left_behind(left: Leftovers, options: argparse.Namespace) -> None:
    for sentence in left.messages():
        warn(sentence)
    state = "" if options.state is None else f" --state {options.state}"
    warn(f"Resume with: ottla cluster roll --continue{state}")


def _listed(brokers: list[int]) -> str:
    return ", ".join(map(str, brokers)) or "none"


class Progress:
    """A line that is updated on a terminal; in a pipe one line per event and one per new wait."""

    WORDS: Final = {
        Action.MAINTAIN: "leaders leave",
        Action.RUN: "restarting",
        Action.RELEASE: "in sync, gets its leaders back",
        Action.NEXT: "done",
    }

    def __init__(self, count: int, done: int = 0) -> None:
        self._count = count
        self._done = done
        self._is_terminal = is_terminal(sys.stdout)
        self._last = ""

    def show_step(self, step: Step) -> None:
        if step.action in (Action.STOP, Action.FINISH):
            return
        self._done += step.action is Action.NEXT
        words = self.WORDS.get(step.action) or f"waiting: {step.reason}"
        if step.action is Action.NEXT:
            words += f" ({self._done} of {self._count})"
        line = f"broker {step.broker}: {words}" if step.broker >= 0 else words
        if self._is_terminal and step.action is Action.WAIT:
            print(f"\r\x1b[K{printable(line)}", end="", flush=True)
        elif line != self._last:
            self.print_line(line)
        self._last = line

    def print_line(self, line: str) -> None:
        self.clear()
        print_line(f"{time.strftime('%H:%M:%S')} {line}")
        sys.stdout.flush()

    def clear(self) -> None:
        if self._is_terminal:
            print("\r\x1b[K", end="", flush=True)


def _now_ms() -> int:
    return int(time.time() * 1000)
