"""`kafka-dump-log.sh`: print the files of a partition."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from ottla.cli.java.options import INTEGER_MAX, KafkaOptions, Option
from ottla.cli.log_dump import (
    MESSAGE_BYTES_MAX,
    SUFFIXES,
    Findings,
    SegmentWalk,
    base_offset_of,
    batch_line,
    check_offset_index,
    check_time_index,
    read_offset_index,
    record_line,
    snapshot_lines,
    transaction_lines,
    walk_offset_index,
    walk_time_index,
)
from ottla.cli.terminal import ToolError, printable, warn
from ottla.operations.records.decoders import Decoder, class_decoder, decode_offsets, decode_transactions
from ottla.storage.producer_state import SnapshotError

TOOL = "kafka-dump-log.sh"
SUMMARY = (
    "Print the files of a partition.\n\n"
    "  kafka-dump-log.sh --files data/orders-0/00000000000000000000.log --print-data-log"
)
STRING_DECODER = "org.apache.kafka.tools.api.StringDecoder"

OPTIONS = (
    Option("files", "The files, separated by commas. Required.", "file,..."),
    Option("print-data-log", "Also print keys and values of records."),
    Option("deep-iteration", "Print the records of each batch."),
    Option("verify-index-only", "Check indexes against the log without printing their entries."),
    Option("index-sanity-check", "Check only whether indexes would be accepted at a start."),
    Option("max-message-size", "Bytes of the largest batch that an index points to (default 5242880).", "bytes"),
    Option("max-bytes", "Bytes of a log to read at most.", "bytes"),
    Option(
        "key-decoder-class", "How keys are read: String-, Integer- or LongDecoder.", "class", bare_value=STRING_DECODER
    ),
    Option("value-decoder-class", "How values are read.", "class", bare_value=STRING_DECODER),
    Option("offsets-decoder", "The log is one of __consumer_offsets."),
    Option("transaction-log-decoder", "The log is one of __transaction_state."),
    Option("skip-record-metadata", "Print only keys and values of records."),
)
# Formats of topics that ottla does not have: KRaft metadata, share groups, remote storage.
UNSUPPORTED_DECODERS = ("cluster-metadata-decoder", "remote-log-metadata-decoder", "share-group-state-decoder")


class DumpOptions(NamedTuple):
    """What to print of a log."""

    decoder: Decoder | None
    is_deep: bool
    has_metadata: bool
    bytes_max: int | None


def run(arguments: Sequence[str]) -> int:
    for name in UNSUPPORTED_DECODERS:
        if f"--{name}" in arguments:
            raise ToolError(f"--{name} reads a topic that ottla does not have: use Apache Kafka's own tool for it")
    options = KafkaOptions(TOOL, SUMMARY, OPTIONS, arguments)
    options.check_required_args("files")
    wanted = parse_dump_options(options)
    findings = Findings()
    for name in (options.text("files") or "").split(","):
        dump_file(re.sub("/+", "/", name), options, wanted, findings)
    sys.stdout.flush()
    for line in findings.lines():
        warn(line)
    return 0


def dump_file(name: str, options: KafkaOptions, wanted: DumpOptions, findings: Findings) -> None:
    print(f"Dumping {name}")
    path = Path(name)
    if path.suffix in SUFFIXES and not path.exists():
        raise ToolError(f"{name} does not exist")
    try:
        if path.suffix == ".log":
            print(f"Log starting offset: {base_offset_of(path)}")
            _print(dump_log(path, wanted, findings))
        elif path.suffix == ".index":
            _dump_index(name, path, options, findings)
        elif path.suffix == ".timeindex":
            _dump_time_index(name, path, options, findings)
        elif path.suffix == ".txnindex":
            _print(transaction_lines(path))
        elif path.suffix == ".snapshot":
            _print(snapshot_lines(path))
        else:
            sys.stdout.flush()
            warn(f"Ignoring unknown file {name}")
    except SnapshotError as problem:
        sys.stdout.flush()
        warn(str(problem))


def parse_dump_options(options: KafkaOptions) -> DumpOptions:
    decoder = choose_decoder(options)
    bytes_max = options.number("max-bytes")
    return DumpOptions(
        decoder=decoder,
        is_deep=options.has("deep-iteration") or decoder is not None,
        has_metadata=not options.has("skip-record-metadata"),
        bytes_max=None if bytes_max == INTEGER_MAX else bytes_max,
    )


def choose_decoder(options: KafkaOptions) -> Decoder | None:
    if options.has("offsets-decoder"):
        return decode_offsets
    if options.has("transaction-log-decoder"):
        return decode_transactions
    if not any(options.has(name) for name in ("print-data-log", "key-decoder-class", "value-decoder-class")):
        return None
    classes = [options.text(f"{name}-decoder-class") or STRING_DECODER for name in ("key", "value")]
    return class_decoder(*classes)


def dump_log(path: Path, wanted: DumpOptions, findings: Findings) -> Iterable[str]:
    """Lines for the batches, optionally their records, and invalid bytes at the end."""
    last_offset = -1
    with open(path, "rb") as file:
        walk = SegmentWalk(file, str(path), 0, wanted.bytes_max)
        for batch in walk:
            yield batch_line(batch)
            if not wanted.is_deep:
                continue
            for record in batch.records():
                if record.offset != last_offset + 1:
                    findings.gaps.setdefault(str(path.absolute()), {})[last_offset] = record.offset
                last_offset = record.offset
                yield record_line(batch, record, wanted.decoder, wanted.has_metadata, printable)
        left = walk.end - walk.position
        if left > 0 and wanted.bytes_max is None:
            yield f"Found {left} invalid bytes at the end of {path.name}"


def _dump_index(name: str, path: Path, options: KafkaOptions, findings: Findings) -> None:
    if not read_offset_index(path):
        print(f"{name} is empty.")
    elif options.has("index-sanity-check"):
        _check(check_offset_index, name, path)
    else:
        size = options.number("max-message-size") or MESSAGE_BYTES_MAX
        entries = walk_offset_index(path, findings, size)
        lines = (f"offset: {entry.offset} position: {entry.position}" for entry in entries)
        _print(lines, is_silent=options.has("verify-index-only"))


def _dump_time_index(name: str, path: Path, options: KafkaOptions, findings: Findings) -> None:
    if options.has("index-sanity-check"):
        _check(check_time_index, name, path)
    else:
        entries = walk_time_index(path, findings)
        lines = (f"timestamp: {entry.timestamp} offset: {entry.offset}" for entry in entries)
        _print(lines, is_silent=options.has("verify-index-only"))


def _check(check: Callable[[Path], None], name: str, path: Path) -> None:
    check(path)
    print(f"{name} passed sanity check.")


def _print(lines: Iterable[str], *, is_silent: bool = False) -> None:
    write = sys.stdout.write
    for line in lines:
        if not is_silent:
            write(f"{line}\n")
