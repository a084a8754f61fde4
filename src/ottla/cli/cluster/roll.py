"""`ottla cluster roll`: restart the brokers one after the other, and stop at the first doubt."""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path
from typing import Any, Final

from ottla.cli.arguments import add_connection, duration
from ottla.cli.tables import print_table
from ottla.cli.terminal import EXIT_FAILED, ToolError, UsageError, end_on_sigterm, is_terminal, say, shown, warn
from ottla.cli.top.screen import duration as span
from ottla.client.client import Client
from ottla.client.cluster import describe_cluster
from ottla.client.errors import ClientError
from ottla.operations.doctor.findings import some
from ottla.operations.rolling.command import command_for, names_a_broker
from ottla.operations.rolling.driver import Driver, Looker
from ottla.operations.rolling.facts import Look, interruption, order, unwritable_without
from ottla.operations.rolling.roll import Act, Left, Limits, Roll, RollState, Step
from ottla.operations.rolling.state_file import Saved, StateFile, default_path

CALL_MS_MAX: Final = 5_000  # a broker that is being restarted must not hold up the look at the others
OLD_MS: Final = 24 * 3_600_000  # a roll that stopped longer ago than this is not gone on with unasked
EXAMPLES: Final = """
ottla cluster roll --command 'systemctl restart ottla@{id}'             brokers that are units of this machine
ottla cluster roll --command 'ssh {host} sudo systemctl restart ottla'
ottla cluster roll --command 'docker compose restart broker-{id}'
ottla cluster roll --command 'kubectl delete pod ottla-{id} --wait'
ottla cluster roll --command ... --dry-run                              the order, and what would stop it
ottla cluster roll --continue                                           go on where it stopped
"""


def add_parser(commands: Any) -> None:
    parser = commands.add_parser("roll", help="restart the brokers one after the other", examples=EXAMPLES)
    parser.add_argument(
        "--command", metavar="COMMAND", help="restarts one broker; {id}, {host}, {port} and {rack} are filled in"
    )
    parser.add_argument("--brokers", type=_ids, default=(), metavar="1,2", help="only these")
    parser.add_argument(
        "--dry-run", action="store_true", help="show the order, what would be run, and what would stop it"
    )
    parser.add_argument("--continue", action="store_true", dest="is_continued", help="go on with the roll that stopped")
    parser.add_argument("--anew", action="store_true", help="forget a roll that stopped, and begin with all brokers")
    parser.add_argument("--wait", type=duration, default=600_000, metavar="TIME", help="limit of a wait (default: 10m)")
    parser.add_argument(
        "--timeout", type=duration, default=300_000, metavar="TIME", help="limit of the command (default: 5m)"
    )
    parser.add_argument(
        "--allow-interruption",
        action="store_true",
        help="restart brokers, too, without which some partitions cannot be written",
    )
    parser.add_argument("--state", type=Path, metavar="FILE", help="where it is kept how far the roll is")
    parser.set_defaults(action=run)
    add_connection(parser)


def run(client: Client, options: argparse.Namespace) -> int:
    if options.is_continued and options.anew:
        raise UsageError("give one of --continue and --anew")
    if options.command is None and not options.is_continued:
        raise UsageError("say how a broker is restarted: --command 'systemctl restart ottla@{id}'")
    client.timeout_ms = min(client.timeout_ms, CALL_MS_MAX)
    look = Looker(client).look()
    path = options.state or default_path(describe_cluster(client).cluster_id)
    if options.dry_run:
        return _show(look, options)
    with StateFile(path) as file:
        saved = _begun(file, look, options)
        return _roll(client, options, file, saved)


def _ids(text: str) -> tuple[int, ...]:
    words = text.split(",")
    if not all(word.strip().isdecimal() for word in words):
        raise argparse.ArgumentTypeError(f"{text!r} is no list of brokers: write 1,2")
    ids = tuple(int(word) for word in words)
    if len(set(ids)) < len(ids):
        raise argparse.ArgumentTypeError("a broker is named twice")
    return ids


def _wanted(look: Look, ids: tuple[int, ...]) -> list[int]:
    unknown = [broker for broker in ids if broker not in look.brokers]
    if unknown:
        there = ", ".join(map(str, sorted(look.brokers)))
        raise UsageError(f"--brokers: {', '.join(map(str, unknown))} is not there; there are {there}")
    return order(ids or look.brokers, look.controller_id)


def _check_command(command: str, look: Look, wanted: list[int]) -> None:
    """Wrong words are found before anything is restarted."""
    for broker in wanted:
        if broker in look.brokers:
            command_for(command, look.brokers[broker])
    if len(wanted) > 1 and not names_a_broker(command):
        raise UsageError("--command names no broker, and would do the same for each: use {id}, {host} or {port}")


def _show(look: Look, options: argparse.Namespace) -> int:
    wanted = _wanted(look, options.brokers)
    command = options.command or ""
    _check_command(command, look, wanted)
    listed = some if is_terminal(sys.stdout) else ", ".join  # programs get all of them
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


def _check_interruption(look: Look, wanted: list[int], options: argparse.Namespace) -> None:
    """A roll that would stop halfway does not begin."""
    found = None if options.allow_interruption else interruption(look, wanted)
    if found is not None:
        raise ToolError(found.reason)


def _begun(file: StateFile, look: Look, options: argparse.Namespace) -> Saved:
    """The roll that stopped, if this one goes on with it; else a new one."""
    saved = None if options.anew else file.load()
    if saved is None:
        if options.is_continued:
            raise UsageError(f"no roll of this cluster has stopped: {file.path} is not there")
        wanted = _wanted(look, options.brokers)
        _check_command(options.command, look, wanted)
        _check_interruption(look, wanted, options)
        return Saved(options.command, options.brokers, _wall_ms(), RollState(wanted))
    ago = span((_wall_ms() - saved.saved_ms) / 1000)
    is_same = (options.command, options.brokers) == (saved.command, saved.wanted)
    is_old = _wall_ms() - saved.saved_ms > OLD_MS
    if not options.is_continued and (is_old or not is_same):
        what = "a roll" if is_same else "a roll with another command or other brokers"
        raise UsageError(f"{what} stopped {ago} ago ({file.path}): --continue goes on with it, --anew begins with all")
    if options.command not in (None, saved.command):
        raise UsageError(f"the roll that stopped has another command: {saved.command}")
    if options.brokers not in ((), saved.wanted):
        raise UsageError("the roll that stopped is one of other brokers: leave --brokers out, or say --anew")
    _check_command(saved.command, look, saved.state.brokers)
    begun = {*saved.state.done, saved.state.at}  # the roll itself knows what the broker still needs that it is at
    _check_interruption(look, [broker for broker in saved.state.brokers if broker not in begun], options)
    say(f"Going on with the roll that stopped {ago} ago. Done: {_listed(saved.state.done)}.")
    return saved


def _roll(client: Client, options: argparse.Namespace, file: StateFile, saved: Saved) -> int:
    limits = Limits(options.wait, options.timeout)
    roll = Roll(saved.state, limits, may_interrupt=options.allow_interruption)
    progress = Progress(len(saved.state.brokers), len(saved.state.done))
    last: list[object] = []

    def save(state: RollState) -> None:
        now = (list(state.done), state.at, state.phase)
        if last != [now]:
            last[:] = [now]
            file.save(saved._replace(saved_ms=_wall_ms(), state=state))

    driver = Driver(client, roll, saved.command, save=save, tell=progress.tell, note=progress.note)
    end_on_sigterm()
    try:
        step = driver.run()
    except (KeyboardInterrupt, SystemExit, ClientError):
        progress.clear()
        at = f" at broker {saved.state.at}" if saved.state.at is not None else ""
        warn(f"ottla: the roll was interrupted{at}. Done: {_listed(saved.state.done)}.")
        if file.path.exists():  # else nothing was begun
            _tell_left(driver.left_behind(), options)
        raise
    progress.clear()
    if step.act is Act.FINISH:
        file.remove()
        say(f"Restarted: broker {', '.join(map(str, saved.state.done))}.")
        return 0
    warn(f"ottla: the roll stopped at broker {step.broker}: {step.why}.")
    _tell_left(driver.left_behind(), options)
    return EXIT_FAILED


def _tell_left(left: Left, options: argparse.Namespace) -> None:
    for sentence in left.sentences():
        warn(sentence)
    state = "" if options.state is None else f" --state {options.state}"
    warn(f"It goes on there with: ottla cluster roll --continue{state}")


def _listed(brokers: list[int]) -> str:
    return ", ".join(map(str, brokers)) or "none"


class Progress:
    """A line that changes on a terminal; in a pipe a line for everything that happens, and one for each new wait."""

    WORDS: Final = {
        Act.MAINTAIN: "leaders leave",
        Act.RUN: "restarting",
        Act.RELEASE: "in sync, gets its leaders back",
        Act.NEXT: "done",
    }

    def __init__(self, count: int, done: int = 0) -> None:
        self._count = count
        self._done = done
        self._is_terminal = is_terminal(sys.stdout)
        self._last = ""

    def tell(self, step: Step) -> None:
        if step.act in (Act.STOP, Act.FINISH):
            return
        self._done += step.act is Act.NEXT
        words = self.WORDS.get(step.act) or f"waiting: {step.why}"
        if step.act is Act.NEXT:
            words += f" ({self._done} of {self._count})"
        line = f"broker {step.broker}: {words}" if step.broker >= 0 else words
        if self._is_terminal and step.act is Act.WAIT:
            print(f"\r\x1b[K{shown(line)}", end="", flush=True)
        elif line != self._last:
            self.note(line)
        self._last = line

    def note(self, line: str) -> None:
        self.clear()
        say(f"{time.strftime('%H:%M:%S')} {line}")
        sys.stdout.flush()

    def clear(self) -> None:
        if self._is_terminal:
            print("\r\x1b[K", end="", flush=True)


def _wall_ms() -> int:
    return int(time.time() * 1000)
