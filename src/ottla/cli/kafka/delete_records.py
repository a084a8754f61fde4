"""`kafka-delete-records.sh`: forget the records of partitions below an offset, as a JSON file says."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from ottla.cli.client_settings import client_of_file
from ottla.cli.java.errors import complaining, java_text
from ottla.cli.java.options import BOOTSTRAP, COMMAND_CONFIG, KafkaOptions, Option
from ottla.cli.records.offset_file import read_offsets
from ottla.cli.terminal import say
from ottla.client.offsets import delete_records

TOOL = "kafka-delete-records.sh"
SUMMARY = "Delete the records of partitions below an offset."
EXAMPLE = "--offset-json-file offsets.json"
OPTIONS = (
    BOOTSTRAP,
    COMMAND_CONFIG,
    Option(
        "offset-json-file",
        'File such as {"partitions": [{"topic": "orders", "partition": 0, "offset": 100}], "version": 1}. Required.',
        "file",
    ),
)


def run(arguments: Sequence[str]) -> int:
    options = KafkaOptions(TOOL, SUMMARY, OPTIONS, arguments, example=EXAMPLE)
    options.require("bootstrap-server", "offset-json-file")
    return complaining(partial(_run, options))


def _run(options: KafkaOptions) -> int:
    offsets = read_offsets(options.text("offset-json-file") or "")
    print("Executing records delete operation")
    bootstrap = options.text("bootstrap-server") or ""
    with client_of_file(bootstrap, options.text("command-config")) as client:
        low_watermarks, failures = delete_records(client, offsets)
    print("Records delete operation completed:")
    for partition in offsets:
        if partition in low_watermarks:
            say(f"partition: {partition}\tlow_watermark: {low_watermarks[partition]}")
        else:
            say(f"partition: {partition}\terror: {java_text(failures[partition])}")
    return 0
