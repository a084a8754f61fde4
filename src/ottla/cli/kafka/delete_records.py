"""`kafka-delete-records.sh`: delete the records of partitions before the offsets in a JSON file."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from ottla.cli.client_settings import client_of_file
from ottla.cli.java.errors import java_text, run_reporting_errors
from ottla.cli.java.options import BOOTSTRAP, COMMAND_CONFIG, KafkaOptions, Option
from ottla.cli.records.offset_file import read_offsets
from ottla.cli.terminal import print_line
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
    options.check_required_args("bootstrap-server", "offset-json-file")
    return run_reporting_errors(partial(_run, options))


def _run(options: KafkaOptions) -> int:
    offsets = read_offsets(options.text("offset-json-file") or "")
    print("Executing records delete operation")
    bootstrap = options.text("bootstrap-server") or ""
    with client_of_file(bootstrap, options.text("command-config")) as client:
        low_watermarks, failures = delete_records(client, offsets)
    print("Records delete operation completed:")
    for partition in offsets:
        if partition in low_watermarks:
            print_line(f"partition: {partition}\tlow_watermark: {low_watermarks[partition]}")
        else:
            print_line(f"partition: {partition}\terror: {java_text(failures[partition])}")
    return 0
