"""`ottla stop`: stops the brokers of this machine and waits until they have ended.

Brokers are stopped one at a time, so that each can hand over its partitions to another, as with any SIGTERM.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

from ottla.cli.arguments import Argument, Parser, positive
from ottla.cli.processes.broker_processes import PROC, find_brokers, supervisor_of, terminate_processes
from ottla.cli.terminal import ToolError

WAIT_SECONDS_MAX = 120
POLL_SECONDS = 0.05
EXAMPLES = """
ottla stop
ottla stop --node-id=2
ottla stop --data ./ottla-data --node-id=2
"""


def run(arguments: Sequence[str]) -> int:
    options = _parser().parse_args(arguments)
    if not PROC.is_dir():
        raise ToolError("brokers can be found only on Linux: stop them by process id with kill -TERM")
    pids = find_brokers(PROC, options.node_id, None if options.data is None else Path(options.data))
    if not pids:
        which = "" if options.node_id is None else f" with the id {options.node_id}"
        where = "" if options.data is None else f" on data in {options.data}"
        raise ToolError(f"no broker{which} runs{where} on this machine")
    again = {parent for pid in pids if (parent := supervisor_of(PROC, pid)) is not None}
    deadline = time.monotonic() + options.seconds
    for pid in reversed(pids):
        terminate_processes([pid])
        while is_running(pid):
            if time.monotonic() > deadline:
                raise ToolError(f"process {pid} is still running {options.seconds} s after the stop request")
            time.sleep(POLL_SECONDS)
    print(f"stopped {len(pids)} broker{'s' if len(pids) > 1 else ''}")
    for pid in sorted(again):
        print(f"process {pid} (ottla broker --processes) starts it again; to stop all of its brokers: kill {pid}")
    return 0


def _parser() -> Parser:
    return Parser(
        prog="ottla stop",
        description="Stop the brokers of this machine cleanly, one at a time.",
        examples=EXAMPLES,
        arguments=(
            Argument("--node-id", metavar="N", help="only the broker with this id"),
            Argument("--data", metavar="DIR", help="only brokers with log directories in this folder (ottla up)"),
            Argument(
                "--seconds",
                type=positive,
                default=WAIT_SECONDS_MAX,
                metavar="N",
                help="maximum time to wait for all of them",
            ),
        ),
    )


def is_running(pid: int) -> bool:
    """Whether a process is running. A zombie, which stays listed until its parent reaps it, is not."""
    try:
        state = (PROC / str(pid) / "stat").read_text("utf-8").rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"
