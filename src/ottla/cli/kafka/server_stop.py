"""`kafka-server-stop.sh`: finds the brokers of this machine and asks them to stop (SIGTERM)."""

from __future__ import annotations

from collections.abc import Sequence

from ottla.cli.running.broker_processes import PROC, ask_to_stop, find_brokers
from ottla.cli.terminal import EXIT_FAILED, ToolError, fail

TOOL = "kafka-server-stop.sh"
USAGE = f"USAGE: {TOOL} [--process-role=broker] [--node-id=N]"


def run(arguments: Sequence[str]) -> int:
    node_id = None
    for word in arguments:
        name, _, value = word.partition("=")
        if name == "--node-id" and value:
            node_id = value
        elif word == "--help":
            print(USAGE)
            return 0
        elif word not in ("--process-role=broker", "--process-role=controller"):
            raise ToolError(f"{word} is not understood. {USAGE}")
    if not PROC.is_dir():
        raise ToolError("brokers can only be found on Linux: stop them by their process ids with kill -TERM")
    pids = find_brokers(PROC, node_id)
    if not pids:
        return fail(TOOL, "No kafka server to stop", EXIT_FAILED)
    ask_to_stop(pids)
    return 0
