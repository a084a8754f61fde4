"""`ottla stop`: asks the brokers of this machine to stop, and waits until they have.

Brokers of a cluster hand over what they lead before they go, as with any SIGTERM. One after the other, so that each
finds somebody to hand it to.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

from ottla.cli.arguments import Parser, positive
from ottla.cli.running.broker_processes import PROC, ask_to_stop, find_brokers, supervisor_of
from ottla.cli.terminal import ToolError

WAIT_SECONDS_MAX = 120
LOOK_SECONDS = 0.05
EXAMPLES = """
ottla stop
ottla stop --node-id=2
ottla stop --data ./ottla-data --node-id=2
"""


def run(arguments: Sequence[str]) -> int:
    options = _parser().parse_args(arguments)
    if not PROC.is_dir():
        raise ToolError("brokers can only be found on Linux: stop them by their process ids with kill -TERM")
    pids = find_brokers(PROC, options.node_id, None if options.data is None else Path(options.data))
    if not pids:
        which = "" if options.node_id is None else f" with the id {options.node_id}"
        where = "" if options.data is None else f" on data in {options.data}"
        raise ToolError(f"no broker{which} runs{where} on this machine")
    again = {parent for pid in pids if (parent := supervisor_of(PROC, pid)) is not None}
    deadline = time.monotonic() + options.seconds
    for pid in reversed(pids):
        ask_to_stop([pid])
        while is_alive(pid):
            if time.monotonic() > deadline:
                raise ToolError(f"process {pid} was asked to stop, and still runs after {options.seconds} s")
            time.sleep(LOOK_SECONDS)
    print(f"stopped {len(pids)} broker{'s' if len(pids) > 1 else ''}")
    for pid in sorted(again):
        print(f"process {pid} (ottla broker --processes) starts it again; to stop all of its brokers: kill {pid}")
    return 0


def _parser() -> Parser:
    parser = Parser(
        prog="ottla stop",
        description="Stop the brokers that run on this machine, cleanly, one after the other.",
        examples=EXAMPLES,
    )
    parser.add_argument("--node-id", metavar="N", help="only the broker with this id")
    parser.add_argument("--data", metavar="DIR", help="only brokers whose log folders lie in this folder (ottla up)")
    parser.add_argument(
        "--seconds", type=positive, default=WAIT_SECONDS_MAX, metavar="N", help="how long to wait for all of them"
    )
    return parser


def is_alive(pid: int) -> bool:
    """Whether this process still lives: one that has ended stays listed until its parent has taken note."""
    try:
        state = (PROC / str(pid) / "stat").read_text("utf-8").rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"
