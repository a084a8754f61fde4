"""`ottla storage`: formats the log directories of a broker and prints their metadata."""

from __future__ import annotations

from collections.abc import Sequence

from ottla.cli.arguments import Parser
from ottla.cli.metadata.storage import EXAMPLES, SUMMARY, storage_commands


def run(arguments: Sequence[str]) -> int:
    parser = Parser(
        prog="ottla storage",
        description=SUMMARY,
        examples=EXAMPLES.replace("kafka-storage.sh", "ottla storage"),
        commands=storage_commands(),
    )
    options = parser.parse_args(arguments)
    code: int = options.action(options)
    return code
