"""`kafka-storage.sh`: format the log directories of a broker and print their metadata."""

from __future__ import annotations

from collections.abc import Sequence

from ottla.cli.java.errors import run_reporting_errors
from ottla.cli.kafka.commands import KafkaParser
from ottla.cli.metadata.storage import EXAMPLES, SUMMARY, storage_commands


def run(arguments: Sequence[str]) -> int:
    parser = KafkaParser(prog="kafka-storage.sh", description=SUMMARY, examples=EXAMPLES, commands=storage_commands())
    options = parser.parse_args(arguments)

    def body() -> int:
        code: int = options.action(options)
        return code

    return run_reporting_errors(body)
