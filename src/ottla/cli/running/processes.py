"""`ottla broker --processes N`: the brokers of one machine under one supervisor, one of them for each core.

What each runs with stands in `process_settings.py`, how they are kept up in `supervisor.py`. SIGTERM stops them one
after the other, SIGHUP restarts them one after the other (in a terminal it stops them: the terminal is gone).
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import socket
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from ottla.base.systemd import IN_SYNC, VARIABLE, tell_systemd
from ottla.cli.running.process_folders import check_folders
from ottla.cli.running.process_settings import check_processes, metrics_port, put_over, settings_of
from ottla.cli.running.processes_roll import ProcessesRoll
from ottla.cli.running.supervisor import Child, Supervisor
from ottla.cli.running.up_cluster import broker_command
from ottla.cli.terminal import ToolError, is_terminal

READY: Final = re.compile(r"ottla broker (\d+) ready on \S+")
METRICS: Final = "metrics of all"
METRICS_MODULE: Final = "ottla.cli.running.processes_metrics"
IN_SYNC_LINE: Final = re.compile(rf"^{IN_SYNC}=(\d+)$", re.MULTILINE)
NEWS_BYTES_MAX: Final = 4096


def run_processes(config: str | None, overrides: Mapping[str, str], count: int) -> int:
    """Run them until somebody stops this process; the result is its exit code."""
    from ottla.base.broker_settings import load_broker_settings  # noqa: PLC0415 (help needs none of it)
    from ottla.base.settings import SettingsError  # noqa: PLC0415

    machine = socket.gethostname()
    try:
        settings = load_broker_settings(config, overrides)
        check_processes(settings, count)
        of_each = [put_over(overrides, settings_of(settings, process, machine)) for process in range(count)]
        for each in of_each:  # what a single process would refuse is refused before any is started
            load_broker_settings(config, each)
    except SettingsError as problem:
        raise ToolError(str(problem)) from None
    check_folders(settings.log_dirs, settings.node_id)
    file = None if config is None else Path(config)
    commands = {settings.node_id + process: broker_command(each, file) for process, each in enumerate(of_each)}
    metrics = None
    if settings.ottla_metrics_port > 0:
        ports = {settings.node_id + process: metrics_port(settings, process) for process in range(count)}
        metrics = metrics_command(config, overrides, ports)
    return Processes(commands, metrics).run()


class Processes:
    """The brokers of this machine, by id; and whoever tells the metrics of all, if somebody does."""

    def __init__(self, commands: Mapping[int, Sequence[str]], metrics: Sequence[str] | None = None) -> None:
        self._news = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._news.setblocking(False)
        self._news.bind("")  # the kernel chooses a name that no file has
        environment = {VARIABLE: f"@{self._news.getsockname()[1:].decode()}"}
        self.children = {
            broker: Child(f"broker {broker}", command, is_one_of_many=True, is_kept=True, environment=environment)
            for broker, command in commands.items()
        }
        self._brokers = {child: broker for broker, child in self.children.items()}
        beside = [] if metrics is None else [Child(METRICS, metrics, is_kept=True, environment=environment)]
        self.roll = ProcessesRoll(list(commands))
        self.ready: set[int] = set()
        self._tried: set[int] = set()  # was ready once, or has ended once
        self._told = ""
        on_hangup = None if is_terminal(sys.stdin) else self.begin_roll
        self.supervisor = Supervisor([*self.children.values(), *beside], self.on_line, say, on_hangup=on_hangup)
        self.supervisor.on_ended = self.on_ended
        self.supervisor.watch(self._news, self._hear)

    def run(self) -> int:
        ids = list(self.children)
        which = f"brokers {ids[0]} to {ids[-1]}" if len(ids) > 1 else f"broker {ids[0]}"
        say(f"ottla broker: {len(ids)} process{'es' if len(ids) > 1 else ''}, {which}")
        return self.supervisor.run()

    def on_line(self, child: Child, line: str) -> bool:
        broker = self._brokers.get(child)
        if broker is None or READY.fullmatch(line.strip()) is None:
            # Lines of JSON say themselves whose they are.
            say(line if line.startswith("{") or broker is None else f"{child.name}: {line}")
            return False
        with contextlib.suppress(OSError):
            print(line, flush=True)
        self.ready.add(broker)
        self._tried.add(broker)
        self._tell_systemd()
        return True

    def on_ended(self, child: Child) -> None:
        broker = self._brokers.get(child)
        if broker is not None:
            self.ready.discard(broker)
            self._tried.add(broker)
            self.roll.ended(broker)
            self._tell_systemd()

    # ---- rolling

    def begin_roll(self) -> None:
        if self.roll.is_under_way:
            where = f"at broker {self.roll.at}" if self.roll.at is not None else "between two brokers"
            say(f"A rolling restart is under way already, {where}; it goes on until each was restarted once more.")
        else:
            say(f"Restarting the brokers one after the other: {', '.join(map(str, self.children))}.")
        self.roll.begin()
        if self.roll.at is None and self.roll.waits_for:
            say(f"Waiting until all replicas are in sync: broker {', '.join(map(str, self.roll.waits_for))}.")
        self._go_on()

    def _hear(self) -> None:
        """A broker tells what it would tell systemd. One message: the selector comes again for the next."""
        text = self._news.recv(NEWS_BYTES_MAX).decode("utf-8", "replace")
        was_under_way = self.roll.is_under_way
        for broker in map(int, IN_SYNC_LINE.findall(text)):
            if broker in self.children:
                self.roll.synced(broker)
        if was_under_way and not self.roll.is_under_way:
            say("The rolling restart is done.")
        self._go_on()

    def _go_on(self) -> None:
        broker = None if self.supervisor.is_ending else self.roll.next_to_restart()
        if broker is not None:
            self.children[broker].send(signal.SIGTERM)

    def _tell_systemd(self) -> None:
        """It serves when the first broker does, and each of the others does as well or has told why not."""
        status = f"STATUS={len(self.ready)} of {len(self.children)} brokers serve"
        is_up = self.ready and self._tried.issuperset(self.children)
        told = "STOPPING=1" if self.supervisor.is_ending else "READY=1" if is_up else ""
        if (text := f"{told}\n{status}") != self._told:
            self._told = text
            tell_systemd(text.strip())

    def __repr__(self) -> str:
        return f"<Processes {list(self.children)} ready={sorted(self.ready)} {self.roll}>"


def metrics_command(config: str | None, overrides: Mapping[str, str], ports: Mapping[int, int]) -> list[str]:
    file = [] if config is None else ["--config", config]
    places = [word for broker, port in ports.items() for word in ("--broker", f"{broker}={port}")]
    settings = [word for name, value in overrides.items() for word in ("--override", f"{name}={value}")]
    return [sys.executable, "-m", METRICS_MODULE, *file, *places, *settings]


def say(line: str) -> None:
    """Past Python's buffer; a terminal that is gone is no reason to leave the brokers alone."""
    with contextlib.suppress(OSError):
        os.write(2, f"{line}\n".encode("utf-8", "backslashreplace"))
