"""`ottla`: one command with a sub-command for every task.

COMMANDS names the module of each sub-command. The module is imported only when it is chosen, so `ottla --help` and
small tools start fast.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib import import_module
from typing import NamedTuple

from ottla import __version__
from ottla.cli.terminal import EXIT_USAGE, run_tool, warn


class Command(NamedTuple):
    """A sub-command; its module has run(arguments) -> exit code."""

    module: str
    summary: str


COMMANDS = {
    "up": Command("ottla.cli.commands.up", "run everything on this machine, for development"),
    "broker": Command("ottla.cli.commands.broker", "run one broker from a server.properties file"),
    "stop": Command("ottla.cli.commands.stop", "stop the brokers of this machine, cleanly"),
    "zookeeper": Command("ottla.cli.commands.zookeeper", "run a ZooKeeper server, which a cluster of brokers needs"),
    "deploy": Command("ottla.cli.commands.deploy", "write and check the files of a deployment: compose, systemd, Helm"),
    "topics": Command("ottla.cli.commands.topics", "create, list, describe, grow and delete topics"),
    "configs": Command("ottla.cli.commands.configs", "show and change settings"),
    "acls": Command("ottla.cli.commands.acls", "access rules: list, add, remove, explain, suggest"),
    "quotas": Command("ottla.cli.commands.quotas", "client quotas: list, set, remove, show throttled clients"),
    "apply": Command("ottla.cli.commands.apply", "a whole cluster as a file: export, compare, apply"),
    "security": Command("ottla.cli.commands.security", "users, rights and quotas as a file: export, apply"),
    "audit": Command("ottla.cli.commands.audit", "the audit trail: logins, denials, changes"),
    "console": Command("ottla.cli.commands.console", "see and steer clusters in the browser"),
    "registry": Command(
        "ottla.cli.commands.registry", "schemas for every client, with the API of Confluent's registry"
    ),
    "monitor": Command("ottla.cli.commands.monitor", "watch consumer groups: verdicts, lag, alerts, Burrow's HTTP API"),
    "top": Command("ottla.cli.commands.top", "show the activity of a broker, live"),
    "produce": Command("ottla.cli.commands.produce", "write records to a topic"),
    "consume": Command("ottla.cli.commands.consume", "read records of a topic"),
    "search": Command("ottla.cli.commands.search", "find records of a topic by text, expression, key, header or field"),
    "schemas": Command("ottla.cli.commands.schemas", "subjects of a schema registry: register, check, export, import"),
    "perf": Command("ottla.cli.commands.perf", "measure how fast records are written and read"),
    "demo": Command("ottla.cli.commands.demo", "a broker, generated data and a pipeline to watch"),
    "pipeline": Command("ottla.cli.commands.pipeline", "data pipelines on Spark: run, check, watch, stop"),
    "sql": Command("ottla.cli.commands.sql", "SQL over topics, on Spark"),
    "users": Command("ottla.cli.commands.users", "users with a SCRAM password"),
    "tokens": Command("ottla.cli.commands.tokens", "logins without a password, for a while: delegation tokens"),
    "groups": Command("ottla.cli.commands.groups", "consumer groups: list, describe, delete, set their offsets"),
    "transactions": Command("ottla.cli.commands.transactions", "list transactions, find and abort hanging ones"),
    "dump-log": Command("ottla.cli.commands.dump_log", "print the files of a partition"),
    "offsets": Command("ottla.cli.commands.offsets", "show the first and last offsets of partitions"),
    "records": Command("ottla.cli.commands.records", "delete records below an offset"),
    "log-dirs": Command("ottla.cli.commands.log_dirs", "show the log directories of brokers"),
    "reassign": Command("ottla.cli.commands.reassign", "move replicas between brokers"),
    "elect": Command("ottla.cli.commands.elect", "elect partition leaders"),
    "doctor": Command("ottla.cli.commands.doctor", "find problems of a cluster, with cause and remedy"),
    "advise": Command(
        "ottla.cli.commands.advise", "recommend changes to a topic, group or client, with the expected effect"
    ),
    "cluster": Command("ottla.cli.commands.cluster", "brokers, their APIs, the metadata quorum"),
    "features": Command("ottla.cli.commands.features", "show and change feature flags"),
    "client-metrics": Command(
        "ottla.cli.commands.subscriptions", "client metrics subscriptions and the metrics that clients pushed"
    ),
    "storage": Command("ottla.cli.commands.storage", "prepare log folders"),
    "metadata": Command("ottla.cli.commands.metadata", "inspect a broker's metadata store"),
    "completion": Command("ottla.cli.commands.completion", "print a shell completion script"),
    "migrate": Command("ottla.cli.commands.migrate", "import log directories of Apache Kafka, or hand them back"),
}

EXAMPLES = """\
  ottla up                                    a broker on 127.0.0.1:9092
  ottla topics create orders --partitions 3
  ottla produce orders 'first order'
  ottla consume orders --from-beginning"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the sub-command named by the arguments; returns the exit code."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    return run_tool("ottla", lambda: _run(words))


def _run(words: list[str]) -> int:
    name = words[0] if words else "--help"
    if name in ("-h", "--help", "help"):
        if len(words) > 1 and words[1] in COMMANDS:
            return _run([words[1], "--help"])
        print(help_text())
        return 0
    if name in ("-V", "--version", "version"):
        print(f"ottla {__version__}")
        return 0
    if name not in COMMANDS:
        return _unknown(name)
    module = import_module(COMMANDS[name].module)
    return run_tool(f"ottla {name}", lambda: module.run(words[1:]))


def help_text() -> str:
    width = max(map(len, COMMANDS)) + 2
    lines = ["usage: ottla COMMAND ...", "", "A streaming platform that speaks Kafka's wire protocol.", "", "commands:"]
    lines += [f"  {name:{width}}{command.summary}" for name, command in COMMANDS.items()]
    lines += [
        "",
        "options:",
        f"  {'-h, --help':{width + 8}}show this help",
        f"  {'-V, --version':{width + 8}}the version",
    ]
    lines += ["", "examples:", EXAMPLES, "", "Help of a command: ottla COMMAND --help"]
    return "\n".join(lines)


def _unknown(name: str) -> int:
    from ottla.cli.arguments import closest_match  # noqa: PLC0415 (only needed for a mistake)

    guess = closest_match(name, COMMANDS)
    hint = f" Did you mean: ottla {guess}?" if guess else ""
    what = "option" if name.startswith("-") else "command"
    warn(f"usage: ottla COMMAND ...\nottla: unknown {what} {name!r}.{hint} See ottla --help")
    return EXIT_USAGE


if __name__ == "__main__":
    sys.exit(main())
