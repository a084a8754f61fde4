"""`ottla storage`: formats the log directories of a broker and prints their metadata."""

from __future__ import annotations

from collections.abc import Sequence

from ottla.cli.arguments import Parser
from ottla.cli.metadata.storage import EXAMPLES, SUMMARY, fill_parser


def run(arguments: Sequence[str]) -> int:
    parser = Parser(
        prog="ottla storage", description=SUMMARY, examples=EXAMPLES.replace("kafka-storage.sh", "ottla storage")
    )
    options = fill_parser(parser).parse_args(arguments)
    code: int = options.action(options)
    return code
