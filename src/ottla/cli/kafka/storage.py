"""`kafka-storage.sh`: prepare the log folders of a broker before its first start, and look at what they say."""

from __future__ import annotations

from collections.abc import Sequence

from ottla.cli.java.errors import complaining
from ottla.cli.kafka.commands import KafkaParser
from ottla.cli.metadata.storage import EXAMPLES, SUMMARY, fill_parser


def run(arguments: Sequence[str]) -> int:
    options = fill_parser(KafkaParser(prog="kafka-storage.sh", description=SUMMARY, examples=EXAMPLES)).parse_args(
        arguments
    )

    def body() -> int:
        code: int = options.action(options)
        return code

    return complaining(body)
