"""`ottla broker --processes N`: several brokers of one machine under one supervisor.

`multi_process_settings.py` derives the settings of each process, `supervisor.py` restarts the processes. SIGTERM stops
them one at a time. SIGHUP restarts them one at a time; in a terminal it stops them, because the terminal is closed.
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

from ottla.base.systemd import IN_SYNC, VARIABLE, notify_systemd
from ottla.cli.processes.multi_process_settings import (
    check_folders,
    check_processes,
    merge_overrides,
    metrics_port,
    process_overrides,
)
from ottla.cli.processes.supervisor import Child, Supervisor
from ottla.cli.processes.up_cluster import broker_command
from ottla.cli.terminal import ToolError, is_terminal

READY: Final = re.compile(r"ottla broker (\d+) ready on \S+")
METRICS_CHILD_NAME: Final = "metrics of all"
METRICS_MODULE: Final = "ottla.cli.processes.multi_process_metrics"
IN_SYNC_LINE: Final = re.compile(rf"^{IN_SYNC}=(\d+)$", re.MULTILINE)
NOTIFICATION_BYTES_MAX: Final = 4096


def run_processes(config: str | None, overrides: Mapping[str, str], count: int) -> int:
    """Run the brokers until this process is stopped; returns the exit code."""
    from ottla.base.broker_settings import load_broker_settings  # noqa: PLC0415 (help needs none of it)
    from ottla.base.settings import SettingsError  # noqa: PLC0415

    machine = socket.gethostname()
    try:
        settings = load_broker_settings(config, overrides)
        check_processes(settings, count)
        overrides_of_processes = [
            merge_overrides(overrides, process_overrides(settings, process, machine)) for process in range(count)
        ]
        for each in overrides_of_processes:  # reject invalid settings before any process starts
            load_broker_settings(config, each)
    except SettingsError as problem:
        raise ToolError(str(problem)) from None
    check_folders(settings.log_dirs, settings.node_id)
    file = None if config is None else Path(config)
    commands = {
        settings.node_id + process: broker_command(each, file) for process, each in enumerate(overrides_of_processes)
    }
    metrics = None
    if settings.ottla_metrics_port > 0:
        ports = {settings.node_id + process: metrics_port(settings, process) for process in range(count)}
        metrics = metrics_command(config, overrides, ports)
    return MultiProcessBroker(commands, metrics).run()


class MultiProcessBroker:
    """The broker processes of this machine, by id, and an optional process that serves their metrics."""

    def __init__(self, commands: Mapping[int, Sequence[str]], metrics: Sequence[str] | None = None) -> None:
        self._notify_socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._notify_socket.setblocking(False)
        self._notify_socket.bind("")  # an abstract address chosen by the kernel
        environment = {VARIABLE: f"@{self._notify_socket.getsockname()[1:].decode()}"}
        self.children = {
            broker: Child(f"broker {broker}", command, is_one_of_many=True, is_kept=True, environment=environment)
            for broker, command in commands.items()
        }
        self._brokers = {child: broker for broker, child in self.children.items()}
        sidecars = (
            [] if metrics is None else [Child(METRICS_CHILD_NAME, metrics, is_kept=True, environment=environment)]
        )
        self.rolling_restart = RollingRestart(list(commands))
        self.ready: set[int] = set()
        self._started_once: set[int] = set()  # ready at least once, or ended at least once
        self._last_notification = ""
        on_hangup = None if is_terminal(sys.stdin) else self.start_rolling_restart
        self.supervisor = Supervisor(
            [*self.children.values(), *sidecars], self.on_line, write_stderr, on_hangup=on_hangup
        )
        self.supervisor.on_child_exit = self.on_ended
        self.supervisor.watch(self._notify_socket, self._read_notification)

    def run(self) -> int:
        ids = list(self.children)
        which = f"brokers {ids[0]} to {ids[-1]}" if len(ids) > 1 else f"broker {ids[0]}"
        write_stderr(f"ottla broker: {len(ids)} process{'es' if len(ids) > 1 else ''}, {which}")
        return self.supervisor.run()

    def on_line(self, child: Child, line: str) -> bool:
        broker = self._brokers.get(child)
        if broker is None or READY.fullmatch(line.strip()) is None:
            # JSON lines already contain the broker id.
            write_stderr(line if line.startswith("{") or broker is None else f"{child.name}: {line}")
            return False
        with contextlib.suppress(OSError):
            print(line, flush=True)
        self.ready.add(broker)
        self._started_once.add(broker)
        self._notify_systemd()
        return True

    def on_ended(self, child: Child) -> None:
        broker = self._brokers.get(child)
        if broker is not None:
            self.ready.discard(broker)
            self._started_once.add(broker)
            self.rolling_restart.broker_stopped(broker)
            self._notify_systemd()

    # ---- rolling restart

    def start_rolling_restart(self) -> None:
        if self.rolling_restart.is_running:
            where = (
                f"at broker {self.rolling_restart.current_broker}"
                if self.rolling_restart.current_broker is not None
                else "between two brokers"
            )
            write_stderr(f"A rolling restart is already in progress, {where}; it will restart every broker once more.")
        else:
            write_stderr(f"Restarting the brokers one at a time: {', '.join(map(str, self.children))}.")
        self.rolling_restart.start()
        if self.rolling_restart.current_broker is None and self.rolling_restart.not_in_sync:
            write_stderr(
                "Waiting until all replicas are in sync: broker "
                f"{', '.join(map(str, self.rolling_restart.not_in_sync))}."
            )
        self._restart_next()

    def _read_notification(self) -> None:
        """Read one sd_notify message of a broker; the selector fires again for the next one."""
        text = self._notify_socket.recv(NOTIFICATION_BYTES_MAX).decode("utf-8", "replace")
        was_under_way = self.rolling_restart.is_running
        for broker in map(int, IN_SYNC_LINE.findall(text)):
            if broker in self.children:
                self.rolling_restart.broker_in_sync(broker)
        if was_under_way and not self.rolling_restart.is_running:
            write_stderr("The rolling restart is done.")
        self._restart_next()

    def _restart_next(self) -> None:
        broker = None if self.supervisor.is_stopping else self.rolling_restart.next_to_restart()
        if broker is not None:
            self.children[broker].send(signal.SIGTERM)

    def _notify_systemd(self) -> None:
        """Report READY once a broker serves and each other one serves or has failed."""
        status = f"STATUS={len(self.ready)} of {len(self.children)} brokers serve"
        is_up = self.ready and self._started_once.issuperset(self.children)
        state = "STOPPING=1" if self.supervisor.is_stopping else "READY=1" if is_up else ""
        if (text := f"{state}\n{status}") != self._last_notification:
            self._last_notification = text
            notify_systemd(text.strip())

    def __repr__(self) -> str:
        return f"<MultiProcessBroker {list(self.children)} ready={sorted(self.ready)} {self.rolling_restart}>"


def metrics_command(config: str | None, overrides: Mapping[str, str], ports: Mapping[int, int]) -> list[str]:
    file = [] if config is None else ["--config", config]
    brokers = [word for broker, port in ports.items() for word in ("--broker", f"{broker}={port}")]
    settings = [word for name, value in overrides.items() for word in ("--override", f"{name}={value}")]
    return [sys.executable, "-m", METRICS_MODULE, *file, *brokers, *settings]


def write_stderr(line: str) -> None:
    """Write to stderr without buffering; a closed terminal must not stop the brokers."""
    with contextlib.suppress(OSError):
        os.write(2, f"{line}\n".encode("utf-8", "backslashreplace"))


class RollingRestart:
    """The state of a rolling restart of this machine's brokers, by id. Pure: events in, broker ids out.

    Rules:
    1. One broker at a time, and only while all replicas are in sync: a partition with two replicas on this machine,
       because there are too few machines, loses at most one of them.
    2. A blocked restart continues when its condition is met; it never skips a broker.
    """

    def __init__(self, brokers: Sequence[int]) -> None:
        self.brokers = tuple(brokers)
        self.in_sync: set[int] = set()
        self.pending: list[int] = []  # to be restarted
        self.current_broker: int | None = None  # being restarted

    @property
    def is_running(self) -> bool:
        return bool(self.pending) or self.current_broker is not None

    def start(self) -> None:
        """Restart all brokers except the one that an earlier restart is working on."""
        self.pending = [broker for broker in self.brokers if broker != self.current_broker]

    def broker_stopped(self, broker: int) -> None:
        """Note that a process has ended, for any reason."""
        self.in_sync.discard(broker)

    def broker_in_sync(self, broker: int) -> None:
        """Note that all replicas of a broker are in sync."""
        assert broker in self.brokers
        self.in_sync.add(broker)
        if broker == self.current_broker:
            self.current_broker = None

    def next_to_restart(self) -> int | None:
        """The broker to restart now; None if there is none, or not yet."""
        if self.current_broker is not None or not self.pending or self.not_in_sync:
            return None
        self.current_broker = self.pending.pop(0)
        self.in_sync.discard(self.current_broker)  # its last report is outdated
        return self.current_broker

    @property
    def not_in_sync(self) -> list[int]:
        """Brokers that are offline or have replicas that are not in sync."""
        return [broker for broker in self.brokers if broker not in self.in_sync]

    def __repr__(self) -> str:
        return f"<RollingRestart at={self.current_broker} left={self.pending} waits_for={self.not_in_sync}>"
